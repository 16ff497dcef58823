"""Masters that share the mines and grains in their caches, which are folders of Salt's cache."""

from __future__ import annotations

import datetime
import os
import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest
import salt.cache

from saltext_ha.common.boot_clock import FileClock
from saltext_ha.common.errors import PeerRefused, PeerUnreachable, StoreError, UnknownMethod
from saltext_ha.engine.wiring import _sent_by_minions
from saltext_ha.minions import mine_copies, shared_mines
from saltext_ha.minions.mine_copies import LARGEST, MOST_BYTES
from saltext_ha.minions.minion_cache import GRAINS, MINE, MinionCache, Name
from saltext_ha.minions.shared_mines import (
    AGAIN,
    ASKED,
    CHANGES,
    COPIES,
    EVERY,
    OFF,
    SharedMines,
)
from saltext_ha.transport import wire
from saltext_ha.transport.peer import Peer
from tests.loop import in_a_loop

NOW = 1_700_000_000.0
AHEAD = 5000.0
"""By so much the clocks of m2 and m3 are ahead of that of m1."""
PEER = Peer("m1", "https://x:1", "", "")
RELEASES = [(3008, 3008, 3008), (3006, 3006, 3006), (3006, 3008, 3007), (3008, 3007, 3006)]


class Master:
    """A master with its cache, its engine's part, and its own idea of the time."""

    def __init__(self, site: Site, name: str, release: int) -> None:
        self.site, self.name, self.release = site, name, release
        self.up: bool | None = True
        self.old = self.unreachable = False
        self.says: dict[str, dict[str, Any]] = {}
        self.hangs: set[str] = set()
        self.answers: list[tuple[str, dict[str, Any]]] = []
        self.written = 0
        self.keys = 0
        self.accepted = {f"web{n}" for n in range(2000)}
        self.folder = site.root / name
        self._opts = {
            "cachedir": str(self.folder),
            "cache": "localfs",
            "extension_modules": str(self.folder),
            "optimization_order": [0, 1, 2],
        }
        self.salt = salt.cache.factory(self._opts)

    def start(self, off: str = "") -> None:
        """Its engine starts, or starts again."""
        master = self

        class Counted(MinionCache):
            def write(
                self, name: Name, content: Mapping[str, Any], at: float, expected: int
            ) -> tuple[bool, int]:
                written = super().write(name, content, at, expected)
                master.written += written[0]
                return written

        self.cache = Counted(self._opts, self.release)
        self.shared = SharedMines(
            {other.name: other for other in self.site.masters if other is not self},  # type: ignore[misc]
            self.cache,
            accepted=self._accepted_of,
            keys=lambda: self.keys,
            off=off,
            clock=FileClock(self.clock, lambda: self.site.now),
        )

    async def _accepted_of(self, ids: list[str]) -> Collection[str]:
        return self.accepted & set(ids)

    def clock(self) -> float:
        return self.site.now + (0 if self.name == "m1" else AHEAD)

    # -- what Salt's master does, and serves

    def sends(self, kind: str, minion_id: str, content: Any, ago: float = 0.0) -> None:
        """The minion sends its mine, or its grains with its pillar, to this master."""
        if self.release >= 3008:
            bank, key = kind, minion_id
        else:
            bank, key = f"minions/{minion_id}", {"mine": "mine", "grains": "data"}[kind]
            content = (
                {"grains": content, "pillar": {"of": self.name}} if kind == GRAINS else content
            )
        self.salt.store(bank, key, content)
        at = self.clock() - ago
        os.utime(self.folder / bank / f"{key}.p", (at, at))

    def mine(self, minion_id: str) -> Any:
        if self.release >= 3008:
            return self.salt.fetch("mine", minion_id)
        return self.salt.fetch(f"minions/{minion_id}", "mine")

    def grains(self, minion_id: str) -> Any:
        if self.release >= 3008:
            return self.salt.fetch("grains", minion_id)
        return self.salt.fetch(f"minions/{minion_id}", "data").get("grains", {})

    def forgets(self, minion_id: str) -> None:
        """The key of the minion is deleted, and what is cached of it."""
        self.accepted.discard(minion_id)
        self.keys += 1
        for kind in (MINE, GRAINS):
            if self.release >= 3008:
                self.salt.flush(kind, minion_id)
        if self.release < 3008:
            self.salt.flush(f"minions/{minion_id}")

    def age(self, kind: str, minion_id: str) -> float:
        return self.clock() - self.cache.mark((kind, minion_id)) / 1e9

    # -- as the contact to it

    @property
    def client(self) -> Master:
        return self

    async def call(
        self, method: str, payload: Mapping[str, Any] | None, timeout: float | None
    ) -> dict[str, Any]:
        if self.unreachable or method in self.hangs:
            raise PeerUnreachable(f"{self.name} timed out")
        if self.old:
            raise UnknownMethod(f"{self.name} refused {method}: there is no '/v1/{method}' here")
        asked = wire.unpack(wire.pack(payload or {}))
        if method in self.says:
            return self.says[method]
        try:
            answer = await self.shared.for_peers()[method](PEER, asked)
        except shared_mines.HaError as exc:
            raise PeerRefused(f"{self.name} refused {method}: {exc}", str(exc)) from None
        packed = wire.pack(answer)
        assert len(packed) < 1_000_000
        self.answers.append((method, answer))
        return wire.unpack(packed)

    def notes(self) -> list[str]:
        return list(self.shared.notes())


