"""Two or three whole engines on real folders and sockets, without a salt-master beneath."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import salt.version

from lab import key_folders
from lab.engines import Engine, Place, befriend
from lab.key_folders import PENDING
from saltext_ha.commands.arguments import span
from saltext_ha.commands.keys.decisions import Decisions
from saltext_ha.common.batches import batches
from saltext_ha.common.errors import HaError, ReplicaError, StoreError, UncleanCaches
from saltext_ha.engine import startup
from saltext_ha.health import fitness
from saltext_ha.keystore import minion_key, open_store
from saltext_ha.keystore.base import KeyStore
from saltext_ha.keystore.minion_key import fingerprint
from saltext_ha.reconciler.core import Core
from saltext_ha.reconciler.dropping import Dropping
from saltext_ha.reconciler.keeper import Decision
from saltext_ha.replica.replica import Replica
from saltext_ha.replication.record import DELETED, Dot, Record, Value, decide
from saltext_ha.sync import answers, antientropy
from saltext_ha.sync.link import Link
from saltext_ha.sync.repair_leases import MANY
from saltext_ha.sync.sending import Sender
from saltext_ha.sync.shared_store import SharedStore
from saltext_ha.transport.peer import Peer
from saltext_ha.transport.trust import Trust
from tests.engines import QUICK, delete, join, level, met, places, put, run, sharing, there
from tests.keys import LOOK_ALIKES, public_key
from tests.loop import becomes, in_a_loop, until

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus")]

KEYS = [public_key(number) for number in range(4)]
NUMBERED = [f"web{number}" for number in range(12)]
HAS_DRIVERS = salt.version.__saltstack_version__.major >= 3008


def accepted(*where: Place) -> list[set[str]]:
    return [there(place) for place in where]


def known_keys(engine: Engine, minion_id: str) -> int:
    """Of how many keys of an id the engine knows."""
    keys = engine.parts.core.replica._rows._records.get(minion_id)
    return len(keys or ())


def decisions(engine: Engine) -> Decisions:
    return Decisions(engine.parts.group, engine.parts.core)


async def notes(engine: Engine, name: str) -> str:
    """What is to be known of one master, or (without a name) of the one that is asked."""
    status = await engine.made.status.status({})
    if not name:
        return "; ".join(status["notes"])
    return next(str(row["note"]) for row in status["masters"] if row["name"] == name)


# -- dropping tombstones


@contextlib.asynccontextmanager
async def with_a_tombstone(one: Place, two: Place) -> AsyncIterator[list[Engine]]:
    """Two masters that know of web1, which was deleted, and of web2, which is accepted."""
    async with sharing(["web1", "web2"], one, two) as (m1, m2):
        await delete(m1, "web1")
        await level(m1, m2)
        yield [m1, m2]


@in_a_loop
async def test_old_tombstones_are_dropped_by_all_when_all_are_up(tmp_path: Path) -> None:
    one, two, three = places(tmp_path, "m1", "m2", "m3", ha={"keep_tombstones": 0})
    async with sharing(["web1", "web2"], one, two, three) as (m1, m2, m3):
        await delete(m1, "web1")
        await until(lambda: accepted(two, three) == [{"web2"}] * 2, "deleted")
        await level(m1, m2, m3)
        # The first by name does it, and nobody else.
        assert await m2.parts.retention.drop_old() == 0
        assert await m1.parts.retention.drop_old() == 1
        for engine in (m1, m2, m3):
            assert engine.known(lambda of: list(of.ids())) == ["web2"]
        # A master that offered the tombstone just then has dropped it, and hears the rest now.
        assert await m1.parts.retention.drop_old() == 0
        for engine in (m1, m2, m3):
            assert engine.known(lambda of: of.dropped.epoch) == 1
        await level(m1, m2, m3)


@in_a_loop
async def test_young_tombstones_stay(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"keep_tombstones": 0.5})
    async with sharing(["web1"], one, two) as (m1, m2):
        await delete(m1, "web1")
        await level(m1, m2)
        assert await m1.parts.retention.drop_old() == 0
        assert m1.known(lambda of: list(of.ids())) == ["web1"]


@in_a_loop
async def test_tombstones_wait_for_a_master_that_is_away(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"keep_tombstones": 0, "sync_interval": 0.1})
    async with sharing(["web1"], one, two) as (m1, m2):
        await m2.stop()
        await delete(m1, "web1")
        with pytest.raises(HaError, match="m2 does not answer; they wait for it"):
            await m1.parts.retention.drop_old()
        assert m1.known(lambda of: list(of.ids())) == ["web1"]
        async with Engine(two) as back:
            await level(m1, back)
            await m1.meets(back)
            assert await m1.parts.retention.drop_old() == 1
            await level(m1, back)
            assert back.known(lambda of: list(of.ids())) == []


@in_a_loop
async def test_who_missed_the_dropping_is_told_when_it_offers_a_tombstone(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"keep_tombstones": 0})
    async with with_a_tombstone(one, two) as (m1, m2):
        shutil.copy2(two.replica_file, tmp_path / "old.db")
        assert await m1.parts.retention.drop_old() == 1
    # The second is an old copy of itself, key folder and replica.
    shutil.copy2(tmp_path / "old.db", two.replica_file)
    async with met(one, two) as (m1, m2):
        await level(m1, m2)
        assert m2.known(lambda of: list(of.ids())) == ["web2"]
        assert accepted(one, two) == [{"web2"}] * 2


@in_a_loop
async def test_who_missed_the_dropping_learns_the_horizon_in_the_next_round(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"keep_tombstones": 0})
    async with with_a_tombstone(one, two) as (m1, m2):
        keeper = m1.parts.core.keeper
        dropping = m1.known(lambda of: dropped_on(m1, of.tombstones("", 9)))
        assert await m1.parts.core.run(keeper.drop, keeper.replica.records.root, dropping)
        await level(m1, m2)
        assert m2.known(lambda of: list(of.ids())) == ["web2"]
        assert horizon(m2) == {}
        assert await m1.parts.retention.drop_old() == 0
        assert horizon(m2) == horizon(m1) != {}
        assert m2.known(lambda of: of.dropped.epoch) == 1


def plant_from_the_future(place: Place) -> None:
    """A record that no other master can read: a newer release, or somebody hostile."""
    replica = Replica(place.replica_file)
    (known,) = replica.get("web2").values()
    values = tuple(value._replace(state="quarantined") for value in known.values)
    with replica.transaction():
        replica.put(known._replace(minion_id="web9", values=values))
    replica.close()


@pytest.mark.parametrize("readable", [True, False])
@in_a_loop
async def test_a_lost_replica_learns_what_was_dropped(tmp_path: Path, readable: bool) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"keep_tombstones": 0})
    async with sharing(["web1", "web2"], one, two) as (m1, m2):
        shutil.copytree(two.pki_dir / "minions", tmp_path / "backup", symlinks=True)
        await delete(m1, "web1")
        await level(m1, m2)
        assert await m1.parts.retention.drop_old() == 1
    # A machine rebuilt from a backup of the keys that is older than the deletion.
    two.replica_file.unlink()
    shutil.rmtree(two.pki_dir / "minions")
    (tmp_path / "backup").rename(two.pki_dir / "minions")
    if not readable:
        plant_from_the_future(one)
    async with met(one, two) as (m1, m2):
        await until(lambda: not m2.parts.core.mode.lost, "rebuilt")
        if readable:
            await level(m1, m2)
        await until(lambda: accepted(one, two) == [{"web2"}] * 2, "web1 is not accepted")
        assert m2.known(lambda of: of.dropped.epoch) == 1
        assert (horizon(m2) != {}) is readable
        assert (two.pki_dir / "minions_pre" / "web1").exists()


@in_a_loop
async def test_a_lost_replica_is_rebuilt_from_all_who_know_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = places(tmp_path, "m1", "m2", "m3")
    exchange = Link.exchange

    async def slow(link: Link, shared: bool = False) -> antientropy.Exchanged:
        if "m3" in (link.line.peer.name, link._greeting()["name"]) and link.line.up is None:
            await asyncio.sleep(2)
        return await exchange(link, shared)

    put(one, "web1")
    async with met(one, three):
        await until(lambda: accepted(three) == [{"web1"}], "accepted")
    befriend(one, two, three)
    one.replica_file.unlink()
    # m2 has nothing, either, asks nobody but m1, and is met first.
    monkeypatch.setattr(Link, "exchange", slow)
    Trust(two.config.state_dir).unpin("m3")
    async with Engine(two), Engine(three) as m3, Engine(one) as m1:
        await until(lambda: not m1.parts.core.mode.lost, "rebuilt")
        there, here = records(m3), records(m1)
        assert here == there
        assert [len(record.values) for record in here.values()] == [1]


@pytest.mark.parametrize("refuses", [False, True])
@in_a_loop
async def test_a_master_that_does_not_show_its_keys_is_not_called_the_same(
    tmp_path: Path, refuses: bool
) -> None:
    one, two = places(tmp_path, "m1", "m2")

    async def keys(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        if refuses:
            raise HaError("not now")
        return {"keys": 7}

    async with met(one, two) as (m1, m2):
        m2.parts.core.mode.paused = "paused"
        put(one, "web1")
        await m1.hint("web1")
        await until(lambda: bool(records(m2)), "heard of")
        asked = {"only": ["keys"]}
        assert (await run(one, "check_consistency", **asked))["status"] != "same"
        assert (await run(one, "sync", test=True))["changes"]
        m2.service.listener._handlers["keys"] = keys
        checked = await run(one, "check_consistency", **asked)
        assert (checked["status"], checked["retcode"]) == ("unknown", 2)
        assert list(checked["unknown"]) == ["m2"]
        planned = await run(one, "sync", test=True)
        assert (list(planned["unreachable"]), planned["retcode"]) == (["m2"], 2)


@in_a_loop
async def test_who_pulls_does_not_wait_for_a_peer_that_cannot_drop(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"keep_tombstones": 0})
    async with sharing(["web1"], one, two) as (m1, m2):
        await delete(m1, "web1")
        await level(m1, m2)
        core, keeper = m1.parts.core, m1.parts.core.keeper
        # m2 has an id to apply, and keeps its tombstone for as long.
        m2.parts.core.mode.paused = "paused"
        put(one, "web1", 1, PENDING)
        await m1.hint("web1")
        await until(lambda: len(records(m2)) == 2, "heard of")
        dropping = m1.known(lambda of: dropped_on(m1, of.tombstones("", 9)))
        assert await core.run(keeper.drop, keeper.replica.records.root, dropping)

        def pull() -> None:
            keeper.mode.lost = True

        await core.run(pull)
        await until(lambda: not keeper.mode.lost, "it has pulled")


@in_a_loop
async def test_a_lost_replica_learns_all_before_it_says_what_was_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"keep_tombstones": 0})
    ids = {f"web{number}" for number in range(30)}
    async with sharing([*ids, "old"], one, two) as (m1, m2):
        await delete(m1, "old")
        await level(m1, m2)
        assert await m1.parts.retention.drop_old() == 1
    # A machine that has lost everything but its identity; one answer carries a few keys only.
    two.replica_file.unlink()
    shutil.rmtree(two.pki_dir / "minions")
    monkeypatch.setattr(answers, "BYTES_PER_MESSAGE", 1)
    send = Sender.send

    async def busy(sender: Sender, records: list[Record]) -> list[Record]:
        # m1 does not come to it.
        return [] if sender._name == "m2" else await send(sender, records)

    monkeypatch.setattr(Sender, "send", busy)
    async with met(one, two) as (m1, m2):
        await until(lambda: not m2.parts.core.mode.lost, "rebuilt")
        assert m2.known(lambda of: set(of.ids())) == ids
        assert m2.known(lambda of: of.dropped.epoch) == 1
        await level(m1, m2)
        assert accepted(one, two) == [ids, ids]


# -- one key store for two masters


def place_on(root: Path, name: str, store: str) -> Place:
    """A master whose key store is the folder *store*, whoever else uses it."""
    ha = {**QUICK, "state_dir": str(root / name / "state")}
    return Place(root, name, ha, {"root_dir": "/", "pki_dir": str(root / store)})


@in_a_loop
async def test_two_masters_with_one_key_folder_only_report(tmp_path: Path) -> None:
    one, two = (place_on(tmp_path, name, "shared") for name in ("m1", "m2"))
    put(one, "web1")
    async with met(one, two) as (m1, m2):
        await until(lambda: bool(m1.parts.core.mode.never and m2.parts.core.mode.never), "told")
        assert "its key store is that of m2, too" in await notes(m1, "")
        assert "its key store is that of m1, too" in await notes(m2, "")
        assert m1.parts.core.mode.never
        assert m2.parts.core.mode.never
        # Both see what is done in it, and agree.
        put(one, "web2")
        await level(m1, m2)
        with pytest.raises(HaError, match="never written"):
            await m1.made.commands["resume"]({})


@in_a_loop
async def test_who_shares_a_folder_is_remembered_until_it_does_not(tmp_path: Path) -> None:
    one, two = (place_on(tmp_path, name, "shared") for name in ("m1", "m2"))
    three = place_on(tmp_path, "m3", "own")

    def only_reports(engine: Engine) -> bool:
        return engine.parts.core.mode.name == "observe"

    put(one, "web1")
    async with met(one, two, three) as (m1, m2, m3):
        await until(lambda: only_reports(m1) and only_reports(m2), "told")
        await until(lambda: accepted(three) == [{"web1"}], "told m3, too")
        await level(m1, m2, m3)
    # Again without m2: whose folder it is cannot be asked.
    async with met(one, three) as (m1, m3):
        assert only_reports(m1)
        put(three, "web2", 1)
        await until(lambda: bool(records(m1, "web2")), "m1 has heard of it")
        await m1.parts.core.scan()
        assert accepted(one, three) == [{"web1"}, {"web1", "web2"}]
    # m2 is given a copy of the folder.
    shutil.copytree(tmp_path / "shared", tmp_path / "copied", symlinks=True)
    async with met(one, place_on(tmp_path, "m2", "copied"), three) as (m1, m2, m3):
        await until(lambda: not (only_reports(m1) or only_reports(m2)), "told apart")
        await until(lambda: accepted(one, m2.place) == [{"web1", "web2"}] * 2, "both are written")
        await level(m1, m2, m3)


@in_a_loop
async def test_a_cache_that_shows_an_old_signature_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system may show for a while what was there before."""
    one, two = (place_on(tmp_path, name, "shared") for name in ("m1", "m2"))
    seen: list[str | None] = []

    def through_a_cache(opts: dict[str, Any]) -> KeyStore:
        store = open_store(opts)
        if opts["id"] == one.opts["id"]:
            really, until_then = store.signature, 0.0

            def signature(owner: str) -> str | None:
                nonlocal until_then
                if owner == "m2" and not seen:
                    until_then = time.monotonic() + QUICK["scan_interval"] / 2
                if owner != "m2" or time.monotonic() > until_then:
                    return really(owner)
                seen.append(before)
                return before

            monkeypatch.setattr(store, "signature", signature)
        return store

    before: str | None = None

    put(one, "web1")
    async with met(one, two) as (m1, m2):
        await until(lambda: bool(m1.parts.core.mode.never and m2.parts.core.mode.never), "told")
        before = m1.parts.core.keeper.store.signature("m2")
    monkeypatch.setattr(startup, "open_store", through_a_cache)
    async with met(one, two) as (m1, m2):
        modes, over = set(), time.monotonic() + 3 * QUICK["scan_interval"]
        while time.monotonic() < over:
            modes.add(m1.parts.core.mode.name)
            await asyncio.sleep(0.02)
        assert set(seen) == {before}
        assert modes == {"observe"}
        assert m1.parts.shared_store.names == {"m2"}


