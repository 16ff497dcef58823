"""How many new ids come in, and when those do that wait."""

from __future__ import annotations

import pytest

from saltext_ha.reconciler.newcomers import Newcomers
from tests.unit.clock import Clock

pytestmark = pytest.mark.core


class Master:
    """One that records as many new ids as may come in."""

    def __init__(self, clock: Clock, most: int, per_minute: int) -> None:
        self.pending = 0
        self.newcomers = Newcomers(lambda: self.pending, most, per_minute, clock)

    def admitted(self, count: int, pending: int) -> int:
        """How many of *count* new ids come in while so many are *pending*."""
        self.pending = pending
        self.newcomers.measure()
        return sum(self.newcomers.admit(f"web{number}") for number in range(count))

    def due(self, pending: int) -> list[str]:
        self.pending = pending
        return self.newcomers.due()


def test_so_many_may_be_pending(clock: Clock) -> None:
    master = Master(clock, 100, 1000)
    assert master.admitted(500, pending=40) == 60
    assert master.admitted(500, pending=100) == 0
    assert master.admitted(500, pending=200) == 0
    assert "known here only" in master.newcomers.note()


def test_so_many_come_in_a_minute(clock: Clock) -> None:
    master = Master(clock, 10_000, 60)
    # What lies in the folder at the start came over a longer time.
    assert master.admitted(500, pending=0) == 500
    master.newcomers.begin_counting()
    assert master.admitted(500, pending=0) == 60
    clock.now += 60.0
    assert master.admitted(500, pending=0) == 60
    clock.now += 1.5
    assert master.admitted(500, pending=0) == 1
    # A quiet year is no reason for a flood.
    clock.now += 3e7
    assert master.admitted(500, pending=0) == 60


def test_who_waits_comes_in_when_there_is_room(clock: Clock) -> None:
    master = Master(clock, 100, 1000)
    master.newcomers.begin_counting()
    assert master.admitted(150, pending=0) == 100
    assert master.due(pending=100) == []
    # Not one by one: each look costs a pass over the store.
    assert master.due(pending=95) == []
    due = master.due(pending=0)
    assert due == [f"web{number}" for number in range(100, 150)]
    master.newcomers.measure()
    assert all(map(master.newcomers.admit, due))
    assert master.newcomers.note() == ""


def test_who_is_gone_or_decided_about_does_not_wait(clock: Clock) -> None:
    newcomers = Master(clock, 0, 1).newcomers
    newcomers.measure()
    assert not newcomers.admit("web1")
    newcomers.discard("web1")
    newcomers.discard("web2")
    assert newcomers.note() == ""
