"""A server on loopback that answers any bytes that a test says, for a while or for ever."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

Bytes = bytes | Callable[[], Iterator[bytes]]
"""An answer: all at once, or in pieces that may never end."""


def whole(body: bytes, head: str = "", status: str = "200 OK") -> bytes:
    """A proper answer with *body*."""
    lines = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{head}\r\n"
    return lines.encode("latin-1") + body


def said(value: Any) -> bytes:
    """The answer of a salt-api that returned *value*."""
    return whole(json.dumps({"return": [value]}).encode())


TOKEN = {"token": "token-of-the-liar", "start": 0.0, "expire": 3600.0}
WELCOME = said("Welcome")


class Liar:
    """
    :ivar login: the answer to a login; by default a token.
    :ivar call: the answer to all calls.
    :ivar asked: the paths that were asked for.
    """

    def __init__(self) -> None:
        self.login: Bytes = said(TOKEN)
        self.call: Bytes = said({})
        self.asked: list[str] = []
        self._over = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with (
            contextlib.suppress(OSError, ValueError),
            connection,
            connection.makefile("rb") as file,
        ):
            while line := file.readline():
                method, path, _ = line.decode().split(" ", 2)
                length = 0
                while (header := file.readline()) not in (b"\r\n", b""):
                    name, _, value = header.decode().partition(":")
                    length = int(value) if name.lower() == "content-length" else length
                file.read(length)
                self.asked.append(path)
                answer = {"/login": self.login, "/logout": WELCOME}.get(path, self.call)
                if method == "GET":
                    answer = WELCOME
                for piece in [answer] if isinstance(answer, bytes) else answer():
                    connection.sendall(piece)
                # An answer without an end of its own ends with the connection.
                head, _, body = piece.partition(b"\r\n\r\n")
                if head.split(b" ", 2)[1:2] in ([b"204"], [b"304"]):
                    continue  # without a body by definition: callers keep the connection
                if (
                    head.count(b"Length:") != 1
                    or b"Length: %d\r\n" % len(body) not in head + b"\r\n"
                ):
                    return

    def drip(self, head: bytes, drop: bytes) -> Callable[[], Iterator[bytes]]:
        """*head*, then a *drop* every 50 ms for ever."""

        def pieces() -> Iterator[bytes]:
            yield head
            while not self._over.wait(0.05):
                yield drop

        return pieces

    def close(self) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


def flood(head: bytes, piece: bytes) -> Callable[[], Iterator[bytes]]:
    """*head*, then *piece* after piece, as fast as they are taken."""

    def pieces() -> Iterator[bytes]:
        yield head
        while True:
            yield piece

    return pieces


HEAD = b"HTTP/1.1 200 OK\r\n"
BOMB = gzip.compress(bytes(50_000_000))

BODIES: dict[str, bytes] = {
    "deep lists": b"[" * 200_000,
    "deep maps": b'{"return":' * 200_000,
    "deep and closed": b'{"return": [' + b"[" * 5_000 + b"]" * 5_000 + b"]}",
    "deep in a token": b'{"return": [{"token": ' + b"[" * 500 + b"]" * 500 + b"}]}",
    "half": b'{"return": [{"token',
    "nothing": b"",
    "no text": b"\xff\xfe\xfd",
    "UTF-32": json.dumps({"return": 1}).encode("utf-32"),
    "a long number": b'{"return": [' + b"9" * 100_000 + b"]}",
    "NaN": b"NaN",
    "null": b"null",
    "a text": b'"return"',
    "no return": b'{"return": []}',
    "return is a map": b'{"return": {"0": 1}}',
    "null is returned": b'{"return": [null]}',
    "a number is returned": b'{"return": [1]}',
    "a list is returned": b'{"return": [[[]]]}',
    "html": b"<html>It works!</html>",
    "zeros": bytes(1000),
}
"""Bodies that no salt-api has."""

TOKENS: dict[str, Any] = {
    "far end": TOKEN | {"expire": 10**400},
    "far begin": TOKEN | {"start": 10**400},
    "NaN": TOKEN | {"expire": float("nan")},
    "no end": TOKEN | {"expire": float("inf")},
    "ended": TOKEN | {"expire": -1},
    "end is a list": TOKEN | {"expire": [1]},
    "end is a text": TOKEN | {"expire": "soon"},
    "token is a number": TOKEN | {"token": 5},
    "token is empty": TOKEN | {"token": ""},
    "token is a map": TOKEN | {"token": {"token": "x"}},
    "token has lines": TOKEN | {"token": "x\r\nX-Evil: 1"},
    "token is no ASCII": TOKEN | {"token": "tökén"},
    "token is half a sign": TOKEN | {"token": "\ud800"},
    "token is long": TOKEN | {"token": "x" * 100_000},
}
"""Tokens that nobody can use."""

FORMS: dict[str, Any] = {
    "local_async minions": {"jid": 5, "minions": 5},
    "local_async names": {"jid": "x", "minions": [1, "a", {}]},
    "data is a list": {"data": [1]},
    "success is a text": {"data": {"return": 1, "success": "yes"}},
    "success is a number": {"data": {"return": 1, "success": 10**300}},
    "no success": {"data": {"return": 1}},
    "up is a number": {"up": 5, "down": []},
    "up has maps": {"up": [{}], "down": [[]]},
    "Minions is a number": {"Function": "x", "Minions": 5, "Result": {}},
    "Minions are mixed": {"Function": "x", "Minions": [5, "a"], "Result": {}},
    "Result is a list": {"Function": "x", "Minions": ["a"], "Result": []},
}
"""Values that are valid for JSON and salt-api, and that no function of Salt returns."""

ANSWERS: dict[str, bytes] = {
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "HTTP/0.9": b"<html>hello</html>",
    "HTTP/7.5": b"HTTP/7.5 200 OK\r\n\r\n{}",
    "HTTP/1.0, cut off": b'HTTP/1.0 200 OK\r\n\r\n{"return": [{"tok',
    "no status": b"HTTP/1.1\r\n\r\n",
    "status is a text": b"HTTP/1.1 fine\r\n\r\n",
    "status is large": b"HTTP/1.1 99999999999999999999 OK\r\n\r\n",
    "bad charset": whole(b"{}", "Content-Type: application/json; charset=nonsense\r\n"),
    "long header": HEAD + b"X: " + b"x" * 200_000 + b"\r\n\r\n",
    "many headers": HEAD + b"X: 1\r\n" * 5_000 + b"\r\n",
    "header without a name": HEAD + b": 1\r\n \r\n\t\r\nx\r\n\r\n",
    "header of bytes": HEAD + bytes(range(128, 256)) + b": \xff\xfe\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 5\r\nContent-Length: 7\r\n\r\n{}",
    "length below zero": HEAD + b"Content-Length: -5\r\n\r\n{}",
    "length is a text": HEAD + "Content-Length: ²\r\n\r\n{}".encode("latin-1"),
    "length is long": HEAD + b"Content-Length: " + b"9" * 5_000 + b"\r\n\r\n{}",
    "length is large": HEAD + b"Content-Length: 99999999999999999999\r\n\r\n{}",
    "chunks of nonsense": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzzz\r\n{}\r\n",
    "chunk below zero": HEAD + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n{}\r\n0\r\n\r\n",
    "chunk is large": HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 500 + b"\r\n{}",
    "chunk cut off": HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
    "cookies": whole(b"{}", "Set-Cookie: =;;;a=b; expires=99999999999; max-age=x\r\n" * 50),
    "redirect to itself": whole(b"", "Location: /login\r\n", "302 Found"),
    "redirect to nowhere": whole(b"{}", "Location: http://[::x]:99999999/\r\n", "307 Moved"),
    "redirect with a bomb": whole(BOMB, "Location: /\r\nContent-Encoding: gzip\r\n", "301 Moved"),
    "gzip bomb": whole(BOMB, "Content-Encoding: gzip\r\n"),
    "deflate": whole(b"\x00" * 50, "Content-Encoding: deflate\r\n"),
    "unknown encoding": whole(b"{}", "Content-Encoding: br, x, gzip\r\n"),
    "nothing": b"",
    "early hints": b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n",
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "not modified": b"HTTP/1.1 304 Not Modified\r\n\r\n",
}
"""Bytes that are no usable answer."""
