"""
Calls that show no certificate of ours, to a master that may not be pinned.

Whoever is at that address may answer, before anybody knows that it is no master. So these calls do
without aiohttp: its releases before 3.14 keep a head without end (see :mod:`.framing`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from saltext_ha.common.errors import (
    NobodyListens,
    PeerMistrust,
    PeerUnreachable,
    drop_tracebacks,
    reason_of,
)
from saltext_ha.transport import client, fingerprints, succession, tls, wire
from saltext_ha.transport.framing import MAX_HEAD
from saltext_ha.transport.identity import Identity
from saltext_ha.transport.peer import Peer

NEXT_ADDRESS = 0.25  # seconds until the next address of a host is tried, too
MAX_CERTIFICATES = (succession.MAX_FORMER + 1) * tls.MAX_PEM + wire.MAX_JOIN_BODY
"""Bytes of all that a master has, and of what is around them."""
GOODBYE = 1.0  # seconds for the end of a connection
NO_ANSWER = "gives no answer of an ha listener; what is there?"
_NUMBER = re.compile(r"\[Errno (\d+)\]")
_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})\b")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,9})[ \t]*\r\n", re.IGNORECASE)


async def shown(url: str, timeout: float = 5.0) -> str:
    """
    The fingerprint of the certificate that the server at *url* shows. Nothing is sent to it.

    :raises PeerUnreachable: no server there speaks TLS 1.3.
    """
    try:
        _, writer, server = await asyncio.wait_for(_connect(url), timeout)
    except asyncio.TimeoutError:
        raise PeerUnreachable(f"{urlsplit(url).netloc} timed out") from None
    await _close(writer)
    return server


async def call_stranger(
    url: str,
    expected: str | None,
    method: str,
    payload: Mapping[str, Any],
    timeout: float,
    most: int = client.MAX_ANSWER,
) -> dict[str, Any]:
    """
    Like :func:`.client.call_once`, but shows no certificate of ours.

    :param expected: the fingerprint that the server must show, which is compared before anything is
        sent. None if the answer proves itself and nothing confidential is sent.
    :param most: bytes that the answer may have.
    """
    address = urlsplit(url).netloc
    try:
        asking = _ask(url, expected, method, wire.pack(payload), most)
        status, answer = await asyncio.wait_for(asking, timeout)
    except asyncio.TimeoutError:
        raise PeerUnreachable(f"{address} timed out") from None
    return client.content_of(address, method, status, answer)


async def certificates_of(peer: Peer, timeout: float = 5.0) -> list[str]:
    """
    All certificates of the master at the address of *peer*, the oldest first, as it says. Believe
    only those that follow from a pinned certificate (:func:`.succession.after`).

    :raises PeerError: the master cannot be asked.
    """
    answer = await call_stranger(peer.url, None, "certificates", {}, timeout, MAX_CERTIFICATES)
    said = answer.get("certificates")
    entries = said if isinstance(said, list) else []
    return [tls.read_certificate(pem)[0] for pem in entries[: succession.MAX_FORMER + 1]]


async def introduce(identity: Identity, peer: Peer, name: str, timeout: float = 5.0) -> None:
    """
    Show *peer* all our certificates: if it pinned a former one, it takes over the present one.

    :param name: our name.
    :raises PeerError: *peer* cannot be asked, or does not believe them.
    """
    ours = {"name": name, "certificates": list(identity.chain)}
    await call_stranger(peer.url, peer.fingerprint, "renewed", ours, timeout)


async def _ask(
    url: str, expected: str | None, method: str, body: bytes, most: int
) -> tuple[int, bytes]:
    """The status and the body of the answer."""
    address = urlsplit(url).netloc
    reader, writer, server = await _connect(url)
    try:
        if expected not in (None, server):
            raise PeerMistrust(f"{address} {client.OTHER_CERTIFICATE}")
        writer.write(_request(url, method, len(body)) + body)
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        status, length = _STATUS.match(head), _LENGTH.search(head)
        if not status or not length or int(length[1]) > most:
            raise PeerUnreachable(f"{address} {NO_ANSWER}")
        return int(status[1]), await reader.readexactly(int(length[1]))
    except asyncio.LimitOverrunError:
        raise PeerUnreachable(f"{address} {NO_ANSWER}") from None
    except (OSError, EOFError) as exc:
        drop_tracebacks(exc)  # asyncio keeps it
        raise PeerMistrust(f"{address} hung up before it answered", True) from None
    finally:
        await _close(writer)


def _request(url: str, method: str, length: int) -> bytes:
    return (
        f"POST /v1/{method} HTTP/1.1\r\n"
        f"Host: {urlsplit(url).netloc}\r\n"
        f"{wire.PROTOCOL_HEADER}: {wire.PROTOCOL}\r\n"
        f"Content-Type: {wire.CONTENT_TYPE}\r\n"
        f"Content-Length: {length}\r\n"
        "Connection: close\r\n\r\n"
    ).encode()


async def _connect(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str]:
    """
    Connect to *url*; the last value is the fingerprint of the certificate there.

    :raises PeerUnreachable: no server there speaks TLS 1.3.
    """
    parts = urlsplit(url)
    try:
        # Of a host with several addresses, one may not answer: a firewall may drop IPv6 only.
        reader, writer = await asyncio.open_connection(
            parts.hostname,
            parts.port,
            ssl=tls.joining_context(),
            limit=MAX_HEAD,
            happy_eyeballs_delay=NEXT_ADDRESS,
        )
    except OSError as exc:
        drop_tracebacks(exc)  # asyncio keeps it
        # Where a host has several addresses, the numbers of the errors are in the text only.
        if {*_NUMBER.findall(str(exc))} == {str(errno.ECONNREFUSED)}:
            raise NobodyListens(f"{parts.netloc} {client.NO_LISTENER}") from None
        what = "does not speak TLS 1.3" if isinstance(exc, ssl.SSLError) else "cannot be reached"
        raise PeerUnreachable(f"{parts.netloc} {what}: {reason_of(exc)}") from None
    try:
        certificate = writer.get_extra_info("ssl_object").getpeercert(True)
    except ValueError:
        writer.close()
        raise PeerUnreachable(f"{parts.netloc} hung up") from None
    return reader, writer, fingerprints.of(certificate or b"")


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    try:
        await asyncio.wait_for(writer.wait_closed(), GOODBYE)
    except asyncio.TimeoutError:
        # Python 3.10 would wait for ever. That of 3.11.2 cannot abort what was closed twice.
        with contextlib.suppress(AttributeError):
            writer.transport.abort()
    except OSError:
        pass  # it is over
