"""How often the whole key store is looked at."""

from __future__ import annotations

from saltext_ha.service.scanner import FOLDER_INTERVAL, REGULAR_SHARE, WATCH_SHARE, pause


def test_a_small_store_is_looked_at_at_every_interval() -> None:
    assert pause(60, 0.0, REGULAR_SHARE) == 60
    assert pause(60, 0.3, REGULAR_SHARE) == 60


def test_a_large_one_costs_half_a_percent_of_a_processor() -> None:
    assert pause(60, 0.6, REGULAR_SHARE) == 120
    assert pause(5, 0.2, REGULAR_SHARE) == 40


def test_however_large_it_is_it_is_looked_at() -> None:
    assert pause(60, 100.0, REGULAR_SHARE) == 600


def test_folders_that_change_all_the_time_are_not_listed_all_the_time() -> None:
    assert pause(FOLDER_INTERVAL, 0.0, WATCH_SHARE) == FOLDER_INTERVAL
    assert pause(FOLDER_INTERVAL, 0.1, WATCH_SHARE) == 2.0
    assert pause(FOLDER_INTERVAL, 0.4, WATCH_SHARE) == 5.0
