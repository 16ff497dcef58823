"""What answers at the address of a master may be anything, and takes no memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from saltext_ha.common.errors import PeerMistrust, PeerUnreachable
from saltext_ha.transport import stranger_calls, tls
from tests.fixtures import named
from tests.loop import in_a_loop
from tests.peers import Master

(m1,) = named(Master, "m1")

OK = b"HTTP/1.1 200 OK\r\n"
MUCH = 64 * 1024 * 1024


@contextlib.asynccontextmanager
async def answering(master: Master, begin: bytes, more: bytes = b"") -> AsyncIterator[list[int]]:
    """A server at the address of *master* says *begin*, then *more* again and again."""
    sent: list[int] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        with contextlib.suppress(OSError):
            writer.write(begin)
            await writer.drain()
            while more and sum(sent) < MUCH:
                writer.write(more)
                await writer.drain()
                sent.append(len(more))
        writer.close()

    server = await asyncio.start_server(
        answer, "127.0.0.1", master.port, ssl=tls.server_context(master.identity, ())
    )
    try:
        yield sent
    finally:
        server.close()


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (OK, b"X-Name: value\r\n" * 5000),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X-Name: value\r\n" * 5000),
        (OK + b"\r\n", b"x" * 65536),
        (OK + b"Content-Length: 99999999\r\n\r\n", b"x" * 65536),
        (OK + b"Content-Length: 8000000\r\n\r\n", b"x" * 65536),
        (b"", b"x" * 65536),
        (b"SSH-2.0-OpenSSH\r\n\r\n", b""),
    ],
)
@in_a_loop
async def test_an_answer_without_end_is_not_read(m1: Master, begin: bytes, more: bytes) -> None:
    async with answering(m1, begin, more) as sent:
        with pytest.raises(PeerUnreachable, match="gives no answer of an ha listener"):
            await stranger_calls.certificates_of(m1.peer, 30.0)
        await asyncio.sleep(0)
        assert sum(sent) < MUCH


@pytest.mark.parametrize("begin", [OK[:5], OK + b"Content-Length: 5\r\n\r\n123"])
@in_a_loop
async def test_half_an_answer_is_none(m1: Master, begin: bytes) -> None:
    async with answering(m1, begin):
        with pytest.raises(PeerMistrust, match="hung up before it answered"):
            await stranger_calls.certificates_of(m1.peer, 30.0)
