"""Masters with caches in folders, minions that move between them, and whose mine is older where."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import salt.cache

from saltext_ha.common.boot_clock import FileClock
from saltext_ha.common.errors import (
    HaError,
    InvalidRecord,
    PeerRefused,
    PeerUnreachable,
    StoreError,
)
from saltext_ha.minions import mines
from saltext_ha.minions.arrivals import AT_ONCE, TOLD, TRIES, cached
from saltext_ha.minions.mines import EVERY, GRACE, LASTING, Mines
from saltext_ha.minions.minion_cache import MINE
from saltext_ha.transport import wire
from saltext_ha.transport.peer import Peer
from tests.loop import in_a_loop, until

NOW = 1_700_000_000.0
AHEAD = 5000.0
"""By so much the clocks of m2 and m3 are ahead of that of m1."""
PEER = Peer("m1", "https://x:1", "", "")


class Master:
    """A master with its cache, its engine's part, and its own idea of the time."""

    def __init__(self, site: Site, name: str, release: int) -> None:
        self.site, self.name, self.release = site, name, release
        self.asked: list[tuple[str, ...]] = []
        self.questions: list[list[str]] = []
        self.busy: set[str] = set()
        self.up: bool | None = True
        self.old, self.hangs, self.says = False, False, dict[str, Any]()
        self.refreshes = self.unpublished = False
        self.back = 0.0
        """By so much its clock was set back."""
        folder = site.root / name
        self._opts = {
            "cachedir": str(folder),
            "cache": "localfs",
            "extension_modules": str(folder),
            "optimization_order": [0, 1, 2],
        }
        self._folder, self._cache = folder, salt.cache.factory(self._opts)

    def start(self, lines: Mapping[str, Any]) -> None:
        self.mines = Mines(
            lines,
            cached(self._opts, MINE, self.release),
            busy=self.busy.__contains__,
            publish=self._publish,
            clock=FileClock(self.clock, lambda: self.site.now),
        )

    def clock(self) -> float:
        return self.site.now - self.back + (0 if self.name == "m1" else AHEAD)

    async def _publish(self, ids: tuple[str, ...]) -> None:
        if self.unpublished:
            raise HaError("salt-master did not take the job")
        self.asked.append(ids)
        for minion_id in ids if self.refreshes else ():
            self.mined(minion_id)

    def mined(self, minion_id: str, ago: float = 0.0) -> None:
        """Salt writes the mine of that minion, so many seconds ago."""
        by_kind = self.release >= 3008
        bank, key = ("mine", minion_id) if by_kind else (f"minions/{minion_id}", "mine")
        self._cache.store(bank, key, {"test.arg": 1})
        at = self.clock() - ago
        os.utime(self._folder / bank / f"{key}.p", (at, at))

    # -- as its link

    @property
    def client(self) -> Master:
        return self

    async def call(
        self, method: str, payload: Mapping[str, Any] | None, timeout: float | None
    ) -> dict[str, Any]:
        asked = wire.unpack(wire.pack(payload or {}))
        self.questions.append(asked["ids"])
        if self.hangs:
            raise PeerUnreachable(f"{self.name} timed out")
        if self.old:
            raise PeerRefused(f"{self.name} refused {method}: there is no '/v1/{method}' here")
        answer = self.says or await self.mines.for_peers()[method](PEER, asked)
        return wire.unpack(wire.pack(answer))

    # -- what happens

    async def comes(self, *ids: str) -> None:
        for minion_id in ids:
            data = {"cmd": "_minion_event", "id": minion_id}
            self.mines(f"salt/minion/{minion_id}/start", data)
        await asyncio.sleep(0)

    def counts(self) -> tuple[int, int]:
        return self.mines.told()["older"], self.mines.told()["unknown"]

    def notes(self) -> list[str]:
        return list(self.mines.notes())


class Site:
    def __init__(self, root: Path, *releases: int) -> None:
        self.root, self.now = root, NOW
        self.m1, self.m2, self.m3 = self.masters = [
            Master(self, f"m{n}", release)
            for n, release in enumerate(releases or (3008, 3008, 3008), 1)
        ]
        for master in self.masters:
            master.start({other.name: other for other in self.masters if other is not master})

    async def moves(self, *ids: str) -> None:
        """They come to m1 from m2, which wrote their mines 20 s ago."""
        for minion_id in ids:
            self.m2.mined(minion_id, ago=20)
        await self.m1.comes(*ids)

    async def later(self, seconds: float = GRACE) -> None:
        self.now += seconds
        for master in self.masters:
            await master.mines.step()


