"""
How a TCP connection becomes an authenticated one, within limits.

asyncio's own TLS server drops failed handshakes without a word and lets any number of them linger.
Here each is given a deadline, counted with its reason when it fails, and when too many are
unfinished the oldest of those is dropped who has the most: a flood from one address only keeps
itself out, one from many addresses others for no longer than a handshake takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from aiohttp import web

from saltext_ha.errors import TrustError
from saltext_ha.peering.tls import fingerprint


@dataclass(frozen=True)
class Limits:
    """Deadlines in seconds, sizes in bytes, and how many connections at a time."""

    handshake: float = 5.0
    header: float = 10.0
    body: float = 30.0
    keepalive: float = 75.0
    max_body: int = 8 * 1024 * 1024
    max_handshakes: int = 64
    max_anonymous: int = 16
    max_connections: int = 256
    max_per_peer: int = 32


class Acceptor:
    """
    Makes a :class:`Connection` of everything that connects, and keeps their number bounded.

    :param context: the TLS context for a new handshake; asked each time, so trust may change.
        None: no TLS here, what is sent is a request at once.
    :param requests: makes the protocol that speaks HTTP once the handshake is done.
    :param refuse: told (reason, host) of everyone who did not get in.
    """

    def __init__(
        self,
        context: Callable[[], ssl.SSLContext | None],
        requests: Callable[[], asyncio.Protocol],
        refuse: Callable[[str, str], None],
        limits: Limits,
    ) -> None:
        self.context = context
        self.requests = requests
        self.refuse = refuse
        self.limits = limits
        # Dictionaries for their order: the first is the oldest.
        self.handshakes: dict[Connection, None] = {}
        self.anonymous: dict[Connection, None] = {}
        self.authenticated: dict[Connection, None] = {}
        self.by_requests: dict[asyncio.BaseProtocol, Connection] = {}

    def __call__(self) -> Connection:
        return Connection(self)

    def enter(self, connection: Connection, stage: dict[Connection, None], limit: int) -> None:
        """Put *connection* into *stage*; when that is full, who has the most there loses one."""
        own = [other for other in stage if other.fingerprint == connection.fingerprint]
        if connection.fingerprint and len(own) >= self.limits.max_per_peer:
            self._crowded(own[0])
        elif len(stage) >= limit:
            held = Counter(other.caller for other in stage)
            most = max(held.values())
            theirs = (other for other in stage if held[other.caller] == most)
            self._crowded(min(theirs, key=lambda other: other.spared))
        stage[connection] = None

    def _crowded(self, oldest: Connection) -> None:
        self.refuse("too many connections", oldest.host)
        oldest.drop()

    def forget(self, connection: Connection) -> None:
        """Called once a connection is over, whatever stage it had reached."""
        for stage in (self.handshakes, self.anonymous, self.authenticated):
            stage.pop(connection, None)
        if connection.requests is not None:
            self.by_requests.pop(connection.requests, None)

    def close(self) -> None:
        """Drop everybody."""
        for stage in (self.handshakes, self.anonymous, self.authenticated):
            for connection in list(stage):
                connection.drop()


class Connection(asyncio.Protocol):
    """One caller: first a TLS handshake, then a pipe into the HTTP protocol, with an idle limit."""

    def __init__(self, acceptor: Acceptor) -> None:
        self._acceptor = acceptor
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._early: list[bytes] = []
        self._over = False
        self.requests: asyncio.Protocol | None = None
        self.fingerprint: str | None = None
        self.host = "?"
        self.spared = False
        """Whether others go first when there are too many; for whoever answers to set."""

    @property
    def caller(self) -> str:
        """Whose connection it is: a peer's by its certificate, a stranger's by the address."""
        return self.fingerprint or self.host

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        raw = cast(asyncio.Transport, transport)
        self._transport = raw
        raw.pause_reading()
        self.host = str((raw.get_extra_info("peername") or ["?"])[0])
        self._acceptor.enter(self, self._acceptor.handshakes, self._acceptor.limits.max_handshakes)
        self._task = asyncio.get_running_loop().create_task(self._secure(raw))

    def data_received(self, data: bytes) -> None:
        if self.requests is not None:
            self.requests.data_received(data)
        elif self._transport is not None and self._transport.get_protocol() is self:
            # Still plain TCP: nothing that comes before TLS may ever count as a request.
            self.drop()
        else:
            # Sent along with the end of the handshake, before start_tls returned to us.
            self._early.append(data)

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
        """A request has arrived whole enough to be answered: the idle limit rests."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def idle(self) -> None:
        """An answer is on its way: the next request must come within the keep-alive time."""
        if not self._over:
            self._expect(self._acceptor.limits.keepalive, None)

    def drop(self) -> None:
        """End it now, without waiting for anything to be sent."""
        if self._transport is not None:
            # asyncio of Python 3.11.2 cannot abort a TLS transport that was closed twice.
            with contextlib.suppress(AttributeError):
                self._transport.abort()
        self._end(None)

    # How it goes on

    async def _secure(self, raw: asyncio.Transport) -> None:
        try:
            context = self._acceptor.context()
            if context is None:
                self._admit(raw, None)
                raw.resume_reading()
                return
            secured = await self._handshake(raw, context)
            if secured is None or self._over or secured.is_closing():
                raise ConnectionResetError
            # Asked of the TLS session itself; ValueError when it ended just now.
            der = secured.get_extra_info("ssl_object").getpeercert(binary_form=True)
        except (OSError, ValueError, TrustError) as exc:
            if not self._over:
                self._acceptor.refuse(_handshake_failure(exc), self.host)
                self.drop()
            return
        self._admit(secured, der)

    async def _handshake(
        self, raw: asyncio.Transport, context: ssl.SSLContext
    ) -> asyncio.Transport | None:
        try:
            return await asyncio.get_running_loop().start_tls(
                raw,
                self,
                context,
                server_side=True,
                ssl_handshake_timeout=self._acceptor.limits.handshake,
            )
        except BaseException as exc:
            # The error knows the frames of start_tls, and what they hold knows the error. It would
            # wait for the garbage collector, which counts objects: of these few have 0.3 MB.
            traceback.clear_frames(exc.__traceback__)
            raise

    def _admit(self, secured: asyncio.Transport, der: bytes | None) -> None:
        limits = self._acceptor.limits
        self._acceptor.handshakes.pop(self, None)
        self._transport = secured
        if der:
            self.fingerprint = fingerprint(der)
            self._acceptor.enter(self, self._acceptor.authenticated, limits.max_connections)
        else:
            self._acceptor.enter(self, self._acceptor.anonymous, limits.max_anonymous)
        requests = self._acceptor.requests()
        self._acceptor.by_requests[requests] = self
        self.requests = requests
        requests.connection_made(secured)
        self._expect(limits.header, "no request in time")
        for data in self._early:
            requests.data_received(data)
        self._early.clear()

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
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        self._task = None  # it knows this connection, too, and nobody is to wait for a collector
        self._acceptor.forget(self)
        if self.requests is not None:
            # Not at once: aiohttp minds when it is over before its own task had its first turn.
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
        return "handshake timed out"
    return "hung up during the handshake"


async def wind_up(
    server: asyncio.AbstractServer | None,
    http: web.Server | None,
    acceptor: Acceptor | None,
    grace: float,
) -> None:
    """Stop listening; requests being answered get *grace* seconds to finish."""
    if server is not None:
        server.close()
    if http is not None:
        for idle in http.connections:
            idle.close()
        await http.shutdown(grace)
    if acceptor is not None:
        acceptor.close()
    # Last: since Python 3.12 this waits until every connection is gone.
    if server is not None:
        await server.wait_closed()