class Site:
    def __init__(self, root: Path, *releases: int) -> None:
        self.root, self.now = root, NOW
        self.masters: list[Master] = []
        self.masters += [
            Master(self, f"m{n}", release)
            for n, release in enumerate(releases or (3008, 3008, 3008), 1)
        ]
        self.m1, self.m2, self.m3 = self.masters
        for master in self.masters:
            master.start()

    async def later(self, seconds: float = EVERY) -> None:
        """All look, one after the other."""
        self.now += seconds
        for master in self.masters:
            master.shared._due = 0.0
            await master.shared.step()

    def fetched(self) -> int:
        """How many contents were sent since this was asked last."""
        found = [
            len(answer["copies"])
            for master in self.masters
            for method, answer in master.answers
            if method == COPIES
        ]
        for master in self.masters:
            master.answers.clear()
        return sum(found)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_mines, "BETWEEN", 0.0)


@pytest.mark.parametrize("releases", RELEASES)
@in_a_loop
async def test_every_master_gets_what_is_newest_and_nothing_goes_in_circles(
    tmp_path: Path, releases: tuple[int, ...]
) -> None:
    site = Site(tmp_path, *releases)
    content = {"test.arg": [1, {2: b"\xff"}], "at": datetime.datetime(2026, 1, 2, 3, 4, 5)}
    site.m1.sends(MINE, "web1", content, ago=100)
    site.m2.sends(MINE, "web1", {"old": 1}, ago=200)
    site.m2.sends(GRAINS, "web2", {"role": "web"}, ago=50)
    await site.later()
    await site.later()
    for master in site.masters:
        assert master.mine("web1") == content
        assert master.grains("web2") == {"role": "web"}
        assert master.age(MINE, "web1") == pytest.approx(120, abs=1)
        assert master.age(GRAINS, "web2") == pytest.approx(70, abs=1)
        assert master.notes() == []
    assert site.fetched() == 4
    for _ in range(5):
        await site.later(30)
    assert site.fetched() == 0
    assert [master.written for master in site.masters] == [1, 1, 2]
    # Another one.
    site.m3.sends(MINE, "web1", {"test.arg": 2})
    await site.later()
    await site.later()
    assert [master.mine("web1") for master in site.masters] == [{"test.arg": 2}] * 3
    assert site.fetched() == 2


