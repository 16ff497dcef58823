"""What the keeper's thread does with thousands of changes at once."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from saltext_ha.common.batches import BATCH
from saltext_ha.common.errors import ReplicaError, StoreError
from saltext_ha.keystore.base import Change, Content, Outcome
from saltext_ha.reconciler import core, work_queue
from saltext_ha.reconciler.core import Core
from saltext_ha.reconciler.hints import Hint, tasks
from saltext_ha.replication.record import ACCEPTED, DELETED, PENDING, Record
from tests.functional.keepers import Master
from tests.loop import becomes, in_a_loop, until

MANY = [f"web{number:04}" for number in range(2 * BATCH + 20)]


@pytest.fixture
def m1(tmp_path: Path) -> Master:
    return Master(tmp_path, "m1", minimum=BATCH + 10)


def accept_many(m1: Master) -> None:
    for name in MANY:
        m1.knock(name, state=ACCEPTED)
    m1.scan()


@asynccontextmanager
async def held(m1: Master) -> AsyncIterator[Core]:
    """A core that holds all that changes meanwhile, also on its disk."""
    published: list[Record] = []
    here = Core(m1.keeper, published.extend)
    yield here
    await until(lambda: bool(published or m1.replica.held.count), "what changed is judged")
    here.close()
    assert published == []
    m1.restart()
    assert sorted(m1.replica.held.all()) == MANY


@in_a_loop
async def test_what_is_found_first_is_published_first(m1: Master) -> None:
    for name in MANY:
        m1.knock(name)
    published: list[int] = []
    asked: list[int] = []
    loop = asyncio.get_running_loop()

    def publish(records: Sequence[Record]) -> None:
        published.append(len(records))
        if len(published) == 1:  # somebody else wants the keeper now
            waiting.append(loop.create_task(here.run(lambda: asked.append(len(published)))))

    waiting: list[asyncio.Task[None]] = []
    here = Core(m1.keeper, publish)
    await here.scan()
    await asyncio.gather(*waiting)
    here.close()
    assert sum(published) == len(MANY)
    assert max(published) <= BATCH
    assert asked
    assert asked[0] < len(published)


def test_a_store_that_cannot_be_read_is_not_asked_for_each_id(
    m1: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = MANY[:BATCH]
    for name in many:
        m1.knock(name)
    m1.settle()
    asked: list[str] = []

    def fail(minion_id: str, *how: Any, **more: Any) -> Content | None:
        asked.append(minion_id)
        raise StoreError("timed out")

    with monkeypatch.context() as away:
        away.setattr(m1.store, "read", fail)
        for name in many:
            m1.remove(name)
        with pytest.raises(StoreError):
            m1.keeper.reconcile_all(tasks([Hint(name, "alice", True) for name in many]))
    assert len(asked) < 20
    m1.keeper.reconcile_all(m1.keeper.work.late())
    assert {m1.state(name) for name in many} == {DELETED}
    assert m1.keeper.work.ids() == []


@in_a_loop
async def test_nobody_waits_for_all_of_a_store_that_is_filled_again(m1: Master) -> None:
    for name in MANY:
        m1.knock(name, state=ACCEPTED)
    m1.settle()
    for name in MANY:
        m1.remove(name)
    begun: list[int] = []
    asked: list[int] = []
    apply = m1.store.apply

    loop = asyncio.get_running_loop()
    here = Core(m1.keeper, lambda records: None)
    waiting: list[asyncio.Task[None]] = []

    def ask() -> None:
        waiting.append(loop.create_task(here.run(lambda: asked.append(len(begun)))))

    def counted(changes: Sequence[Change]) -> Outcome:
        if not begun:  # somebody else wants the keeper now
            loop.call_soon_threadsafe(ask)
        begun.append(len(changes))
        return apply(changes)

    m1.store.apply = counted  # type: ignore[method-assign]
    await here.order(m1.keeper.reconciler.adopt)
    await asyncio.gather(*waiting)
    here.close()
    assert sum(begun) == len(MANY)
    assert asked[0] < len(begun)
    assert len(m1.files()) == len(MANY)


@in_a_loop
async def test_portions_are_weighed_together(m1: Master) -> None:
    accept_many(m1)
    for name in MANY:
        m1.remove(name)
    m1.scan()
    m1.keeper.release("alice")
    assert m1.state(MANY[0]) == DELETED
    for name in MANY:  # a copy of the folder is put back; each portion alone would be believed
        m1.knock(name, state=ACCEPTED)
    async with held(m1) as here:
        await here.scan()


@in_a_loop
async def test_what_is_gone_is_weighed_when_the_pass_is_over(
    m1: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second look between two portions would find the first of them small enough to believe."""
    accept_many(m1)
    for name in MANY:
        m1.remove(name)
    monkeypatch.setattr(work_queue, "SETTLE", 0.01)
    observe = m1.keeper.observe

    def slowly(*args: Any, **how: Any) -> list[Record]:
        time.sleep(0.1)
        return observe(*args, **how)

    monkeypatch.setattr(m1.keeper, "observe", slowly)

    async with held(m1) as here:
        await here.scan()


