"""What the simulation takes for the bytes of a call is what a real call has."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from proving.simulation.network import ANSWER_HEAD, REQUEST_HEAD, on_the_wire
from saltext_ha.transport import wire
from tests.peers import Master, befriend, echo


@pytest.mark.parametrize("size", [0, 50, 5_000, 300_000])
def test_bytes_of_a_call(tmp_path: Path, size: int) -> None:
    async def call(payload: dict[str, Any]) -> tuple[int, int, dict[str, Any]]:
        one, other = Master(tmp_path, "m1"), Master(tmp_path, "m2")
        befriend(one, other)
        async with other.running({"echo": echo}), one.calling(other) as client:
            answer = await client.call("echo", payload)
            return client.bytes_sent, client.bytes_received, answer

    payload = {"data": b"x" * size}
    sent, received, answer = asyncio.run(call(payload))
    # Host and Content-Length are as long as their values.
    assert abs(sent - on_the_wire(REQUEST_HEAD + 4 + len(wire.pack(payload)))) <= 8
    assert abs(received - on_the_wire(ANSWER_HEAD + len(wire.pack(answer)))) <= 8
