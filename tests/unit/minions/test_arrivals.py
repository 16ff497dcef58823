"""Who is asked to refresh, how often, and how many at a time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
import salt.cache

from saltext_ha.common.boot_clock import FileClock
from saltext_ha.common.errors import HaError, StoreError
from saltext_ha.minions import arrivals
from saltext_ha.minions.arrivals import AT_ONCE, REFRESH_WITHIN, TRIES, Arrivals
from saltext_ha.minions.minion_cache import GRAINS
from tests.loop import in_a_loop

NOW = 10_000.0


class Site:
    """A master's cache, and minions that refresh at once unless they are deaf."""

    def __init__(self) -> None:
        self.now, self.back = NOW, 0.0
        self.cache: dict[str, float] = {}
        self.asked: list[tuple[str, ...]] = []
        self.deaf: set[str] = set()
        self.error = ""
        self.damaged = False
        self.arrivals = Arrivals(
            self._publish, self._updated, FileClock(self.wall, lambda: self.now)
        )

    def wall(self) -> float:
        """The clock of the master, which somebody may set back."""
        return self.now - self.back

    async def _publish(self, ids: tuple[str, ...]) -> None:
        if self.error:
            raise HaError(self.error)
        self.asked.append(ids)
        self.cache |= {minion_id: self.wall() for minion_id in ids if minion_id not in self.deaf}

    def _updated(self, ids: Iterable[str]) -> dict[str, float]:
        if self.damaged:
            raise StoreError("the cache cannot be read")
        return {minion_id: self.cache.get(minion_id, 0.0) for minion_id in ids}

    async def pass_time(self, times: int) -> None:
        """So many times as long as a minion is waited for."""
        for _ in range(times):
            self.now += REFRESH_WITHIN + 1
            await self.arrivals.step()

    async def forgotten(self) -> None:
        """Nobody is told of any more, after a while."""
        self.now += arrivals.TOLD + 1
        await self.arrivals.step()
        assert list(self.arrivals.notes()) == []

    async def starts(self, *ids: str) -> None:
        for minion_id in ids:
            data = {"cmd": "_minion_event", "id": minion_id}
            self.arrivals(f"salt/minion/{minion_id}/start", data)
        await asyncio.sleep(0)
        await self.arrivals.step()


@in_a_loop
async def test_while_the_cache_cannot_be_read_the_minion_is_asked() -> None:
    site = Site()
    site.cache["web1"] = NOW
    site.damaged = True
    await site.starts("web1")
    assert site.asked == [("web1",)]


@in_a_loop
async def test_a_minion_that_moved_here_is_asked_once() -> None:
    site = Site()
    site.cache["old"] = NOW - 3600
    await site.starts("new", "old", "new")
    assert site.asked == [("new", "old")]
    for _ in range(3):
        site.now += REFRESH_WITHIN
        await site.arrivals.step()
    assert len(site.asked) == 1
    assert not site.arrivals.waits
    assert list(site.arrivals.notes()) == []


@in_a_loop
async def test_one_that_has_just_started_has_refreshed_already() -> None:
    site = Site()
    site.cache["web1"] = NOW - 5
    await site.starts("web1")
    assert site.asked == []


@in_a_loop
async def test_events_that_are_none_of_a_start_ask_nobody() -> None:
    site = Site()
    site.arrivals("salt/minion/web1/start", {"cmd": "_minion_event", "id": "web2"})
    site.arrivals("salt/minion/web1/start", {"id": "web1"})
    site.arrivals("salt/minion/web1/stop", {"cmd": "_minion_event", "id": "web1"})
    await site.starts("a,b")
    assert site.asked == []


@in_a_loop
async def test_thousands_are_asked_a_few_at_a_time() -> None:
    site = Site()
    await site.starts(*(f"web{n}" for n in range(1000)))
    while site.arrivals.waits:
        site.now += 1
        await site.arrivals.step()
    assert max(map(len, site.asked)) == AT_ONCE
    assert len([i for ids in site.asked for i in ids]) == 1000


@in_a_loop
async def test_one_that_does_not_refresh_is_asked_again_and_then_told_of() -> None:
    site = Site()
    site.deaf.add("web1")
    await site.starts("web1")
    await site.pass_time(5)
    assert site.asked == [("web1",)] * TRIES
    (note,) = site.arrivals.notes()
    assert "1 minion came here with old grains" in note
    await site.forgotten()


@in_a_loop
async def test_one_whose_pillar_takes_long_is_told_of_until_it_is_there() -> None:
    site = Site()
    site.deaf.add("web1")
    await site.starts("web1")
    await site.pass_time(5)
    assert [*site.arrivals.notes()]
    site.cache["web1"] = site.now
    await site.pass_time(2)
    assert [*site.arrivals.notes()] == []
    assert not site.arrivals.waits


