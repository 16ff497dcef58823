"""
Pauses that end together, so that an idle engine wakes once for all its parts, not once for each. A
pause can also be ended early.
"""

from __future__ import annotations

import asyncio

BEAT = 0.5


async def rest(seconds: float) -> None:
    """
    Sleep for about *seconds*, until the next full :data:`BEAT` of the event loop's clock. Shorter
    sleeps are exact.
    """
    await Rests().rest(seconds)


class Rests:
    """The rests of one task, which others may end before their time; in one event loop."""

    def __init__(self) -> None:
        self._woken = False
        self._over: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """End the present rest; if there is none, the next ends at once."""
        self._woken = True
        self._end()

    async def rest(self, seconds: float) -> bool:
        """As :func:`rest`; returns whether :meth:`wake` ended it."""
        if not self._woken:
            loop = asyncio.get_running_loop()
            at = loop.time() + seconds
            if seconds >= BEAT:
                # Equal times, so that one turn of the loop sees all of them.
                at = round(at / BEAT) * BEAT
            self._over = loop.create_future()
            timer = loop.call_at(at, self._end)
            try:
                await self._over
            finally:
                timer.cancel()
        woken, self._woken = self._woken, False
        return woken

    def _end(self) -> None:
        if self._over and not self._over.done():
            self._over.set_result(None)
