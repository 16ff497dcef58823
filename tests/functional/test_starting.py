"""An engine that could not start, or did not come far, starts the next time as it should."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from lab.engines import Engine, Place, befriend
from lab.key_folders import plant
from saltext_ha.errors import ReplicaError, StoreError
from saltext_ha.keystore.files import FileStore
from saltext_ha.replica import REPLICA_FILE, Replica
from saltext_ha.service.service import Service


@contextmanager
def full_disk() -> Iterator[None]:
    """No file may grow; Python ignores the signal that comes with it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_replica_that_cannot_be_opened_leaves_no_lock_behind(tmp_path: Path) -> None:
    path = tmp_path / "replica.db"
    Replica(path).close()
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 99")
    # What was raised is kept, as a task of asyncio keeps it, and so is all that it refers to.
    with pytest.raises(ReplicaError, match="a newer release") as kept:
        Replica(path)
    with closing(sqlite3.connect(path, timeout=0)) as other:
        other.execute("PRAGMA user_version = 1")
    assert kept.value


def test_an_engine_that_found_the_disk_full_starts_when_there_is_room(tmp_path: Path) -> None:
    place = Place(tmp_path, "m1")

    async def start_and_stop() -> None:
        async with Engine(place):
            pass

    asyncio.run(start_and_stop())
    service = Service(place.opts, place.config)
    with full_disk(), pytest.raises(ReplicaError) as kept:
        asyncio.run(service.run())
    asyncio.run(start_and_stop())
    assert kept.value


def test_the_first_pass_over_many_keys_ends_with_all_indexes(tmp_path: Path) -> None:
    place = Place(tmp_path, "m1")
    plant(place.pki_dir, ["web1", "web2"])

    async def start_and_stop() -> None:
        async with Engine(place):
            pass

    asyncio.run(start_and_stop())
    with closing(sqlite3.connect(place.config.state_dir / REPLICA_FILE)) as db:
        rows = db.execute("SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE INDEX%'")
        assert {"record_accepted", "history_id"} <= {row[0] for row in rows}


def test_a_first_pass_that_failed_is_a_problem_until_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, "m1")

    def changed(store: FileStore) -> list[str]:
        raise StoreError("the disk is on fire")

    async def problem() -> str:
        with monkeypatch.context() as patched:
            patched.setattr(FileStore, "changed", changed)
            async with Engine(place) as engine:
                return engine.service.core.problem

    assert asyncio.run(problem()) == "the disk is on fire"


def test_a_lost_replica_is_still_lost_at_the_next_start(tmp_path: Path) -> None:
    place, away = Place(tmp_path, "m1"), Place(tmp_path, "m2")
    befriend(place, away)

    async def waits_for_a_peer() -> bool:
        async with Engine(place) as engine:
            return engine.service.core.keeper.adopting

    assert asyncio.run(waits_for_a_peer())
    # Nothing was heard from a peer yet: what the key folder shows is no news now, either.
    assert asyncio.run(waits_for_a_peer())


def test_a_replica_that_was_rebuilt_is_not_rebuilt_again(tmp_path: Path) -> None:
    place, peer = Place(tmp_path, "m1"), Place(tmp_path, "m2")
    befriend(place, peer)

    async def rebuild() -> None:
        async with Engine(place) as engine, Engine(peer) as other:
            await engine.meets(other)
            while engine.service.core.keeper.adopting:
                await asyncio.sleep(0.01)

    async def waits_for_a_peer() -> bool:
        async with Engine(place) as engine:
            return engine.service.core.keeper.adopting

    asyncio.run(asyncio.wait_for(rebuild(), 60))
    assert not asyncio.run(waits_for_a_peer())


def test_a_master_without_peers_waits_for_nobody_when_it_has_some(tmp_path: Path) -> None:
    place, peer = Place(tmp_path, "m1"), Place(tmp_path, "m2")

    async def waits_for_a_peer() -> bool:
        async with Engine(place) as engine:
            return engine.service.core.keeper.adopting

    assert not asyncio.run(waits_for_a_peer())
    befriend(place, peer)
    assert not asyncio.run(waits_for_a_peer())


def test_what_was_done_while_the_disk_was_full_is_found_when_there_is_room(tmp_path: Path) -> None:
    place = Place(tmp_path, "m1")
    plant(place.pki_dir, ["web1", "web2"])

    async def shown(engine: Engine) -> list[str]:
        core = engine.service.core
        return await core.run(lambda: [i for i, stored in core.replica.placed() if stored.slot])

    async def delete_on_a_full_disk() -> None:
        async with Engine(place) as engine:
            assert await shown(engine) == ["web1", "web2"]
            with full_disk():
                (place.pki_dir / "minions" / "web1").unlink()
                await engine.hint("web1", gone=True)
                assert await shown(engine) == ["web1", "web2"], "it could be written after all"
                assert "cannot be written" in engine.service.core.problem
            await engine.settle()  # nothing else changes in the folders
            while await shown(engine) != ["web2"]:
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(delete_on_a_full_disk(), 30))
