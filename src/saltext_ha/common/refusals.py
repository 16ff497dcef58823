"""
Counts callers that were turned away, and why; logs them without flooding, shows them while it
lasts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from saltext_ha.common.errors import drop_tracebacks

log = logging.getLogger(__name__)

LOG_INTERVAL = 60.0
LOG_LINES = 20
# Seconds without another one after which a refusal is over.
OVER = 900.0
# Seconds after a change of the pins in which calls begun before it are still refused: with a former
# certificate, or judged by the pins of before.
UNDERWAY = 30.0
TOLD = 20
# These come from ordinary work: a master checks whether another one is up, joins, renews its
# certificate, or was stopped for a while; or this one cannot write, which its status tells. They
# are neither attacks nor refusals.
HUNG_UP, LATE, IDLE = "hung up during the handshake", "handshake timed out", "no request in time"
RENEWED, UNABLE = "certificate renewed since", "a store or disk of this master"
ORDINARY = (HUNG_UP, LATE, IDLE, RENEWED, UNABLE)


class Refuse(Protocol):
    """:meth:`Refusals.add`."""

    def __call__(self, reason: str, host: str) -> None: ...


@dataclass
class Refusal:
    """
    Refusals of one caller for one reason; *first* and *last* are Unix seconds, *met* is *last* by
    ``time.monotonic``.
    """

    reason: str
    host: str
    first: float
    last: float
    met: float
    times: int = 1

    def data(self) -> dict[str, Any]:
        """Plain data, for ``ha.status``."""
        return {
            "reason": self.reason,
            "from": self.host,
            "times": self.times,
            "first": self.first,
            "last": self.last,
        }


class Refusals:
    """
    Counts by reason. A reason is logged when it first occurs, then at most once a minute.

    :param pinned: when a peer was last pinned, renewed or removed (``time.monotonic``); it opens no
        file, because there may be no descriptor left.
    """

    def __init__(self, pinned: Callable[[], float] = lambda: 0.0) -> None:
        self.counts: dict[str, int] = {}
        self._logged: dict[str, tuple[float, int]] = {}
        self._pinned = pinned
        # The least recent refusal is the first.
        self._lately: dict[tuple[str, str], Refusal] = {}

    def lately(self) -> list[dict[str, Any]]:
        """Refusals that are not over yet, the latest first, at most twenty."""
        since = time.monotonic() - OVER
        return [each.data() for each in reversed(self._lately.values()) if each.met >= since]

    def admitted(self, host: str) -> None:
        """
        Note that a peer from *host* was accepted: its refusals from before a peer was pinned or
        renewed, and shortly after, are over.
        """
        if not self._lately:
            return
        over = self._pinned() + UNDERWAY
        for key, each in list(self._lately.items()):
            if each.host == host and each.met < over:
                del self._lately[key]

    def _note(self, reason: str, host: str, now: float) -> None:
        if reason in ORDINARY:
            return
        at, key = time.time(), (reason, host)
        known = self._lately.pop(key, None)
        if known is None or now - known.met > OVER:
            known = Refusal(reason, host, at, at, now, times=0)
        known.times += 1
        known.last, known.met = at, now
        self._lately[key] = known
        while len(self._lately) > TOLD:
            del self._lately[next(iter(self._lately))]

    def add(self, reason: str, host: str) -> None:
        """
        Count one refusal.

        :param reason: one of a fixed set. :param host: the caller's address.
        """
        count = self.counts[reason] = self.counts.get(reason, 0) + 1
        now = time.monotonic()
        self._note(reason, host, now)
        when, counted = self._logged.get(reason, (-LOG_INTERVAL, 0))
        if now - when >= LOG_INTERVAL:
            self._logged[reason] = (now, count)
            log.warning("refused from=%s reason=%r times=%d", host, reason, count - counted)


class Allowance:
    """Limits the lines that others can make us log: *lines* a minute for each of these objects."""

    def __init__(self, lines: int = LOG_LINES) -> None:
        self._lines = lines
        self._since = -LOG_INTERVAL
        self._taken = 0

    def take(self) -> bool:
        """Whether one more line may be logged now; counts it."""
        now = time.monotonic()
        if now - self._since >= LOG_INTERVAL:
            self._since, self._taken = now, 0
        self._taken += 1
        return self._taken <= self._lines


class HttpLog(logging.Logger):
    """
    Takes aiohttp's complaints about a caller's HTTP. aiohttp would log a traceback for each
    malformed request, and any host that reaches the port could fill the disk.
    """

    def __init__(self, refuse: Refuse) -> None:
        super().__init__("saltext_ha.transport.http", logging.CRITICAL)
        self._refuse = refuse

    def exception(self, msg: object, *args: object, **more: Any) -> None:
        """Count a complaint by its kind of error, and log it as sparingly as other refusals."""
        error = more.get("exc_info")
        kind = type(error).__name__ if isinstance(error, BaseException) else "error"
        self._refuse(f"HTTP: {kind}", str(args[0]) if args else "?")
        if isinstance(error, BaseException):
            drop_tracebacks(error)  # the frame of aiohttp that caught the error keeps it

    def debug(self, msg: object, *args: object, **more: Any) -> None:
        """As :meth:`exception`: aiohttp 3.14 reports an unknown method here."""
        if more.get("exc_info"):
            self.exception(msg, *args, **more)
