"""What follows from the answers to a master's health questions, and how they are configured."""

from __future__ import annotations

import asyncio
import itertools
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from saltext_ha.common.hysteresis import Rules
from saltext_ha.config import health, status
from saltext_ha.config.salt_api import Api, api_of
from saltext_ha.health import checks, verdict
from saltext_ha.health.watcher import Login, _Question
from saltext_ha.minions.failovers import Failovers, read_failover
from saltext_ha.salt_bus.events import MOST_EVENTS, EventBus
from tests.certificates import self_signed
from tests.loop import in_a_loop

pytestmark = pytest.mark.core

RULES = Rules(fall=2, rise=3, spacing=0.0)


def course(problems: list[str], age: float = 100.0) -> list[bool | None]:
    """Whether the master counts as up after each of these rounds."""
    state, shown = verdict.UNDECIDED, []
    for turn, problem in enumerate(problems):
        state = verdict.follow(state, problem, float(turn), RULES, age)
        shown.append(state.usable if state.known else None)
    return shown


def test_falls_after_so_many_and_rises_after_so_many() -> None:
    assert course(["", "x", "", "x", "x", "", "", "x", "", "", ""]) == [
        True,
        True,
        True,
        True,
        False,
        False,
        False,
        False,
        False,
        False,
        True,
    ]


