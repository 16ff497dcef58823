"""
Checks at intervals whether the masters are the same, and fires an event when the answer changes.

A master that leaves is dropped from the last answer at once. When a master joins or comes back, all
are compared as soon as it has been up for a moment. After a join it is unknown until then whether
the masters differ. The same holds after a restart, unless the last answer was "the same": a restart
keeps only the number of differences, and some may be gone. If masters differ, they are compared a
moment after a deployment, too: it may have mended that. If only what git fetched differs, and some
of it did not before, it counts if it is still so a moment later.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from saltext_ha.common.errors import HaError
from saltext_ha.common.file_looks import Looks
from saltext_ha.common.files import read_plain, write_whole
from saltext_ha.consistency import freshness, news
from saltext_ha.consistency.remaining import without
from saltext_ha.consistency.sections import KEYS
from saltext_ha.health import group_state

log = logging.getLogger(__name__)

FILE = "consistency.json"
# Seconds from the start to the first check: engines have met by then. It also warms the file cache.
FIRST = 60.0
# Seconds for which no master may have come up or gone down before new masters are compared.
SETTLED = 3.0
TURN = 0.5
# Seconds until the next comparison if the last one lacked a master that is up.
RETRY = 60.0


class ConsistencyWatch:
    """
    Keeps the last answer.

    :param folder: keeps the answer over a restart, so that one difference does not fire two events.
    :param announce: fires ``salt/ha/drift`` and ``salt/ha/consistent``.
    :param interval: seconds between two checks of the engine; 0: no checks.
    :param members: returns the present members of the group.
    :param up: returns the members that answer.
    :param looks: looks at *folder*; if it hangs, nothing is written.
    :param fetched: seconds within which masters fetch by git what another one has fetched.
    """

    def __init__(
        self,
        folder: Path,
        master: str,
        announce: Callable[[str, Mapping[str, Any]], None],
        interval: float,
        members: Callable[[], Collection[str]] | None = None,
        up: Callable[[], Iterable[str]] = tuple,
        looks: Looks | None = None,
        fetched: float = 0.0,
    ) -> None:
        self._looks = looks or Looks()
        self._path = folder / FILE
        self._master = master
        self._announce = announce
        self._interval = interval
        self._members = members
        self._up = up
        self._fetched = fetched
        self._failed = ""
        self._mended = False
        self.last = self._load()
        self.answer: Mapping[str, Any] | None = None
        """The last answer with all that differs; not kept over a restart."""
        self._asked = self.last.masters if self.last.status == group_state.SAME else frozenset()
        """Masters that took part in the last comparison and have been up since."""

    def mended(self) -> None:
        """Something was done that may end differences: do not show them until the interval ends."""
        self._mended = True

    def note(self, answer: Mapping[str, Any]) -> None:
        """Take an answer about all sections."""
        self._failed = ""
        self._asked = frozenset(answer["masters"]) - answer["unknown"].keys()
        self._take(answer, time.time())

    def compared(self, level: bool) -> dict[str, Any]:
        """
        What the last comparison means now; see :func:`.group_state.compared`.

        :param level: whether all masters have the same keys now.
        """
        stale = self.stale()
        return group_state.compared(self.last.data(), self.answer, stale, level)

    def shown(self, level: bool = False) -> dict[str, Any] | None:
        """The part of :meth:`compared` that ``ha.status`` tells; None before the first."""
        found = self.compared(level)
        if not self.last.status and not found["stale"]:
            return None
        told = {key: found[key] for key in ("status", "counts", "unknown", "stale")}
        return {**told, "at": self.last.at}

    def stale(self) -> str:
        """Why the last answer does not count any more; empty while it does."""
        why = freshness.stale(self.last.at, time.time(), self._interval, self._failed)
        return why or self._members_changed()

    async def run(self, check: Callable[[], Awaitable[Mapping[str, Any]]]) -> None:
        """Check once an interval, for ever; never if the interval is 0."""
        interval = self._interval
        if not interval:
            return
        # The masters of a group must not all check at the same time.
        pause = min(FIRST, interval) * random.uniform(0.8, 1.2)  # nosec B311
        while True:
            await self._pause(pause)
            pause = interval * random.uniform(0.9, 1.1)  # nosec B311
            up = frozenset(self._up())
            try:
                answer = await check()
                if news.only_fetched(answer, self.last):
                    await asyncio.sleep(min(self._fetched, interval))
                    answer = await check()
                self.note(answer)
            except HaError as exc:
                self._failed = str(exc)
                log.warning("ha consistency: not checked: %s", exc)
            except Exception as exc:
                self._failed = f"{type(exc).__name__}; salt-master's log says why"
                # The engine, which keeps the keys the same, must go on.
                log.exception("ha consistency: not checked")
            # A master that is up and could not be compared is asked again soon; one that went down,
            # when it is back.
            now = frozenset(self._up())
            self._asked = up & now
            if now & self._lacking():
                pause = min(pause, RETRY)

    async def _pause(self, seconds: float) -> None:
        """
        Wait *seconds*, or until a master is up that the last comparison lacked, or a moment after
        :meth:`mended`.
        """
        now = time.monotonic()
        end, settled, before = now + seconds, now + _settling(1), frozenset(self._up())
        while (now := time.monotonic()) < end:
            up = frozenset(self._up())
            if up != before:
                # A master that comes back may have another configuration now.
                self._asked -= before - up
                before, settled = up, now + _settling(len(up))
            if self._mended:
                self._mended = False
                if self.last.status != group_state.SAME:
                    end = min(end, now + _settling(len(up)))
            if now >= settled and up - self._asked:
                return
            await asyncio.sleep(min(TURN, end - now))

    def _lacking(self) -> set[str]:
        """The masters that the last comparison lacked, or whose keys were not known then."""
        sections = self.answer["sections"] if self.answer else {}
        keys = sections.get(KEYS, {}).get("unknown") or {}
        return {*(self.last.unknown or {}), *keys}

    def _take(self, answer: Mapping[str, Any], at: float) -> None:
        """Keep *answer*, made *at* (Unix seconds), and fire the event that follows from it."""
        self.answer = answer
        before = self.last
        self.last, happened = news.follow(before, answer, at)
        if happened:
            data = news.event(answer, self._master)
            log.info("ha %s: differences=%d", happened, data["count"])
            if happened == news.DRIFTED:
                self._announce("drift", data)
            else:
                self._announce("consistent", data)
        if self.last.data() != before.data():
            with contextlib.suppress(OSError):
                self._looks(lambda: None)
                write_whole(self._path, json.dumps(self.last.data()).encode())

    def _members_changed(self) -> str:
        """
        Drop masters that have left from the last answer. Returns why the answer does not count: a
        master joined, or one left and its differences are no longer known.
        """
        if self._members is None or not self.last.masters:
            return ""
        members = frozenset(self._members())
        gone = self.last.masters - members
        if gone and self.answer is not None:
            self._take(without(self.answer, gone), self.last.at)
            gone = frozenset()
        came = members - self.last.masters
        if came:
            return f"{', '.join(sorted(came))} came since"
        return f"{', '.join(sorted(gone))} left since" if gone else ""

    def _load(self) -> news.Last:
        try:
            return news.Last.read(json.loads(read_plain(self._path)))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return news.Last()


def _settling(masters: int) -> float:
    """Seconds; random, so that the masters of a large group do not all ask at once."""
    return SETTLED * random.uniform(1, 1 + masters / 4)  # nosec B311
