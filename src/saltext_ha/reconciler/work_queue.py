"""
The ids of the key store that are to be looked at: when, and why.

An id stays here until what it shows is written down, whatever fails or is interrupted meanwhile:
the store takes it for known once it was read, and does not name it again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from saltext_ha.common.batches import batches
from saltext_ha.replica.history import Receipt
from saltext_ha.replica.replica import Records

# Salt 3008 removes a key before it writes the new state; much longer than it needs for that.
SETTLE = 0.25
# How soon what could not be written is tried again.
RETRY = 5.0
# Minions can have Salt fire such events.
MOST_DELETIONS = 10_000


Revise = Callable[[str, Records], Records]
"""Writes what is heard of an id, whose records are given; returns the records that changed."""


class Task(NamedTuple):
    """Ids to be reconciled together (:meth:`.Reconciler.reconcile`), and how they are looked at."""

    ids: Collection[str]
    by: str = ""
    """Who decided it, as far as known; for people."""
    certain: bool = False
    """
    Believe that an absent key is gone. Otherwise it is only unsettled: Salt 3008 removes a key for
    an instant before it writes the new state.
    """
    deleted: bool = False
    """
    Salt said that these ids were deleted. A key that is pending as before then has knocked again
    since.
    """
    released: bool = False
    """An operator confirmed the disappearance of these ids."""
    adopted: bool = False
    """What they show is nobody's decision; see :meth:`.Reconciler.adopt`."""
    outdated: bool = False
    """And it may be of before records were dropped."""
    blind: bool = False
    """Do not look at the store."""
    revise: Revise | None = None
    """
    Called for each of them, with the records as they are when what changed here is recorded: so
    that an operator's decision is recorded with what that operator could know.
    """
    receipt: Receipt | None = None
    """From whom what :attr:`revise` writes came; None: it is made here."""


class Work(NamedTuple):
    """``at``: not before. ``certain_at``: from when on an absent key is believed to be gone."""

    at: float
    certain_at: float = math.inf


class WorkQueue:
    """
    Filled and emptied in one thread; :attr:`next` and :meth:`wake` are for any. Times are seconds
    of *clock*, which only grows.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = self._wake = math.inf
        self._waiting: dict[str, Work] = {}
        self._deletions: dict[str, str] = {}
        """Those that Salt said were deleted, and by whom; what it said is told nowhere else."""

    def __contains__(self, minion_id: str) -> bool:
        return minion_id in self._waiting

    @property
    def next(self) -> float:
        """When something may be due; never too late."""
        return min(self._next, self._wake)

    def ids(self) -> list[str]:
        """All that wait, due or not."""
        return list(self._waiting)

    def add(self, ids: Collection[str]) -> None:
        """Have *ids* looked at as soon as may be."""
        self._put(ids, 0.0)

    def begin(self, ids: Collection[str], by: str = "", deleted: bool = False) -> None:
        """*ids* are being looked at; where that is not :meth:`done`, they are due again."""
        self._put(ids, RETRY)
        if deleted:
            for minion_id in ids:
                if minion_id in self._deletions or len(self._deletions) < MOST_DELETIONS:
                    self._deletions[minion_id] = by

    def done(self, ids: Iterable[str], deleted: bool = False) -> None:
        """What *ids* show is written down; with *deleted*, what Salt said of them, too."""
        for minion_id in ids:
            if deleted:
                self._deletions.pop(minion_id, None)
            if minion_id not in self._deletions:
                self._waiting.pop(minion_id, None)

    def settle(self, minion_id: str) -> None:
        """What an id shows may change in a moment; what it shows then is believed."""
        known = self._waiting.get(minion_id)
        at = min(self._clock() + SETTLE, known.certain_at if known else math.inf)
        self._waiting[minion_id] = Work(at, at)
        self._next = min(self._next, at)

    def overdue(self) -> float:
        """Seconds for which the first absent key could be believed to be gone; negative: none."""
        first = min((work.certain_at for work in self._waiting.values()), default=math.inf)
        return self._clock() - first

    def wake(self) -> None:
        """Something that is no id is to be tried again."""
        self._wake = self._clock() + RETRY

    def late(self) -> list[Task]:
        """The deletions that Salt told of and that could not be written down yet."""
        together: dict[str, list[str]] = {}
        for minion_id, by in self._deletions.items():
            together.setdefault(by, []).append(minion_id)
        return [
            Task(some, by, deleted=True) for by, ids in together.items() for some in batches(ids)
        ]

    def take(self) -> list[Task]:
        """What is due, and what is late; due again after a while unless it is :meth:`done`."""
        self._wake = math.inf
        now = self._clock()
        due = {i: work.certain_at <= now for i, work in self._waiting.items() if work.at <= now}
        self._put(due, RETRY)
        self._next = min((work.at for work in self._waiting.values()), default=math.inf)
        tasks = self.late()
        for certain in (True, False):
            ids = [i for i in due if due[i] is certain and i not in self._deletions]
            if ids:
                tasks.append(Task(ids, certain=certain))
        return tasks

    def _put(self, ids: Collection[str], delay: float) -> None:
        at = self._clock() + delay
        new = Work(at)
        for minion_id in ids:
            known = self._waiting.get(minion_id)
            self._waiting[minion_id] = Work(at, known.certain_at) if known else new
        if ids:
            self._next = min(self._next, at)
