"""When is the key store looked at? On hints, when a folder's time changed, and at intervals."""

from __future__ import annotations

import asyncio

from saltext_ha.service.core import Core
from saltext_ha.service.hints import Hints
from saltext_ha.service.tasks import Tasks

FOLDER_INTERVAL = 1.0
# What happens in the folders is seen by their times, and a regular pass finds next to nothing: it
# is to cost no more than this part of a processor, unless it were put off this many intervals.
SHARE = 0.005
LONGEST = 10


class Scanner:
    """
    Has *core* look.

    :param interval: seconds between two passes over a store where nothing seems to happen; longer
        where these would cost too much, see :func:`pause`.
    """

    def __init__(self, core: Core, hints: Hints, interval: float) -> None:
        self._core = core
        self._hints = hints
        self._interval = interval

    def start(self, tasks: Tasks) -> None:
        """Look, as three of *tasks*, for as long as these run."""
        tasks.start("follow hints", self._follow_hints())
        tasks.start("watch folders", self._watch_folders())
        tasks.start("scan", self._scan_regularly())

    async def _follow_hints(self) -> None:
        while True:
            await self._core.hinted(await self._hints.next())

    async def _watch_folders(self) -> None:
        core = self._core
        while True:
            await asyncio.sleep(FOLDER_INTERVAL)
            if await core.run(core.keeper.store.touched) or core.keeper.missed:
                await core.scan()

    async def _scan_regularly(self) -> None:
        wait = self._interval
        while True:
            await asyncio.sleep(wait)
            cost = await self._core.scan()
            wait = (
                pause(self._interval, cost) if self._core.keeper.store.watched else self._interval
            )


def pause(interval: float, cost: float) -> float:
    """Seconds until the next regular pass, after one that cost *cost* seconds of a processor."""
    return min(max(interval, cost / SHARE), interval * LONGEST)
