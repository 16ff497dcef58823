"""
Races for an id: its key was removed by another process while we were writing another entry.

If that was a deletion, Salt's event says so in a moment; otherwise the key was moved, as by us.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from saltext_ha.keystore.base import Content
from saltext_ha.replica.serializers import Known
from saltext_ha.replication.placement import Stored

# Seconds after Salt deleted a key in which its event may come.
EVENT_DELAY = 10.0


class Race(NamedTuple):
    """A race, remembered while that event may come."""

    known: Known
    """What the operator could know of the id's keys."""
    slot_mark: int
    """The slot mark of the entry that we wrote."""
    until: float


class Races:
    """The races of the last seconds, by id. Times are seconds of any clock that only grows."""

    def __init__(self) -> None:
        self._races: dict[str, Race] = {}

    def add(self, minion_id: str, known: Known, slot_mark: int, at: float) -> None:
        """
        There was a race for an id *at* that time.

        :param known: what the operator could know of its keys. :param slot_mark: of the entry that
            we wrote.
        """
        self._races[minion_id] = Race(known, slot_mark, at + EVENT_DELAY)

    def known_then(
        self, minion_id: str, content: Content, applied: Stored, now: float
    ) -> Known | None:
        """
        What the operator knew of the keys of an id that Salt reports as deleted, if it was deleted
        while we wrote the entry that is still there.

        :param content: what the store shows of it. :param applied: what was last applied.
        :return: None if it was deleted at another time, or a new key was written since.
        """
        race = self._races.get(minion_id)
        if race is None or race.until < now:
            return None
        if content.stored.slot != applied.slot or content.slot_mark != race.slot_mark:
            return None
        # Its event has come: keep it until it is written down, even while the disk is full.
        self._races[minion_id] = race._replace(until=math.inf)
        return race.known

    def forget(self, minion_id: str) -> None:
        """That race is over: its deletion is written down."""
        del self._races[minion_id]

    def expire(self, now: float) -> None:
        """Forget the races whose event will not come any more."""
        self._races = {i: race for i, race in self._races.items() if now < race.until}
