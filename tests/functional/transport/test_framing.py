"""Requests whose end two readers might see in different places, at each of the three listeners."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.engines import Engine, Place, free_port
from saltext_ha.transport.framing import MAX_AHEAD, MAX_HEAD, MAX_LINES, Framing, Unframed
from tests.engines import running
from tests.fixtures import named
from tests.functional.web.test_status_listener import served
from tests.loop import in_a_loop
from tests.peers import Master, befriend, echo, http, raw_call

pytestmark = pytest.mark.usefixtures("no_bus")

m1, m2 = named(Master, "m1", "m2")

CHUNKED = b"Transfer-Encoding: chunked\r\n"
HEADS = {
    "two lengths": (b"Content-Length: 3\r\nContent-Length: 3\r\n", b"abc", 400),
    "a list of lengths": (b"Content-Length: 3, 3\r\n", b"abc", 400),
    "a signed length": (b"Content-Length: +3\r\n", b"abc", 400),
    "length and chunks": (b"Content-Length: 5\r\n" + CHUNKED, b"0\r\n\r\n", 411),
    "chunks": (CHUNKED, b"3\r\nabc\r\n0\r\n\r\n", 411),
    "trailers": (CHUNKED, b"0\r\n" + b"a: b\r\n" * 9000, 411),
    "chunks, hidden": (b"Transfer-Encoding : chunked\r\n", b"0\r\n\r\n", 400),
    "a folded line": (b"X-A: b\r\n c: d\r\n", b"", 400),
    "a bare line end": (b"X-A: b\nContent-Length: 3\r\n", b"abc", 400),
    "a line that is none": (b"X-A\r\n", b"", 400),
    "another protocol with a body": (b"Upgrade: x\r\nContent-Length: 3\r\n", b"abc", 400),
    "many lines": (b"X-A: b\r\n" * (MAX_LINES + 1), b"", 431),
    "a head without end": (b"X-A: b\r\n" * (MAX_HEAD // 8), b"", 431),
    "a long line": (b"X-A: " + b"b" * MAX_HEAD + b"\r\n", b"", 431),
}


@pytest.mark.parametrize("name", HEADS)
@in_a_loop
async def test_peers(m1: Master, m2: Master, name: str) -> None:
    befriend(m1, m2)
    lines, body, status = HEADS[name]
    proper = http("/v1/echo", b"").replace(b"Content-Length: 0\r\n", b"")
    request = proper.replace(b"\r\n\r\n", b"\r\n" + lines + b"\r\n") + body

    async with m1.running({"echo": echo}) as listener:
        for caller in (m2, None):
            answer = await raw_call(m1, request, caller)
            assert answer.startswith(b"HTTP/1.1 %d " % status), answer
        assert sum(listener.refused.values()) == 2


@pytest.mark.parametrize("name", HEADS)
@in_a_loop
async def test_who_looks_and_who_commands(root: Path, name: str) -> None:
    lines, body, status = HEADS[name]
    place = Place(root, "m1", {"status": {"port": free_port()}})

    async def ask(sock: socket.socket, first: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(sock=sock)
        try:
            writer.write(first + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n" + lines + b"\r\n" + body)
            return await asyncio.wait_for(reader.read(), 60)
        finally:
            writer.close()

    async with running(place) as (engine,):
        await served(engine)
        looks = await ask(looker(place), b"GET /status.json")
        commands = await ask(runner(place), b"POST /status")
        for answer in (looks, commands):
            assert answer.startswith(b"HTTP/1.1 %d " % status), answer


def looker(place: Place) -> socket.socket:
    assert place.config.status
    return socket.create_connection(("127.0.0.1", place.config.status.port))


def runner(place: Place) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(place.config.control_socket))
    return sock


@in_a_loop
async def test_who_asks_again_before_the_answer_is_there_waits_and_no_more_than_a_little(
    root: Path,
) -> None:
    place = Place(root, "m1", {"status": {"port": free_port()}})
    one = b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

    async def main(engine: Engine) -> None:
        reader, writer = await asyncio.open_connection(sock=looker(place))
        writer.write(one * 20)
        for _ in range(20):
            assert (await reader.readuntil(b"live\n")).startswith(b"HTTP/1.1 200 ")
        # The answer to the first of these never ends.
        writer.write(one.replace(b"/live", b"/events") + one * (2 * MAX_AHEAD // len(one)))
        while await asyncio.wait_for(reader.read(65536), 60):
            pass
        writer.close()
        assert engine.service._status
        assert engine.service._status.refused == {"asked without waiting for the answer": 1}

    async with running(place) as (engine,):
        await served(engine)
        await main(engine)


# -- what is let through, whatever the parts in which it comes


@given(
    st.lists(st.binary(max_size=300), min_size=1, max_size=5),
    st.lists(st.integers(1, 400), min_size=1, max_size=20),
)
def test_requests_come_through_one_at_a_time(bodies: list[bytes], sizes: list[int]) -> None:
    asked = [http("/v1/echo", body) for body in bodies]
    framing, sent, came = Framing(), b"".join(asked), [b""]
    position = 0
    while position < len(sent):
        size = sizes[position % len(sizes)]
        came[-1] += framing.take(sent[position : position + size])
        position += size
        while came[-1] == asked[len(came) - 1]:
            came.append(b"")
            if len(came) > len(asked):
                break
            came[-1] += framing.answered()
    assert came[:-1] == asked


@given(st.binary(max_size=400))
def test_noise_is_cut_off_or_waits_for_its_end(noise: bytes) -> None:
    sent, through = noise + b"\r\n\r\n", b""
    with contextlib.suppress(Unframed):
        through = Framing().take(sent)
    assert sent.startswith(through)
    # What is let through has a method and an end.
    assert not through or re.match(rb"[A-Z]{1,20} .*?\r\n\r\n", through, re.DOTALL)
