"""While one is worked on, the next one is made."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest

from saltext_ha.common.prefetch import ahead
from tests.loop import in_a_loop


class Numbers:
    """Numbers that take a moment to make; ``made`` are those that were begun."""

    def __init__(self, end: int, error: Exception | None = None) -> None:
        self.made: list[int] = []
        self.ended = False
        self._end, self._error = end, error

    async def __call__(self) -> AsyncGenerator[int, None]:
        try:
            for number in range(self._end):
                self.made.append(number)
                await asyncio.sleep(0)
                yield number
            if self._error:
                raise self._error
        finally:
            self.ended = True


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@in_a_loop
async def test_one_is_begun_before_the_caller_works_and_no_more() -> None:
    numbers, seen = Numbers(4), []
    async with contextlib.aclosing(ahead(numbers())) as coming:
        async for number in coming:
            seen.append((number, numbers.made[-1]))
            await turns()
    assert seen == [(0, 1), (1, 2), (2, 3), (3, 3)]


@in_a_loop
async def test_an_error_comes_after_what_was_made_before_it() -> None:
    coming = ahead(Numbers(2, OSError("gone"))())
    for expected in (0, 1):
        assert await anext(coming) == expected
        await turns()
    with pytest.raises(OSError, match="gone"):
        await anext(coming)


@in_a_loop
async def test_who_leaves_early_ends_it() -> None:
    numbers = Numbers(9)
    async with contextlib.aclosing(ahead(numbers())) as coming:
        async for _ in coming:
            await turns()
            break
    assert numbers.ended
    assert len(asyncio.all_tasks()) == 1


@in_a_loop
async def test_who_is_cancelled_ends_it() -> None:
    numbers = Numbers(9)

    async def work() -> None:
        async with contextlib.aclosing(ahead(numbers())) as coming:
            async for _ in coming:
                await asyncio.sleep(60)

    task = asyncio.ensure_future(work())
    await turns()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert numbers.ended
    assert len(asyncio.all_tasks()) == 1
