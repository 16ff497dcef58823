"""Who has returned the jobs that we wait for? Also those that another master has published."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from saltext_ha.service.heard import FROM_PEER

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


class Returns:
    """Collects the returns of expected jobs off the bus; any thread may use it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.arrived: Callable[[], None] = lambda: None
        """Called at every one of them, in the thread of the bus."""
        self._clock = clock
        self._expected: dict[str, tuple[float, dict[str, Return]]] = {}
        self._lock = threading.Lock()

    def __call__(self, tag: str, data: Any) -> None:
        """An event of the bus."""
        parts = tag.split("/")
        if len(parts) != 5 or parts[1] != "job" or parts[3] != "ret":
            return
        jid, minion_id = parts[2], parts[4]
        with self._lock:
            entry = self._expected.get(jid)
            if entry is None or not isinstance(data, Mapping) or data.get("id") != minion_id:
                return
            if len(entry[1]) < MAX_RETURNS:
                came = Return(self._clock(), data.get("return"), bool(data.get(FROM_PEER)))
                entry[1].setdefault(minion_id, came)
        self.arrived()

    def expect(self, jids: Iterable[str], seconds: float) -> None:
        """From now on, and for so long, keep what is returned for these jobs."""
        now = self._clock()
        with self._lock:
            for jid in [jid for jid, (until, _) in self._expected.items() if until < now]:
                del self._expected[jid]
            for jid in jids:
                self._expected.setdefault(jid, (now + seconds, {}))
            for jid in list(self._expected)[:-MAX_JOBS]:
                del self._expected[jid]

    def of(self, jid: str) -> dict[str, Return]:
        """What was returned for that job so far: minion id → return."""
        with self._lock:
            entry = self._expected.get(jid)
            return dict(entry[1]) if entry else {}

    def count(self, jid: str) -> int:
        """How many have returned it."""
        with self._lock:
            entry = self._expected.get(jid)
            return len(entry[1]) if entry else 0
