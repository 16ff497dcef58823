"""Two or three whole engines on real folders and sockets, without a salt-master beneath."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import salt.version

from lab import key_folders
from lab.engines import Engine, Place, befriend
from saltext_ha import minion_key
from saltext_ha.errors import HaError, ReplicaError
from saltext_ha.keystore import open_store
from saltext_ha.keystore.base import KeyStore
from saltext_ha.minion_key import fingerprint
from saltext_ha.peering.trust import Peer, Trust
from saltext_ha.replica import Replica
from saltext_ha.replication.record import DELETED, Dot, Record, Value, decide
from saltext_ha.service import antientropy, startup
from saltext_ha.service.claims import MANY
from saltext_ha.service.decisions import Decisions, seconds
from saltext_ha.service.group import Group
from saltext_ha.service.link import Link
from saltext_ha.service.members import Members
from saltext_ha.service.shared_store import SharedStore
from saltext_ha.service.views import Views
from tests.engines import QUICK, met, places, run, until
from tests.keys import LOOK_ALIKES, public_key

pytestmark = [pytest.mark.core, pytest.mark.timeout(120), pytest.mark.usefixtures("no_bus")]

KEYS = [public_key(number) for number in range(4)]
HAS_DRIVERS = salt.version.__saltstack_version__.major >= 3008


def accept(place: Place, minion_id: str, key: int = 0) -> None:
    folder = place.pki_dir / "minions"
    folder.mkdir(exist_ok=True)
    (folder / minion_id).write_text(KEYS[key])


async def delete(engine: Engine, minion_id: str) -> None:
    """As ``salt-key -d`` does, and says."""
    (engine.place.pki_dir / "minions" / minion_id).unlink()
    await engine.hint(minion_id, gone=True)


def accepted(*where: Place) -> list[set[str]]:
    return [{path.name for path in (place.pki_dir / "minions").glob("[!.]*")} for place in where]


async def level(*engines: Engine) -> None:
    cores = [engine.service.core for engine in engines]

    def same() -> bool:
        roots = {(c.replica.records.root, c.replica.placements.root) for c in cores}
        return len(roots) == 1

    await until(same, "all are level")


def decisions(engine: Engine) -> Decisions:
    return Decisions(Group(engine.service))


async def notes(engine: Engine, name: str) -> str:
    """What is to be known of one master, or (without a name) of the one that is asked."""
    status = await Views(Group(engine.service)).status({})
    if not name:
        return "; ".join(status["notes"])
    return next(str(row["note"]) for row in status["masters"] if row["name"] == name)


# -- dropping tombstones


def test_old_tombstones_are_dropped_by_all_when_all_are_up(tmp_path: Path) -> None:
    one, two, three = places(tmp_path, "m1", "m2", "m3", ha={"keep_tombstones": 0})

    async def act() -> None:
        accept(one, "web1")
        accept(one, "web2")
        async with met(one, two, three) as (m1, m2, m3):
            await until(lambda: accepted(two, three) == [{"web1", "web2"}] * 2, "accepted")
            await delete(m1, "web1")
            await until(lambda: accepted(two, three) == [{"web2"}] * 2, "deleted")
            await level(m1, m2, m3)
            # The first by name does it, and nobody else.
            assert await m2.service.retention.drop_old() == 0
            assert await m1.service.retention.drop_old() == 1
            for engine in (m1, m2, m3):
                replica = engine.service.core.replica
                assert list(replica.ids()) == ["web2"]
                assert replica.dropped.epoch == 1
            await level(m1, m2, m3)

    asyncio.run(act())


def test_young_tombstones_stay(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"keep_tombstones": 0.5})

    async def act() -> None:
        accept(one, "web1")
        async with met(one, two) as (m1, m2):
            await until(lambda: accepted(two) == [{"web1"}], "accepted")
            await delete(m1, "web1")
            await level(m1, m2)
            assert await m1.service.retention.drop_old() == 0
            assert list(m1.service.core.replica.ids()) == ["web1"]

    asyncio.run(act())


def test_tombstones_wait_for_a_master_that_is_away(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"keep_tombstones": 0, "sync_interval": 0.1})

    async def act() -> None:
        accept(one, "web1")
        async with met(one, two) as (m1, m2):
            await until(lambda: accepted(two) == [{"web1"}], "accepted")
            await m2.stop()
            await delete(m1, "web1")
            with pytest.raises(HaError, match="m2 does not answer; they wait for it"):
                await m1.service.retention.drop_old()
            assert list(m1.service.core.replica.ids()) == ["web1"]
            async with Engine(two) as back:
                await level(m1, back)
                await m1.meets(back)
                assert await m1.service.retention.drop_old() == 1
                await level(m1, back)
                assert list(back.service.core.replica.ids()) == []

    asyncio.run(act())


def test_who_missed_the_dropping_is_told_when_it_offers_a_tombstone(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"keep_tombstones": 0})

    async def act() -> None:
        accept(one, "web1")
        accept(one, "web2")
        async with met(one, two) as (m1, m2):
            await until(lambda: accepted(two) == [{"web1", "web2"}], "accepted")
            await delete(m1, "web1")
            await level(m1, m2)
            shutil.copy2(two.replica_file, tmp_path / "old.db")
            assert await m1.service.retention.drop_old() == 1
        # The second is an old copy of itself, key folder and replica.
        shutil.copy2(tmp_path / "old.db", two.replica_file)
        async with met(one, two) as (m1, m2):
            await level(m1, m2)
            assert list(m2.service.core.replica.ids()) == ["web2"]
            assert accepted(one, two) == [{"web2"}] * 2

    asyncio.run(act())


def test_who_missed_the_dropping_learns_the_horizon_in_the_next_round(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"keep_tombstones": 0})

    async def act() -> None:
        accept(one, "web1")
        accept(one, "web2")
        async with met(one, two) as (m1, m2):
            await until(lambda: accepted(two) == [{"web1", "web2"}], "accepted")
            await delete(m1, "web1")
            await level(m1, m2)
            keeper = m1.service.core.keeper
            keys = [("web1", record.fingerprint) for record in keeper.replica.tombstones("", 9)]
            dropping = m1.service.retention._dropping(keys, 1)
            assert await m1.service.core.run(keeper.drop, keeper.replica.records.root, dropping)
            await level(m1, m2)
            assert list(m2.service.core.replica.ids()) == ["web2"]
            ours, theirs = (m.service.core.replica.dropped for m in (m1, m2))
            assert theirs.horizon() == {}
            assert await m1.service.retention.drop_old() == 0
            assert theirs.horizon() == ours.horizon() != {}
            assert theirs.epoch == 1

    asyncio.run(act())


def plant_from_the_future(place: Place) -> None:
    """A record that no other master can read: a newer release, or somebody hostile."""
    replica = Replica(place.replica_file)
    (known,) = replica.get("web2").values()
    values = tuple(value._replace(state="quarantined") for value in known.values)
    with replica.transaction():
        replica.put(known._replace(minion_id="web9", values=values))
    replica.close()


@pytest.mark.parametrize("readable", [True, False])
def test_a_lost_replica_learns_what_was_dropped(tmp_path: Path, readable: bool) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"keep_tombstones": 0})

    async def act() -> None:
        accept(one, "web1")
        accept(one, "web2")
        async with met(one, two) as (m1, m2):
            await until(lambda: accepted(two) == [{"web1", "web2"}], "accepted")
            shutil.copytree(two.pki_dir / "minions", tmp_path / "backup", symlinks=True)
            await delete(m1, "web1")
            await level(m1, m2)
            assert await m1.service.retention.drop_old() == 1
        # A machine rebuilt from a backup of the keys that is older than the deletion.
        two.replica_file.unlink()
        shutil.rmtree(two.pki_dir / "minions")
        (tmp_path / "backup").rename(two.pki_dir / "minions")
        if not readable:
            plant_from_the_future(one)
        async with met(one, two) as (m1, m2):
            await until(lambda: not m2.service.core.keeper.adopting, "rebuilt")
            if readable:
                await level(m1, m2)
            await until(lambda: accepted(one, two) == [{"web2"}] * 2, "web1 is not accepted")
            assert m2.service.core.replica.dropped.epoch == 1
            assert (m2.service.core.replica.dropped.horizon() != {}) is readable
            assert (two.pki_dir / "minions_pre" / "web1").exists()

    asyncio.run(act())


def test_a_lost_replica_is_rebuilt_from_all_who_know_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = places(tmp_path, "m1", "m2", "m3")
    exchange = Link.exchange

    async def slow(link: Link, shared: bool = False) -> antientropy.Exchanged:
        if "m3" in (link.peer.name, link._greeting()["name"]) and link.up is None:
            await asyncio.sleep(2)
        return await exchange(link, shared)

    async def act() -> None:
        accept(one, "web1")
        async with met(one, three):
            await until(lambda: accepted(three) == [{"web1"}], "accepted")
        befriend(one, two, three)
        one.replica_file.unlink()
        # m2 has nothing, either, asks nobody but m1, and is met first.
        monkeypatch.setattr(Link, "exchange", slow)
        Trust(two.config.state_dir).unpin("m3")
        async with Engine(two), Engine(three) as m3, Engine(one) as m1:
            await until(lambda: not m1.service.core.keeper.adopting, "rebuilt")
            there, here = (e.service.core.replica.get("web1") for e in (m3, m1))
            assert here == there
            assert [len(record.values) for record in here.values()] == [1]

    asyncio.run(act())


@pytest.mark.parametrize("refuses", [False, True])
def test_a_master_that_does_not_show_its_keys_is_not_called_the_same(
    tmp_path: Path, refuses: bool
) -> None:
    one, two = places(tmp_path, "m1", "m2")

    async def keys(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        if refuses:
            raise HaError("not now")
        return {"keys": 7}

    async def act() -> None:
        async with met(one, two) as (m1, m2):
            await m2.service.core.pause(True)
            accept(one, "web1")
            await m1.hint("web1")
            await until(lambda: bool(m2.service.core.replica.get("web1")), "heard of")
            asked = {"only": ["keys"]}
            assert (await run(one, "check_consistency", **asked))["status"] != "same"
            assert (await run(one, "sync", test=True))["changes"]
            m2.service.listener._handlers["keys"] = keys
            checked = await run(one, "check_consistency", **asked)
            assert (checked["status"], checked["retcode"]) == ("unknown", 2)
            assert list(checked["unknown"]) == ["m2"]
            planned = await run(one, "sync", test=True)
            assert (list(planned["unreachable"]), planned["retcode"]) == (["m2"], 2)

    asyncio.run(act())


def test_who_pulls_does_not_wait_for_a_peer_that_cannot_drop(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"keep_tombstones": 0})

    async def act() -> None:
        accept(one, "web1")
        async with met(one, two) as (m1, m2):
            await until(lambda: accepted(two) == [{"web1"}], "accepted")
            await delete(m1, "web1")
            await level(m1, m2)
            core, keeper = m1.service.core, m1.service.core.keeper
            # m2 has an id to apply, and keeps its tombstone for as long.
            await m2.service.core.pause(True)
            (one.pki_dir / "minions_pre").mkdir(exist_ok=True)
            (one.pki_dir / "minions_pre" / "web1").write_text(KEYS[1])
            await m1.hint("web1")
            await until(lambda: len(m2.service.core.replica.get("web1")) == 2, "heard of")
            keys = [("web1", record.fingerprint) for record in keeper.replica.tombstones("", 9)]
            dropping = m1.service.retention._dropping(keys, 1)
            assert await core.run(keeper.drop, keeper.replica.records.root, dropping)

            def pull() -> None:
                keeper.adopting = True

            await core.run(pull)
            await until(lambda: not keeper.adopting, "it has pulled")

    asyncio.run(act())


def test_a_lost_replica_learns_all_before_it_says_what_was_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"keep_tombstones": 0})
    ids = {f"web{number}" for number in range(30)}

    async def act() -> None:
        for minion_id in ids:
            accept(one, minion_id)
        accept(one, "old")
        async with met(one, two) as (m1, m2):
            await until(lambda: accepted(two) == [{*ids, "old"}], "accepted")
            await delete(m1, "old")
            await level(m1, m2)
            assert await m1.service.retention.drop_old() == 1
        # A machine that has lost everything but its identity; one answer carries a few keys only.
        two.replica_file.unlink()
        shutil.rmtree(two.pki_dir / "minions")
        monkeypatch.setattr(antientropy, "BYTES_PER_MESSAGE", 1)
        send = Link._send

        async def busy(link: Link, records: list[Record]) -> None:
            if link.peer.name != "m2":  # m1 does not come to it
                await send(link, records)

        monkeypatch.setattr(Link, "_send", busy)
        async with met(one, two) as (m1, m2):
            await until(lambda: not m2.service.core.keeper.adopting, "rebuilt")
            assert set(m2.service.core.replica.ids()) == ids
            await level(m1, m2)
            assert accepted(one, two) == [ids, ids]

    asyncio.run(act())


# -- one key store for two masters


def place_on(root: Path, name: str, store: str) -> Place:
    """A master whose key store is the folder *store*, whoever else uses it."""
    ha = {**QUICK, "state_dir": str(root / name / "state")}
    return Place(root, name, ha, {"root_dir": "/", "pki_dir": str(root / store)})


def test_two_masters_with_one_key_folder_only_report(tmp_path: Path) -> None:
    one, two = (place_on(tmp_path, name, "shared") for name in ("m1", "m2"))

    async def act() -> None:
        accept(one, "web1")
        async with met(one, two) as (m1, m2):
            await until(lambda: bool(m1.service.only_reports and m2.service.only_reports), "told")
            assert "its key store is that of m2, too" in await notes(m1, "")
            assert "its key store is that of m1, too" in await notes(m2, "")
            assert m1.service.core.keeper.enforce is m2.service.core.keeper.enforce is False
            # Both see what is done in it, and agree.
            accept(one, "web2")
            await level(m1, m2)
            with pytest.raises(HaError, match="never written"):
                await Members(Group(m1.service)).resume({})

    asyncio.run(act())


def test_who_shares_a_folder_is_remembered_until_it_does_not(tmp_path: Path) -> None:
    one, two = (place_on(tmp_path, name, "shared") for name in ("m1", "m2"))
    three = place_on(tmp_path, "m3", "own")

    def only_reports(engine: Engine) -> bool:
        return engine.service.mode == "observe"

    async def act() -> None:
        accept(one, "web1")
        async with met(one, two, three) as (m1, m2, m3):
            await until(lambda: only_reports(m1) and only_reports(m2), "told")
            await until(lambda: accepted(three) == [{"web1"}], "told m3, too")
            await level(m1, m2, m3)
        # Again without m2: whose folder it is cannot be asked.
        async with met(one, three) as (m1, m3):
            assert only_reports(m1)
            accept(three, "web2", 1)
            await until(lambda: m1.service.core.replica.get("web2") != {}, "m1 has heard of it")
            await m1.service.core.scan()
            assert accepted(one, three) == [{"web1"}, {"web1", "web2"}]
        # m2 is given a copy of the folder.
        shutil.copytree(tmp_path / "shared", tmp_path / "copied", symlinks=True)
        async with met(one, place_on(tmp_path, "m2", "copied"), three) as (m1, m2, m3):
            await until(lambda: not (only_reports(m1) or only_reports(m2)), "told apart")
            await until(
                lambda: accepted(one, m2.place) == [{"web1", "web2"}] * 2, "both are written"
            )
            await level(m1, m2, m3)

    asyncio.run(act())


def test_a_cache_that_shows_an_old_signature_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system may show for a while what was there before."""
    one, two = (place_on(tmp_path, name, "shared") for name in ("m1", "m2"))
    seen: list[str | None] = []

    def through_a_cache(opts: dict[str, Any]) -> KeyStore:
        store = open_store(opts)
        if opts["id"] == one.opts["id"]:
            really, until_then = store.signature, time.monotonic() + QUICK["scan_interval"] / 2

            def signature(owner: str) -> str | None:
                if owner != "m2" or time.monotonic() > until_then:
                    return really(owner)
                seen.append(before)
                return before

            monkeypatch.setattr(store, "signature", signature)
        return store

    async def act() -> None:
        nonlocal before
        accept(one, "web1")
        async with met(one, two) as (m1, m2):
            await until(lambda: bool(m1.service.only_reports and m2.service.only_reports), "told")
            before = m1.service.core.keeper.store.signature("m2")
        monkeypatch.setattr(startup, "open_store", through_a_cache)
        async with met(one, two) as (m1, m2):
            modes, over = set(), time.monotonic() + 3 * QUICK["scan_interval"]
            while time.monotonic() < over:
                modes.add(m1.service.mode)
                await asyncio.sleep(0.02)
            assert set(seen) == {before}
            assert modes == {"observe"}
            assert m1.service.shared_store.names == {"m2"}

    before: str | None = None
    asyncio.run(act())


