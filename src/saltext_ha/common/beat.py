"""
Rests that end together: an idle engine wakes once for all its parts, not once for each of them.
"""

from __future__ import annotations

import asyncio

BEAT = 0.5


async def rest(seconds: float) -> None:
    """
    Sleep for about *seconds*, until the next full :data:`BEAT` of the event loop's clock. Shorter
    sleeps are exact.
    """
    if seconds < BEAT:
        await asyncio.sleep(seconds)
        return
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    # Equal times, so that one turn of the loop sees all of them; asyncio.sleep() adds to the time
    # of each call.
    timer = loop.call_at(round((loop.time() + seconds) / BEAT) * BEAT, over.set_result, None)
    try:
        await over
    finally:
        timer.cancel()
