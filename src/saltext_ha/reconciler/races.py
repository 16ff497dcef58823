"""
Races for an id: somebody took its key away while we were putting another entry there.

If that was a deletion, Salt's event says so in a moment; else they moved the key as we did.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from saltext_ha.keystore.base import Content
from saltext_ha.replica.serializers import Known
from saltext_ha.replication.placement import Stored

# How long after Salt deleted a key its event may come.
EVENT_DELAY = 10.0


class Race(NamedTuple):
    """What is remembered of one while that event may come."""

    known: Known
    """What they could know of the id's keys."""
    slot_mark: int
    """Of what we put there."""
    until: float


class Races:
    """The races of the last seconds, by id. Times are seconds of any clock that only grows."""

    def __init__(self) -> None:
        self._races: dict[str, Race] = {}

    def add(self, minion_id: str, known: Known, slot_mark: int, at: float) -> None:
        """
        Somebody raced us for an id *at* that time.

        :param known: what they could know of its keys. :param slot_mark: of what we put there.
        """
        self._races[minion_id] = Race(known, slot_mark, at + EVENT_DELAY)

    def known_then(
        self, minion_id: str, content: Content, applied: Stored, now: float
    ) -> Known | None:
        """
        What was known of the keys of an id, which Salt said was deleted, when that was done while
        we put there what still is there.

        :param content: what the store shows of it. :param applied: what was last applied.
        :return: None when it was not done then, or a key was put there anew since.
        """
        race = self._races.get(minion_id)
        if race is None or race.until < now:
            return None
        if content.stored.slot != applied.slot or content.slot_mark != race.slot_mark:
            return None
        # Its event has come: that counts until it is written down, however full the disk is.
        self._races[minion_id] = race._replace(until=math.inf)
        return race.known

    def forget(self, minion_id: str) -> None:
        """That race is over: its deletion is written down."""
        del self._races[minion_id]

    def expire(self, now: float) -> None:
        """Forget the races whose event will not come any more."""
        self._races = {i: race for i, race in self._races.items() if now < race.until}