@in_a_loop
async def test_pillar_never_travels_and_that_of_the_receiver_is_kept(tmp_path: Path) -> None:
    site = Site(tmp_path, 3006, 3007, 3006)
    site.m1.sends(GRAINS, "web1", {"role": "web"})
    site.m2.sends(GRAINS, "web1", {"role": "old"}, ago=500)
    await site.later()
    await site.later()
    data = [master.salt.fetch("minions/web1", "data") for master in site.masters]
    grains = {"role": "web"}
    assert data == [
        {"grains": grains, "pillar": {"of": "m1"}},
        {"grains": grains, "pillar": {"of": "m2"}},
        {"grains": grains, "pillar": {}},
    ]
    assert "pillar" not in str([answer for each in site.masters for _, answer in each.answers])


@in_a_loop
async def test_pillar_that_comes_while_a_copy_is_written_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, 3007, 3007, 3007)
    site.m1.sends(GRAINS, "web1", {"role": "web"})
    site.m2.sends(GRAINS, "web1", {"role": "old"}, ago=500)
    fetch = site.m2.cache._fetch

    def meanwhile(name: Name) -> Any:
        found = fetch(name)
        data = {"grains": {"role": "new"}, "pillar": {"new": 1}}
        site.m2.salt.store("minions/web1", "data", data)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(site.m2.cache, "_fetch", meanwhile)
        await site.m1.shared.step()
        await site.m2.shared.step()
    data = site.m2.salt.fetch("minions/web1", "data")
    assert data == {"grains": {"role": "new"}, "pillar": {"new": 1}}
    assert len(list((site.m2.folder / "minions" / "web1").iterdir())) == 1


@in_a_loop
async def test_a_second_one_within_the_tolerance_comes_as_well(site: Site) -> None:
    site.m1.sends(MINE, "web1", {"n": 1})
    await site.later(1)
    await site.later(1)
    site.m1.sends(MINE, "web1", {"n": 2})
    await site.later(1)
    await site.later(1)
    assert [master.mine("web1") for master in site.masters] == [{"n": 2}] * 3
    assert site.fetched() == 4


@in_a_loop
async def test_a_copy_comes_by_way_of_another_master(site: Site) -> None:
    site.m1.shared._contacts = {"m2": site.m2}  # type: ignore[dict-item]
    site.m3.shared._contacts = {"m2": site.m2}  # type: ignore[dict-item]
    for n in (1, 2):
        site.m1.sends(MINE, "web1", {"n": n})
        await site.later()
        await site.later()
        assert site.m3.mine("web1") == {"n": n}
    assert site.fetched() == 4


@in_a_loop
async def test_a_peer_that_starts_again_is_heard_anew_and_nothing_is_fetched_twice(
    site: Site,
) -> None:
    site.m1.sends(MINE, "web1", {"n": 1}, ago=60)
    await site.later()
    assert site.fetched() == 2
    site.m1.start()
    await site.later()
    await site.later()
    assert site.fetched() == 0
    site.m1.sends(MINE, "web1", {"n": 2})
    await site.later()
    assert site.m2.mine("web1") == {"n": 2}


@in_a_loop
async def test_a_quiet_group_exchanges_little(site: Site) -> None:
    for n in range(300):
        site.m1.sends(MINE, f"web{n}", {"n": n}, ago=60)
    await site.later()
    await site.later()
    site.fetched()
    await site.later()
    assert sum(len(wire.pack(answer)) for each in site.masters for _, answer in each.answers) < 500


@in_a_loop
async def test_many_and_large_ones_come_in_several_answers(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mine_copies, "PAGE", 100)
    for n in range(ASKED + 50):
        site.m1.sends(MINE, f"web{n}", {"n": n})
    for n in range(300, 310):
        site.m1.sends(MINE, f"web{n}", {"n": "x" * 200_000})
    await site.later()
    assert site.m2.mine("web249") == {"n": 249}
    assert site.m2.mine("web303") == {"n": "x" * 200_000}
    sent = [answer["copies"] for method, answer in site.m1.answers if method == COPIES]
    assert sum(map(len, sent)) == 2 * (ASKED + 60)
    assert max(sum(len(copy[-1]) for copy in each) for each in sent) <= MOST_BYTES
    assert sum(method == CHANGES for method, _ in site.m1.answers) == 6


