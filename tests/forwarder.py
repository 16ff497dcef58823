"""A TCP forwarder that on request treats a connection as bad networks do."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from dataclasses import dataclass, field
from typing import Literal

Fault = Literal["reset", "drop", "silence", "slow"]

SLOW = 3.0


@dataclass
class Trap:
    """
    :ivar word: a request that contains it meets the fault; so many *times*.
    :ivar fault: ``reset`` the connection in the middle of the answer, ``drop`` the request unseen
        and reset, swallow the answer (``silence``), or keep it back (``slow``).
    :ivar sprung: how many requests met it.
    """

    word: bytes
    fault: Fault
    times: int = 1
    sprung: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def springs(self, data: bytes) -> bool:
        with self.lock:
            if self.word not in data or self.sprung >= self.times:
                return False
            self.sprung += 1
            return True


class Forwarder:
    """
    Forwards connections to *target*.

    :ivar requests: all that clients sent.
    :ivar slow: for how many seconds an answer is kept back that is to be slow.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self.target, self.trap, self.slow = target, Trap(b"", "reset", 0), SLOW
        self.requests: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._open: set[socket.socket] = set()
        self._over = threading.Event()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Forwarder:
        return self

    def __exit__(self, *args: object) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in list(self._open):
            _reset(sock)

    def set(self, word: bytes, fault: Fault, times: int = 1) -> Trap:
        self.trap = Trap(word, fault, times)
        return self.trap

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._open.add(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self.target, 5)
        except OSError:
            _reset(client)
            return
        server.settimeout(None)
        self._open.add(server)
        cut: list[Fault] = []
        threading.Thread(target=self._answers, args=(server, client, cut), daemon=True).start()
        with contextlib.suppress(OSError):
            while request := _request(client):
                self.requests.append(request)
                if self.trap.springs(request):
                    if self.trap.fault == "drop":
                        _reset(client)
                        break
                    cut.append(self.trap.fault)
                server.sendall(request)
        # As in a real network, the server goes on with the request that it got.
        if not cut:
            _close(server)

    def _answers(self, server: socket.socket, client: socket.socket, cut: list[Fault]) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if "silence" in cut:
                    continue
                if "reset" in cut:
                    client.sendall(data[:20])
                    _reset(client)
                    break
                if "slow" in cut:
                    self._over.wait(self.slow)
                    cut.clear()
                client.sendall(data)
        _close(client)


def _request(client: socket.socket) -> bytes:
    """One whole HTTP request, or nothing at the end."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = client.recv(65536)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            while len(body) < int(value):
                piece = client.recv(65536)
                if not piece:
                    return b""
                body += piece
                data += piece
    return data


def _reset(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # Another thread may be in recv() of this socket, which would keep the connection open.
        sock.shutdown(socket.SHUT_RD)
    sock.close()


def _close(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
