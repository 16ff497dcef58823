"""
Limits how many undecided ids are recorded: strangers choose ids, and can send any number.

Further ids stay in the key store as Salt wrote them. Peers do not hear of them. They are recorded
when there is room, or at once if an operator decides about them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from itertools import islice

log = logging.getLogger(__name__)

MINUTE = 60.0
SHARE = 0.1
"""The share of the limits that must be free before waiting ids are looked at."""


class Newcomers:
    """
    Admits new ids of one master's key store; one thread only.

    :param pending: says how many ids are pending now.
    :param most: how many ids may be pending in all.
    :param per_minute: how many ids are admitted in a minute after :meth:`begin_counting`; ids that
        are in the folder when the engine starts have gathered over a longer time.
    :param clock: any steadily growing time in seconds.
    """

    def __init__(
        self,
        pending: Callable[[], int],
        most: int,
        per_minute: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.waiting: dict[str, None] = {}
        """Ids that are in the store and not recorded."""
        self._pending = pending
        self._clock = clock
        self._most = most
        self._per_minute = per_minute
        self._counts = False
        self._allowance = float(per_minute)
        self._at = 0.0
        self._room = 0.0

    def begin_counting(self) -> None:
        """Limit the rate from now on."""
        self._counts, self._at = True, self._clock()
        self._allowance = float(self._per_minute)

    def measure(self, *, at_once: bool = False) -> None:
        """
        Compute how much room there is for the following calls of :meth:`admit`.

        :param at_once: ignore the rate.
        """
        now = self._clock()
        grown = self._allowance + (now - self._at) * self._per_minute / MINUTE
        self._allowance, self._at = min(grown, float(self._per_minute)), now
        self._room = float(self._most - self._pending())
        if self._counts and not at_once:
            self._room = min(self._room, self._allowance)

    def admit(self, minion_id: str) -> bool:
        """Whether a new id may be recorded; if not, it waits."""
        if self._room >= 1:
            self._room -= 1
            self._allowance = max(0.0, self._allowance - 1)
            self.waiting.pop(minion_id, None)
            return True
        if not self.waiting:
            log.warning(
                "ha newcomers: more new minions than may be recorded; the rest waits on this "
                "master: pending_limit=%d pending_rate=%d",
                self._most,
                self._per_minute,
            )
        self.waiting[minion_id] = None
        return False

    def discard(self, minion_id: str) -> None:
        """The id is gone, or was decided."""
        self.waiting.pop(minion_id, None)

    def due(self) -> list[str]:
        """
        Waiting ids for which there is room now; none while the room is too small to be worth a
        look.
        """
        if not self.waiting:
            return []
        self.measure()
        worth = max(1.0, SHARE * min(self._most, self._per_minute))
        if self._room < min(len(self.waiting), worth):
            return []
        return list(islice(self.waiting, int(self._room)))

    def note(self) -> str:
        """The message for operators; empty when none waits."""
        if not self.waiting:
            return ""
        return (
            f"{len(self.waiting)} new minions are known here only, and wait: {self._most} are "
            f"pending already, or more than {self._per_minute} came in a minute. Accept or delete "
            "pending keys, or raise  ha: pending_limit and ha: pending_rate"
        )