@pytest.mark.parametrize("release", [3006, 3008])
@in_a_loop
async def test_one_that_is_too_large_is_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: int
) -> None:
    site = Site(tmp_path, release, release, release)
    for kind in (MINE, GRAINS):
        site.m1.sends(kind, "web1", {"n": "x" * LARGEST})
        site.m1.sends(kind, "web2", {"n": 2})
    await site.later()
    await site.later()
    assert (site.m2.mine("web1"), site.m2.mine("web2")) == ({}, {"n": 2})
    (note,) = site.m1.notes()
    assert note.startswith("too large to be shared (more than 256 KB): ")
    assert "mine of web1" in note
    assert "grains of web1" in note
    assert site.m2.notes() == []
    with monkeypatch.context() as patched:
        patched.setattr(site.m1.cache, "read", lambda _: pytest.fail("it is read again"))
        await site.m1.shared.for_peers()[COPIES](PEER, {"wanted": [["mine", "web1"]] * ASKED})
    site.m1.sends(MINE, "web1", {"n": 1})
    site.m1.sends(GRAINS, "web1", {"n": 1})
    await site.later()
    assert site.m1.notes() == []
    assert site.m2.mine("web1") == {"n": 1}


@pytest.mark.parametrize("release", [3007, 3008])
@in_a_loop
async def test_ids_that_are_too_long_for_a_file_of_3008(tmp_path: Path, release: int) -> None:
    """Before, the id is the name of a folder."""
    site = Site(tmp_path, 3007, release, release)
    ids = ["y" * 253, "x" * 254]
    for master in site.masters:
        master.accepted.update(ids)
    for minion_id in ids:
        site.m1.sends(MINE, minion_id, {"n": 1})
    await site.later()
    await site.later()
    assert [*site.m2.cache.marks()] == [(MINE, "y" * 253)]
    assert site.m2.notes() == []


@in_a_loop
async def test_only_minions_that_are_accepted_here(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_mines, "CHECKED", 1)
    site.m1.sends(MINE, "a", {"n": 0})
    site.m2.accepted.clear()
    site.m1.sends(MINE, "web1", {"n": 1})
    await site.later()
    await site.later()
    assert site.m2.mine("web1") == {}
    site.m2.accepted.add("web1")
    site.m2.keys += 1
    await site.later()
    await site.later()
    assert (site.m2.mine("a"), site.m2.mine("web1")) == ({}, {"n": 1})


@in_a_loop
async def test_each_id_gets_its_turn_while_keys_change_all_the_time(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_mines, "CHECKED", 1)
    for minion_id in ("a", "b", "web1"):  # no master has a key of a or b
        site.m1.sends(MINE, minion_id, {"n": 1})
    for _ in range(3):
        site.m2.keys += 1
        await site.later()
    assert site.m2.mine("web1") == {"n": 1}


@in_a_loop
async def test_a_peer_that_tells_of_copies_and_sends_none_keeps_nobody_from_those_of_another(
    site: Site,
) -> None:
    site.m2.sends(MINE, "web1", {"n": 2}, ago=20)
    site.m3.sends(MINE, "web1", {"n": 3})
    site.m3.hangs.add(COPIES)
    for master in (site.m2, site.m3):
        await master.shared._look()
    await site.m1.shared.step()
    assert site.m1.notes() == ["mines are not shared with m3: m3 timed out"]
    await site.m1.shared.step()
    assert site.m1.mine("web1") == {"n": 2}
    site.m3.hangs.clear()
    site.now += AGAIN + 1
    await site.m1.shared.step()
    assert (site.m1.mine("web1"), site.m1.notes()) == ({"n": 3}, [])


