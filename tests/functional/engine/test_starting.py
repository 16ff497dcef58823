"""An engine that could not start, or did not come far, starts the next time as it should."""

from __future__ import annotations

import asyncio
import gc
import resource
import shutil
import sqlite3
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lab.engines import Engine, Place, befriend, level
from lab.key_folders import PENDING, plant
from lab.wait import wait_for
from saltext_ha.common.errors import ReplicaDamaged, ReplicaError, StoreError
from saltext_ha.engine import main
from saltext_ha.engine.service import Service
from saltext_ha.keystore.files import FileStore
from saltext_ha.reconciler.core import Core
from saltext_ha.replica.replica import Replica
from saltext_ha.sync import antientropy
from saltext_ha.transport.peer import Peer
from tests.begun import threads_begun
from tests.engines import (
    accepted,
    delete,
    is_level,
    met,
    places,
    put,
    records,
    run,
    running,
    sharing,
    there,
)
from tests.loop import becomes, in_a_loop, until


@contextmanager
def full_disk() -> Iterator[None]:
    """No file may grow; Python ignores the signal that comes with it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


LATE = {"record_accepted", "history_id"}


def late_indexes(place: Place) -> set[str]:
    """Those that are made at the end of the first pass, as far as they are there."""
    with closing(sqlite3.connect(place.replica_file)) as db:
        rows = db.execute("SELECT name FROM sqlite_master WHERE type = 'index'")
        return LATE & {row[0] for row in rows}


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


def test_every_try_to_start_cleans_up_after_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again every ten seconds, in the same process."""
    tried: weakref.WeakSet[Service] = weakref.WeakSet()

    class Known(Service):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            tried.add(self)

    def try_once() -> None:
        with pytest.raises(ReplicaError):
            main.run(place.opts, place.config)

    place = Place(tmp_path, "m1")
    place.replica_file.parent.mkdir(0o700, parents=True, exist_ok=True)
    with closing(sqlite3.connect(place.replica_file)) as db:
        db.execute("PRAGMA user_version = 99")
    monkeypatch.setattr(main, "Service", Known)
    threshold, threads = gc.get_threshold(), threads_begun(monkeypatch)
    try:
        for _ in range(4):
            try_once()
        assert len(tried) <= 1
        assert threads
        # The last of them may just be ending.
        wait_for(lambda: not [each for each in threads if each.is_alive()], 60, "all have ended")
    finally:
        gc.unfreeze()
        gc.set_threshold(*threshold)


@pytest.mark.parametrize("what", ["wrote", "lines"])
@in_a_loop
async def test_a_replica_that_turns_out_to_be_damaged_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def damaged(*args: object) -> None:
        raise sqlite3.DatabaseError("database disk image is malformed")

    one, two = places(tmp_path, "m1", "m2")
    plant(one.pki_dir, ["web1"])
    async with met(one, two) as (m1, _):
        await until(lambda: there(two) == {"web1"}, "it is on both")
        monkeypatch.setattr(m1.parts.core.replica.history, what, damaged)
        plant(one.pki_dir, ["web2"])
        await run(one, "history")
        await until(lambda: m1.service.failed, "it ends")
        await m1.stop()
        (aside,) = one.config.state_dir.glob("replica.db.damaged-*[0-9]")
        assert not one.replica_file.exists()
        async with Engine(one) as again:
            assert again.parts.notes["damaged"].endswith(f"the old is {aside.name}")
            await until(lambda: there(two) == {"web1", "web2"}, "both are on both")
            await until(lambda: not again.parts.core.mode.lost, "it is whole")


