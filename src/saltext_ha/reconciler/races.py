"""
Races for an id: another process removed its key while we were writing another entry.

If that was a deletion, Salt's event says so in a moment. If not, that process moved the key, too.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from saltext_ha.keystore.base import Content
from saltext_ha.replica.serializers import Known
from saltext_ha.replication.placement import Stored

# Salt's event comes within so many seconds after the deletion.
EVENT_DELAY = 10.0


class Race(NamedTuple):
    """A race, remembered while Salt's event may still come."""

    known: Known
    """What the operator could know of the id's keys."""
    slot_mark: int
    """The slot mark of the entry that we wrote."""
    until: float


class Races:
    """The races of the last seconds. Times are seconds of any clock that only grows."""

    def __init__(self) -> None:
        self._races: dict[str, Race] = {}

    def add(self, minion_id: str, known: Known, slot_mark: int, at: float) -> None:
        """
        Remember a race for an id.

        :param known: what the operator could know of its keys. :param slot_mark: that of the entry
            which we wrote. :param at: now.
        """
        self._races[minion_id] = Race(known, slot_mark, at + EVENT_DELAY)

    def known_then(
        self, minion_id: str, content: Content, applied: Stored, now: float
    ) -> Known | None:
        """
        Salt reports an id as deleted. If that happened while we wrote the entry that is still
        there: what the operator knew of the id's keys.

        :param content: what the store shows now. :param applied: what was last applied.
        :return: None if the id was deleted at another time, or a new key was written since.
        """
        race = self._races.get(minion_id)
        if race is None or race.until < now:
            return None
        if content.stored.slot != applied.slot or content.slot_mark != race.slot_mark:
            return None
        # The event has come: keep the race until the deletion is recorded; the disk may be full.
        self._races[minion_id] = race._replace(until=math.inf)
        return race.known

    def forget(self, minion_id: str) -> None:
        """The deletion is recorded: forget the race."""
        del self._races[minion_id]

    def expire(self, now: float) -> None:
        """Forget the races whose event will not come any more."""
        self._races = {i: race for i, race in self._races.items() if now < race.until}