@in_a_loop
async def test_a_folder_that_is_emptied_during_a_pass_is_weighed_whole(m1: Master) -> None:
    """What the pass found gone is little enough to believe; the rest follows while it settles."""
    accept_many(m1)
    async with held(m1) as here:
        await here.run(m1.store.touched)
        for name in MANY[:BATCH]:
            m1.remove(name)
        await here.scan()
        for name in MANY[BATCH:]:
            m1.remove(name)


@in_a_loop
async def test_a_pass_that_begins_before_vanished_keys_are_judged_is_waited_for(
    m1: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch of the folders has the news that the keeper asks for, and began this pass."""
    accept_many(m1)
    loop, begun, go_on = asyncio.get_running_loop(), threading.Event(), threading.Event()
    list_all = m1.store.changed

    def listed() -> Iterable[str]:
        begun.set()
        assert go_on.wait(60)
        return list_all()

    def news_is_gone() -> bool:
        for name in MANY[BATCH:]:
            m1.remove(name)
        monkeypatch.setattr(m1.store, "changed", listed)
        monkeypatch.setattr(m1.store, "touched", touched)
        passes.append(asyncio.run_coroutine_threadsafe(here.scan(), loop))
        return not begun.wait(60)

    passes: list[Any] = []
    touched = m1.store.touched
    monkeypatch.setattr(m1.store, "touched", news_is_gone)
    for name in MANY[:BATCH]:
        m1.remove(name)
    async with held(m1) as here:
        await here.scan()
        await until(lambda: begun.is_set() and not here._tasks)
        go_on.set()


@in_a_loop
async def test_keys_that_vanish_are_believed_though_the_folder_never_rests(
    m1: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    m1.knock("web1", state=ACCEPTED)
    m1.scan()
    published: list[Record] = []
    monkeypatch.setattr(core, "PUT_OFF", 0.5)
    monkeypatch.setattr(m1.store, "touched", lambda: True)

    here = Core(m1.keeper, published.extend)
    m1.remove("web1")
    await here.scan()
    await until(lambda: bool(published), "the deletion is recorded")
    here.close()
    assert [record.state for record in published] == [DELETED]


@in_a_loop
async def test_the_work_queue_is_read_where_it_is_changed(
    m1: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    m1.knock("web1", state=ACCEPTED)
    m1.scan()
    published: list[Record] = []
    threads: set[str] = set()
    overdue = m1.keeper.work.overdue

    def noted() -> float:
        threads.add(threading.current_thread().name.partition("_")[0])
        return overdue()

    monkeypatch.setattr(m1.keeper.work, "overdue", noted)
    here = Core(m1.keeper, published.extend)
    m1.remove("web1")
    await here.scan()
    await until(lambda: bool(published), "the deletion is recorded")
    here.close()
    assert threads == {"ha-keeper"}


def test_an_interrupted_pass_forgets_no_portion(m1: Master) -> None:
    for name in MANY:
        m1.knock(name)
    portions = m1.keeper.reconciler.weigh(m1.store.changed())
    m1.keeper.observe(portions[0])
    # The folders show no news any more: what is left is known by the keeper alone.
    assert not set(m1.store.changed()) & set(portions[0])
    assert set(m1.keeper.work.ids()) == {name for portion in portions[1:] for name in portion}
    assert m1.state(portions[0][0]) == PENDING


@in_a_loop
async def test_what_could_not_be_recorded_is_unknown_until_a_pass_could(
    m1: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That something else could be looked at tells nothing of it."""
    m1.knock("web1")
    here = Core(m1.keeper, lambda records: None)

    def full(*_: Any) -> list[Record]:
        raise ReplicaError("the disk is full")

    for owner, part in ((m1.keeper.reconciler, "weigh"), (m1.keeper, "observe")):
        monkeypatch.setattr(owner, part, full)
        await here.scan()
        monkeypatch.undo()
        await here.work(m1.keeper.observe, ["web2"])
        await here.apply()
        assert here.problem == ""
        assert "the disk is full" in here.unseen
        await here.scan()
        assert here.unseen == ""
    here.close()


@in_a_loop
async def test_once_something_can_be_recorded_the_next_pass_is_not_waited_for(
    m1: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many keys it may come ten minutes later."""
    monkeypatch.setattr(work_queue, "RETRY", 0.1)
    m1.knock("web1")
    here = Core(m1.keeper, lambda records: None)

    def full(*_: Any) -> list[Record]:
        raise ReplicaError("the disk is full")

    for owner, part in ((m1.keeper.reconciler, "weigh"), (m1.keeper, "observe")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, part, full)
            await here.scan()
        assert "the disk is full" in here.unseen
        await until(lambda: not here.unseen, "its keys are known")
    await until(lambda: not here.problem, "nothing is wrong")
    here.close()


@in_a_loop
async def test_what_cannot_be_recorded_holds_up_nothing_else(
    m1: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If each success of others led to a pass at once, no key that is gone would ever settle."""
    for name in MANY:
        m1.knock(name)
    m1.scan()
    spoilt, gone = MANY[0], MANY[-1]
    read = m1.store.read

    def refused(minion_id: str, certain: bool = False) -> Content | None:
        if minion_id == spoilt:
            raise StoreError(f"{spoilt} cannot be read")
        return read(minion_id, certain)

    monkeypatch.setattr(m1.store, "read", refused)
    for name in MANY:
        m1.knock(name, key=1)
    m1.remove(gone)
    here = Core(m1.keeper, lambda records: None)
    await here.scan()
    assert f"{spoilt} cannot be read" in here.unseen
    await until(lambda: m1.state(gone) == DELETED, "the key that is gone is believed to be")
    here.close()


@in_a_loop
async def test_what_an_event_said_is_kept_until_it_can_be_written_down(
    m1: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was deleted, and knocked again: the key folders look as before."""
    for name in ("web1", "web2"):
        m1.knock(name)
    m1.settle()
    time.sleep(0.01)
    for name in ("web1", "web2"):
        m1.remove(name)
        m1.knock(name)

    @contextmanager
    def full() -> Iterator[None]:
        raise ReplicaError("the disk is full")
        yield

    transaction = m1.replica.transaction

    here = Core(m1.keeper, lambda records: None)
    monkeypatch.setattr(work_queue, "RETRY", 0.1)
    monkeypatch.setattr(m1.replica, "transaction", full)
    await here.hinted([Hint(name, "alice", True) for name in ("web1", "web2")])
    assert here.problem
    monkeypatch.setattr(m1.replica, "transaction", transaction)
    await until(lambda: not here.problem, "it was tried again")
    here.close()
    m1.restart()
    for name in ("web1", "web2"):
        lines = m1.replica.history.lines(name)
        assert [(line.state, line.by) for line in lines] == [
            (PENDING, "minion"),
            (DELETED, "alice"),
            (PENDING, "minion"),
        ]


def test_what_an_event_said_is_kept_while_the_store_cannot_be_read(
    m1: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    m1.knock("web1")
    m1.settle()
    time.sleep(0.01)
    m1.remove("web1")
    m1.knock("web1")

    def fail(owner: str) -> str | None:
        raise StoreError("stale file handle")

    with monkeypatch.context() as stale:
        stale.setattr(m1.store, "signature", fail)
        with pytest.raises(StoreError):
            m1.deletion_told(["web1"], "alice")
    m1.keeper.reconcile_all(m1.keeper.work.late())
    lines = m1.replica.history.lines("web1")
    assert [line.state for line in lines] == [PENDING, DELETED, PENDING]


def test_what_one_operator_did_to_many_ids_is_written_down_together(m1: Master) -> None:
    """One by one, Salt would delete faster; minions that knock again meanwhile would be held."""
    many = MANY[:BATCH]
    for name in many:
        m1.knock(name, state=ACCEPTED)
    m1.settle()
    for name in many:
        m1.remove(name)
    before = m1.replica.version
    m1.keeper.reconcile_all(tasks([Hint(name, "alice", True) for name in many]))
    assert m1.replica.version - before < 10
    assert {m1.state(name) for name in many} == {DELETED}
    assert {(line.state, line.by) for line in m1.replica.history.lines(many[0])} == {
        (ACCEPTED, ""),
        (DELETED, "alice"),
    }


@in_a_loop
async def test_an_id_that_cannot_be_read_holds_up_no_other(
    m1: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("web1", "web2", "web3"):
        m1.knock(name)
    m1.settle()
    read = m1.store.read

    def fail(minion_id: str, *how: Any, **more: Any) -> Content | None:
        if minion_id == "web1":
            raise StoreError("structure needs cleaning")
        return read(minion_id, *how, **more)

    here = Core(m1.keeper, lambda records: None)
    monkeypatch.setattr(m1.store, "read", fail)
    monkeypatch.setattr(work_queue, "RETRY", 0.1)
    for name in ("web1", "web2", "web3"):
        m1.remove(name)
    await here.hinted([Hint(name, "alice", True) for name in ("web1", "web2")])
    await here.hinted([Hint("web3", "alice", True)])
    assert "structure needs cleaning" in here.problem
    assert [m1.state(name) for name in ("web1", "web2", "web3")] == [PENDING, DELETED, DELETED]
    monkeypatch.setattr(m1.store, "read", read)
    await becomes(partial(here.run, m1.state, "web1"), DELETED)  # it was tried again
    here.close()


@in_a_loop
async def test_once_closed_nothing_is_begun_any_more(m1: Master) -> None:
    """Also where work was due, and some was under way."""
    m1.knock("web1")
    wrong: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: wrong.append(told))
    here = Core(m1.keeper, lambda _: None)
    await here.scan()
    m1.keeper.work.add(["web1"])
    under_way = asyncio.ensure_future(here.run(time.sleep, 0.2))
    await asyncio.sleep(0.05)
    under_way.cancel()
    here.close()
    await asyncio.sleep(work_queue.SETTLE + 0.3)
    gc.collect()
    assert wrong == []
