"""
Accepts and authenticates TCP connections, within limits.

asyncio's own TLS server drops failed handshakes silently, and lets any number of unfinished ones
linger. Here each has a deadline, and a failed one is counted with its reason. If too many are
unfinished, the caller with the most of them loses its oldest: a flood from one address, or one
network of 64 bits of IPv6, keeps out only itself; one from many keeps others out for at most the
time of a handshake.

This relies only on documented behaviour of asyncio: it watches a socket, makes a connection of an
accepted socket, and receives nothing before ``connection_made``. What happens within one turn of
its loop differs between releases of Python.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

from saltext_ha.common.addresses import network_of
from saltext_ha.common.errors import TrustError, drop_tracebacks
from saltext_ha.common.refusals import HUNG_UP, IDLE, LATE, Refuse
from saltext_ha.transport import fingerprints, wire
from saltext_ha.transport.framing import Framing, Unframed

# Errors of accept(2) if this process or the system is out of resources; we try again after _PAUSE
# seconds. The caller that was not accepted still waits, so the socket stays readable.
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE = 1.0
# Seconds for the last answer to a caller that is cut off.
LAST_WORD = 1.0


@dataclass(frozen=True)
class Limits:
    """Deadlines in seconds, sizes in bytes, and most connections at a time."""

    handshake: float = 5.0
    header: float = 10.0
    body: float = 30.0
    keepalive: float = 75.0
    max_body: int = wire.MAX_BODY
    max_line: int = 8190
    # So many callers are accepted at a time, and so many may wait.
    backlog: int = 128
    max_handshakes: int = 64
    max_anonymous: int = 16
    max_connections: int = 256
    max_per_peer: int = 32


class Acceptor:
    """
    Makes a :class:`Connection` for every caller, and limits their number.

    :param context: called for each handshake, as trust may change; returns its TLS context, or None
        for no TLS: then the caller sends a request at once.
    :param requests: makes the protocol that speaks HTTP after the handshake.
    :param refuse: called for every caller that is turned away.
    """

    def __init__(
        self,
        context: Callable[[], ssl.SSLContext | None],
        requests: Callable[[], asyncio.Protocol],
        refuse: Refuse,
        limits: Limits,
    ) -> None:
        self.context = context
        self.requests = requests
        self.refuse = refuse
        self.limits = limits
        # Dictionaries keep the order: the first is the oldest.
        self.handshakes: dict[Connection, None] = {}
        self.anonymous: dict[Connection, None] = {}
        self.authenticated: dict[Connection, None] = {}
        self.by_requests: dict[asyncio.BaseProtocol, Connection] = {}
        self._listening: list[socket.socket] = []
        self._pauses: dict[socket.socket, asyncio.TimerHandle] = {}

    def listen(self, server: asyncio.Server) -> None:
        """
        Accept callers at the addresses that *server* has bound; the server itself accepts none.

        :raises OSError: another process took an address in between.
        """
        for bound in server.sockets:
            listening = bound.dup()
            self._listening.append(listening)
            listening.setblocking(False)
            listening.listen(self.limits.backlog)
            self._watch(listening)

    def _watch(self, listening: socket.socket) -> None:
        self._pauses.pop(listening, None)
        asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(self.limits.backlog):
            try:
                sock, address = listening.accept()
            except OSError as exc:
                # Usually no other caller waits. Or the caller has disconnected, or a firewall
                # blocks it.
                if exc.errno in _EXHAUSTED:
                    self.refuse("no file descriptor is left", "?")
                    loop = asyncio.get_running_loop()
                    loop.remove_reader(listening)
                    again = partial(self._watch, listening)
                    self._pauses[listening] = loop.call_later(_PAUSE, again)
                return
            Connection(self).begin(sock, str((address or ["?"])[0]))

    def enter(self, connection: Connection, stage: dict[Connection, None], limit: int) -> None:
        """
        Put *connection* into *stage*. If that is full, the network with the most connections there
        loses one; in that network, the caller with the most.
        """
        own = [other for other in stage if other.fingerprint == connection.fingerprint]
        if connection.fingerprint and len(own) >= self.limits.max_per_peer:
            self._crowded(own[0])
        elif len(stage) >= limit:
            near = Counter(other.network for other in stage)
            held = Counter(other.caller for other in stage)
            share = {other: (near[other.network], held[other.caller]) for other in stage}
            most = max(share.values())
            theirs = (other for other in stage if share[other] == most)
            self._crowded(min(theirs, key=lambda other: other.spared))
        stage[connection] = None

    def _crowded(self, oldest: Connection) -> None:
        self.refuse("too many connections", oldest.host)
        oldest.drop()

    def forget(self, connection: Connection) -> None:
        """Called when a connection is over, in any stage."""
        for stage in (self.handshakes, self.anonymous, self.authenticated):
            stage.pop(connection, None)
        if connection.requests is not None:
            self.by_requests.pop(connection.requests, None)

    def stop_listening(self) -> None:
        """Accept no more callers; open connections stay."""
        for listening in self._listening:
            if listening in self._pauses:
                self._pauses.pop(listening).cancel()
            asyncio.get_running_loop().remove_reader(listening)
            listening.close()
        self._listening.clear()

    def close(self) -> None:
        """Accept no more callers, and drop all connections."""
        self.stop_listening()
        for stage in (self.handshakes, self.anonymous, self.authenticated):
            for connection in list(stage):
                connection.drop()


class Connection(asyncio.Protocol):
    """One caller: first a TLS handshake, then data for the HTTP protocol, with an idle limit."""

    def __init__(self, acceptor: Acceptor) -> None:
        self._acceptor = acceptor
        self._sock: socket.socket | None = None
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._over = False
        self._framing: Framing | None = Framing()
        """None when nothing more is read."""
        self.requests: asyncio.Protocol | None = None
        self.fingerprint: str | None = None
        self.host = "?"
        self.spared = False
        """
        Whether, if there are too many connections, others are dropped first; set by the server.
        """

    @property
    def caller(self) -> str:
        """The owner of the connection: a peer's fingerprint, or a stranger's address."""
        return self.fingerprint or self.host

    @property
    def network(self) -> str:
        """The same, for a stranger the network of that address: a host has many of IPv6."""
        return self.fingerprint or network_of(self.host)

    def begin(self, sock: socket.socket, host: str) -> None:
        """Begin with the accepted socket *sock* of *host*."""
        self._sock = sock
        self.host = host
        self._acceptor.enter(self, self._acceptor.handshakes, self._acceptor.limits.max_handshakes)
        self._task = asyncio.get_running_loop().create_task(self._connect(sock))

    # Called by asyncio, once the handshake is done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = cast(asyncio.Transport, transport)
        if self._over:
            made.abort()
            return
        session = made.get_extra_info("ssl_object")
        try:
            # Ask the TLS session itself; ValueError if it has just ended.
            der = session.getpeercert(binary_form=True) if session else None
        except ValueError:
            made.abort()  # which _connect reports
            return
        self._admit(made, der)

    def data_received(self, data: bytes) -> None:
        if self.requests is not None:
            self._read(data)

    def eof_received(self) -> bool | None:
        return None if self.requests is None else self.requests.eof_received()

    def pause_writing(self) -> None:
        if self.requests is not None:
            self.requests.pause_writing()

    def resume_writing(self) -> None:
        if self.requests is not None:
            self.requests.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc)

    # Called by the listener

    def busy(self) -> None:
        """A request can be answered now: suspend the time limit."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def idle(self) -> None:
        """An answer was sent: the next request must come within the keep-alive time."""
        if not self._over:
            self._expect(self._acceptor.limits.keepalive, None)
            self._read(None)

    def drop(self) -> None:
        """End the connection now, without waiting for anything to be sent."""
        if self._transport is not None:
            # asyncio of Python 3.11.2 cannot abort a TLS transport that was closed twice.
            with contextlib.suppress(AttributeError):
                self._transport.abort()
        elif self._sock is not None:
            # Do not close it: the handshake still uses it.
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
        self._end(None)

    # How it goes on

    async def _connect(self, sock: socket.socket) -> None:
        try:
            await self._handshake(sock)
            if self._transport is None:
                raise ConnectionResetError
        except (OSError, ValueError, TrustError) as exc:
            if not self._over:
                self._acceptor.refuse(_handshake_failure(exc), self.host)
                self.drop()
            drop_tracebacks(exc)  # asyncio keeps it

    async def _handshake(self, sock: socket.socket) -> None:
        try:
            context = self._acceptor.context()
        except BaseException:
            sock.close()
            raise
        timeout = None if context is None else self._acceptor.limits.handshake
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: self, sock, ssl=context, ssl_handshake_timeout=timeout
        )

    def _admit(self, secured: asyncio.Transport, der: bytes | None) -> None:
        limits = self._acceptor.limits
        self._acceptor.handshakes.pop(self, None)
        self._transport, self._sock = secured, None
        if der:
            self.fingerprint = fingerprints.of(der)
            self._acceptor.enter(self, self._acceptor.authenticated, limits.max_connections)
        else:
            self._acceptor.enter(self, self._acceptor.anonymous, limits.max_anonymous)
        requests = self._acceptor.requests()
        self._acceptor.by_requests[requests] = self
        self.requests = requests
        requests.connection_made(secured)
        self._expect(limits.header, IDLE)

    def _read(self, data: bytes | None) -> None:
        """Pass on what aiohttp may read now of *data*; None: the last request is answered."""
        if self._framing is None or self.requests is None:
            return
        try:
            through = self._framing.answered() if data is None else self._framing.take(data)
        except Unframed as exc:
            self._cut_off(exc, data is None)
            return
        if through:
            self.requests.data_received(through)

    def _cut_off(self, exc: Unframed, answering: bool) -> None:
        self._framing = None
        self._acceptor.refuse(str(exc), self.host)
        if self._transport is None or not (exc.status or answering):
            self.drop()
            return
        if not answering:  # otherwise an answer is being sent
            self._transport.write(exc.answer())
            self._transport.close()
        self._expect(LAST_WORD, None)

    def _expect(self, seconds: float, reason: str | None) -> None:
        self.busy()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._too_late, reason)

    def _too_late(self, reason: str | None) -> None:
        if reason is not None:
            self._acceptor.refuse(reason, self.host)
        self.drop()

    def _end(self, exc: Exception | None) -> None:
        if self._over:
            return
        self._over = True
        self.busy()
        self._acceptor.forget(self)
        if self.requests is not None:
            # Not at once: aiohttp fails if the connection ends before its task had its first turn.
            asyncio.get_running_loop().call_soon(self.requests.connection_lost, exc)


def _handshake_failure(exc: Exception) -> str:
    if isinstance(exc, ssl.SSLCertVerificationError):
        return "certificate not pinned"
    if isinstance(exc, ssl.SSLError):
        reason = (exc.reason or "").lower().replace("_", " ")
        if reason in ("unsupported protocol", "no protocols available", "version too low"):
            return "TLS too old"
        if reason in ("http request", "wrong version number", "https proxy request"):
            return "not TLS"
        if "alert" in reason and ("unknown ca" in reason or "certificate" in reason):
            return "caller does not trust this master"
        return f"TLS: {reason or 'failed'}"
    if isinstance(exc, TrustError):
        return "this master's own certificate cannot be used"
    if isinstance(exc, ConnectionAbortedError):
        return LATE
    return HUNG_UP
