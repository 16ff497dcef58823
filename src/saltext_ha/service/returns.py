"""Who has returned the jobs that we wait for? Also those that another master has published."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from saltext_ha.service.events import FROM_PEER

Keep = Callable[[Any], Any]

MAX_JOBS = 256
MAX_RETURNS = 100_000


class Return(NamedTuple):
    """
    A return: when it came (``time.monotonic``) and the value.

    ``relayed``: it came to another member of Salt's own cluster, which passed it on.
    """

    at: float
    value: Any
    relayed: bool = False


def _nothing(value: Any) -> None:
    return None


@dataclass
class _Job:
    until: float
    keep: Keep = _nothing
    returned: dict[str, Return] = field(default_factory=dict)


class Returns:
    """Collects the returns of expected jobs off the bus; any thread may use it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.arrived: Callable[[], None] = lambda: None
        """Called at every one of them, in the thread of the bus."""
        self._clock = clock
        self._expected: dict[str, _Job] = {}
        self._lock = threading.Lock()

    def __call__(self, tag: str, data: Any) -> None:
        """An event of the bus."""
        parts = tag.split("/")
        if len(parts) != 5 or parts[1] != "job" or parts[3] != "ret":
            return
        jid, minion_id = parts[2], parts[4]
        with self._lock:
            job = self._expected.get(jid)
            if job is None or not isinstance(data, Mapping) or data.get("id") != minion_id:
                return
            if len(job.returned) < MAX_RETURNS and minion_id not in job.returned:
                value = job.keep(data.get("return"))
                came = Return(self._clock(), value, bool(data.get(FROM_PEER)))
                job.returned[minion_id] = came
        self.arrived()

    def expect(self, jids: Iterable[str], seconds: float, keep: Keep | None = None) -> None:
        """
        From now on, and for so long, note who returns these jobs.

        :param keep: what to keep of the values; without, nothing.
        """
        now = self._clock()
        with self._lock:
            for jid in [jid for jid, job in self._expected.items() if job.until < now]:
                del self._expected[jid]
            for jid in jids:
                job = self._expected.setdefault(jid, _Job(now + seconds))
                job.until = max(job.until, now + seconds)
                job.keep = keep or job.keep
            for jid in list(self._expected)[:-MAX_JOBS]:
                del self._expected[jid]

    def of(self, jid: str) -> dict[str, Return]:
        """What was returned for that job so far: minion id → return."""
        with self._lock:
            job = self._expected.get(jid)
            return dict(job.returned) if job else {}

    def count(self, jid: str) -> int:
        """How many have returned it."""
        with self._lock:
            job = self._expected.get(jid)
            return len(job.returned) if job else 0
