"""
When does a minion tell its master that it is bound to it?

When that has changed, and every few minutes, so that masters know where minions are without asking.
It is one small event over the connection that the minion has; and of thousands of minions, no two
speak at the same time but by chance.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from saltext_ha.minion.binding import Running, SeenMaster

TAG = "salt/ha/minion/{id}/bound"
MAX_ADDRESSES = 8
SPREAD = 0.2  # of the interval, more or less


class Reports:
    """
    Decides for one watchdog.

    :param every: seconds from one report to the next; 0: none at all.
    :param jitter: a report of a change is put off by a random time up to this many seconds.
    """

    def __init__(self, every: float, jitter: float) -> None:
        self.every, self.jitter = every, jitter
        self._told: str | None = None
        self._due = 0.0

    def due(self, now: float, current: str | None, good: bool) -> bool:
        """
        Whether to report now, at every look: that the minion is with *current*, which is *good*.

        :param now: seconds of a clock that never jumps.
        """
        if not self.every or current is None or not good:
            return False
        if current != self._told:
            self._told = current
            self._due = now + self.jitter * random.random()  # nosec B311
        if now < self._due:
            return False
        self._due = now + self.every * random.uniform(1 - SPREAD, 1 + SPREAD)  # nosec B311
        return True


def report(
    minion_id: str, master: SeenMaster, running: Running, every: float, of: int
) -> Mapping[str, Any]:
    """What the event says; *of* is the number of masters that the minion is configured with."""
    return {
        "id": minion_id,
        "master": master.configured,
        "addresses": sorted(master.ips)[:MAX_ADDRESSES],
        "port": master.port,
        "type": running.type,
        "of": of,
        "every": every,
    }