def test_a_master_over_tcp_is_asked_only_when_its_workers_listen(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as workers, socket.create_server(("127.0.0.1", 0)) as port:
        opts = {
            "transport": "tcp",
            "worker_pools_enabled": True,
            "worker_pools": {"default": {}},
            "sock_dir": str(tmp_path),
            "interface": "127.0.0.1",
            "ret_port": port.getsockname()[1],
        }
        workers.bind(str(tmp_path / "workers-default.ipc"))
        port.settimeout(0.1)
        assert checks.request_port(opts, 0.2) == "its workers do not listen yet"
        with pytest.raises(RuntimeError, match="its workers do not listen yet"):
            checks.run_runner(opts, 0.2)
        with pytest.raises(TimeoutError):
            port.accept()
        workers.listen()
        assert checks.request_port(opts, 0.2) not in ("", "its workers do not listen yet")
        port.accept()[0].close()


def test_a_master_that_starts_is_unknown_and_not_down() -> None:
    assert course(["x", "x", "x", ""], age=5.0) == [None, None, None, True]
    assert course(["x"], age=verdict.STARTING) == [False]


def test_the_reason_names_the_questions() -> None:
    results = [
        verdict.Result("request port", "", 0.1, 1.0),
        verdict.Result("publisher", "timed out", 3.0, 1.0),
        verdict.Result("runner", "not started", 0.1, 1.0),
    ]
    assert verdict.reason(results) == "publisher: timed out; runner: not started"


@in_a_loop
async def test_a_thread_that_hangs_is_not_asked_again_and_its_late_answer_does_not_count() -> None:
    asked, go = [], threading.Event()

    async def ask() -> str:
        asked.append(1)
        await asyncio.get_running_loop().run_in_executor(None, go.wait, 20)
        return ""

    question = _Question("it", ask)
    assert (await question.result(0.01)).problem == "timed out"
    assert (await question.result(0.01)).problem == "timed out"
    assert len(asked) == 1
    go.set()
    assert (await question.result(5)).problem == ""
    assert (await question.result(5)).problem == ""
    assert len(asked) == 2


@in_a_loop
async def test_what_is_waited_for_in_vain_is_asked_anew() -> None:
    lost = True

    async def ask() -> str:
        if lost:
            await asyncio.Event().wait()
        return ""

    question = _Question("it", ask, threaded=False)
    assert (await question.result(0.01)).problem == "timed out"
    lost = False
    assert (await question.result(5)).problem == ""


@contextmanager
def talker(words: bytes | None, pause: float = 0) -> Iterator[int]:
    """
    A port where whoever connects is told *words*, or nothing: the kernel alone accepts.

    :param pause: seconds before each byte; 0: all at once.
    """
    parts = [bytes([byte]) for byte in words or b""] if pause else [words or b""]
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection, suppress(OSError):
                    for part in parts:
                        time.sleep(pause)
                        connection.sendall(part)

        if words is not None:
            threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        # Closing alone wakes nobody who waits in accept.
        server.shutdown(socket.SHUT_RDWR)


def asked(port: int, seconds: float = 5, **more: object) -> str:
    opts = {"interface": "127.0.0.1", "publish_port": port, "transport": "zeromq", **more}
    return checks.publisher(opts, seconds)


def test_a_publisher_has_to_say_something() -> None:
    with talker(b"\xff" + bytes(8) + b"\x7f\x03") as port:
        assert asked(port) == ""
    with talker(None) as port:
        assert asked(port, 0.3) == "timed out"
        assert asked(port, transport="tcp") == ""
    with talker(b"HTTP/1.1 400 ") as port:
        assert asked(port) == "does not speak ZeroMQ"
    with talker(b"\xff") as port:
        assert asked(port) == "hung up"
    with talker(b"\xff" + bytes(8) + b"\x7f\x03", pause=0.1) as slow:
        assert asked(slow, 0.3) == "timed out"
    assert asked(port) == "refused the connection"


def test_which_salt_api_a_master_has() -> None:
    api = api_of({"rest_cherrypy": {"port": 8000, "disable_ssl": True}})
    assert api is not None
    assert api.url == "http://127.0.0.1:8000"
    conf = {"port": 8001, "ssl_crt": "/c", "host": "::", "root_prefix": "/salt/"}
    api = api_of({"rest_cherrypy": conf})
    assert api is not None
    assert api.url == "https://[::1]:8001/salt"
    api = api_of({"rest_tornado": {"port": 8002, "address": "10.0.0.1", "ssl_crt": "/c"}})
    assert api is not None
    assert api.url == "https://10.0.0.1:8002"
    assert api_of({"rest_cherrypy": {}}) is None
    assert api_of({}) is None


@contextmanager
def salt_api(
    crt: Path, key: Path, status: int = 200, body: bytes = b'{"token": 1}'
) -> Iterator[tuple[Api, list[str]]]:
    """One that keeps the certificate it was started with, and the paths that it was asked for."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            paths.append(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(crt, key)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield Api("127.0.0.1", server.server_address[1], crt), paths
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "body", "answers", "login"),
    [
        (401, b"", "", "refused"),  # as a salt-api that is well says
        (500, b"", "answered HTTP 500", "answered HTTP 500"),
        (503, b"", "answered HTTP 503", "answered HTTP 503"),
        (200, b"a page of somebody else", "", "answered HTTP 200"),
        (200, b'{"return": [{"token": "x"}]}', "", ""),
    ],
)
def test_what_a_salt_api_may_answer(
    tmp_path: Path, status: int, body: bytes, answers: str, login: str
) -> None:
    crt, key = self_signed(tmp_path, "127.0.0.1")
    with salt_api(crt, key, status, body) as (api, _):
        assert checks.api_answers(api, 5.0) == answers
        if login == "refused":
            with pytest.raises(checks.LoginRefused, match="does not let ha in by eauth file"):
                checks.api_login(api, "ha", "secret", "file", 5.0)
        else:
            assert checks.api_login(api, "ha", "secret", "file", 5.0) == login


@in_a_loop
async def test_a_refused_login_is_tried_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else an account that was locked would stay so for ever."""
    now, tried, refuses = 0.0, list[float](), True

    async def ask() -> str:
        tried.append(now)
        if refuses:
            raise checks.LoginRefused("does not let ha in")
        return ""

    monkeypatch.setattr("saltext_ha.health.watcher.time.monotonic", lambda: now)
    login = Login(ask, 5.0)
    while now < 7200:
        assert await login() == "does not let ha in"
        now += 5
    pauses = [later - earlier for earlier, later in itertools.pairwise(tried)]
    assert pauses[:4] == [5, 10, 20, 40]
    assert set(pauses[8:]) == {300}
    refuses = False
    now += 300
    assert await login() == ""
    assert await login() == "", "what is let in is asked as often as before"


def test_a_renewed_certificate_is_no_failure_and_gets_no_password(tmp_path: Path) -> None:
    crt, key = self_signed(tmp_path, "127.0.0.1")
    with salt_api(crt, key) as (api, paths):

        def login() -> verdict.Result:
            async def ask() -> str:
                return await asyncio.to_thread(checks.api_login, api, "ha", "secret", "file", 5.0)

            return asyncio.run(_Question("salt-api login", ask).result(10))

        assert checks.api_answers(api, 5.0) == ""
        assert login().told()["ok"] is True
        assert paths == ["/run", "/login"]
        for spoil, words in (
            (lambda: self_signed(tmp_path, "127.0.0.1"), "another certificate than"),
            (lambda: crt.write_text("nothing"), "cannot be read"),
            (crt.unlink, "cannot be read: No such file"),
        ):
            spoil()
            del paths[:]
            assert checks.api_answers(api, 5.0) == ""
            result = login()
            assert paths == ["/run"], "the password was sent"
            assert verdict.reason([result]) == ""
            assert result.told()["ok"] is None
            assert words in result.told()["problem"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (7, "takes false, or a mapping"),
        ({"intervall": 5}, "did you mean 'interval'?"),
        ({"interval": 0}, "interval: 0 takes seconds from 1 to 300"),
        ({"deep_interval": 1}, "or 0 for never"),
        ({"fall": 0}, "takes a whole number from 1 to 20"),
        ({"fall": True}, "takes a whole number from 1 to 20"),
        ({"user": "ha"}, "belong together"),
        ({"password_file": "pw", "user": "ha"}, "takes an absolute path"),
        ({"password_file": "/nonexistent/pw", "user": "ha"}, "cannot be read"),
    ],
)
def test_wrong_settings_of_health(value: object, words: str) -> None:
    with pytest.raises(ValueError, match=r"^:") as caught:
        health.parse(value)
    assert words in str(caught.value)


