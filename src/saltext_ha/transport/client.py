"""The client side: calls to one pinned peer over connections that are kept open."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp

from saltext_ha.common.errors import (
    MessageTooLarge,
    NobodyListens,
    PeerMistrust,
    PeerRefused,
    PeerUnreachable,
    UnknownMethod,
    drop_tracebacks,
    reason_of,
)
from saltext_ha.common.printable import harmless
from saltext_ha.transport import fingerprints, tls, wire
from saltext_ha.transport.identity import Identity
from saltext_ha.transport.peer import Peer

# Shorter than the listener's, so that this side closes an idle connection.
KEEPALIVE = 60.0
MAX_CONNECTIONS = 8
MAX_REASON = 1000
TOO_LARGE = 413
UNKNOWN_METHOD = 404
_REFUSALS = {TOO_LARGE: MessageTooLarge, UNKNOWN_METHOD: UnknownMethod}
NO_LISTENER = "refused the connection"
OTHER_CERTIFICATE = "shows another certificate than the expected one; nothing was sent"
MAX_ANSWER = 2 * wire.MAX_BODY
# A TLS 1.3 record holds up to 16 KiB and adds header, content type and tag.
_RECORD, _RECORD_OVERHEAD = 16384, 22


class PeerClient:
    """
    Calls one peer. Construct it, use it and :meth:`close` it inside one running event loop.

    :param timeout: seconds that a call may take, connecting included, unless the call says another.
    :ivar bytes_sent: bytes of all requests: heads, bodies and TLS records; without handshakes.
    :ivar bytes_received: the same for all answers.
    """

    def __init__(self, identity: Identity, peer: Peer, timeout: float = 5.0) -> None:
        self.peer = peer
        self.bytes_sent = 0
        self.bytes_received = 0
        self._timeout = timeout
        self._context = tls.client_context(identity, peer.certificate)
        self._expected = aiohttp.Fingerprint(fingerprints.digest(peer.fingerprint))
        """Compared before anything is sent."""
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def call(
        self,
        method: str,
        payload: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """
        Call *method* of the peer. A call may arrive twice (it is repeated once if a kept connection
        turns out to be closed), so methods must be idempotent.

        :raises PeerUnreachable: no usable answer came in time; names address and reason.
        :raises PeerRefused: the peer refused; the message has its reason. It is
            :exc:`MessageTooLarge` if the peer may take a smaller message, and
            :exc:`UnknownMethod` if its release has no *method*.
        """
        seconds = self._timeout if timeout is None else timeout
        try:
            return await asyncio.wait_for(self._call(method, wire.pack(payload or {})), seconds)
        except asyncio.TimeoutError:
            raise PeerUnreachable(f"{self.peer.address} timed out") from None

    async def close(self) -> None:
        """Close the kept connections; calls in progress and later calls fail."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    async def _call(self, method: str, body: bytes) -> dict[str, Any]:
        if len(body) > wire.MAX_BODY:
            raise MessageTooLarge(
                f"{self.peer.address} does not take a message of {len(body)} bytes ({method})"
            )
        taken = False
        try:
            try:
                status, answer = await self._post(method, body)
            except (aiohttp.ClientConnectionError, ConnectionError) as exc:
                if not _hung_up(exc):
                    raise
                taken = True
                status, answer = await self._post(method, body)
        except (aiohttp.ClientError, OSError) as exc:
            drop_tracebacks(exc)  # asyncio keeps it
            said = f"{self.peer.address} {_reason(exc)}"
            if _is_changed(exc) or _hung_up(exc):
                raise PeerMistrust(said, taken or _hung_up(exc)) from None
            kind = NobodyListens if _nobody_listens(exc) else PeerUnreachable
            raise kind(said) from None
        return content_of(self.peer.address, method, status, answer)

    async def _post(self, method: str, body: bytes) -> tuple[int, bytes]:
        request = self._open().post(
            f"{self.peer.url}/v1/{method}", data=body, ssl=self._context, allow_redirects=False
        )
        async with request as response:
            parts: list[bytes] = []
            size = 0
            while part := await response.content.readany():
                size += len(part)
                if size > MAX_ANSWER:
                    raise PeerUnreachable(
                        f"{self.peer.address} answers {method} with more than {MAX_ANSWER >> 20} MB"
                    )
                parts.append(part)
            sent = response.request_info.headers
            self.bytes_sent += _on_the_wire(
                len(method) + 18 + sum(len(k) + len(v) + 4 for k, v in sent.items()) + len(body)
            )
            received = sum(len(key) + len(value) + 4 for key, value in response.raw_headers)
            self.bytes_received += _on_the_wire(received + 17 + size)
            return response.status, b"".join(parts)

    def _open(self) -> aiohttp.ClientSession:
        if self._closed:
            raise PeerUnreachable(f"{self.peer.address} is not called any more")
        if self._session is None:
            # The connector compares the fingerprint right after the handshake, before the request
            # is written; TLS uses the context of each request.
            connector = aiohttp.TCPConnector(
                ssl=self._expected,
                limit=MAX_CONNECTIONS,
                keepalive_timeout=KEEPALIVE,
                resolver=aiohttp.ThreadedResolver(),
                ttl_dns_cache=10,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                headers={
                    wire.PROTOCOL_HEADER: str(wire.PROTOCOL),
                    "Content-Type": wire.CONTENT_TYPE,
                },
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
                auto_decompress=False,
            )
        return self._session