@in_a_loop
async def test_a_shared_store_is_remembered_as_soon_as_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (place_on(tmp_path, name, "shared") for name in ("m1", "m2"))
    failed: list[str] = []

    def full(self: SharedStore) -> None:
        failed.append("")
        raise ReplicaError("the disk is full")

    monkeypatch.setattr(SharedStore, "_remember", full)
    async with met(one, two) as (m1, m2):
        await until(lambda: len(failed) >= 2, "found by both")
        await m1.parts.shared_store.check_all()
        assert m1.known(lambda of: of.meta.shared_with) == []
        monkeypatch.undo()
        for master, other in ((m1, "m2"), (m2, "m1")):
            await master.parts.shared_store.check_all()
            assert master.known(lambda of: of.meta.shared_with) == [other]


@in_a_loop
async def test_a_copied_key_folder_is_not_a_shared_one(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2")
    put(one, "web1")
    async with Engine(one):
        await until(lambda: (one.pki_dir / "minions" / ".ha-m1").is_symlink(), "signed")
        # As an operator sets a second master up by copying the first one's keys.
        shutil.copytree(one.pki_dir / "minions", two.pki_dir / "minions", symlinks=True)
        async with Engine(two) as m2:
            befriend(one, two)
            await m2.meets(one)
            put(one, "web2")
            await until(lambda: accepted(two) == [{"web1", "web2"}], "still written")
            assert m2.parts.core.mode.never == ""


@pytest.mark.skipif(not HAS_DRIVERS, reason="keys.cache_driver is new in 3008")
@in_a_loop
async def test_two_masters_with_one_database_only_report(tmp_path: Path) -> None:
    one, two = places(
        tmp_path,
        "m1",
        "m2",
        **{"keys.cache_driver": "localfs", "root_dir": "/", "cachedir": str(tmp_path / "db")},
    )
    async with met(one, two) as (m1, m2):
        await until(lambda: bool(m1.parts.core.mode.never and m2.parts.core.mode.never), "told")
        assert "its key store is that of m1, too" in await notes(m2, "")


# -- mistakes


@in_a_loop
async def test_an_emptied_folder_is_filled_again(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2")
    async with sharing(NUMBERED[:3], one, two) as (m1, m2):
        with pytest.raises(HaError, match="nothing is held on m2"):
            await decisions(m2).refill({})
        shutil.rmtree(two.pki_dir / "minions")
        (two.pki_dir / "minions").mkdir()
        await until(lambda: m2.parts.core.replica.held.count == 3, "noticed, and held")
        assert "ha.refill" in await notes(m1, "m2")
        plan = await decisions(m2).refill({"test": True})
        assert [(c["master"], c["id"], c["from"]) for c in plan["changes"]] == [
            ("m2", f"web{number}", "absent") for number in range(3)
        ]
        assert accepted(two) == [set()]
        await decisions(m2).refill({})
        assert accepted(one, two) == [{"web0", "web1", "web2"}] * 2
        await level(m1, m2)
        await becomes(partial(notes, m1, "m2"), "")


@in_a_loop
async def test_what_a_wiped_master_shows_its_minions_counts(tmp_path: Path) -> None:
    """Its replica knows all keys still; its minions find none of them."""
    one, two = places(tmp_path, "m1", "m2", ha={"health": False})
    away = two.pki_dir / "away"
    async with sharing(NUMBERED[:3], one, two) as (m1, m2):
        await level(m1, m2)
        assert (await run(one, "status"))["tolerates"] == 1
        (two.pki_dir / "minions").rename(away)
        (two.pki_dir / "minions").mkdir()
        await until(lambda: not m2.parts.health.ready()[0], "it is not ready")
        assert m2.parts.health.ready()[1] == m2.parts.core.mode.doubt

        async def group_of(place: Place) -> Any:
            status = await run(place, "status")
            return status["tolerates"], status["state"]

        async def row_of(place: Place) -> Any:
            status = await run(place, "status")
            (row,) = (row for row in status["masters"] if row["name"] == "m2")
            return tuple(row[key] for key in ("accepted", "behind", "held", "doubt"))

        async def keys_of(place: Place) -> Any:
            keys = await run(place, "keys_")
            return keys["retcode"], [row["states"] for row in keys["keys"]]

        # It is not ready a moment before what is missing is counted.
        for place in (one, two):
            await becomes(partial(row_of, place), (0, 3, 3, m2.parts.core.mode.doubt))
            await becomes(partial(group_of, place), (0, "degraded"))
            states = [{"m1": "accepted", "m2": None} for _ in range(3)]
            await becomes(partial(keys_of, place), (1, states))
        shutil.rmtree(two.pki_dir / "minions")
        away.rename(two.pki_dir / "minions")
        await until(lambda: m2.parts.health.ready() == (True, ""), "it is ready")

        async def told() -> Any:
            keys, status = await run(one, "keys_"), await run(one, "status")
            return keys["retcode"], status["tolerates"]

        await becomes(told, (0, 1))
        nobody = await run(one, "keys_", "zz*")
        assert (nobody["retcode"], nobody["keys"]) == (1, [])


@in_a_loop
async def test_minions_that_knocked_while_the_folder_was_away_are_accepted_when_it_is_back(
    tmp_path: Path,
) -> None:
    """With the other master down, and an engine that was started meanwhile."""
    one, two = places(tmp_path, "m1", "m2")
    away, waiting = two.pki_dir / "away", two.pki_dir / "minions_pre"
    async with sharing(NUMBERED[:12], one, two) as (m1, m2):
        await level(m1, m2)
    (two.pki_dir / "minions").rename(away)
    (two.pki_dir / "minions").mkdir()
    async with Engine(two) as m2:
        await until(lambda: m2.parts.core.replica.held.count == 12, "held")
        for number in range(12):
            put(two, f"web{number}", int(number == 11), PENDING)
        await m2.parts.core.scan()
        shutil.rmtree(two.pki_dir / "minions")
        away.rename(two.pki_dir / "minions")
        await until(lambda: not any(waiting.glob("[!.]*")), "nobody waits")
        await until(lambda: m2.parts.core.replica.held.count == 0, "nothing is held")
        await until(lambda: accepted(two) == accepted(one), "accepted again")
        denied = list((two.pki_dir / "minions_denied").iterdir())
        assert [(path.name, path.read_text()) for path in denied] == [("web11", KEYS[1])]


@in_a_loop
async def test_keys_that_are_held_make_a_master_not_ready_and_those_that_came_back_are_shown(
    tmp_path: Path,
) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"health": False, "hold_minimum": 0})
    gone, back = {f"web{number}" for number in range(3)}, {f"old{number}" for number in range(3)}
    async with sharing(gone | back | {"stays"}, one, two) as (m1, m2):
        await delete(m1, *back)
        await until(lambda: accepted(two) == [gone | {"stays"}], "deleted")
        await m2.parts.core.run(lambda: None)  # and that is written down
        for minion_id in gone:
            (two.pki_dir / "minions" / minion_id).unlink()
        for minion_id in back:
            put(two, minion_id)
        await until(lambda: m2.parts.core.replica.held.count == 6, "held")
        assert m2.parts.health.ready() == (False, fitness.held(6))
        (row,) = [r for r in (await run(one, "status"))["masters"] if r["name"] == "m2"]
        assert (row["accepted"], row["behind"], row["doubt"]) == (4, 6, "")
        found = (await run(one, "keys_", "*"))["keys"]
        assert {row["id"]: row["states"] for row in found} == {
            **{minion_id: {"m1": "accepted", "m2": None} for minion_id in gone},
            **{minion_id: {"m1": None, "m2": "accepted"} for minion_id in back},
            "stays": {"m1": "accepted", "m2": "accepted"},
        }
        assert {row["id"] for row in (await run(two, "keys_", "old*"))["keys"]} == back
        # That they were shown is not that they were looked at.
        for minion_id in gone:
            put(two, minion_id)
        for minion_id in back:
            (two.pki_dir / "minions" / minion_id).unlink()
        await until(lambda: m2.parts.core.replica.held.count == 0, "nothing is held")
        assert m2.parts.health.ready() == (True, "")


