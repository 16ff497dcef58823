"""The one background thread of a pool: it probes masters, so that calls need not."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Sequence

from saltext_ha.api.deadline import LONGEST
from saltext_ha.api.master import MasterApi

log = logging.getLogger(__name__)

# So that many pools that started together do not log in together for ever.
JITTER = 0.1
END_WITHIN = 1.0  # seconds that closing waits for a probe under way


class Prober:
    """
    Probes each master about every *interval* seconds. A healthy one that a call proved good in the
    meantime is left alone.

    :param limit: seconds that a probe may take.
    """

    def __init__(self, masters: Sequence[MasterApi], interval: float, limit: float) -> None:
        self._masters, self._interval, self._limit = list(masters), interval, limit
        self._due = {master.name: 0.0 for master in masters}
        self._wake, self._closed = threading.Event(), False
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the thread, unless it runs."""
        with self._lock:
            if not self._closed and (self._thread is None or not self._thread.is_alive()):
                # A daemon: an application that forgets to close the pool can still end.
                self._thread = threading.Thread(target=self._run, name="salt-api-pool", daemon=True)
                self._thread.start()

    def suspect(self, master: MasterApi) -> None:
        """Probe *master* now: a call met something odd."""
        self._due[master.name] = 0.0
        self._wake.set()

    def abandon(self) -> None:
        """End the thread when it wakes next; takes no lock, so that a finalizer may call it."""
        self._closed = True

    def close(self) -> None:
        """End the thread, without waiting for the probe of a hung master."""
        with self._lock:
            self._closed = True
            self._wake.set()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(END_WITHIN)

    def _run(self) -> None:
        while not self._closed:
            self._wake.clear()
            for master in self._masters:
                if self._closed:
                    return
                if self._due[master.name] <= time.monotonic():
                    self._probe(master)
            wait = min(self._due.values()) - time.monotonic()
            self._wake.wait(min(max(0.0, wait), LONGEST))

    def _probe(self, master: MasterApi) -> None:
        # Before the probe: a suspicion that comes up while it runs asks for another one.
        jitter = random.uniform(1 - JITTER, 1 + JITTER)  # nosec B311
        asked_for = self._due[master.name] == 0.0
        self._due[master.name] = time.monotonic() + self._interval * jitter
        proved = time.monotonic() - master.last_good < self._interval
        if proved and master.health.usable and not asked_for:
            return
        try:
            master.probe(self._limit)
        except Exception:  # the thread must survive unforeseen errors
            log.exception("api_pool master=%s event=probe_failed", master.name)