@pytest.mark.parametrize(
    "releases", [(3008, 3008, 3008), (3006, 3006, 3006), (3006, 3008, 3007), (3008, 3007, 3006)]
)
@in_a_loop
async def test_one_whose_mine_is_older_here_is_named_until_it_is_refreshed(
    tmp_path: Path, releases: tuple[int, ...]
) -> None:
    site = Site(tmp_path, *releases)
    site.m1.mined("web1", ago=3600)
    await site.moves("web1")
    assert site.m1.counts() == (0, 1)
    await site.later()
    assert site.m1.counts() == (1, 0)
    assert site.m1.notes() == [
        "1 minion came here and its mine is older here than on the master that it left: "
        "web1 (m2: 30 s old, here: 3610 s)"
    ]
    site.m1.mined("web1")
    await site.later(EVERY)
    assert (site.m1.counts(), site.m1.notes()) == ((0, 0), [])


@pytest.mark.parametrize(("before", "now"), [(3006, 3008), (3008, 3007)])
@in_a_loop
async def test_what_another_release_of_salt_left_here_is_no_mine(
    tmp_path: Path, before: int, now: int
) -> None:
    """This one does not read it: after an upgrade, or back, the mine is missing."""
    site = Site(tmp_path, now, 3008, 3008)
    site.m1.release = before
    site.m1.mined("web1")
    await site.moves("web1")
    await site.later()
    assert site.m1.counts() == (1, 0)
    assert "here: none" in site.m1.notes()[0]


@in_a_loop
async def test_one_that_is_missing_here_is_older_and_one_that_nobody_has_is_not(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path)
    site.m3.mined("web1", ago=20)
    await site.m1.comes("web1", "bare")
    await site.later()
    assert site.m1.counts() == (1, 0)
    assert "web1 (m3: 30 s old, here: none)" in site.m1.notes()[0]