@in_a_loop
async def test_who_releases_says_how_many_keys_that_deletes(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"hold_minimum": 0})
    many = {f"web{number}" for number in range(3)}
    async with sharing(many | {"old"}, one, two) as (m1, m2):
        await delete(m1, "old")
        await until(lambda: accepted(two) == [many], "deleted")
        assert (await run(one, "release"))["retcode"] == 0, "there is nothing to be done"
        for minion_id in many:
            (two.pki_dir / "minions" / minion_id).unlink()
        put(two, "web1", folder=PENDING)
        put(two, "old")
        await until(lambda: m2.parts.core.replica.held.count == 4, "held")
        wrong = await run(one, "release", deletes=3)
        assert wrong["error"].startswith("nothing is held on m1, but 4 keys on m2. Run there")
        assert wrong["retcode"] == 2
        assert (await run(one, "refill"))["error"] == wrong["error"]
        plan = await run(two, "release", test=True)
        assert (plan["deletes"], len(plan["changes"]), plan["retcode"]) == (3, 4, 0)
        refused = await run(two, "release")
        assert refused["error"] == f"nothing was done. {plan['notes'][0]}"
        assert (
            "If 3 keys are to be deleted on all masters: salt-run ha.release deletes=3"
            in (refused["error"])
        )
        for wish in (4, 0, "3", True):
            assert (await run(two, "release", deletes=wish))["retcode"] == 2
        assert accepted(one) == [many]
        done = await run(two, "release", deletes=3)
        assert (done["deletes"], done["retcode"]) == (3, 0)
        await until(lambda: accepted(one, two) == [{"old"}, {"old"}], "done on both")