@pytest.mark.parametrize("release", [3006, 3008])
@in_a_loop
async def test_a_minion_that_was_deleted_does_not_come_back(tmp_path: Path, release: int) -> None:
    site = Site(tmp_path, release, release, release)
    for kind in (MINE, GRAINS):
        site.m1.sends(kind, "web1", {"n": 1})
    await site.later()
    assert site.m2.mine("web1") == {"n": 1}
    for master in (site.m2, site.m3):
        master.forgets("web1")
    site.m1.accepted.discard("web1")  # what is cached there stays
    for master in site.masters:
        master.start()
        await site.later()
    assert (site.m2.mine("web1"), site.m2.grains("web1")) == ({}, {})


@in_a_loop
async def test_one_that_is_deleted_while_it_is_fetched(site: Site) -> None:
    site.m1.sends(MINE, "web1", {"n": 1})
    give = site.m1.call

    async def slow(method: str, *more: Any) -> dict[str, Any]:
        answer = await give(method, *more)
        if method == COPIES and "web1" in site.m2.accepted:
            site.m2.forgets("web1")
        return answer

    site.m1.call = slow  # type: ignore[method-assign]
    await site.later()
    assert site.fetched() == 2
    assert site.m2.mine("web1") == {}


@in_a_loop
async def test_one_that_the_minion_sends_here_while_it_is_fetched(site: Site) -> None:
    site.m1.sends(MINE, "web1", {"n": 1}, ago=60)
    give = site.m1.call

    async def slow(method: str, *more: Any) -> dict[str, Any]:
        answer = await give(method, *more)
        if method == COPIES:
            site.m2.sends(MINE, "web1", {"n": 2})
        return answer

    site.m1.call = slow  # type: ignore[method-assign]
    await site.later()
    site.m1.call = give  # type: ignore[method-assign]
    await site.later()
    await site.later()
    assert [master.mine("web1") for master in site.masters] == [{"n": 2}] * 3
    assert site.m2.written == 0


@in_a_loop
async def test_one_that_takes_long_to_come_does_not_get_older(site: Site) -> None:
    """Else the next would be one that is older than it."""
    site.m1.sends(MINE, "web1", {"n": 2}, ago=10)
    site.m3.sends(MINE, "web1", {"n": 1}, ago=20)
    give = site.m1.call

    async def slow(method: str, *more: Any) -> dict[str, Any]:
        if method == COPIES:
            site.now += 25
        return await give(method, *more)

    site.m1.call = slow  # type: ignore[method-assign]
    for master in (site.m1, site.m3, site.m2, site.m2):
        await master.shared.step()
    assert site.m2.mine("web1") == {"n": 2}
    assert site.m2.age(MINE, "web1") == pytest.approx(site.m1.age(MINE, "web1"), abs=1)


@in_a_loop
async def test_older_peers_and_those_that_do_not_share_are_left_alone(site: Site) -> None:
    site.m2.old = True
    site.m3.start(OFF)
    site.m3.sends(MINE, "web1", {"n": 1})
    site.now += EVERY
    await site.m1.shared.step()
    assert site.m1.notes() == [
        "mines are not shared with m2: it runs an older saltext-ha",
        "mines are not shared with m3: ha: share_mines is off",
    ]
    await site.m3.shared.run()  # it has nothing to do
    assert site.m1.mine("web1") == {}
    site.m2.old = False
    site.m3.start()
    site.now += AGAIN + 1
    for master in (site.m3, site.m1):
        await master.shared.step()
    assert site.m1.notes() == []
    assert site.m1.mine("web1") == {"n": 1}


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        (CHANGES, {}),
        (CHANGES, {"epoch": "a", "n": 1, "more": False, "changed": [["mine", "a/b", 1.0, 1]]}),
        (COPIES, {}),
        (COPIES, {"done": 0, "copies": []}),
        (COPIES, {"done": 9, "copies": []}),
        (COPIES, {"done": 1, "copies": [["mine", "web1", 1.0, 1, "text"]]}),
    ],
)
@in_a_loop
async def test_a_peer_that_answers_nonsense(
    site: Site, method: str, answer: dict[str, Any]
) -> None:
    site.m3.sends(MINE, "web1", {"n": 1})
    site.m3.says[method] = answer
    site.m2.sends(MINE, "web2", {"n": 2})
    await site.later()
    await site.later()
    (note,) = site.m1.notes()
    assert note.startswith("mines are not shared with m3: it answers nonsense: ")
    assert (site.m1.mine("web1"), site.m1.mine("web2")) == ({}, {"n": 2})


