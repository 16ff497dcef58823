"""How often the whole key store is looked at."""

from __future__ import annotations

from saltext_ha.service.scanner import pause


def test_a_small_store_is_looked_at_at_every_interval() -> None:
    assert pause(60, 0.0) == 60
    assert pause(60, 0.3) == 60


def test_a_large_one_costs_half_a_percent_of_a_processor() -> None:
    assert pause(60, 0.6) == 120
    assert pause(5, 0.2) == 40


def test_however_large_it_is_it_is_looked_at() -> None:
    assert pause(60, 100.0) == 600