@in_a_loop
async def test_what_is_released_is_what_was_shown(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"hold_minimum": 0})
    async with sharing(["web1"], one, two) as (m1, m2):
        core, release = m2.parts.core, decisions(m2)
        (two.pki_dir / "minions" / "web1").unlink()
        await until(lambda: core.replica.held.count == 1, "held")
        core.mode.paused = "so that what comes is not written"
        held = await core.run(release._held)
        put(one, "web1", 1)
        await m1.hint("web1")
        await until(lambda: known_keys(m2, "web1") == 2, "the new key has come")
        assert not await release._released(held, "root")
        assert core.replica.held.count == 1
        assert await release._released(await core.run(release._held), "root")


@in_a_loop
async def test_revoked_keys_that_came_back_are_released_without_a_number(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"hold_minimum": 0})
    async with sharing(("old", "stays"), one, two) as (m1, m2):
        await delete(m1, "old")
        await until(lambda: accepted(two) == [{"stays"}], "deleted")
        await m2.parts.core.run(lambda: None)  # and that is written down
        put(two, "old")
        await until(lambda: m2.parts.core.replica.held.count == 1, "held")
        assert (await run(two, "release"))["deletes"] == 0
        await until(lambda: accepted(one) == [{"old", "stays"}], "accepted again")


