"""Tests that are coroutines, and what they wait for."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable
from typing import Any


def in_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """*test*, a coroutine function, in an event loop of its own."""

    @functools.wraps(test)
    def run_it(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))  # type: ignore[arg-type]

    return run_it


async def until(condition: Callable[[], object], what: str = "", deadline: float = 120.0) -> None:
    """
    Wait for *condition*, looking again every 10 ms.

    :param what: what is waited for, where the line of the call does not say it
    :param deadline: in seconds
    """

    async def look() -> None:
        while not condition():
            await asyncio.sleep(0.01)

    try:
        await asyncio.wait_for(look(), deadline)
    except asyncio.TimeoutError:
        raise AssertionError(f"not within {deadline:g} s{what and f': {what}'}") from None


async def becomes(read: Callable[[], Awaitable[object]], wanted: object) -> None:
    """Wait until *read* returns what is *wanted*, for two minutes."""
    end = time.monotonic() + 120
    while (found := await read()) != wanted:
        assert time.monotonic() < end, f"{found} is not {wanted}"
        await asyncio.sleep(0.05)
