"""
When a minion reports its binding to its master.

After each change, and every few minutes, so that masters know where minions are without asking. A
report is one small event over the minion's own connection; random delays keep thousands of minions
from reporting at the same time.
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
    :param jitter: a report of a change is delayed by a random time of up to this many seconds.
    """

    def __init__(self, every: float, jitter: float) -> None:
        self.every, self.jitter = every, jitter
        self._told: str | None = None
        self._due = 0.0

    def due(self, now: float, current: str | None, good: bool) -> bool:
        """
        Whether to report now that the minion is bound to *current*, which works if *good*. It is
        called at every look.

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
    """The data of the event; *of* is the number of masters in the minion's configuration."""
    return {
        "id": minion_id,
        "master": master.configured,
        "addresses": sorted(master.ips)[:MAX_ADDRESSES],
        "port": master.port,
        "type": running.type,
        "of": of,
        "every": every,
    }