@in_a_loop
async def test_masters_that_observe_write_nothing_and_say_so(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"hold_minimum": 0})
    right = minion_key.show(fingerprint(KEYS[0]), short=False)
    put(one, "web1", 0)
    put(two, "web1", 1)
    async with sharing(["web2"], one, two) as (m1, m2):
        await until(lambda: len(records(m1)) == len(records(m2)) == 2, "a conflict")
        for engine in (m1, m2):
            engine.parts.core.mode.shared = "its key store is shared"
        left = [f"{n}: not changed: its mode is observe" for n in ("m1", "m2")]
        done = await run(one, "resolve", "web1", right)
        assert (done["written"], done["retcode"], done["notes"]) == (False, 1, left)
        (one.pki_dir / "minions" / "web2").unlink()
        await until(lambda: m1.parts.core.replica.held.count == 1, "held")
        refused = await run(one, "refill")
        assert "m1 does not write its key store: its key store is shared" in refused["error"]
        assert m1.parts.core.replica.held.count == 1
        done = await run(one, "release", deletes=1)
        assert (done["written"], done["retcode"], done["notes"]) == (False, 1, left)


@in_a_loop
async def test_a_decision_that_was_written_is_not_said_to_be_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though something else is wrong on this master, which its status tells."""
    one, two = places(tmp_path, "m1", "m2")
    right = minion_key.show(fingerprint(KEYS[1]), short=False)
    put(one, "web1", 0)
    put(two, "web1", 1)

    def fail(gone: Any, rotate: bool) -> None:
        raise UncleanCaches("the caches could not be cleaned")

    async with sharing(["web2"], one, two) as (m1, m2):
        await until(lambda: len(records(m1)) == len(records(m2)) == 2, "a conflict")
        monkeypatch.setattr(m1.parts.core.keeper._reconciler.revocations, "_revoke", fail)
        await delete(m2, "web2")
        await until(lambda: "caches" in m1.parts.core.problem, "they cannot be cleaned")
        done = await run(one, "resolve", "web1", right)
        assert "caches" in m1.parts.core.problem
        assert (one.pki_dir / "minions" / "web1").read_text() == KEYS[1]
        assert (done["written"], done["retcode"], done["notes"]) == (True, 0, [])


@in_a_loop
async def test_a_decision_says_who_writes_it_now_and_not_who_did_when_they_met(
    tmp_path: Path,
) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"hold_minimum": 0})
    async with sharing(("web1", "web2"), one, two) as (m1, _):
        await delete(m1, "web1", "web2")
        await until(lambda: accepted(one, two) == [set(), set()], "deleted")
        assert (await run(one, "pause", all=True))["retcode"] == 0
        left = [f"{name}: not changed: its mode is paused" for name in ("m1", "m2")]
        done = await run(one, "restore", "web1")
        assert (done["written"], done["retcode"], done["notes"]) == (False, 1, left)
        made = await run(one, "sync")
        assert made["notes"] == [note.replace("not", "1 not") for note in left]
        await run(two, "resume")
        done = await run(one, "restore", "web2")
        assert (done["written"], done["retcode"], done["notes"]) == (True, 0, left[:1])


@in_a_loop
async def test_a_master_that_cannot_pause_keeps_no_other_from_pausing(tmp_path: Path) -> None:
    def pause(since: str, note: str) -> None:
        raise ReplicaError("replica.db: cannot be written: disk is full")

    one, two = places(tmp_path, "m1", "m2")
    async with met(one, two) as (m1, m2):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(m1.parts.core.keeper, "pause", pause)
            assert "disk is full" in (await run(one, "pause"))["error"]
            assert not m2.parts.core.mode.paused
            done = await run(one, "pause", all=True)
        assert done["retcode"] == 2
        assert [note[:9] for note in done["notes"]] == ["m2: pause", "m1: not d"]
        assert m2.parts.core.mode.paused
        m1.parts.core.mode.shared = "its key store is shared"
        done = await run(one, "resume", all=True)
        assert (done["retcode"], done["notes"][1]) == (
            2,
            "m1: not done: m1 does not write: its key store is shared",
        )
        assert not m2.parts.core.mode.paused


@in_a_loop
async def test_what_is_refilled_while_paused_waits_for_the_end_of_it(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"hold_minimum": 0})
    async with sharing(["web1"], one, two) as (m1, _):
        await run(one, "pause")
        (one.pki_dir / "minions" / "web1").unlink()
        await until(lambda: m1.parts.core.replica.held.count == 1, "held")
        done = await run(one, "refill")
        paused = ["m1: not changed: its mode is paused"]
        assert (done["written"], done["retcode"], done["notes"]) == (False, 1, paused)
        assert accepted(one, two) == [set(), {"web1"}]
        await run(one, "resume")
        await until(lambda: accepted(one) == [{"web1"}], "it is back")


@in_a_loop
async def test_what_cannot_be_written_is_not_reported_as_refilled(tmp_path: Path) -> None:
    def apply(changes: object) -> None:
        raise StoreError("minions: cannot be written: Read-only file system")

    one, two = places(tmp_path, "m1", "m2", ha={"hold_minimum": 0})
    put(one, "web1")
    async with met(one, two) as (m1, _):
        await until(lambda: accepted(two) == accepted(one), "accepted")
        (one.pki_dir / "minions" / "web1").unlink()
        await until(lambda: m1.parts.core.replica.held.count == 1, "held")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(m1.parts.core.keeper.store, "apply", apply)
            done = await run(one, "refill")
        left = ["m1: not changed: minions: cannot be written: Read-only file system"]
        assert (done["written"], done["retcode"], done["notes"]) == (False, 1, left)
        await until(lambda: accepted(one) == [{"web1"}], "it is back")


@in_a_loop
async def test_a_decision_that_no_master_writes_is_no_success(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"hold_minimum": 0})
    left = [f"{n}: not changed: its mode is observe" for n in ("m1", "m2")]
    ids = [f"web{number}" for number in range(6)]
    async with sharing(ids, one, two) as (m1, m2):
        await delete(m1, *ids)
        await until(lambda: accepted(one, two) == [set(), set()], "deleted")
        for engine in (m1, m2):
            engine.parts.core.mode.shared = "its key store is shared"
        many: dict[str, Any] = {"since": "1h"}
        assert (await run(one, "restore", "web0", test=True))["retcode"] == 0
        assert (await run(one, "restore", "web[0]", **many, test=True))["retcode"] == 0
        for done in (
            await run(one, "restore", "web0"), await run(one, "restore", "web[12]", **many)
        ):  # fmt: skip
            assert (done["written"], done["retcode"], done["notes"]) == (False, 1, left)
        # One that writes is enough: the other follows when it may.
        m2.parts.core.mode.shared = ""
        for done in (
            await run(one, "restore", "web3"), await run(one, "restore", "web[45]", **many)
        ):  # fmt: skip
            assert (done["written"], done["retcode"], done["notes"]) == (True, 0, left[:1])
        none = await run(one, "restore", "nobody*", **many)
        assert (none["changes"], none["retcode"]) == ([], 1)
        assert none["notes"][0].startswith(
            "no key of an id that matches 'nobody*' was deleted or rejected within 1h"
        )


@in_a_loop
async def test_what_was_deleted_by_mistake_is_restored_by_a_glob(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"hold_minimum": 100})
    async with sharing(("web1", "web2", "db1", "twice"), one, two) as (m1, m2):
        put(one, "twice", 1)
        await m1.hint("twice")
        await delete(m1, "web1", "web2", "db1", "twice")
        await until(lambda: accepted(one, two) == [set(), set()], "deleted")
        await level(m1, m2)  # m2 knows of the second key, too
        for payload, message in (
            ({"minion": "*"}, "say since when"),
            ({"minion": "*", "since": "soon"}, "no span of time"),
            ({"minion": "*", "since": "1h", "fingerprint": "aa"}, "belongs to one minion"),
            ({"minion": "web1", "since": "1h"}, "since= is for a glob"),
        ):
            with pytest.raises(HaError, match=message):
                await decisions(m2).restore(payload)
        plan = await decisions(m2).restore({"minion": "*", "since": "1h", "test": True})
        assert [c["id"] for c in plan["changes"]] == ["db1", "web1", "web2"]
        assert plan["notes"] == [n for n in plan["notes"] if "several keys of twice" in n]
        assert accepted(two) == [set()]
        done = await decisions(m2).restore({"minion": "web*", "since": "1h"})
        assert [c["id"] for c in done["changes"]] == ["web1", "web2"]
        await until(lambda: accepted(one, two) == [{"web1", "web2"}] * 2, "restored")


@in_a_loop
async def test_minions_that_knocked_since_they_were_deleted_are_restored_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As minions that run do, within seconds."""
    one, two = places(tmp_path, "m1", "m2")
    async with sharing(("web1", "web2"), one, two) as (m1, m2):
        writer = m1.parts.core.keeper._writer
        with monkeypatch.context() as an_hour_ago:
            an_hour_ago.setattr(writer, "clock", lambda: time.time() - 3600)
            await delete(m1, "web1")
            await until(lambda: records(m1)[fingerprint(KEYS[0])].state == DELETED, "recorded")
        await delete(m1, "web2")
        for minion_id in ("web1", "web2"):
            put(one, minion_id, folder=PENDING)
            await m1.hint(minion_id)
        await until(lambda: there(two, "minions_pre") == {"web1", "web2"}, "both knocked")
        # When they knocked does not matter.
        done = await decisions(m2).restore({"minion": "*", "since": "30m"})
        assert [row["id"] for row in done["changes"]] == ["web2"]
        assert (done["notes"], done["retcode"]) == ([], 0)
        done = await decisions(m2).restore({"minion": "*", "since": "2h"})
        assert [row["id"] for row in done["changes"]] == ["web1"]
        await until(lambda: accepted(one, two) == [{"web1", "web2"}] * 2, "restored")


