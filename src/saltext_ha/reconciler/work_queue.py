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


class Work(NamedTuple):
    """An id to look at."""

    at: float
    """Not before this time."""
    certain_at: float = math.inf
    """From this time on it is believed that an absent key is gone."""
    deleted_by: str | None = None
    """By whom Salt reported it as deleted; None: it did not. Only Salt's event tells this."""
    signed_in: bool = False
    """Whether its key waited, and its minion says that it is accepted; only Salt's event tells."""


class WorkQueue:
    """
    Filled and emptied in one thread; any thread may use :attr:`next` and :meth:`wake`. Times are
    seconds of *clock*, which only grows.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = self._wake = math.inf
        self._waiting: dict[str, Work] = {}

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
        self._put(ids, RETRY, by if deleted else None)

    def done(self, ids: Iterable[str], deleted: bool = False) -> None:
        """What *ids* show is recorded; with *deleted*, also the deletion that Salt reported."""
        for minion_id in ids:
            work = self._waiting.get(minion_id)
            if work and (deleted or work.deleted_by is None):
                del self._waiting[minion_id]

    def sign_in(self, minion_id: str) -> None:
        """The key of an id, which is looked at now, waited; its minion says that it is accepted."""
        self._waiting[minion_id] = self._waiting[minion_id]._replace(signed_in=True)

    def signed_in(self, minion_id: str) -> bool:
        """Whether :meth:`sign_in` was said of an id since what it showed was last recorded."""
        return minion_id in self._waiting and self._waiting[minion_id].signed_in

    def look_again(self, minion_id: str, believe: bool = True) -> None:
        """
        Look at an id again in a moment, and *believe* what it shows then; or look as if for the
        first time.
        """
        at, certain_at = self._clock() + SETTLE, math.inf
        known = self._waiting.get(minion_id, Work(math.inf))
        if believe:
            at = certain_at = min(at, known.certain_at)
        self._waiting[minion_id] = known._replace(at=at, certain_at=certain_at)
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
        for minion_id, work in self._waiting.items():
            if work.deleted_by is not None:
                together.setdefault(work.deleted_by, []).append(minion_id)
        return [
            Task.look(some, by, deleted=True)
            for by, ids in together.items()
            for some in batches(ids)
        ]

    def take(self) -> list[Task]:
        """The due tasks, and those of :meth:`late`; due again after a while unless :meth:`done`."""
        self._wake = math.inf
        now = self._clock()
        due = {i: work for i, work in self._waiting.items() if work.at <= now}
        self._put(due, RETRY)
        self._next = min((work.at for work in self._waiting.values()), default=math.inf)
        tasks = self.late()
        for certain in (True, False):
            ids = [
                minion_id
                for minion_id, work in due.items()
                if work.deleted_by is None and (work.certain_at <= now) is certain
            ]
            if ids:
                tasks.append(Task.look(ids, certain=certain))
        return tasks

    def _put(self, ids: Collection[str], delay: float, deleted_by: str | None = None) -> None:
        at = self._clock() + delay
        new = Work(at, deleted_by=deleted_by)
        for minion_id in ids:
            known = self._waiting.get(minion_id)
            if known:
                by = known.deleted_by if deleted_by is None else deleted_by
                self._waiting[minion_id] = known._replace(at=at, deleted_by=by)
            else:
                self._waiting[minion_id] = new
        if ids:
            self._next = min(self._next, at)