def test_the_password_is_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "pw"
    file.write_text("correct horse\n")
    file.chmod(0o644)
    with pytest.raises(ValueError, match="open to others"):
        health.parse({"user": "ha", "password_file": str(file)})
    file.chmod(0o600)
    parsed = health.parse({"user": "ha", "password_file": str(file)})
    assert parsed is not None
    assert parsed.password == "correct horse"
    assert "horse" not in repr(parsed)
    assert health.parse(False) is None


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, "takes false, or a mapping"),
        ({"hosts": "x"}, "did you mean 'host'?"),
        ({"port": 0}, "takes a whole number from 1 to 65535"),
        ({"host": "a..b"}, "'a..b' takes a host name or an IP address"),
        ({"host": "a" * 70}, "takes a host name or an IP address"),
        ({"host": "10.0.0.1"}, "set certificate and token_file"),
        ({"host": "0.0.0.0"}, "set certificate and token_file"),
        ({"host": "::"}, "set certificate and token_file"),
        ({"host": "salt.example.com", "certificate": "/c.pem"}, "set token_file"),
        ({"key": "/k.pem"}, "key: is set without certificate:"),
        ({"token_file": "/nonexistent"}, "cannot be read"),
        ({"certificate": "c.pem"}, "takes an absolute path"),
    ],
)
def test_wrong_settings_of_the_status_page(value: object, words: str) -> None:
    with pytest.raises(ValueError, match=r"^:") as caught:
        status.parse(value)
    assert words in str(caught.value)


def test_settings_of_the_status_page(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789" * 4)
    token.chmod(0o600)
    assert status.parse(False) is None
    assert status.parse(None) == status.StatusSettings()
    for host in ("127.0.0.7", "::1", "localhost"):
        assert status.parse({"host": host}) is not None
    value = {"host": "10.0.0.1", "certificate": "/c.pem", "token_file": str(token)}
    parsed = status.parse(value)
    assert parsed is not None
    assert parsed.url == "https://10.0.0.1:4531"
    assert parsed.token
    assert "0123456789" not in repr(parsed)


@in_a_loop
async def test_what_is_waited_for_on_the_bus() -> None:
    bus = EventBus({})
    with bus.subscribe("salt/run/") as waiting:
        thread = threading.Thread(target=bus.tell, args=("salt/run/7/ret", {}))
        thread.start()
        await asyncio.wait_for(waiting.until(lambda tag, _: tag == "salt/run/7/ret"), 60)
        thread.join()
        bus.tell("salt/job/7/ret", {})
        bus.tell(7, {})
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(waiting.until(lambda tag, _: "job" in tag), 0.05)


@in_a_loop
async def test_a_flood_does_not_hide_what_is_waited_for() -> None:
    bus = EventBus({})
    with bus.subscribe("salt/ha/health") as waiting:
        waited = asyncio.ensure_future(waiting.until(lambda _, data: data == {"turn": 1}))
        await asyncio.sleep(0)
        for _ in range(2 * MOST_EVENTS):
            bus.tell("salt/ha/health", {"turn": "of somebody else"})
        bus.tell("salt/ha/health", {"turn": 1})
        await asyncio.wait_for(waited, 60)


def test_failovers_that_minions_tell() -> None:
    said = {"id": "web1", "from": "m1", "to": "m2", "why": "no answer"}
    failovers = Failovers()
    failovers("salt/ha/minion/web1/failover", said)
    failovers("salt/ha/minion/web1/failover", {"id": "web1", "data": said})
    failovers("salt/ha/minion/web1/failover", {"id": "web1", "from": 3})
    failovers("salt/ha/minion/web1/failover", "nonsense")
    assert failovers.count == 2
    assert [(f.id, f.source, f.target) for f in failovers.last] == [("web1", "m1", "m2")] * 2
    # The id beside the data counts, and nothing in it reaches a terminal or a log as a control.
    failover = read_failover({"id": "web1", "data": {**said, "id": "db1", "why": "a\x1b\nb"}}, 1.0)
    assert failover is not None
    assert (failover.id, failover.why) == ("web1", "ab")