@in_a_loop
async def test_a_glob_restores_no_key_that_was_never_accepted(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2")
    put(one, "web1")
    async with met(one, two) as (m1, m2):
        for minion_id, key in (("web1", 1), ("web2", 0), ("web3", 0)):
            put(one, minion_id, key, "minions_denied" if key else PENDING)
            await m1.hint(minion_id)
        await until(lambda: there(two, "minions_pre") == {"web2", "web3"}, "they knocked")
        await level(m1, m2)
        (one.pki_dir / "minions_denied" / "web1").unlink()
        (one.pki_dir / "minions_pre" / "web2").unlink()
        (one.pki_dir / "minions_rejected").mkdir(exist_ok=True)
        (one.pki_dir / "minions_pre" / "web3").rename(one.pki_dir / "minions_rejected" / "web3")
        await delete(m1, "web1")
        for minion_id in ("web2", "web3"):
            await m1.hint(minion_id, gone=minion_id == "web2")
        await until(lambda: there(two, "minions_rejected") == {"web3"}, "rejected")
        await level(m1, m2)
        for engine in (m1, m2):
            plan = await decisions(engine).restore({"minion": "*", "since": "1h", "test": True})
            assert [row["id"] for row in plan["changes"]] == ["web1"]
            assert plan["retcode"] == 1
            assert plan["notes"] == [
                f"3 keys left alone, never accepted as far as {engine.place.name} knows (web1, "
                "web2, web3). If some are yours: run this on the master where they were deleted, "
                "or ha.restore ID for each"
            ]
        # By its name it can be.
        done = await decisions(m2).restore({"minion": "web3"})
        assert [row["id"] for row in done["changes"]] == ["web3"]


@in_a_loop
async def test_a_glob_restores_no_key_of_which_only_the_end_is_known(tmp_path: Path) -> None:
    """A master that was down does not know whether the key was a stranger's."""
    one, two = places(tmp_path, "m1", "m2")
    async with met(one, two) as (m1, m2):
        await m2.stop()
        put(one, "web1", folder=PENDING)
        await m1.hint("web1")
        await until(lambda: known_keys(m1, "web1"), "it knocked")
        (one.pki_dir / "minions_pre" / "web1").unlink()
        await m1.hint("web1", gone=True)
        async with Engine(two) as m2:
            await m2.meets(m1)
            await level(m1, m2)
            plan = await decisions(m2).restore({"minion": "*", "since": "1h", "test": True})
        assert (plan["changes"], plan["retcode"]) == ([], 1)
        assert "1 key left alone, never accepted as far as m2 knows" in plan["notes"][0]


@in_a_loop
async def test_many_are_restored_in_batches_and_what_is_left_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("saltext_ha.commands.keys.decisions.BATCH", 2)
    monkeypatch.setattr("saltext_ha.commands.keys.decisions.batches", partial(batches, size=2))
    one, two = places(tmp_path, "m1", "m2", ha={"hold_minimum": 100})
    ids = [f"web{number}" for number in range(5)]
    since = {"minion": "*", "since": "1h"}

    async with sharing(ids, one, two) as (m1, _):
        await delete(m1, *ids)
        await until(lambda: accepted(one, two) == [set(), set()], "deleted")
        order, orders = m1.parts.core.order, []

        async def once(*arguments: Any) -> list[Record]:
            orders.append(arguments)
            if len(orders) == 2:
                raise HaError("the disk is full")
            return await order(*arguments)

        monkeypatch.setattr(m1.parts.core, "order", once)
        done = await decisions(m1).restore(since)
        assert [row["id"] for row in done["changes"]] == ids[:2]
        left = ["3 ids from web2 on are left: the disk is full"]
        assert (done["notes"], done["retcode"]) == (left, 1)
        done = await decisions(m1).restore(since)
        assert [row["id"] for row in done["changes"]] == ids[2:]
        await until(lambda: accepted(one, two) == [{*ids}] * 2, "restored")
        assert len(orders) == 4


@pytest.mark.parametrize("command", ["resolve", "restore"])
@in_a_loop
async def test_who_decides_knew_what_was_shown_and_no_more(tmp_path: Path, command: str) -> None:
    """A peer's deletion arrives in between: it was not overruled, so it holds."""
    one, two = places(tmp_path, "m1", "m2")
    right = fingerprint(KEYS[0])
    put(one, "web1", 0)
    put(two, "web1", 1)
    async with met(one, two) as (m1, m2):
        await until(lambda: len(records(m1)) == len(records(m2)) == 2, "a conflict")
        core = m1.parts.core
        if command == "restore":
            states = dict.fromkeys(shown := records(m1), DELETED)
            await core.order(core.keeper.decide, {"web1": Decision(states, shown)}, "")
        later = [
            decide(record, dict(record.context), Value(Dot("e" * 16, n), DELETED, 1, "", "m3"))
            for n, record in enumerate(records(m1).values(), 1)
        ]
        payload = {"minion": "web1", "fingerprint": minion_key.show(right, short=False)}
        asked = asyncio.ensure_future(getattr(decisions(m1), command)(payload))
        await asyncio.sleep(0)  # it has begun to look
        answer, _ = await asyncio.gather(asked, core.learn(later))
        assert (answer["retcode"], answer["changes"][1:]) == (1, [])
        assert "web1: another decision arrived" in answer["notes"][0]
        await level(m1, m2)
        assert {record.state for record in records(m1).values()} == {DELETED}
        assert {"m1", "m3"} <= {value.on for value in records(m2)[right].values}
        assert accepted(one, two) == [set(), set()]


def records(engine: Engine, minion_id: str = "web1") -> dict[bytes, Record]:
    return engine.known(lambda of: dict(of.get(minion_id)))


def horizon(engine: Engine) -> dict[str, int]:
    return engine.known(lambda of: of.dropped.horizon())


def dropped_on(engine: Engine, tombstones: list[Record]) -> Dropping:
    keys = [(record.minion_id, record.fingerprint) for record in tombstones]
    return engine.parts.retention._dropping(keys, 1)


@pytest.mark.parametrize(
    ("text", "expected"), [("90", 90), ("90s", 90), ("30m", 1800), ("2h", 7200), ("1.5d", 129600)]
)
def test_spans_of_time(text: str, expected: float) -> None:
    assert span(text) == expected


# -- observing first


@in_a_loop
async def test_observing_masters_write_nothing_before_they_are_resumed(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"mode": "observe"})
    put(one, "web1")
    async with met(one, two) as (m1, m2):
        await until(lambda: "web1" in m2.known(lambda of: set(of.ids())), "heard of")
        assert m2.parts.core.mode.name == "observe"
        assert "salt-run ha.resume" in await notes(m1, "m2")
        assert not (two.pki_dir / "minions" / "web1").exists()
        assert list(two.pki_dir.glob("minions*/.ha-*")) == []
        await m2.made.commands["resume"]({"by": "alice"})
        await until(lambda: accepted(two) == [{"web1"}], "written")
        assert m2.parts.core.mode.name == "enforce"
    async with Engine(two) as m2:
        assert m2.parts.core.mode.name == "enforce"  # it stays resumed
    enforcing, observing = *places(tmp_path, "m2", ha={"mode": "enforce"}), two
    for place, mode in ((enforcing, "enforce"), (observing, "observe")):
        async with Engine(place) as m2:
            assert m2.parts.core.mode.name == mode  # the configuration was changed since


