"""How many disappearances of accepted keys are believed."""

from __future__ import annotations

import pytest

from saltext_ha.replication.guard import RevocationGuard

pytestmark = pytest.mark.core


def ids(count: int) -> list[str]:
    return [f"web{number}" for number in range(count)]


@pytest.mark.parametrize(
    ("accepted", "most"), [(0, 10), (10, 10), (200, 10), (201, 10), (220, 11), (10_000, 500)]
)
def test_the_larger_of_minimum_and_fraction_is_believed(accepted: int, most: int) -> None:
    assert RevocationGuard(0.05, 10).allows(ids(most), accepted, 0.0)
    assert not RevocationGuard(0.05, 10).allows(ids(most + 1), accepted, 0.0)


def test_one_by_one_is_counted_like_all_at_once() -> None:
    guard = RevocationGuard(0.05, 10)
    believed = sum(guard.allows([f"web{n}"], 400 - n, float(n) / 100) for n in range(100))
    assert believed == 20


def test_what_was_refused_does_not_use_up_what_is_allowed() -> None:
    guard = RevocationGuard(0.05, 10)
    assert not guard.allows(ids(11), 100, 0.0)
    assert guard.allows(ids(10), 100, 0.0)


def test_after_the_window_it_starts_anew() -> None:
    guard = RevocationGuard(0.05, 10, window=60)
    assert guard.allows(ids(10), 100, 1000.0)
    assert not guard.allows(["db1"], 90, 1059.9)
    assert guard.allows(["db1"], 90, 1060.0)


def test_what_could_not_be_recorded_and_is_looked_at_again_counts_once() -> None:
    guard = RevocationGuard(0.05, 10)
    for attempt in range(5):
        assert guard.allows(ids(4), 100, float(attempt))
    assert guard.allows([f"db{number}" for number in range(6)], 100, 5.0)
    assert not guard.allows(["app1"], 100, 6.0)


def test_nothing_gone_is_always_allowed() -> None:
    guard = RevocationGuard(0.0, 0)
    assert guard.allows(ids(0), 0, 0.0)
    assert not guard.allows(ids(1), 100, 0.0)