@in_a_loop
async def test_those_that_have_refreshed_are_not_asked_about(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.m2.mined("web1", ago=1)
    await site.m1.comes("web1")
    site.now += 2
    site.m1.mined("web1")
    await site.later()
    assert site.m1.counts() == (0, 0)
    assert site.m2.questions == []


@in_a_loop
async def test_a_few_seconds_do_not_count(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.m1.mined("web1", ago=14)
    site.m2.mined("web1", ago=10)
    await site.m1.comes("web1")
    await site.later()
    assert (site.m1.counts(), site.m2.questions) == ((0, 0), [["web1"]])


@in_a_loop
async def test_what_is_written_elsewhere_after_it_came_does_not_count(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.m1.mined("hot", ago=3600)
    site.m1.mined("gone", ago=3600)
    site.m2.mined("gone", ago=20)
    await site.m1.comes("hot", "gone")
    site.now += GRACE
    site.m2.mined("hot")
    await site.later(0)
    assert site.m1.counts() == (1, 0)
    assert "gone" in site.m1.notes()[0]
    site.m2.mined("gone")
    await site.later(EVERY)
    assert site.m1.counts() == (0, 0)


@in_a_loop
async def test_minions_are_looked_at_though_the_clock_was_set_back(tmp_path: Path) -> None:
    site = Site(tmp_path)
    for name in ("fresh", "old"):
        site.m1.mined(name, ago=7200)
    await site.moves("fresh", "old")
    site.m1.back = 3600.0
    site.now += 2
    site.m1.mined("fresh")
    await site.later()
    assert site.m1.counts() == (1, 0)
    assert "old (m2: 32 s old" in site.m1.notes()[0]


@in_a_loop
async def test_a_mine_from_before_the_clock_was_set_back_is_as_good_as_none(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.m1.mined("web1", ago=1800)
    site.m1.back = 3600.0
    await site.moves("web1")
    await site.later()
    assert "web1 (m2: 30 s old, here: none)" in site.m1.notes()[0]
    answer = await site.m1.mines.for_peers()["mine_ages"](PEER, {"ids": ["web1"]})
    assert answer == {"ages": {}}


@in_a_loop
async def test_one_that_is_asked_to_refresh_anyway_has_time(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.m1.busy.add("web1")
    await site.moves("web1")
    await site.later(TOLD + 1)
    assert (site.m1.counts(), site.m2.questions) == ((0, 1), [])


@in_a_loop
async def test_one_that_was_asked_late_has_time_from_then_on(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.m1.busy.add("web1")
    await site.moves("web1")
    await site.later()
    site.m1.busy.clear()
    await site.later(GRACE - 1)
    assert site.m1.counts() == (0, 1)
    await site.later(1)
    assert site.m1.counts() == (1, 0)


@in_a_loop
async def test_what_nobody_can_answer_is_not_looked_at_again(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.m3.up = False
    looked: list[str] = []
    written = site.m1.mines._written

    def noted(ids: Iterable[str]) -> dict[str, float]:
        looked.extend(names := list(ids))
        return written(names)

    site.m1.mines._written = noted
    await site.m1.comes("bare")
    for _ in range(4):
        await site.later()
    assert (looked, site.m1.counts()) == (["bare"], (0, 1))
    site.m3.up = True
    await site.later()
    assert (looked, site.m1.counts()) == (["bare"] * 2, (0, 0))


@in_a_loop
async def test_one_that_is_older_is_named_for_longer(tmp_path: Path) -> None:
    site = Site(tmp_path)
    await site.moves("web1")
    await site.later()
    await site.later(TOLD + 1)
    assert site.m1.counts() == (1, 0)
    await site.later(LASTING)
    assert site.m1.counts() == (0, 0)


def test_a_cache_that_cannot_be_read_is_none_without_mines(tmp_path: Path) -> None:
    opts = {"cachedir": str(tmp_path), "cache": "no_such_driver"}
    opts |= {"extension_modules": str(tmp_path), "optimization_order": [0, 1, 2]}
    with pytest.raises(StoreError, match="no_such_driver"):
        cached(opts, MINE)(["web1"])


@in_a_loop
async def test_a_peer_whose_cache_cannot_be_read_is_asked_again(tmp_path: Path) -> None:
    site = Site(tmp_path)

    def broken(ids: Iterable[str]) -> dict[str, float]:
        raise StoreError("the cache of minions cannot be read")

    whole, site.m2.mines._written = site.m2.mines._written, broken
    await site.moves("web1")
    await site.later()
    assert site.m1.counts() == (0, 1), "it is not known"
    site.m2.mines._written = whole
    await site.later(EVERY)
    assert site.m1.counts() == (1, 0)


@in_a_loop
async def test_a_cache_that_hangs_is_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path)
    monkeypatch.setattr(mines, "ANSWERING", 0.05)
    over = threading.Event()

    def hangs(ids: Iterable[str]) -> dict[str, float]:
        over.wait(20)
        return {}

    site.m2.mines._written = hangs
    ask = site.m2.mines.for_peers()["mine_ages"]
    first = asyncio.ensure_future(ask(PEER, {"ids": ["web1"]}))
    await asyncio.sleep(0)
    assert "hangs" in (await ask(PEER, {"ids": ["web1"]}))["unread"]
    over.set()
    assert await first == {"ages": {}}


@in_a_loop
async def test_it_is_asked_anew_a_few_times(tmp_path: Path) -> None:
    site = Site(tmp_path)
    await site.moves("web1")
    for _ in range(5):
        await site.later()
    assert (site.m1.asked, site.m1.counts()) == ([("web1",)] * TRIES, (1, 0))
    site.m1.refreshes = True
    await site.m1.comes("web1")
    assert site.m1.notes() == []
    await site.later()
    await site.later()
    assert (len(site.m1.asked), site.m1.counts()) == (TRIES + 1, (0, 0))


@in_a_loop
async def test_what_cannot_be_published_is_no_error(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.m1.unpublished = True
    await site.moves("web1")
    await site.later()
    assert site.m1.counts() == (1, 0)


@in_a_loop
async def test_peers_that_are_down_are_not_asked_and_what_they_have_is_unknown(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path)
    site.m2.up = None
    site.m2.mined("web1", ago=20)
    await site.m1.comes("web1", "bare")
    await site.later()
    assert (site.m1.counts(), site.m1.notes()) == ((0, 2), [])
    assert (site.m2.questions, len(site.m3.questions)) == ([], 1)
    site.m2.up = True
    await site.later()
    assert site.m1.counts() == (1, 0)
    assert len(site.m3.questions) == 1, "it has answered"


@in_a_loop
async def test_a_peer_that_does_not_answer_in_time_is_asked_again(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.m2.hangs = True
    await site.moves("web1")
    await site.later()
    assert site.m1.counts() == (0, 1)
    site.m2.hangs = False
    await site.later()
    assert site.m1.counts() == (1, 0)


@in_a_loop
async def test_an_older_peer_is_asked_once_and_after_it_was_upgraded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path)
    site.m2.old = True
    await site.moves("web1")
    for _ in range(5):
        await site.later()
    assert (site.m1.counts(), len(site.m2.questions)) == ((0, 1), 1)
    site.m2.up = False
    await site.later()
    site.m2.up, site.m2.old = True, False
    await site.later()
    assert site.m1.counts() == (1, 0)
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


@pytest.mark.parametrize(
    "answer",
    [
        {"no": "ages"},
        {"ages": []},
        {"ages": {"web1": "20"}},
        {"ages": {"web1": 20}},
        {"ages": {"web1": True}},
        {"ages": {"web1": -1.0}},
        {"ages": {"web1": float("nan")}},
        {"ages": {"web1": float("inf")}},
    ],
    ids=str,
)
@in_a_loop
async def test_an_answer_without_sense_is_none(tmp_path: Path, answer: dict[str, Any]) -> None:
    site = Site(tmp_path)
    site.m2.says = answer
    await site.m1.comes("web1")
    await site.later()
    await site.later()
    assert (site.m1.counts(), len(site.m2.questions)) == ((0, 1), 1)


@pytest.mark.parametrize(
    "payload", [{}, {"ids": "web1"}, {"ids": [1]}, {"ids": ["web1"] * 501}], ids=len
)
@in_a_loop
async def test_a_question_without_sense_is_refused(tmp_path: Path, payload: dict[str, Any]) -> None:
    site = Site(tmp_path)
    with pytest.raises(InvalidRecord):
        await site.m1.mines.for_peers()["mine_ages"](PEER, payload)


@in_a_loop
async def test_a_peer_is_told_ages_of_minions_and_of_no_other_files(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.m2.mined("web1", ago=20)
    site.m2.mined("early", ago=-20)
    outside = site.root / "m2" / "mine" / ".." / "other.p"
    outside.write_text("")
    ids = ["web1", "early", "none", "../other", "", "a/b", "\x00"]
    answer = await site.m2.mines.for_peers()["mine_ages"](PEER, {"ids": ids})
    assert answer == {"ages": {"web1": 20.0, "early": 0.0}}


@in_a_loop
async def test_thousands(tmp_path: Path) -> None:
    site = Site(tmp_path)
    ids = [f"web{n}" for n in range(1200)]
    site.m1.refreshes = True
    await site.moves(*ids)
    await site.later()
    assert [*map(len, site.m2.questions)] == [500, 500, 200]
    assert site.m1.counts() == (1200, 0)
    (note,) = site.m1.notes()
    assert note.startswith("1200 minions came here and their mine is older here than on the ")
    assert note.count("here: none") == 3
    assert note.endswith(" …")
    assert [*map(len, site.m1.asked)] == [AT_ONCE]
    await site.later()
    assert site.m1.counts() == (1200 - AT_ONCE, 0)


@in_a_loop
async def test_there_are_never_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path)
    monkeypatch.setattr(mines, "MOST", 2)
    await site.m1.comes("web1", "web2", "web3", "web1")
    assert site.m1.counts() == (0, 2)


@in_a_loop
async def test_one_that_comes_anew_while_it_is_looked_at(tmp_path: Path) -> None:
    site = Site(tmp_path)
    await site.moves("web1")
    real = site.m2.call

    async def call(*args: Any) -> dict[str, Any]:
        await site.m1.comes("web1")
        return await real(*args)

    site.m2.call = call  # type: ignore[method-assign]
    await site.later()
    assert site.m1.counts() == (0, 1)


@in_a_loop
async def test_nothing_is_done_while_nobody_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path)
    monkeypatch.setattr(mines, "EVERY", 0.01)
    steps: list[Iterable[str]] = []

    async def step() -> None:
        steps.append("")

    site.m1.mines.step = step  # type: ignore[method-assign]
    running = asyncio.ensure_future(site.m1.mines.run())
    await asyncio.sleep(0.05)
    assert steps == []
    await site.m1.comes("web1")
    await until(lambda: bool(steps), "it looks")
    running.cancel()