@in_a_loop
async def test_a_pause_outlives_a_change_of_the_mode(tmp_path: Path) -> None:
    (one,) = places(tmp_path, "m1")
    async with Engine(one) as m1:
        await m1.made.commands["pause"]({"by": "alice"})
        assert m1.parts.core.mode.name == "paused"
    (observing,) = places(tmp_path, "m1", ha={"mode": "observe"})
    async with Engine(observing) as m1:
        assert m1.parts.core.mode.name == "observe"
    async with Engine(one) as m1:
        assert m1.parts.core.mode.name == "paused"


# -- ids that resemble each other


@in_a_loop
async def test_what_is_decided_of_an_id_says_nothing_of_its_look_alikes(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2")
    others, cyrillic = set(LOOK_ALIKES.values()), LOOK_ALIKES["a Cyrillic e"]
    waiting, refused = one.pki_dir / PENDING, one.pki_dir / "minions_rejected"
    refused.mkdir()
    for minion_id in others:
        put(one, minion_id, 1, PENDING)

    def pending() -> set[str]:
        return there(two, PENDING)

    put(one, "web1")
    async with met(one, two) as (m1, _):
        await until(lambda: accepted(two) == [{"web1"}] and pending() == others, "all there")
        (waiting / cyrillic).rename(refused / cyrillic)
        await m1.hint(cyrillic)
        await until((two.pki_dir / "minions_rejected" / cyrillic).exists, "rejected")
        await until(lambda: pending() == others - {cyrillic}, "not pending any more")
        assert accepted(two) == [{"web1"}]
        await delete(m1, "web1")
        await until(lambda: accepted(two) == [set()], "deleted")
        assert pending() == others - {cyrillic}


@in_a_loop
async def test_who_is_sent_hundreds_of_records_does_not_ask_for_more_of_them(
    tmp_path: Path,
) -> None:
    one, two = places(tmp_path, "m1", "m2")
    ids = key_folders.ids(2 * MANY)
    for place in (one, two):
        key_folders.plant(place.pki_dir, ids, PENDING)
    async with met(one, two) as (m1, m2):
        await level(m1, m2)
        leases = m2.parts.leases
        await until(lambda: not leases.expects_more(time.monotonic()), "that is over")
        key_folders.accept(one.pki_dir, ids)
        await until(lambda: leases.expects_more(time.monotonic()), "they are pushed")
        await level(m1, m2)
        assert accepted(two) == [set(ids)]


@in_a_loop
async def test_leave_asks_for_no_restart_and_none_is_needed(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2")
    async with met(one, two) as (m1, m2):
        put(two, "web0")
        await level(m1, m2)
        before, node = m2.parts.identity.fingerprint, m2.parts.core.replica.node
        left = await run(two, "leave")
        assert left["retcode"] == 0, left
        assert not any("restart" in note for note in left["notes"])
        await until(lambda: not m1.parts.links and not m2.parts.links, "both are alone")
        assert m2.parts.identity.fingerprint != before
        assert m2.parts.core.replica.node != node
        put(two, "web1")
        await until(lambda: "web1" in m2.known(lambda of: set(of.ids())), "recorded")

        await join(one, two)
        await until(lambda: accepted(one) == accepted(two) == [{"web0", "web1"}], "joined")
        (two.pki_dir / "minions" / "web0").unlink()
        put(one, "web2")
        await until(lambda: accepted(one) == accepted(two) == [{"web1", "web2"}], "both ways")


@pytest.mark.parametrize("where", ["m1", "m2"])
@in_a_loop
async def test_keys_that_cannot_be_read_are_not_said_to_be_the_same(
    tmp_path: Path, where: str
) -> None:
    one, two = places(tmp_path, "m1", "m2")
    async with sharing(["web1"], one, two) as engines:
        await level(*engines)
        spoilt = next(engine for engine in engines if engine.place.name == where)
        denied = spoilt.place.pki_dir / "minions_denied"
        if denied.exists():
            denied.rmdir()
        denied.symlink_to(denied)
        (spoilt.place.pki_dir / "minions" / "web1").unlink()
        await spoilt.parts.core.scan()

        keys = await run(one, "keys_")
        assert keys["retcode"] == 2
        assert "cannot be listed" in keys["unknown"][where]
        assert [key["states"][where] for key in keys["keys"]] == ["unknown"]
        sync = await run(one, "sync", test=True)
        assert sync["retcode"] == 2
        assert "cannot be listed" in sync["unreachable"][where]
        assert not sync["changes"]
        checked = await run(one, "check_consistency", only="keys")
        assert checked["retcode"] == 2
        assert checked["sections"]["keys"]["unknown"].keys() == {where}
        assert not checked["unknown"], "other sections could be compared"
        status = await run(one, "status")
        row = next(each for each in status["masters"] if each["name"] == where)
        assert (row["behind"], status["retcode"]) == (None, 2)
        assert "cannot be listed" in row["note"]

        denied.unlink()
        await until(lambda: not spoilt.parts.core.unseen, "it can be read again")
        await until(lambda: not there(one) and not there(two), "the deletion is heard")
        assert (await run(one, "check_consistency", only="keys"))["retcode"] == 0


@in_a_loop
async def test_why_keys_are_not_known_is_told_though_no_look_has_failed_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a full disk: something else could be recorded, and no pass was made yet."""
    (one,) = places(tmp_path, "m1")
    async with met(one):
        monkeypatch.setattr(Core, "unseen", "its keys are not known: the disk is full")
        (row,) = (await run(one, "status"))["masters"]
        assert row["note"] == "its keys are not known: the disk is full"


@in_a_loop
async def test_of_keys_that_are_not_read_yet_there_is_no_number(tmp_path: Path) -> None:
    """Its replica.db is lost, and no peer answers: zero keys would be wrong."""
    one, two = places(tmp_path, "m1", "m2")
    async with sharing(["web1"], one, two) as engines:
        await level(*engines)
    for file in one.config.state_dir.glob("replica.db*"):
        file.unlink()
    async with Engine(one):
        row = next(r for r in (await run(one, "status"))["masters"] if r["name"] == "m1")
        assert [row[key] for key in ("accepted", "pending", "rejected", "denied")] == [None] * 4
        keys = await run(one, "keys_")
        assert keys["retcode"] == 2
        assert keys["unknown"].keys() == {"m1", "m2"}
        assert "not rebuilt yet" in keys["unknown"]["m1"]
