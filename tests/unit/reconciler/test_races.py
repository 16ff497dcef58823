"""Races for an id, and how long they are remembered."""

from __future__ import annotations

from saltext_ha.keystore.base import Content
from saltext_ha.reconciler.races import EVENT_DELAY, Races
from saltext_ha.replication.placement import Stored
from saltext_ha.replication.record import ACCEPTED

KEY = b"k" * 32
PUT = Stored(ACCEPTED, KEY)
KNOWN = {KEY: {"m1": 1}}


def known_then(races: Races, now: float, slot_mark: int = 7) -> object:
    return races.known_then("web1", Content(PUT, {}, slot_mark=slot_mark), PUT, now)


def test_an_event_that_comes_too_late_is_of_something_else() -> None:
    races = Races()
    races.add("web1", KNOWN, 7, at=100.0)
    assert known_then(races, 101.0, slot_mark=8) is None
    assert known_then(races, 101.0 + EVENT_DELAY) is None


def test_an_event_that_came_in_time_counts_until_it_is_written_down() -> None:
    races = Races()
    races.add("web1", KNOWN, 7, at=100.0)
    assert known_then(races, 101.0) == KNOWN
    races.expire(1000.0)
    assert known_then(races, 1000.0) == KNOWN
    races.forget("web1")
    assert known_then(races, 1000.0) is None