@in_a_loop
async def test_one_that_is_asked_is_given_time() -> None:
    site = Site()
    site.deaf.add("web1")
    for _ in range(3):
        await site.starts("web1")  # it says so to each master that it connects to
        site.now += REFRESH_WITHIN / 3
    assert site.asked == [("web1",)]


@in_a_loop
async def test_deaf_ones_hold_up_the_others_for_a_while_only() -> None:
    site = Site()
    site.deaf = {f"deaf{n}" for n in range(AT_ONCE)}
    await site.starts(*site.deaf, "web1")
    assert len(site.asked) == 1
    await site.pass_time(TRIES + 1)
    assert not site.arrivals.asks("web1")
    (note,) = site.arrivals.notes()
    assert f"{AT_ONCE} minions" in note
    await site.forgotten()
    assert sorted(map(len, site.asked)) == [1, *[AT_ONCE] * TRIES]


@in_a_loop
async def test_others_are_asked_though_the_clock_was_set_back() -> None:
    site = Site()
    site.deaf = {f"deaf{n}" for n in range(AT_ONCE)}
    site.cache = dict.fromkeys(site.deaf, NOW - 1800)
    await site.starts(*site.deaf)
    site.back = 3600.0
    await site.starts("web1")
    await site.pass_time(TRIES + 1)
    assert [ids.count("web1") for ids in site.asked] == [0, 1, 0]
    assert not site.arrivals.asks("web1")
    (note,) = site.arrivals.notes()
    assert f"{AT_ONCE} minions" in note
    await site.forgotten()


@in_a_loop
async def test_who_refreshes_after_the_clock_was_set_back_has_refreshed() -> None:
    site = Site()
    site.deaf, site.cache["web1"] = {"web1"}, NOW - 1800
    await site.starts("web1")
    site.back = 3600.0
    site.now += 2
    site.cache["web1"] = site.wall()
    site.now += 5
    await site.arrivals.step()
    assert (site.arrivals.waits, site.asked) == (False, [("web1",)])


@pytest.mark.parametrize(("age", "back"), [(1800, 3600.0), (101, 150.0)])
@in_a_loop
async def test_what_was_cached_before_the_clock_was_set_back_is_not_fresh(
    age: int, back: float
) -> None:
    site = Site()
    site.cache["web1"] = NOW - age
    site.back = back
    await site.starts("web1")
    assert site.asked == [("web1",)]


@pytest.mark.parametrize("anew", [False, True], ids=["asked", "started anew"])
@in_a_loop
async def test_one_that_has_refreshed_after_all_is_told_of_no_more(anew: bool) -> None:
    site = Site()
    site.deaf.add("web1")
    await site.starts("web1")
    await site.pass_time(TRIES)
    assert len(list(site.arrivals.notes())) == 1
    if anew:
        site.cache["web1"] = site.now  # its own start has refreshed all
    site.deaf.clear()
    await site.starts("web1")
    await site.arrivals.step()
    assert list(site.arrivals.notes()) == []


@in_a_loop
async def test_there_are_never_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    monkeypatch.setattr(arrivals, "MOST", 2)
    await site.starts("web1", "web2", "web3")
    assert site.asked == [("web1", "web2")]


@in_a_loop
async def test_what_cannot_be_published_is_told_with_its_reason() -> None:
    site = Site()
    site.error = "salt-master did not take the job"
    await site.starts("web1")
    await site.pass_time(5)
    assert [site.error in note for note in site.arrivals.notes()] == [True]
    site.error = ""
    site.deaf.add("web2")
    await site.starts("web2")
    assert ["did not refresh" in note for note in site.arrivals.notes()] == [True]


def test_when_grains_were_cached_where_this_release_of_salt_keeps_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What another one has left there, before an upgrade, is none that Salt would read."""
    opts = {
        "cachedir": str(tmp_path),
        "cache": "localfs",
        "extension_modules": str(tmp_path),
        "optimization_order": [0, 1, 2],
    }
    cache = salt.cache.factory(opts)
    now = int(time.time())
    cache.store("minions/web1", "data", {"grains": {}})
    cache.store("grains", "web2", {})
    for release, one in ((3006, "web1"), (3007, "web1"), (3008, "web2")):
        found = arrivals.cached(opts, GRAINS, release)(["web1", "web2", "web3"])
        assert found.pop(one) >= now
        assert set(found.values()) == {0.0}
        assert len(found) == 2
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []
