"""How many new ids come in, and when those do that wait."""

from __future__ import annotations

import pytest

from saltext_ha.reconciler.newcomers import Newcomers

pytestmark = pytest.mark.core


def admitted(newcomers: Newcomers, count: int, pending: int, now: float) -> int:
    newcomers.measure(pending, now)
    return sum(newcomers.admit(f"web{number}") for number in range(count))


def test_so_many_may_be_pending() -> None:
    newcomers = Newcomers(100, 1000)
    assert admitted(newcomers, 500, 40, 0.0) == 60
    assert admitted(newcomers, 500, 100, 0.0) == 0
    assert admitted(newcomers, 500, 200, 0.0) == 0
    assert "known here only" in newcomers.note()


def test_so_many_come_in_a_minute() -> None:
    newcomers = Newcomers(10_000, 60)
    # What lies in the folder at the start came over a longer time.
    assert admitted(newcomers, 500, 0, 0.0) == 500
    newcomers.begin_counting(0.0)
    assert admitted(newcomers, 500, 0, 0.0) == 60
    assert admitted(newcomers, 500, 0, 60.0) == 60
    assert admitted(newcomers, 500, 0, 61.5) == 1
    # A quiet year is no reason for a flood.
    assert admitted(newcomers, 500, 0, 3e7) == 60


def test_who_waits_comes_in_when_there_is_room() -> None:
    newcomers = Newcomers(100, 1000)
    newcomers.begin_counting(0.0)
    assert admitted(newcomers, 150, 0, 0.0) == 100
    assert newcomers.due(100, 0.0) == []
    # Not one by one: each look costs a pass over the store.
    assert newcomers.due(95, 0.0) == []
    due = newcomers.due(0, 0.0)
    assert due == [f"web{number}" for number in range(100, 150)]
    newcomers.measure(0, 0.0)
    assert all(map(newcomers.admit, due))
    assert newcomers.note() == ""


def test_who_is_gone_or_decided_about_does_not_wait() -> None:
    newcomers = Newcomers(0, 1)
    newcomers.measure(0, 0.0)
    assert not newcomers.admit("web1")
    newcomers.discard("web1")
    newcomers.discard("web2")
    assert newcomers.note() == ""