@in_a_loop
async def test_a_paused_master_whose_replica_is_damaged_stays_paused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that is made anew would know of no pause."""

    def damaged(*args: object) -> None:
        raise sqlite3.DatabaseError("database disk image is malformed")

    (one,) = places(tmp_path, "m1")
    async with Engine(one) as m1:
        await run(one, "pause")
        monkeypatch.setattr(m1.parts.core.replica.history, "lines", damaged)
        await run(one, "history")
        await until(lambda: bool(m1.parts.core.damage), "it is seen")
        assert (await run(one, "history"))["kind"] == "error"
        assert (await run(one, "resume"))["retcode"] == 0
        await until(lambda: m1.service.failed, "it ends")


@pytest.mark.parametrize(
    "change",
    [
        "INSERT INTO run VALUES ('nightly', x'c1')",
        "INSERT INTO tree VALUES ('states', x'90')",
        "INSERT INTO run VALUES (CAST(x'f765' AS TEXT), x'90')",
    ],
)
@in_a_loop
async def test_damage_that_a_start_finds_after_opening_is_over_at_the_next(
    tmp_path: Path, change: str
) -> None:
    """It was tried again every ten seconds, for ever."""
    place = Place(tmp_path, "m1")
    plant(place.pki_dir, ["web1"])
    async with Engine(place):
        await until(lambda: there(place) == {"web1"}, "it is known")
    with closing(sqlite3.connect(place.replica_file)) as db, db:
        db.execute(change)
    with pytest.raises((ReplicaDamaged, sqlite3.OperationalError)):
        await Service(place.opts, place.config).run()
    assert [*place.config.state_dir.glob("replica.db.damaged-*[0-9]")]
    async with Engine(place) as again:
        assert "was damaged" in again.parts.notes["damaged"]


@pytest.mark.parametrize("found", ["as it opens the file", "later"])
@in_a_loop
async def test_a_pause_outlives_damage_that_a_start_finds(tmp_path: Path, found: str) -> None:
    place = Place(tmp_path, "m1")
    async with Engine(place):
        await run(place, "pause")
    with closing(sqlite3.connect(place.replica_file)) as db, db:
        db.execute("INSERT INTO run VALUES ('nightly', x'c1')")
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'run'").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    if found == "later":
        with pytest.raises(ReplicaDamaged):
            await Service(place.opts, place.config).run()
    else:
        with place.replica_file.open("r+b") as file:
            file.seek((page - 1) * size)
            file.write(b"x" * size)
    async with Engine(place) as again:
        assert "was damaged" in again.parts.notes["damaged"]
        assert "; since " in again.parts.core.mode.paused
        await run(place, "resume")
    async with Engine(place) as again:
        assert not again.parts.core.mode.paused


@in_a_loop
async def test_the_first_pass_over_many_keys_ends_with_all_indexes(tmp_path: Path) -> None:
    place = Place(tmp_path, "m1")
    plant(place.pki_dir, ["web1", "web2"])
    async with Engine(place):
        pass
    assert late_indexes(place) == LATE


def test_a_disk_that_is_full_at_the_end_of_the_first_pass_costs_only_indexes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = places(tmp_path, "m1", "m2")
    plant(one.pki_dir, ["web1", "web2", "web3"])
    index = Replica.index

    def index_on_a_full_disk(replica: Replica) -> None:
        with full_disk():
            index(replica)

    async def live_without() -> None:
        async with AsyncExitStack() as stack:
            with monkeypatch.context() as patched:
                patched.setattr(Replica, "index", index_on_a_full_disk)
                m1 = await stack.enter_async_context(Engine(one))
                problem = m1.parts.core.problem
                notes = (await m1.made.summary.get()).notes
            assert "replica.db: cannot be written" in problem
            assert problem in notes
            m2 = await stack.enter_async_context(Engine(two))
            befriend(one, two)
            await m1.meets(m2)
            await m2.meets(m1)
            await until(lambda: there(two) == {"web1", "web2", "web3"}, "m2 is told")
            await delete(m2, "web1")
            await until(lambda: there(one) == {"web2", "web3"}, "m1 is told")
            await delete(m1, "web2")
            await until(lambda: there(two) == {"web3"}, "m2 is told again")
            writes = (await run(one, "history", "web1"))["writes"]
            assert {write["state"] for write in writes} == {"accepted", "deleted"}
            assert (await run(one, "check_consistency", only=["keys"]))["status"] == "same"
            assert m1.parts.core.problem == ""

    async def start_and_stop() -> None:
        async with Engine(one) as m1:
            assert m1.parts.core.problem == ""

    asyncio.run(live_without())
    assert late_indexes(one) == set()
    asyncio.run(start_and_stop())
    assert late_indexes(one) == LATE


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
                return engine.parts.core.problem

    assert asyncio.run(problem()) == "the disk is on fire"


async def waits_for_a_peer(place: Place) -> bool:
    async with Engine(place) as engine:
        return engine.parts.core.mode.lost


@in_a_loop
async def test_a_lost_replica_is_still_lost_at_the_next_start(tmp_path: Path) -> None:
    place, away = Place(tmp_path, "m1"), Place(tmp_path, "m2")
    befriend(place, away)
    plant(place.pki_dir, ["web1"])

    assert await waits_for_a_peer(place)
    # Nothing was heard from a peer yet: what the key folder shows is no news now, either.
    assert await waits_for_a_peer(place)


@in_a_loop
async def test_a_lost_replica_waits_for_a_peer_whose_file_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One power cut may take both."""
    place, away = Place(tmp_path, "m1"), Place(tmp_path, "m2")
    befriend(place, away)
    plant(place.pki_dir, ["web1"])
    (place.config.state_dir / "peers" / "m2.json").write_text("{")

    async with Engine(place) as engine:
        rebuild, turns = engine.parts.rebuilding.rebuild, []

        async def counted() -> None:
            await rebuild()
            turns.append(1)

        monkeypatch.setattr(engine.parts.rebuilding, "rebuild", counted)
        await until(lambda: len(turns) > 2, "it was tried")
        assert engine.parts.core.mode.lost
        assert "m2.json" in str((await engine.made.status.status({}))["masters"])


