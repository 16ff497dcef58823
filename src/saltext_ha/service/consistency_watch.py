"""Checks at intervals whether the masters are the same, and says so when the answer changes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from saltext_ha.consistency import freshness, news
from saltext_ha.consistency.result import UNKNOWN
from saltext_ha.errors import HaError
from saltext_ha.peering.files import read_plain, write_whole

log = logging.getLogger(__name__)

FILE = "consistency.json"
# After a start: engines have met by then, and files are read while nobody waits for it.
FIRST = 60.0


class ConsistencyWatch:
    """
    Keeps the last answer.

    :param folder: where it outlives a restart; who was told of a difference is not told again.
    :param announce: fires ``salt/ha/drift`` and ``salt/ha/consistent``.
    :param interval: seconds between two checks that the engine makes; 0: it makes none.
    """

    def __init__(
        self,
        folder: Path,
        master: str,
        announce: Callable[[str, Mapping[str, Any]], None],
        interval: float,
    ) -> None:
        self._path = folder / FILE
        self._master = master
        self._announce = announce
        self._interval = interval
        self._failed = ""
        self.last = self._load()
        self.answer: Mapping[str, Any] | None = None
        """The last answer with all that differs; not kept over a restart."""

    def note(self, answer: Mapping[str, Any]) -> None:
        """An answer about all sections is there."""
        self.answer, self._failed = answer, ""
        before = self.last
        self.last, happened = news.follow(before, answer, time.time())
        if happened:
            data = news.event(answer, self._master)
            log.info("ha %s: differences=%d", happened, data["count"])
            if happened == news.DRIFTED:
                self._announce("drift", data)
            else:
                self._announce("consistent", data)
        if self.last.data() != before.data():
            with contextlib.suppress(OSError):
                write_whole(self._path, json.dumps(self.last.data()).encode())

    def stale(self) -> str:
        """Why the last answer does not count any more; empty while it does."""
        return freshness.stale(self.last.at, time.time(), self._interval, self._failed)

    def shown(self) -> dict[str, Any] | None:
        """The last answer for ``ha.status``, and why it counts no more; None before the first."""
        stale = self.stale()
        if not self.last.status and not stale:
            return None
        last = self.last.data()
        shown = {key: last[key] for key in ("status", "at", "counts", "unknown")}
        return {**shown, "status": UNKNOWN, "stale": stale} if stale else {**shown, "stale": ""}

    async def run(self, check: Callable[[], Awaitable[Mapping[str, Any]]]) -> None:
        """Check every so many seconds, for ever; never when the interval is 0."""
        interval = self._interval
        if not interval:
            return
        # Not all masters of a group at the same time.
        pause = min(FIRST, interval) * random.uniform(0.8, 1.2)  # nosec B311
        while True:
            await asyncio.sleep(pause)
            pause = interval * random.uniform(0.9, 1.1)  # nosec B311
            try:
                self.note(await check())
            except HaError as exc:
                self._failed = str(exc)
                log.warning("ha consistency: not checked: %s", exc)
            except Exception as exc:
                self._failed = f"{type(exc).__name__}; salt-master's log says why"
                # Keys are to be the same whatever becomes of this.
                log.exception("ha consistency: not checked")

    def _load(self) -> news.Last:
        try:
            return news.Last.read(json.loads(read_plain(self._path)))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return news.Last()
