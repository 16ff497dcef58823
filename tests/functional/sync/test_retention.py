"""Old tombstones are dropped, by all masters or by none, and who missed that is told."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lab.engines import Engine, Place
from lab.key_folders import PENDING
from saltext_ha.common.errors import HaError
from saltext_ha.reconciler.dropping import Dropping
from saltext_ha.replica.replica import Replica
from saltext_ha.replication.record import Record
from saltext_ha.sync import answers
from saltext_ha.sync.sending import Sender
from tests.engines import (
    accepted,
    delete,
    level,
    met,
    places,
    put,
    records,
    sharing,
)
from tests.loop import in_a_loop, until

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus")]


@contextlib.asynccontextmanager
async def with_a_tombstone(one: Place, two: Place) -> AsyncIterator[list[Engine]]:
    """Two masters that know of web1, which was deleted, and of web2, which is accepted."""
    async with sharing(["web1", "web2"], one, two) as (m1, m2):
        await delete(m1, "web1")
        await level(m1, m2)
        yield [m1, m2]


def horizon(engine: Engine) -> dict[str, int]:
    return engine.known(lambda of: of.dropped.horizon())


def dropped_on(engine: Engine, tombstones: list[Record]) -> Dropping:
    keys = [(record.minion_id, record.fingerprint) for record in tombstones]
    return engine.parts.retention._dropping(keys, 1)


def plant_from_the_future(place: Place) -> None:
    """A record that no other master can read: a newer release, or somebody hostile."""
    replica = Replica(place.replica_file)
    (known,) = replica.get("web2").values()
    values = tuple(value._replace(by="x" * 100) for value in known.values)
    with replica.transaction():
        replica.put(known._replace(minion_id="web9", values=values))
    replica.close()


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
        assert await m1.parts.core.run(
            keeper.tombstones.drop, keeper.replica.records.root, dropping
        )
        await level(m1, m2)
        assert m2.known(lambda of: list(of.ids())) == ["web2"]
        assert horizon(m2) == {}
        assert await m1.parts.retention.drop_old() == 0
        assert horizon(m2) == horizon(m1) != {}
        assert m2.known(lambda of: of.dropped.epoch) == 1


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
        assert await core.run(keeper.tombstones.drop, keeper.replica.records.root, dropping)

        def pull() -> None:
            keeper.mode.lost = True

        await core.run(pull)
        await until(lambda: not keeper.mode.lost, "it has pulled")
