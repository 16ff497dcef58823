"""Who was turned away, and why: counted each time, logged without flooding."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)

LOG_INTERVAL = 60.0
LOG_LINES = 20


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


class Allowance:
    """How many lines others can make us log: *lines* a minute for each who holds one of these."""

    def __init__(self, lines: int = LOG_LINES) -> None:
        self._lines = lines
        self._since = -LOG_INTERVAL
        self._taken = 0

    def take(self) -> bool:
        """Whether one more may be logged now."""
        now = time.monotonic()
        if now - self._since >= LOG_INTERVAL:
            self._since, self._taken = now, 0
        self._taken += 1
        return self._taken <= self._lines


class HttpLog(logging.Logger):
    """
    What aiohttp has to say about a caller's HTTP. It would log a traceback for each request that is
    none, and whoever reaches the port could fill the disk with those.
    """

    def __init__(self, refuse: Callable[[str, str], None]) -> None:
        super().__init__("saltext_ha.peering.http", logging.CRITICAL)
        self._refuse = refuse

    def exception(self, msg: object, *args: object, **more: Any) -> None:
        """Counted by the kind of error, and logged as sparingly as other refusals."""
        error = more.get("exc_info")
        kind = type(error).__name__ if isinstance(error, BaseException) else "error"
        self._refuse(f"HTTP: {kind}", str(args[0]) if args else "?")
