"""Rests that end together."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from saltext_ha.common.beat import BEAT, Rests, rest
from tests.loop import in_a_loop


@in_a_loop
async def test_whatever_began_in_between_ends_in_one_turn_of_the_loop() -> None:
    turn, ended = 0, []

    async def one(late: int) -> None:
        for _ in range(late):
            await asyncio.sleep(0)
        await rest(BEAT)
        ended.append(turn)

    loop = asyncio.get_running_loop()

    def count() -> None:
        nonlocal turn
        turn += 1
        loop.call_soon(count)

    await rest(BEAT)  # to a beat: what begins soon after it ends at the next
    loop.call_soon(count)
    await asyncio.gather(*(one(number) for number in range(20)))
    assert len(ended) == 20
    assert len(set(ended)) == 1


def test_each_rest_ends_at_another_beat() -> None:
    async def act() -> list[float]:
        ends = []
        for _ in range(4):
            await rest(BEAT)
            ends.append(asyncio.get_running_loop().time())
        return ends

    for earlier, later in pairwise(asyncio.run(act())):
        assert later // BEAT > earlier // BEAT


def test_a_short_one_is_exact() -> None:
    async def act() -> None:
        loop, asked = asyncio.get_running_loop(), list[tuple[float, float]]()
        call_at = loop.call_at

        def noted(when: float, *what: Any, **more: Any) -> asyncio.TimerHandle:
            asked.append((when, loop.time()))
            return call_at(when, *what, **more)

        loop.call_at = noted  # type: ignore[method-assign]
        began = loop.time()
        await rest(0.001)
        # However late this machine wakes it.
        ((when, now),) = asked
        assert began + 0.001 <= when <= now + 0.001

    asyncio.run(act())


@in_a_loop
async def test_one_that_is_broken_off_leaves_nothing() -> None:
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: errors.append(what))
    resting = asyncio.ensure_future(rest(BEAT))
    await asyncio.sleep(0)
    resting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await resting
    await rest(2 * BEAT)
    assert not errors


@in_a_loop
async def test_a_rest_ends_when_it_is_woken_and_the_next_one_is_whole_again() -> None:
    rests, loop = Rests(), asyncio.get_running_loop()
    resting = asyncio.ensure_future(rests.rest(3600))
    await asyncio.sleep(0)
    rests.wake()
    assert await asyncio.wait_for(resting, 60) is True
    rests.wake()  # nobody rests now
    assert await asyncio.wait_for(rests.rest(3600), 60) is True
    began = loop.time()
    assert await rests.rest(2 * BEAT) is False
    assert loop.time() - began >= BEAT