async def call_once(
    identity: Identity,
    peer: Peer,
    method: str,
    payload: Mapping[str, Any] | None = None,
    timeout: float = 5.0,
) -> dict[str, Any]:
    """Like :meth:`PeerClient.call`, for a single call."""
    client = PeerClient(identity, peer, timeout)
    try:
        return await client.call(method, payload)
    finally:
        await client.close()


def content_of(address: str, method: str, status: int, answer: bytes) -> dict[str, Any]:
    """
    What the master at *address* says to *method*.

    :raises PeerError: as :meth:`PeerClient.call`.
    """
    try:
        content = wire.unpack(answer)
    except ValueError:
        raise PeerUnreachable(
            f"{address} answered HTTP {status} and no msgpack; is that an ha listener?"
        ) from None
    if status != 200:
        said = content.get("message")
        reason = harmless(said[:MAX_REASON]) if isinstance(said, str) and said else f"HTTP {status}"
        kind = _REFUSALS.get(status, PeerRefused)
        raise kind(f"{address} refused {method}: {reason}", reason)
    return content


def _on_the_wire(size: int) -> int:
    return size + _RECORD_OVERHEAD * (1 + size // _RECORD)


def _hung_up(exc: Exception) -> bool:
    """Whether the other side closed an established connection."""
    if isinstance(exc, (aiohttp.ClientConnectorError, aiohttp.ServerFingerprintMismatch)):
        return False
    return isinstance(exc, (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, OSError))


def _is_changed(exc: Exception) -> bool:
    return isinstance(
        exc, (aiohttp.ServerFingerprintMismatch, aiohttp.ClientConnectorCertificateError)
    )


def _nobody_listens(exc: Exception) -> bool:
    return isinstance(exc, aiohttp.ClientConnectorError) and isinstance(
        exc.os_error, ConnectionRefusedError
    )


def _reason(exc: Exception) -> str:
    if _is_changed(exc):
        return OTHER_CERTIFICATE
    if isinstance(exc, aiohttp.ClientConnectorSSLError):
        return f"does not speak TLS 1.3: {reason_of(exc.os_error)}"
    if _hung_up(exc):
        return "hung up; has it pinned this master's certificate?"
    if _nobody_listens(exc):
        return NO_LISTENER
    if isinstance(exc, aiohttp.ClientConnectorError):
        return f"cannot be reached: {reason_of(exc.os_error)}"
    return f"broke off: {type(exc).__name__}"
