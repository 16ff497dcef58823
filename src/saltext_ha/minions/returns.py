"""Collects returns of the jobs that we wait for, including jobs published by another master."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from saltext_ha.common.errors import InvalidRecord
from saltext_ha.keystore.minion_key import is_id
from saltext_ha.salt_bus.intake import FROM_PEER, HELD_EACH, MemoryBudget, weigh

Keep = Callable[[Any], Any]

MAX_JOBS = 256
MAX_RETURNS = 100_000
MAX_STRAYS = 10_000
"""Returns that are kept of a job published elsewhere, whose targets are unknown here."""
OVERHEAD = 300  # bytes of a return besides its id and value
LEFT_OUT = object()
"""The value of a return that was too large for the room that was left."""


class Return(NamedTuple):
    """
    A return: when it came (``time.monotonic``) and the value, or :data:`LEFT_OUT`.

    ``relayed``: another member of Salt's own cluster received it and passed it on. ``retcode``: 0
    where the function did not fail.
    """

    at: float
    value: Any
    relayed: bool = False
    retcode: int = 0


@dataclass
class _Job:
    until: float
    keep: Keep | None = None
    targeted: frozenset[str] | None = None
    returned: dict[str, Return] = field(default_factory=dict)
    held: int = 0
    over: bool = False

    def awaits(self, minion_id: str) -> bool:
        if minion_id in self.returned:
            return False
        if self.targeted is not None:
            return minion_id in self.targeted
        most = MAX_RETURNS if self.keep else MAX_STRAYS
        return len(self.returned) < most and is_id(minion_id)


class Returns:
    """
    Collects the returns of expected jobs from the bus; any thread may use it.

    :param memory: how much memory the kept returns may take.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, memory: MemoryBudget | None = None
    ) -> None:
        self.arrived: Callable[[], None] = lambda: None
        """Called after each return, in the thread of the bus."""
        self._clock = clock
        self._memory = memory or MemoryBudget()
        self._expected: dict[str, _Job] = {}
        self._lock = threading.Lock()

    def __call__(self, tag: str, data: Any) -> None:
        parts = tag.split("/")
        if len(parts) != 5 or parts[1] != "job" or parts[3] != "ret":
            return
        jid, minion_id = parts[2], parts[4]
        with self._lock:
            job = self._expected.get(jid)
            if job is None or not isinstance(data, Mapping) or data.get("id") != minion_id:
                return
            if job.awaits(minion_id):
                value = job.keep(data.get("return")) if job.keep else None
                taken = self._memory.take(size := _size(minion_id, value))
                if not taken and size > HELD_EACH:  # it has returned all the same
                    value = LEFT_OUT
                    taken = self._memory.take(size := _size(minion_id, value))
                if taken:
                    job.held += size
                    code = data.get("retcode")
                    failed = code if isinstance(code, int) else 0
                    came = Return(self._clock(), value, bool(data.get(FROM_PEER)), int(failed))
                    job.returned[minion_id] = came
        self.arrived()

    def expect(self, jids: Iterable[str], seconds: float, keep: Keep | None = None) -> None:
        """
        Note the returns of these jobs, for *seconds* from now on.

        :param keep: returns the part of a value to keep; None: no value is kept.
        :raises InvalidRecord: too many jobs are waited for; nothing was changed.
        """
        self.forget_old()
        now, jids = self._clock(), list(jids)
        with self._lock:
            self._make_room(jids)
            for jid in jids:
                job = self._expected.setdefault(jid, _Job(now + seconds))
                job.until = max(job.until, now + seconds)
                job.keep = keep or job.keep
                job.over = False

    def _make_room(self, jids: Collection[str]) -> None:
        """Make room: jobs without a caller go first, then those of other masters, oldest first."""
        surplus = len(self._expected.keys() | set(jids)) - MAX_JOBS
        others = [(jid, job) for jid, job in self._expected.items() if jid not in jids]
        spare = [jid for jid, job in others if job.over]
        spare += [jid for jid, job in others if not job.over and job.keep is None]
        if surplus > len(spare):
            raise InvalidRecord(f"{MAX_JOBS} jobs are waited for already; try again later")
        for jid in spare[: max(0, surplus)]:
            self._drop(jid)

    def over(self, jids: Iterable[str], seconds: float) -> None:
        """Note that these jobs have no caller now; keep them for *seconds*, while there is room."""
        until = self._clock() + seconds
        with self._lock:
            for job in (self._expected.get(jid) for jid in jids):
                if job is not None:
                    job.over, job.until = True, min(job.until, until)

    def narrow(self, jid: str, targeted: frozenset[str]) -> None:
        """
        Note which minions that job was published to: only their returns are kept. A minion of a job
        knows the job's id, and can make Salt fire returns of it under any name.
        """
        with self._lock:
            job = self._expected.get(jid)
            if job is None:
                return
            job.targeted = targeted
            for minion_id in job.returned.keys() - targeted:
                size = _size(minion_id, job.returned.pop(minion_id).value)
                job.held -= size
                self._memory.give(size)

    def targeted(self, jid: str) -> frozenset[str] | None:
        """The minions that a job was published to, once that is known."""
        with self._lock:
            job = self._expected.get(jid)
            return job.targeted if job else None

    def forget_old(self) -> None:
        """Drop jobs whose time is over."""
        now = self._clock()
        with self._lock:
            for jid in [jid for jid, job in self._expected.items() if job.until < now]:
                self._drop(jid)

    def _drop(self, jid: str) -> None:
        self._memory.give(self._expected.pop(jid).held)

    def of(self, jid: str) -> dict[str, Return]:
        """The returns of that job so far: minion id → return."""
        with self._lock:
            job = self._expected.get(jid)
            return dict(job.returned) if job else {}

    def count(self, jid: str) -> int:
        with self._lock:
            job = self._expected.get(jid)
            return len(job.returned) if job else 0

    def failed(self, jid: str) -> int:
        """How many minions have returned it and failed."""
        return sum(bool(each.retcode) for each in self.of(jid).values())


def _size(minion_id: str, value: Any) -> int:
    """About how many bytes a return takes."""
    return OVERHEAD + weigh(minion_id) + weigh(value)
