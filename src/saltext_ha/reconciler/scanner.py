"""Starts looks at the key store: on hints, when a folder's time changed, and at intervals."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from saltext_ha.common.beat import rest
from saltext_ha.common.tasks import Tasks
from saltext_ha.reconciler.core import Core
from saltext_ha.reconciler.hints import Hints

FOLDER_INTERVAL = 0.5
# If folders change all the time, passes over the store may cost at most this share of a processor:
# Salt's events tell of changes, too.
WATCH_SHARE = 0.05
# The folders' times show most changes, so a regular pass finds next to nothing.
REGULAR_SHARE = 0.0005
# A pass of any cost is delayed by at most this many intervals.
LONGEST = 10


class Scanner:
    """
    Has *core* look at the key store.

    :param interval: seconds between two passes over a store that seems unchanged; longer if passes
        would cost too much, see :func:`pause`.
    """

    def __init__(self, core: Core, hints: Hints, interval: float) -> None:
        self._core = core
        self._hints = hints
        self._interval = interval

    def start(self, tasks: Tasks) -> None:
        """Start looking, in three new tasks of *tasks*."""
        tasks.start("follow hints", self._follow_hints())
        tasks.start("watch folders", self._watch_folders())
        tasks.start("scan", self._scan_regularly())

    async def _follow_hints(self) -> None:
        while True:
            await self._core.hinted(await self._hints.next())

    async def _watch_folders(self) -> None:
        core, loop, over = self._core, asyncio.get_running_loop(), threading.Event()
        watching = ThreadPoolExecutor(1, thread_name_prefix="ha-folders")
        wait = FOLDER_INTERVAL
        try:
            while True:
                changed = await loop.run_in_executor(watching, self._until_due, wait, over)
                due = changed or bool(await core.run(core.keeper.newcomers.due))
                cost = await core.scan() if due else 0.0
                wait = pause(FOLDER_INTERVAL, cost, WATCH_SHARE)
        finally:
            over.set()
            watching.shutdown(wait=False)

    def _until_due(self, wait: float, over: threading.Event) -> bool:
        """
        Return when a folder has changed, or when new ids wait for room. This is in a thread that
        rests by itself: to wake it from the event loop each time would cost five times as much.

        :return: whether a folder has changed.
        """
        store, newcomers = self._core.keeper.store, self._core.keeper.newcomers
        while not over.wait(wait):
            if self._core.timed(store.touched):
                return True
            if newcomers.waiting:
                break
            wait = FOLDER_INTERVAL
        return False

    async def _scan_regularly(self) -> None:
        wait = self._interval
        while True:
            await rest(wait)
            cost = await self._core.scan()
            watched = self._core.keeper.store.watched
            wait = pause(self._interval, cost, REGULAR_SHARE) if watched else self._interval


def pause(interval: float, cost: float, share: float) -> float:
    """
    Seconds until the next pass, if the last one took *cost* seconds of a processor, and passes may
    take this *share* of one; :data:`LONGEST` intervals at most.
    """
    return min(max(interval, cost / share), interval * LONGEST)
