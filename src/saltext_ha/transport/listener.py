"""
The server side: answers calls of pinned peers, and of masters that join.

A call is ``POST /v1/<method>`` with a msgpack map; the answer is a msgpack map. A refusal is
``{"error": code, "message": reason}`` with a fitting HTTP status.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from saltext_ha.common.errors import (
    DiskHangs,
    HaError,
    InvalidRecord,
    ReplicaError,
    StoreError,
    TokenError,
    TrustError,
    reason_of,
)
from saltext_ha.common.refusals import RENEWED, UNABLE, Allowance, Refusals
from saltext_ha.config.mapping import make_url
from saltext_ha.transport import tls, wire
from saltext_ha.transport.connection import Connection, Limits
from saltext_ha.transport.http_server import HttpServer
from saltext_ha.transport.identity import Identity
from saltext_ha.transport.peer import Peer
from saltext_ha.transport.pins import RECENT, Pins

log = logging.getLogger(__name__)

Payload = dict[str, Any]
Handler = Callable[[Peer, Payload], Awaitable[Mapping[str, Any]]]
OpenHandler = Callable[[Payload, str], Awaitable[Mapping[str, Any]]]

# The methods that callers without a pinned certificate may call.
OPEN = ("join", "plan", "certificates", "renewed")
# Only a few larger bodies are unpacked and carried out at a time: each may need twenty times its
# size in memory.
LARGE = 256 * 1024
LARGE_AT_ONCE = 2
_PREFIX = "/v1/"


class _Refused(Exception):
    def __init__(
        self, status: int, code: str, message: str, counted_as: str = "", **more: Any
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.reason = counted_as or code.replace("_", " ")
        self.more = more


class PeerListener:
    """
    Listens for peers on *host*:*port* (0 takes a free one; see :attr:`port`).

    :param handlers: method name → coroutine function that takes the calling :class:`Peer` and the
        payload, and returns the answer. The status is 422 if it raises ``InvalidRecord``, 403 for
        ``TokenError`` and ``TrustError``, 409 for any other ``HaError``, each with its message; 500
        for anything else, without it, and logged.
    :param strangers: the same for callers without a certificate, which may call only :data:`OPEN`;
        each handler takes the payload and the caller's address.
    :param refusals: counts callers that are turned away.
    """

    def __init__(
        self,
        identity: Identity,
        pins: Pins,
        handlers: Mapping[str, Handler],
        host: str,
        port: int,
        *,
        strangers: Mapping[str, OpenHandler] | None = None,
        limits: Limits | None = None,
        refusals: Refusals | None = None,
    ) -> None:
        self._identity = identity
        self._pins = pins
        self._handlers = dict(handlers)
        self._strangers = dict(strangers or {})
        self._host = host
        self._port = port
        self._limits = limits or Limits()
        self._refusals = refusals or Refusals(pins.last_change)
        self._failures = Allowance()
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)
        self._context: ssl.SSLContext | None = None
        self._context_generation = -1
        self._http = HttpServer(self._respond, self._refusals.add, self._limits, self._tls_context)

    @property
    def refused(self) -> dict[str, int]:
        """Reason → how many handshakes and requests were refused since the start."""
        return dict(self._refusals.counts)

    @property
    def methods(self) -> list[str]:
        """The names of all methods that may be called."""
        return sorted([*self._handlers, *self._strangers])

    @property
    def port(self) -> int:
        """The port; the real one after :meth:`start`."""
        return self._port

    async def start(self) -> None:
        """
        Begin to listen.

        :raises HaError: the address cannot be bound.
        :raises TrustError: our own certificate cannot be used.
        """
        self._tls_context()
        try:
            self._port = await self._http.listen(self._host, self._port)
        except OSError as exc:
            raise HaError(
                f"cannot listen on {make_url(self._host, self._port)}: {reason_of(exc)}; "
                f"see ha: listen_host and ha: port"
            ) from None
        log.info("listening host=%s port=%d", self._host, self._port)

    async def stop(self) -> None:
        """Stop listening; requests being answered get a second to finish."""
        await self._http.stop(1.0)

    def show(self, identity: Identity) -> None:
        """Show another certificate to new connections from now on."""
        self._identity = identity
        self._context = None

    def _tls_context(self) -> ssl.SSLContext:
        generation = self._pins.generation()
        if self._context is None or generation != self._context_generation:
            pinned = [peer.certificate for peer in self._pins.peers().values()]
            self._context = tls.server_context(self._identity, pinned)
            self._context_generation = generation
        return self._context

    async def _respond(
        self, request: web.BaseRequest, connection: Connection
    ) -> web.StreamResponse:
        connection.busy()
        try:
            return _message(200, await self._answer(request, connection))
        except _Refused as exc:
            reason = exc.reason
            if exc.code == "not_pinned" and self._pins.is_former(connection.fingerprint):
                reason = RENEWED  # it will come back with the new one
            self._refusals.add(reason, connection.host)
            message = {"error": exc.code, "message": str(exc), **exc.more}
            response = _message(exc.status, message)
            # A body that was not read would look like the next request.
            unread = not request.content.is_eof()
            if unread or connection.fingerprint is None or exc.code == "not_pinned":
                response.force_close()
            return response

    async def _answer(self, request: web.BaseRequest, connection: Connection) -> bytes:
        method, peer = self._admit(request, connection)
        if peer is not None:
            self._refusals.admitted(connection.host)
        max_body, max_items = self._limits.max_body, wire.MAX_ITEMS
        if method in OPEN:
            max_body, max_items = wire.MAX_JOIN_BODY, wire.MAX_JOIN_ITEMS
        body = await self._body(request, max_body)
        if len(body) <= LARGE:
            return await self._carry_out(method, peer, body, max_items, connection)
        async with self._large:
            return await self._carry_out(method, peer, body, max_items, connection)

    async def _carry_out(
        self, method: str, peer: Peer | None, body: bytes, max_items: int, connection: Connection
    ) -> bytes:
        try:
            payload = wire.unpack(body, max_items)
        except ValueError as exc:
            raise _Refused(400, "malformed", f"the body is {exc}") from None
        try:
            if method in OPEN:
                answer = await self._strangers[method](payload, connection.host)
            else:
                assert peer is not None
                answer = await self._handlers[method](peer, payload)
            return wire.pack(answer)
        except InvalidRecord as exc:
            raise _Refused(422, "invalid_record", str(exc)) from None
        except (TokenError, TrustError) as exc:
            raise _Refused(403, "not_trusted", str(exc)) from None
        except (StoreError, ReplicaError, DiskHangs) as exc:
            raise _Refused(409, "refused", str(exc), counted_as=UNABLE) from None
        except HaError as exc:
            raise _Refused(409, "refused", str(exc)) from None
        except RecursionError:
            raise _Refused(400, "malformed", "the body is nested too deeply") from None
        except Exception:
            caller = peer.name if peer else connection.host
            if self._failures.take():
                log.exception("failed method=%s caller=%s", method, caller)
            raise _Refused(
                500, "internal_error", f"{method} failed there; its log says why"
            ) from None

    def _admit(self, request: web.BaseRequest, connection: Connection) -> tuple[str, Peer | None]:
        """Check that the caller may call the method, and, for every request, that it is pinned."""
        peer = None
        if connection.fingerprint is not None:
            peer = self._pins.by_fingerprint(connection.fingerprint, RECENT)
            if peer is None:
                raise _Refused(403, "not_pinned", "your certificate is not pinned here any more")
        version = request.headers.get(wire.PROTOCOL_HEADER, "")
        if version not in map(str, wire.PROTOCOLS):
            spoken = ", ".join(map(str, wire.PROTOCOLS))
            raise _Refused(
                426,
                "unknown_protocol",
                f"protocol {version[:20]!r} is not spoken here, but: {spoken}; "
                f"bring saltext-ha to the same version",
                supported=list(wire.PROTOCOLS),
            )
        method = request.path.removeprefix(_PREFIX)
        if peer is None and method not in OPEN:
            raise _Refused(401, "no_certificate", "only join is answered without a certificate")
        known = self._strangers if method in OPEN else self._handlers
        if method not in known or not request.path.startswith(_PREFIX):
            raise _Refused(404, "unknown_method", f"there is no {request.path[:80]!r} here")
        if request.method != "POST":
            raise _Refused(405, "not_a_post", "calls are made by POST")
        if request.content_type != wire.CONTENT_TYPE or "Content-Encoding" in request.headers:
            raise _Refused(415, "not_msgpack", f"send {wire.CONTENT_TYPE}, not encoded")
        return method, peer

    async def _body(self, request: web.BaseRequest, limit: int) -> bytes:
        # The length is always known: framing passes no other request.
        if (request.content_length or 0) > limit:
            raise _Refused(413, "too_large", f"the body has more than {limit} bytes")
        if request.content.is_eof():
            return await request.content.read()
        try:
            return await self._in_time(request.content.read())
        except asyncio.TimeoutError:
            raise _Refused(408, "too_slow", "the body did not arrive in time") from None
        except web.RequestPayloadError as exc:
            raise _Refused(400, "malformed", f"the body broke off: {reason_of(exc)}") from None

    async def _in_time(self, reading: Awaitable[bytes]) -> bytes:
        try:
            return await asyncio.wait_for(reading, self._limits.body)
        except BaseException as exc:
            # wait_for refers to the error, and the error to wait_for and to the bytes read. Only
            # the garbage collector frees such a cycle, and it counts objects, not megabytes.
            traceback.clear_frames(exc.__traceback__)
            raise


def _message(status: int, content: bytes | Mapping[str, Any]) -> web.Response:
    body = content if isinstance(content, bytes) else wire.pack(content)
    response = web.Response(status=status, body=body, content_type=wire.CONTENT_TYPE)
    response.headers["Server"] = "saltext-ha"
    return response
