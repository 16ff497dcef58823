"""How many disappearances of accepted keys are believed."""

from __future__ import annotations

import pytest

from saltext_ha.replication.guard import RevocationGuard

pytestmark = pytest.mark.core


@pytest.mark.parametrize(
    ("accepted", "most"), [(0, 10), (10, 10), (200, 10), (201, 10), (220, 11), (10_000, 500)]
)
def test_the_larger_of_minimum_and_fraction_is_believed(accepted: int, most: int) -> None:
    assert RevocationGuard(0.05, 10).allows(most, accepted, 0.0)
    assert not RevocationGuard(0.05, 10).allows(most + 1, accepted, 0.0)


def test_one_by_one_is_counted_like_all_at_once() -> None:
    guard = RevocationGuard(0.05, 10)
    believed = sum(guard.allows(1, 400 - n, float(n) / 100) for n in range(100))
    assert believed == 20


def test_what_was_refused_does_not_use_up_what_is_allowed() -> None:
    guard = RevocationGuard(0.05, 10)
    assert not guard.allows(11, 100, 0.0)
    assert guard.allows(10, 100, 0.0)


def test_after_the_window_it_starts_anew() -> None:
    guard = RevocationGuard(0.05, 10, window=60)
    assert guard.allows(10, 100, 1000.0)
    assert not guard.allows(1, 90, 1059.9)
    assert guard.allows(1, 90, 1060.0)


def test_nothing_gone_is_always_allowed() -> None:
    guard = RevocationGuard(0.0, 0)
    assert guard.allows(0, 0, 0.0)
    assert not guard.allows(1, 100, 0.0)
