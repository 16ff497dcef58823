"""A salt-api on loopback that logs everybody in, and answers as a test says."""

from __future__ import annotations

import json
import threading
import traceback
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

from saltext_ha.api import SaltApiPool

TESTS = Path(__file__).parent
PASSWORD = "s3cret-password"  # no one's


class HasUrl(Protocol):
    url: str


class Listener(ThreadingHTTPServer):
    request_queue_size = 128  # for many threads that connect at once

    def handle_error(self, *args: object) -> None:
        """Callers that hang up are no news."""


class Server:
    """Logs everybody in; ``answer`` decides the answers to calls, by default the call itself."""

    def __init__(self) -> None:
        self.life = 3600.0
        self.requests: list[tuple[str, str | None, Any]] = []
        self.answer: Callable[[BaseHTTPRequestHandler, Any], None] = self.echo
        self.where: Callable[[BaseHTTPRequestHandler, Any], None] = absent
        self.login: Callable[[BaseHTTPRequestHandler, Any], None] = self.welcome
        self.logins = 0
        self.hello: dict[str, Any] = {"return": "Welcome"}
        self.dead = False  # the salt-master behind it: nobody is logged in
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else each answer takes 40 ms

            def do_GET(self) -> None:
                respond(self, server.hello)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                low = json.loads(body)
                server.requests.append((self.path, self.headers["X-Auth-Token"], low))
                if self.path == "/login" and server.dead:
                    respond(self, {}, 503)
                elif self.path == "/login":
                    server.login(self, low)
                elif self.path == "/logout":
                    respond(self, {"return": "gone"})
                elif low[0]["fun"] == "ha.where":
                    server.where(self, low[0])
                else:
                    server.answer(self, low[0])

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = Listener(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def echo(self, handler: BaseHTTPRequestHandler, low: Any) -> None:
        respond(handler, {"return": [{"data": {"return": low["arg"], "success": True}}]})

    def welcome(self, handler: BaseHTTPRequestHandler, low: Any) -> None:
        self.logins += 1
        token = {"token": f"token-{self.logins}", "start": 0, "expire": self.life}
        respond(handler, {"return": [token]})

    def calls(self, fun: str) -> int:
        return sum(path == "/" and low[0]["fun"] == fun for path, _, low in self.requests)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def absent(handler: BaseHTTPRequestHandler, low: Any) -> None:
    """Answer as a master without saltext-ha."""
    text = f"'{low['fun']}' is not available."
    respond(handler, {"return": [{"data": {"return": text, "success": False}}]})


def respond(handler: BaseHTTPRequestHandler, value: Any, status: int = 200, **headers: str) -> None:
    """Answer with *value* as JSON; bytes as they are. ``Cache_Control="private"`` is a header."""
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    handler.send_response(status)
    for name, said in headers.items():
        handler.send_header(name.replace("_", "-"), said)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def pool(*servers: HasUrl, **options: Any) -> SaltApiPool:
    """A pool of *servers*, which are m1, m2 and so on; their probes do not get in the way."""
    masters = [{"name": f"m{n}", "url": server.url} for n, server in enumerate(servers, 1)]
    usual = {"username": "ops", "password": PASSWORD, "probe_interval": 600, "deadline": 10}
    return SaltApiPool(masters, **{**usual, **options})


def everything(exc: BaseException, frames: bool = True) -> str:
    """All text that an error reporter could reach: in all errors of the chain, and their frames."""
    seen, todo, done = [], [exc], set[int]()
    while todo:
        one = todo.pop()
        if id(one) in done:
            continue
        done.add(id(one))
        seen.append(f"{one!r} {one} {vars(one)}")
        for frame, _ in traceback.walk_tb(one.__traceback__):
            if (
                frames and TESTS not in Path(frame.f_code.co_filename).parents
            ):  # they know the password
                seen.append(repr(dict(frame.f_locals)))
        todo += [each for each in (one.__cause__, one.__context__) if each is not None]
    return " ".join(seen)
