"""A TCP forwarder between a minion and a master that can fail in the ways of a network."""

from __future__ import annotations

import contextlib
import ctypes
import selectors
import socket
import struct
import threading
import time
from collections import deque

from lab.network import is_free

Address = tuple[str, int]


class Forwarder:
    """
    Forwards *listen* to *target* in a thread, until it is closed.

    ``dropping`` True: connections stay, but nothing gets through any more; the kernel here still
    acknowledges everything. :meth:`forget`: packets of the present connections are really dropped.
    :meth:`refuse`: connections are cut, and new ones refused. ``delay``: seconds by which all data
    is delayed, in either direction.
    """

    def __init__(self, listen: Address, target: Address) -> None:
        self.address, self.target = listen, target
        self.dropping = False
        self.delay = 0.0
        self._late: deque[tuple[float, socket.socket, bytes]] = deque()
        self._peers: dict[socket.socket, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._listener: socket.socket | None = None
        self.accept()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def accept(self) -> None:
        """Listen (again)."""
        with self._lock:
            if self._listener is None:
                assert is_free(*self.address), self.address
                self._listener = socket.create_server(self.address)
                self._selector.register(self._listener, selectors.EVENT_READ)

    def refuse(self) -> None:
        """Cut all connections and accept no new ones."""
        with self._lock:
            if self._listener is not None:
                self._selector.unregister(self._listener)
                self._listener.close()
                self._listener = None
            for sock in [*self._peers]:
                self._end(sock)

    def forget(self) -> None:
        """
        Drop all packets of the present connections, like a firewall that has forgotten them: nobody
        acknowledges anything any more. New connections work.
        """
        with self._lock:
            for sock in [*self._peers]:
                self._selector.unregister(sock)
                if sock.getsockname()[:2] == self.address:
                    drop_packets(sock)

    def close(self) -> None:
        """Cut all connections and end."""
        self.refuse()
        self._over.set()
        self._thread.join()
        self._selector.close()

    def __enter__(self) -> Forwarder:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self._over.is_set():
            ready = self._selector.select(0.01 if self._late else 0.05)
            with self._lock:
                self._deliver()
            for key, _ in ready:
                with self._lock:
                    if key.fileobj is self._listener:
                        self._connect(self._listener)
                    elif key.fileobj in self._peers:
                        self._pass(key.fileobj)

    def _connect(self, listener: socket.socket | None) -> None:
        assert listener is not None
        near, _ = listener.accept()
        try:
            far = socket.create_connection(self.target, 5)
        except OSError:
            near.close()
            return
        for one, other in ((near, far), (far, near)):
            self._peers[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _pass(self, sock: socket.socket) -> None:
        try:
            data = sock.recv(65536)
            if data and not self.dropping:
                self._late.append((time.monotonic() + self.delay, self._peers[sock], data))
                self._deliver()
        except OSError:
            data = b""
        if not data:
            self._end(sock)

    def _deliver(self) -> None:
        while self._late and self._late[0][0] <= time.monotonic():
            _, to, data = self._late.popleft()
            with contextlib.suppress(OSError):  # that connection is over, which _pass notices
                to.sendall(data)

    def _end(self, sock: socket.socket) -> None:
        other = self._peers.pop(sock, None)
        for each in (sock, other):
            if each is not None:
                self._peers.pop(each, None)
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(each)
                each.close()


SO_ATTACH_FILTER = 26  # Linux; the module socket does not have it


def drop_packets(sock: socket.socket) -> None:
    """Have the kernel throw away all that comes for *sock*, before TCP sees it."""
    # struct sock_filter: BPF_RET | BPF_K, 0, 0 -> accept 0 bytes of each packet
    code = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
    program = struct.pack("HL", 1, ctypes.addressof(code))
    sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