@pytest.mark.parametrize("content", [b"\xc1", b"\x90", b"\x81\xa1a" + b"\x91" * 1022 + b"\x90"])
@in_a_loop
async def test_one_that_salt_could_not_read_holds_no_other_up(site: Site, content: bytes) -> None:
    """A minion may send what another release of msgpack takes."""
    site.m3.sends(MINE, "web1", {"n": 1})
    site.m3.sends(MINE, "web2", {"n": 2})
    rows = [["mine", "web1", 1.0, 1, content], ["mine", "web2", 1.0, 1, b"\x81\xa1n\x02"]]
    site.m3.says[COPIES] = {"done": 2, "copies": rows}
    await site.later()
    await site.later()
    assert (site.m1.mine("web1"), site.m1.mine("web2")) == ({}, {"n": 2})
    assert site.m1.notes() == []


@in_a_loop
async def test_pages_without_end(site: Site) -> None:
    """The others are heard all the same."""
    site.m3.says[CHANGES] = {"epoch": "a", "n": 0, "more": True, "changed": []}
    site.m2.sends(MINE, "web2", {"n": 2})
    await site.m2.shared.step()
    await site.m1.shared.step()
    assert site.m1.mine("web2") == {"n": 2}


@in_a_loop
async def test_slow_answers_without_end(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a peer has left is asked in the next step, after the others were heard."""
    monkeypatch.setattr(shared_mines, "TURN", 0.0)
    monkeypatch.setattr(shared_mines, "ASKED", 1)
    for n in range(3):
        site.m1.sends(MINE, f"web{n}", {"n": n})
    await site.m1.shared.step()
    for step in range(1, 4):
        await site.m2.shared.step()
        assert len(site.m2.cache.marks()) == step
    assert site.m2.mine("web2") == {"n": 2}


@in_a_loop
async def test_ids_without_end(site: Site) -> None:
    """Only those that are offered now are remembered as not accepted."""
    for n in range(3):
        rows = [["mine", f"odd{n}-{i}", 1.0, 1] for i in range(50)]
        site.m3.says[CHANGES] = {"epoch": str(n), "n": 1, "more": False, "changed": rows}
        await site.m1.shared.step()
        assert site.m1.shared._unaccepted == {row[1] for row in rows}


@in_a_loop
async def test_a_peer_that_does_not_answer_is_asked_next_time(site: Site) -> None:
    site.m1.sends(MINE, "web1", {"n": 1})
    await site.m1.shared.step()
    site.m1.unreachable = True
    await site.m2.shared.step()
    assert site.m2.notes() == []
    site.m1.unreachable = False
    await site.m2.shared.step()
    assert site.m2.mine("web1") == {"n": 1}


@in_a_loop
async def test_a_cache_that_hangs_keeps_one_thread(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, counted = threading.Event(), threading.active_count()
    monkeypatch.setattr(site.m1.cache, "marks", lambda: goes_on.wait() and {})
    site.m1.shared._disk.limit = 0.05
    try:
        for _ in range(3):
            with pytest.raises(shared_mines.HaError, match="does not respond"):
                await site.m1.shared.step()
        assert threading.active_count() <= counted + 1
        with pytest.raises(shared_mines.HaError, match="does not respond"):
            await site.m1.shared.for_peers()[COPIES](PEER, {"wanted": [["mine", "web1"]]})
    finally:
        goes_on.set()


@in_a_loop
async def test_a_cache_that_cannot_be_written(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.m1.sends(MINE, "web1", {"n": 1})
    await site.m1.shared.step()

    def full(*_: Any) -> int:
        raise StoreError("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(site.m2.cache, "write", full)
        with pytest.raises(StoreError):
            await site.m2.shared.step()
    await site.m2.shared.step()
    assert site.m2.mine("web1") == {"n": 1}


def test_a_copy_never_looks_new(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever the engine ends, a copy is there as old as it is, or not at all."""
    replaced = []

    def full(made: Path, file: Path) -> None:
        replaced.append(made.stat().st_mtime)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", full)
        with pytest.raises(StoreError, match="No space left"):
            site.m2.cache.write((MINE, "web1"), {"n": 1}, NOW - 500, 0)
    assert replaced == [NOW - 500]
    assert list((site.m2.folder / "mine").iterdir()) == []
    written, mark = site.m2.cache.write((MINE, "web1"), {"n": 1}, NOW - 500, 0)
    assert written
    assert mark == site.m2.cache.mark((MINE, "web1")) == int(NOW - 500) * 10**9
    assert (site.m2.folder / "mine" / "web1.p").stat().st_mode & 0o777 == 0o600


@in_a_loop
async def test_what_shares_nothing_says_why(site: Site) -> None:
    site.m1.start("cache is redis")
    await site.m1.shared.run()
    assert site.m1.notes() == ["mines are not shared: cache is redis"]


@in_a_loop
async def test_grains_of_a_peer_are_known_as_such(tmp_path: Path) -> None:
    """Their minion is asked to refresh when it comes: no pillar came with them."""
    site = Site(tmp_path, 3006, 3006, 3006)
    site.m1.sends(GRAINS, "web1", {"n": 1})
    await site.later()
    written = site.m2.cache.mark((GRAINS, "web1")) // 10**9
    assert site.m2.shared.sent_by_peer("web1", float(written))
    assert not site.m2.shared.sent_by_peer("web1", written + 5.0)
    assert not site.m1.shared.sent_by_peer("web1", site.m1.cache.mark((GRAINS, "web1")) // 10**9)
    cached = _sent_by_minions(lambda ids: dict.fromkeys(ids, float(written)), site.m2.shared)
    assert cached(["web1", "web2"]) == {"web1": 0.0, "web2": float(written)}


@in_a_loop
async def test_other_files_in_the_cache(site: Site) -> None:
    site.m1.sends(MINE, "web1", ["no mine"])
    site.m1.salt.store("mine", "web2", {1: 2})
    for name in (".hidden.p", "tmp12", "web3"):
        (site.m1.folder / "mine" / name).write_bytes(b"")
    (site.m1.folder / "grains").mkdir()
    (site.m1.folder / "grains" / "web4.p").write_bytes(b"\xc1")
    site.m1.sends(MINE, "web5", {"n": 5})
    await site.later()
    await site.later()
    assert [*site.m2.cache.marks()] == [(MINE, "web5")]
    assert site.m2.notes() == site.m1.notes() == []


@in_a_loop
async def test_a_damaged_file_is_replaced_and_holds_nothing_up(tmp_path: Path) -> None:
    """On 3007 a copy of grains is written beside the pillar that is read from the file."""
    site = Site(tmp_path, 3007, 3007, 3007)
    for minion_id in ("web1", "web2"):
        site.m1.sends(GRAINS, minion_id, {"of": minion_id})
        site.m2.sends(GRAINS, minion_id, {"old": 1}, ago=500)
    damaged = site.m2.folder / "minions" / "web1" / "data.p"
    damaged.write_bytes(b"\xc1")
    os.utime(damaged, (NOW, NOW))
    await site.later()
    assert site.m2.grains("web1") == {"of": "web1"}
    assert site.m2.grains("web2") == {"of": "web2"}
