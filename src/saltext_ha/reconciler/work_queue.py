"""
The work queue: the ids of the key store to look at, and when.

An id stays here until what it shows is recorded, whatever fails or is interrupted meanwhile: once
the id was read, the store no longer names it as changed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from saltext_ha.common.batches import batches
from saltext_ha.reconciler.task import Task

# Salt 3008 removes a key before it writes the new state; that takes much less time than this.
SETTLE = 0.25
# How soon a failed look is repeated.
RETRY = 5.0
# Minions can make Salt report deletions.
MOST_DELETIONS = 10_000


class Work(NamedTuple):
    """Look not before ``at``; believe from ``certain_at`` on that an absent key is gone."""

    at: float
    certain_at: float = math.inf


class WorkQueue:
    """
    Filled and emptied in one thread; any thread may use :attr:`next` and :meth:`wake`. Times are
    seconds of *clock*, which only grows.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = self._wake = math.inf
        self._waiting: dict[str, Work] = {}
        self._deletions: dict[str, str] = {}
        """Id that Salt reported as deleted → by whom. Only Salt's event tells this."""

    def __contains__(self, minion_id: str) -> bool:
        return minion_id in self._waiting

    @property
    def next(self) -> float:
        """When something may be due; never too late."""
        return min(self._next, self._wake)

    def ids(self) -> list[str]:
        """All ids that wait, due or not."""
        return list(self._waiting)

    def add(self, ids: Collection[str]) -> None:
        """Have *ids* looked at as soon as possible."""
        self._put(ids, 0.0)

    def begin(self, ids: Collection[str], by: str = "", deleted: bool = False) -> None:
        """A look at *ids* begins; they are due again after a while, unless it is :meth:`done`."""
        self._put(ids, RETRY)
        if deleted:
            for minion_id in ids:
                if minion_id in self._deletions or len(self._deletions) < MOST_DELETIONS:
                    self._deletions[minion_id] = by

    def done(self, ids: Iterable[str], deleted: bool = False) -> None:
        """What *ids* show is recorded; with *deleted*, also the deletion that Salt reported."""
        for minion_id in ids:
            if deleted:
                self._deletions.pop(minion_id, None)
            if minion_id not in self._deletions:
                self._waiting.pop(minion_id, None)

    def look_again(self, minion_id: str, believe: bool = True) -> None:
        """
        Look at an id again in a moment, and *believe* what it shows then; or look as if for the
        first time.
        """
        at, certain_at = self._clock() + SETTLE, math.inf
        if believe:
            known = self._waiting.get(minion_id)
            at = certain_at = min(at, known.certain_at if known else math.inf)
        self._waiting[minion_id] = Work(at, certain_at)
        self._next = min(self._next, at)

    def overdue(self) -> float:
        """For how many seconds an absent key could be believed to be gone; negative: none yet."""
        first = min((work.certain_at for work in self._waiting.values()), default=math.inf)
        return self._clock() - first

    def wake(self, delay: float | None = None) -> None:
        """Try again after *delay* seconds, or :data:`RETRY`; for work that belongs to no id."""
        self._wake = self._clock() + (RETRY if delay is None else delay)

    def late(self) -> list[Task]:
        """The deletions that Salt reported and that could not be recorded yet."""
        together: dict[str, list[str]] = {}
        for minion_id, by in self._deletions.items():
            together.setdefault(by, []).append(minion_id)
        return [
            Task.look(some, by, deleted=True)
            for by, ids in together.items()
            for some in batches(ids)
        ]

    def take(self) -> list[Task]:
        """What is due, and what is :meth:`late`; due again after a while unless :meth:`done`."""
        self._wake = math.inf
        now = self._clock()
        due = {i: work.certain_at <= now for i, work in self._waiting.items() if work.at <= now}
        self._put(due, RETRY)
        self._next = min((work.at for work in self._waiting.values()), default=math.inf)
        tasks = self.late()
        for certain in (True, False):
            ids = [i for i in due if due[i] is certain and i not in self._deletions]
            if ids:
                tasks.append(Task.look(ids, certain=certain))
        return tasks

    def _put(self, ids: Collection[str], delay: float) -> None:
        at = self._clock() + delay
        new = Work(at)
        for minion_id in ids:
            known = self._waiting.get(minion_id)
            self._waiting[minion_id] = Work(at, known.certain_at) if known else new
        if ids:
            self._next = min(self._next, at)
