"""Who was turned away, and why: counted each time, logged without flooding."""

from __future__ import annotations

import logging
import time

log = logging.getLogger(__name__)

LOG_INTERVAL = 60.0


class Refusals:
    """Counts by reason. A reason is logged when it first occurs, then at most once a minute."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._logged: dict[str, tuple[float, int]] = {}

    def add(self, reason: str, host: str) -> None:
        """Count one refusal; *reason* is one of a fixed set, *host* the caller's address."""
        count = self.counts[reason] = self.counts.get(reason, 0) + 1
        now = time.monotonic()
        when, counted = self._logged.get(reason, (-LOG_INTERVAL, 0))
        if now - when >= LOG_INTERVAL:
            self._logged[reason] = (now, count)
            log.warning("refused from=%s reason=%r times=%d", host, reason, count - counted)