def test_a_shared_store_is_remembered_as_soon_as_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (place_on(tmp_path, name, "shared") for name in ("m1", "m2"))
    failed: list[str] = []

    def full(self: SharedStore) -> None:
        failed.append("")
        raise ReplicaError("the disk is full")

    async def act() -> None:
        monkeypatch.setattr(SharedStore, "_remember", full)
        async with met(one, two) as (m1, m2):
            await until(lambda: len(failed) >= 2, "found by both")
            await m1.service.shared_store.check_all()
            assert m1.service.core.replica.meta.shared_with == []
            monkeypatch.undo()
            for master, other in ((m1, "m2"), (m2, "m1")):
                await master.service.shared_store.check_all()
                assert master.service.core.replica.meta.shared_with == [other]

    asyncio.run(act())


def test_a_copied_key_folder_is_not_a_shared_one(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2")

    async def act() -> None:
        accept(one, "web1")
        async with Engine(one):
            await until(lambda: (one.pki_dir / "minions" / ".ha-m1").is_symlink(), "signed")
            # As an operator sets a second master up by copying the first one's keys.
            shutil.copytree(one.pki_dir / "minions", two.pki_dir / "minions", symlinks=True)
            async with Engine(two) as m2:
                befriend(one, two)
                await m2.meets(one)
                accept(one, "web2")
                await until(lambda: accepted(two) == [{"web1", "web2"}], "still written")
                assert m2.service.only_reports == ""

    asyncio.run(act())


@pytest.mark.skipif(not HAS_DRIVERS, reason="keys.cache_driver is new in 3008")
def test_two_masters_with_one_database_only_report(tmp_path: Path) -> None:
    one, two = places(
        tmp_path,
        "m1",
        "m2",
        **{"keys.cache_driver": "localfs", "root_dir": "/", "cachedir": str(tmp_path / "db")},
    )

    async def act() -> None:
        async with met(one, two) as (m1, m2):
            await until(lambda: bool(m1.service.only_reports and m2.service.only_reports), "told")
            assert "its key store is that of m1, too" in await notes(m2, "")

    asyncio.run(act())


# -- mistakes


def test_an_emptied_folder_is_filled_again(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2")

    async def act() -> None:
        for number in range(3):
            accept(one, f"web{number}")
        async with met(one, two) as (m1, m2):
            await until(lambda: accepted(two) == accepted(one), "accepted")
            with pytest.raises(HaError, match="nothing is held on m2"):
                await decisions(m2).refill({})
            shutil.rmtree(two.pki_dir / "minions")
            (two.pki_dir / "minions").mkdir()
            await until(lambda: len(m2.service.core.keeper.holds.doubt) > 0, "noticed")
            assert "ha.refill" in await notes(m1, "m2")
            plan = await decisions(m2).refill({"test": True})
            assert [(c["master"], c["id"], c["from"]) for c in plan["changes"]] == [
                ("m2", f"web{number}", "absent") for number in range(3)
            ]
            assert accepted(two) == [set()]
            await decisions(m2).refill({})
            assert accepted(one, two) == [{"web0", "web1", "web2"}] * 2
            await level(m1, m2)
            assert await notes(m1, "m2") == ""

    asyncio.run(act())


def test_what_was_deleted_by_mistake_is_restored_by_a_glob(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"hold_minimum": 100})

    async def act() -> None:
        for minion_id in ("web1", "web2", "db1", "twice"):
            accept(one, minion_id)
        async with met(one, two) as (m1, m2):
            await until(lambda: accepted(two) == accepted(one), "accepted")
            accept(one, "twice", 1)
            await m1.hint("twice")
            for minion_id in ("web1", "web2", "db1", "twice"):
                (one.pki_dir / "minions" / minion_id).unlink()
                await m1.hint(minion_id, gone=True)
            await until(lambda: accepted(one, two) == [set(), set()], "deleted")
            for payload, message in (
                ({"minion": "*"}, "say since when"),
                ({"minion": "*", "since": "soon"}, "no span of time"),
                ({"minion": "*", "since": "1h", "fingerprint": "aa"}, "belongs to one minion"),
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

    asyncio.run(act())


@pytest.mark.parametrize("command", ["resolve", "restore"])
def test_who_decides_knew_what_was_shown_and_no_more(tmp_path: Path, command: str) -> None:
    """A peer's deletion arrives in between: it was not overruled, so it holds."""
    one, two = places(tmp_path, "m1", "m2")
    right = fingerprint(KEYS[0])

    async def act() -> None:
        accept(one, "web1", 0)
        accept(two, "web1", 1)
        async with met(one, two) as (m1, m2):
            await until(lambda: len(records(m1)) == len(records(m2)) == 2, "a conflict")
            core = m1.service.core
            if command == "restore":
                await core.decide("web1", dict.fromkeys(shown := records(m1), DELETED), "", shown)
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

    asyncio.run(act())


def records(engine: Engine) -> dict[bytes, Record]:
    return dict(engine.service.core.replica.get("web1"))


@pytest.mark.parametrize(
    ("text", "expected"), [("90", 90), ("90s", 90), ("30m", 1800), ("2h", 7200), ("1.5d", 129600)]
)
def test_spans_of_time(text: str, expected: float) -> None:
    assert seconds(text) == expected


# -- observing first


def test_observing_masters_write_nothing_before_they_are_resumed(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"mode": "observe"})

    async def act() -> None:
        accept(one, "web1")
        async with met(one, two) as (m1, m2):
            await until(lambda: "web1" in m2.service.core.replica.ids(), "heard of")
            assert m2.service.mode == "observe"
            assert "salt-run ha.resume" in await notes(m1, "m2")
            assert not (two.pki_dir / "minions" / "web1").exists()
            assert list(two.pki_dir.glob("minions*/.ha-*")) == []
            await Members(Group(m2.service)).resume({"by": "alice"})
            await until(lambda: accepted(two) == [{"web1"}], "written")
            assert m2.service.mode == "enforce"
        async with Engine(two) as m2:
            assert m2.service.mode == "enforce"  # it stays resumed
        enforcing, observing = *places(tmp_path, "m2", ha={"mode": "enforce"}), two
        for place, mode in ((enforcing, "enforce"), (observing, "observe")):
            async with Engine(place) as m2:
                assert m2.service.mode == mode  # the configuration was changed since

    asyncio.run(act())


def test_a_pause_outlives_a_change_of_the_mode(tmp_path: Path) -> None:
    (one,) = places(tmp_path, "m1")

    async def act() -> None:
        async with Engine(one) as m1:
            await Members(Group(m1.service)).pause({"by": "alice"})
            assert m1.service.mode == "paused"
        (observing,) = places(tmp_path, "m1", ha={"mode": "observe"})
        async with Engine(observing) as m1:
            assert m1.service.mode == "observe"
        async with Engine(one) as m1:
            assert m1.service.mode == "paused"

    asyncio.run(act())


# -- ids that resemble each other


def test_what_is_decided_of_an_id_says_nothing_of_its_look_alikes(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2")
    others, cyrillic = set(LOOK_ALIKES.values()), LOOK_ALIKES["a Cyrillic e"]
    waiting, refused = one.pki_dir / "minions_pre", one.pki_dir / "minions_rejected"
    waiting.mkdir()
    refused.mkdir()
    for minion_id in others:
        (waiting / minion_id).write_text(KEYS[1])

    def pending() -> set[str]:
        return {path.name for path in (two.pki_dir / "minions_pre").glob("[!.]*")}

    async def act() -> None:
        accept(one, "web1")
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

    asyncio.run(act())


def test_who_is_sent_hundreds_of_records_does_not_ask_for_more_of_them(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2")
    ids = key_folders.ids(2 * MANY)

    async def act() -> None:
        for place in (one, two):
            key_folders.plant(place.pki_dir, ids, key_folders.PENDING)
        async with met(one, two) as (m1, m2):
            await level(m1, m2)
            claims = m2.service.claims
            await until(lambda: not claims.expects_more(time.monotonic()), "that is over")
            key_folders.accept(one.pki_dir, ids)
            await until(lambda: claims.expects_more(time.monotonic()), "they are pushed")
            await level(m1, m2)
            assert accepted(two) == [set(ids)]

    asyncio.run(act())