@in_a_loop
async def test_a_replica_that_was_rebuilt_is_not_rebuilt_again(tmp_path: Path) -> None:
    place, peer = Place(tmp_path, "m1"), Place(tmp_path, "m2")
    befriend(place, peer)
    plant(place.pki_dir, ["web1"])
    async with Engine(place) as engine, Engine(peer) as other:
        await engine.meets(other)
        await until(lambda: not engine.parts.core.mode.lost, "it was rebuilt")
    assert not await waits_for_a_peer(place)


@in_a_loop
async def test_a_master_without_peers_waits_for_nobody_when_it_has_some(tmp_path: Path) -> None:
    place, peer = Place(tmp_path, "m1"), Place(tmp_path, "m2")

    assert not await waits_for_a_peer(place)
    befriend(place, peer)
    assert not await waits_for_a_peer(place)


@pytest.mark.parametrize("names", [("m1",), ("m1", "m2")])
@in_a_loop
async def test_where_nobody_knows_more_than_an_older_replica_the_key_store_counts(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    """A rejected key must not be accepted again."""
    group = places(tmp_path, *names)
    async with sharing(["web1", "web2", "web3"], *group):
        pass
    for place in group:
        shutil.copy2(place.replica_file, place.replica_file.with_name("backup.db"))
    async with met(*group) as (m1, *_):
        keys = m1.place.pki_dir / "minions"
        keys.with_name("minions_rejected").mkdir(exist_ok=True)
        (keys / "web1").rename(keys.with_name("minions_rejected") / "web1")
        await delete(m1, "web2")
        for place in group:
            await until(lambda place=place: there(place) == {"web3"}, "it is followed")
    for place in group:
        place.replica_file.with_name("backup.db").replace(place.replica_file)

    def revoked(engine: Engine) -> list[tuple[str, str | None]]:
        records = engine.known(lambda replica: replica.revoked("*"))
        return [(record.minion_id, record.state) for record in records]

    async with running(*group) as engines:
        for engine in engines:
            expected = [("web1", "rejected"), ("web2", "deleted")]
            await until(lambda e=engine, x=expected: revoked(e) == x, "both are known")
            await until(lambda e=engine: there(e.place) == {"web3"}, "one is left")
            assert (engine.place.pki_dir / "minions_rejected" / "web1").exists()
            await until(lambda e=engine: not e.parts.core.mode.lost, "it is rebuilt")


@in_a_loop
async def test_an_older_replica_keeps_what_its_master_revoked_and_no_peer_heard_of(
    tmp_path: Path,
) -> None:
    """The peer was down then; or it is itself put back from a backup, which does not show."""
    group = one, two = places(tmp_path, "m1", "m2")
    async with sharing(["web1", "web2"], *group):
        pass
    shutil.copy2(two.replica_file, backup := two.replica_file.with_name("backup.db"))
    async with running(two) as (m2,):
        await delete(m2, "web1")
        (known,) = records(m2)
        await until(lambda: records(m2)[known].state == "deleted", "it is recorded")
    backup.replace(two.replica_file)
    async with running(one, two) as engines:
        for place in group:
            await until(lambda place=place: there(place) == {"web2"}, "the other is left")
        await until(lambda: is_level(*engines), "all are level")
        assert accepted(*group) == [{"web2"}, {"web2"}]


@in_a_loop
async def test_a_group_put_back_from_backups_of_different_moments_agrees(tmp_path: Path) -> None:
    group = one, two = places(tmp_path, "m1", "m2")
    async with sharing(["web1", "web2"], *group):
        pass
    shutil.copytree(one.pki_dir, tmp_path / "m1 before", symlinks=True)
    async with met(*group) as (m1, _):
        await delete(m1, "web1")
        put(two, "web3")
        for place in group:
            await until(lambda place=place: there(place) == {"web2", "web3"}, "it is followed")
    shutil.rmtree(one.pki_dir)
    (tmp_path / "m1 before").rename(one.pki_dir)
    async with running(*group) as engines:
        await until(lambda: is_level(*engines), "they agree")
        assert accepted(*group) == [{"web2", "web3"}] * 2


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A master with forty keys, of which few fit into one answer."""
    monkeypatch.setattr(antientropy, "RECORDS_PER_MESSAGE", 8)
    place = Place(tmp_path, "m2")
    level([place], [f"web{number}" for number in range(40)])
    return place


@asynccontextmanager
async def only_answering(
    source: Place, before: Callable[[int], Awaitable[None]]
) -> AsyncIterator[None]:
    """
    *source* runs, and pushes nothing to m1; *before* is called with the number of each question.
    """
    async with Engine(source) as engine:
        handlers, asked = engine.service.listener._handlers, 0
        compare = handlers["compare"]

        async def answer(peer: Peer, payload: dict[str, Any]) -> Any:
            nonlocal asked
            asked += 1
            await before(asked)
            return await compare(peer, payload)

        handlers["compare"] = answer
        await until(lambda: "m1" in engine.parts.links, "it follows its peers")
        await engine.parts.links["m1"].close()
        yield


@in_a_loop
async def test_a_master_without_keys_takes_them_as_they_come(tmp_path: Path, source: Place) -> None:
    """It has nothing to adopt: only a minion has knocked."""
    place = Place(tmp_path, "m1")
    befriend(place, source)
    plant(place.pki_dir, ["new"], PENDING)

    on = asyncio.Event()

    async def before(question: int) -> None:
        if question == 3:
            await on.wait()

    async with only_answering(source, before), Engine(place):
        await until(lambda: bool(there(place)), "the first are there")
        assert len(there(place)) < 40
        on.set()
        await until(lambda: there(place) == there(source), "all are there")
        await until(lambda: (source.pki_dir / "minions_pre" / "new").exists(), "told of")


@in_a_loop
async def test_a_master_without_keys_believes_nothing_before_it_met_a_peer(
    tmp_path: Path, source: Place
) -> None:
    place = Place(tmp_path, "m1")
    befriend(place, source)
    plant(place.pki_dir, ["web1"], PENDING)
    async with Engine(place) as engine:
        # Nobody answers, and an operator takes it for junk.
        (place.pki_dir / "minions_pre" / "web1").unlink()
        await engine.hint("web1", gone=True)
        await engine.parts.core.scan()
        assert engine.parts.core.mode.lost
        async with Engine(source):
            await until(lambda: there(place) == there(source), "all are there")
            assert "web1" in there(source)


@in_a_loop
async def test_new_masters_are_whole_only_when_one_that_knows_all_was_asked(
    tmp_path: Path, source: Place
) -> None:
    """Together they know nothing; and what the third one knows is not known to them."""
    new = [Place(tmp_path, name) for name in ("m1", "m3")]
    befriend(source, *new)
    async with Engine(new[0]) as one, Engine(new[1]) as other:
        for engine in (one, other):
            await until(lambda e=engine: bool(e.parts.rebuilding.notes()), "they have met")
            assert engine.parts.core.mode.lost
            assert not engine.parts.health.ready()[0]
            (note,) = engine.parts.rebuilding.notes()
            assert "m2: 127.0.0.1:" in note
            assert note in (await engine.made.summary.get()).notes
        async with Engine(source):
            for engine in (one, other):
                await until(lambda e=engine: not e.parts.core.mode.lost, "rebuilt")
                # The rebuilding says so a moment after its keeper.
                await until(lambda e=engine: not e.parts.rebuilding.notes(), "it says so")
                assert there(engine.place) == there(source)


@in_a_loop
async def test_masters_that_are_all_new_are_whole_when_they_have_met(tmp_path: Path) -> None:
    new = [Place(tmp_path, name) for name in ("m1", "m2")]
    befriend(*new)
    plant(new[0].pki_dir, ["web1"])
    async with Engine(new[0]) as one, Engine(new[1]) as other:
        for engine in (one, other):
            await until(lambda e=engine: not e.parts.core.mode.lost, "rebuilt")
        await until(lambda: there(new[1]) == {"web1"}, "what it had is known to both")


@in_a_loop
async def test_what_is_held_is_not_decided_about_before_all_has_come(
    tmp_path: Path, source: Place
) -> None:
    place = Place(tmp_path, "m1")
    befriend(place, source)
    async with Engine(place):
        for command, *arguments in (("release",), ("refill",), ("rewrite", "web1")):
            refused = await run(place, command, *arguments)
            assert "run this again when salt-run ha.status" in refused["error"], command


@in_a_loop
async def test_while_it_writes_down_an_answer_the_next_is_made(
    tmp_path: Path, source: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, "m1")
    befriend(place, source)
    questions, learn = [], Core.learn

    async def patient(core: Core, *arguments: Any, **more: Any) -> Any:
        await until(lambda: len(questions) > 1, "the next one was asked for")
        return await learn(core, *arguments, **more)

    async def before(question: int) -> None:
        questions.append(question)

    async with only_answering(source, before):
        monkeypatch.setattr(Core, "learn", patient)
        async with Engine(place):
            await until(lambda: there(place) == there(source), "all are there")


@in_a_loop
async def test_what_was_done_while_the_disk_was_full_is_found_when_there_is_room(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path, "m1")
    plant(place.pki_dir, ["web1", "web2"])

    async def recorded(engine: Engine) -> list[str]:
        core = engine.parts.core
        return await core.run(lambda: [i for i, stored in core.replica.placed() if stored.slot])

    async with Engine(place) as engine:
        assert await recorded(engine) == ["web1", "web2"]
        with full_disk():
            await delete(engine, "web1")
            assert await recorded(engine) == ["web1", "web2"], "it could be written after all"
            assert "cannot be written" in engine.parts.core.problem
        await engine.settle()  # nothing else changes in the folders
        await becomes(partial(recorded, engine), ["web2"])
