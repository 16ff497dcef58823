"""How often the whole key store is looked at."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from saltext_ha.reconciler import scanner
from saltext_ha.reconciler.scanner import (
    FOLDER_INTERVAL,
    REGULAR_SHARE,
    WATCH_SHARE,
    Scanner,
    pause,
)
from tests.loop import in_a_loop, until


def test_a_small_store_is_looked_at_at_every_interval() -> None:
    assert pause(60, 0.0, REGULAR_SHARE) == 60
    assert pause(60, 0.025, REGULAR_SHARE) == 60


def test_a_large_one_costs_a_twentieth_of_a_percent_of_a_processor() -> None:
    assert pause(60, 0.15, REGULAR_SHARE) == 300
    assert pause(5, 0.01, REGULAR_SHARE) == 20


def test_however_large_it_is_it_is_looked_at() -> None:
    assert pause(60, 100.0, REGULAR_SHARE) == 600


def test_folders_that_change_all_the_time_are_not_listed_all_the_time() -> None:
    assert pause(FOLDER_INTERVAL, 0.0, WATCH_SHARE) == FOLDER_INTERVAL
    assert pause(FOLDER_INTERVAL, 0.1, WATCH_SHARE) == 2.0
    assert pause(FOLDER_INTERVAL, 0.4, WATCH_SHARE) == 5.0


class Core:
    """One that counts what is asked of its thread."""

    def __init__(self, touched: Callable[[], bool]) -> None:
        self.newcomers = SimpleNamespace(waiting={}, due=lambda: list(self.newcomers.waiting))
        store = SimpleNamespace(touched=touched, watched=True)
        self.keeper = SimpleNamespace(
            store=store,
            newcomers=self.newcomers,
        )
        self.asked = self.timed_looks = self.passes = 0

    async def run(self, question: Callable[[], Any]) -> Any:
        self.asked += 1
        return question()

    def timed(self, question: Callable[[], Any]) -> Any:
        self.timed_looks += 1
        return question()

    async def scan(self) -> float:
        self.passes += 1
        self.newcomers.waiting.clear()
        return 0.0

    async def watched(self, meanwhile: Callable[[], Awaitable[None]]) -> None:
        """Watch the folders during *meanwhile*."""
        watching = asyncio.ensure_future(
            Scanner(cast(Any, self), cast(Any, None), 3600)._watch_folders()
        )
        await meanwhile()
        watching.cancel()
        await asyncio.wait([watching])


@in_a_loop
async def test_the_keeper_is_asked_only_if_something_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scanner, "FOLDER_INTERVAL", 0.01)
    changed: list[bool] = []
    core = Core(lambda: bool(changed) and changed.pop())

    async def meanwhile() -> None:
        await until(lambda: core.timed_looks >= 5)  # a folder that hangs is seen as one
        assert (core.asked, core.passes) == (0, 0)
        changed.append(True)
        await until(lambda: core.passes == 1)
        assert core.asked == 0
        core.newcomers.waiting["web1"] = None
        await until(lambda: core.passes == 2)
        assert core.asked == 1

    await core.watched(meanwhile)
    looks = core.timed_looks
    await asyncio.sleep(0.05)
    # It may just have been about to look.
    assert core.timed_looks <= looks + 1, "the thread ends with the watch"


@in_a_loop
async def test_the_watch_keeps_to_that(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[float] = []

    async def run(question: Any) -> Any:
        return question()

    async def scan() -> float:
        passes.append(time.monotonic())
        return 1.0

    async def never() -> Any:
        await asyncio.Event().wait()

    store = SimpleNamespace(touched=lambda: True, watched=True)
    keeper = SimpleNamespace(store=store, newcomers=SimpleNamespace(waiting={}, due=list))
    core = SimpleNamespace(run=run, scan=scan, timed=lambda question: question(), keeper=keeper)
    monkeypatch.setattr(scanner, "FOLDER_INTERVAL", 0.01)

    scanning = Scanner(cast(Any, core), cast(Any, SimpleNamespace(next=never)), 3600)
    watching = asyncio.ensure_future(scanning._watch_folders())
    await until(lambda: len(passes) >= 5)
    watching.cancel()
    assert passes[4] - passes[0] > 0.3, "every tenth of a second, not every hundredth"
