"""Ids of which nothing is known are recorded by a short way: the result is that of the long one."""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from saltext_ha.keystore.base import Content
from saltext_ha.reconciler.own_writes import OPERATOR
from saltext_ha.reconciler.task import Task
from saltext_ha.replication.record import (
    ACCEPTED,
    DELETED,
    DENIED,
    PENDING,
    REJECTED,
    Dot,
    Record,
    Value,
)
from tests.functional.keepers import KEYS, PRINTS, Master
from tests.keys import JUNK

pytestmark = pytest.mark.core

IDS = [f"web{number}" for number in range(6)] + ["tmpabcdefgh"]
TEXTS = [*KEYS[:3], "", JUNK]
TABLES = ("record", "stored", "history", "account", "node", "held", "sender", "meta")
OURS, THEIRS = "0" * 15 + "1", "0" * 15 + "2"

Act = Callable[[Master], object]


@contextlib.contextmanager
def alike(*names: str) -> Iterator[list[Master]]:
    """Masters that are the same, in folders of these names."""
    with tempfile.TemporaryDirectory() as folder:
        masters = []
        for name in names:
            (root := Path(folder) / name).mkdir()
            master = Master(root, "m1", minimum=2, in_memory=True, clock=lambda: 7.0)
            master.replica.node = OURS
            masters.append(master)
        try:
            yield masters
        finally:
            for master in masters:
                master.replica.close()


@contextlib.contextmanager
def two() -> Iterator[tuple[Master, Master]]:
    """Two masters that are the same, but that one has only the long way."""
    with alike("short", "long") as (short, long):
        reconciler = long.keeper.reconciler
        see, record = reconciler.first.see, reconciler._record
        first: set[str] = set()

        def sees_none(ids: Iterable[str], task: Task) -> dict[str, Content]:
            first.clear()
            first.update(see(ids, task))
            return {}

        def in_the_same_order(ids: Sequence[str], *rest: Any) -> Any:
            return record(sorted(ids, key=lambda i: i not in first), *rest)

        reconciler.first.see = sees_none  # type: ignore[method-assign]
        reconciler._record = in_the_same_order  # type: ignore[method-assign]
        yield short, long


def written(master: Master) -> dict[str, Any]:
    """All that is known of keys, in memory and on the disk."""
    replica, tables = master.replica, {}
    for table in TABLES:
        rows = sorted(replica._db.execute(f"SELECT * FROM {table}"), key=repr)
        if table == "stored":  # marks are made of inodes and times
            rows = [(*rest, bool(mark)) for *rest, mark in rows]
        if table == "meta":  # random, at every start
            rows = [row for row in rows if row[0] not in ("node", "signatures")]
        tables[table] = rows
    kept = {i: (replica.get(i), replica.applied(i)) for i in IDS}
    roots = replica.records.root, replica.placements.root
    counts = replica.counts(), replica.conflicts(), replica.counter, replica.vouched.highs
    waiting = sorted(master.keeper.work.ids()), master.keeper.refused.reasons, master.files()
    return {**tables, "kept": kept, "roots": roots, "counts": counts, "waiting": waiting}


def put(state: str, minion_id: str, text: str) -> Act:
    return lambda master: master.file(state, minion_id).write_text(text)


def gone(minion_id: str) -> Act:
    return lambda master: master.remove(minion_id)


def observed(by: str, certain: bool, deleted: bool) -> Act:
    def look(master: Master) -> object:
        ids = {*IDS, *master.keeper.work.ids()}
        return master.keeper.reconcile_all([Task.look(ids, by, certain=certain, deleted=deleted)])

    return look


def heard(minion_id: str, key: int, state: str, counter: int) -> Act:
    value = Value(Dot(THEIRS, counter), state, 5.0, "alice", "m2")
    record = Record(minion_id, PRINTS[key], KEYS[key], (value,), ((THEIRS, counter),))
    return lambda master: master.keeper.learn([record], "m2")


ids = st.sampled_from(IDS)
puts = st.builds(
    put, st.sampled_from([ACCEPTED, PENDING, REJECTED, DENIED]), ids, st.sampled_from(TEXTS)
)
hearings = st.builds(
    heard,
    ids,
    st.integers(0, 2),
    st.sampled_from([ACCEPTED, PENDING, REJECTED, DELETED, DENIED]),
    st.integers(1, 5),
)
looks = st.builds(observed, st.sampled_from(["", "alice", OPERATOR]), st.booleans(), st.booleans())
steps = st.one_of(puts, st.builds(gone, ids))
acts = st.one_of(puts, puts, puts, looks, st.builds(gone, ids), hearings)


@given(st.lists(acts, max_size=12))
@example([put(ACCEPTED, "web0", KEYS[0]), put(PENDING, "web0", KEYS[1])])
@example([put(ACCEPTED, "web0", KEYS[0]), put(PENDING, "web0", KEYS[0])])
@example([put(ACCEPTED, "web0", KEYS[0]), put(PENDING, "web0", ""), observed("", True, False)])
@settings(max_examples=50, deadline=None)
def test_it_writes_what_the_long_way_writes(history: list[Act]) -> None:
    with two() as (short, long):
        for act in [*history, observed("", False, False), observed("", True, False)]:
            assert act(short) == act(long)
            short.keeper.reconciler.apply()
            long.keeper.reconciler.apply()
            assert written(short) == written(long)


@given(st.lists(acts, max_size=6), st.lists(puts, max_size=6), st.lists(steps, max_size=6))
@example([], [put(ACCEPTED, "web0", KEYS[0])], [put(REJECTED, "web0", KEYS[0])])
@example([], [put(PENDING, "web0", KEYS[0])], [gone("web0"), put(ACCEPTED, "web0", KEYS[0])])
@example(
    [],
    [put(ACCEPTED, "web0", KEYS[0])],
    [put(ACCEPTED, "web0", KEYS[1]), put(PENDING, "web0", KEYS[0])],
)
@settings(max_examples=50, deadline=None)
def test_what_comes_after_a_listing_is_found_by_the_next_pass(
    before: list[Act], listed: list[Act], after: list[Act]
) -> None:
    """All is as if everything had been read at one moment; for each id that may be another one."""

    @functools.cache
    def ending(read_after: int | None) -> dict[str, Any]:
        """With a look that reads all after so many acts; None: what the listing has shown."""
        with alike("m1") as (master,):
            for act in (*before, *listed):
                act(master)
            names = master.store.changed()
            for number, act in enumerate(after):
                if number == read_after:
                    reads_all(master).keeper.observe(names)
                act(master)
            if read_after == len(after):
                reads_all(master)
            master.keeper.observe(names)
            found = {*master.keeper.work.ids(), *master.store.changed()}
            master.keeper.observe(found, certain=True)
            return {minion_id: shown(master, minion_id) for minion_id in IDS}

    moments = [len(after), *range(len(after))]
    for minion_id, short in ending(None).items():
        assert any(short == ending(moment)[minion_id] for moment in moments)


def reads_all(master: Master) -> Master:
    """*master*, which reads all four folders from now on, whatever a listing has shown."""
    master.store._read_one = lambda *_: None  # type: ignore[method-assign]
    return master


def test_of_an_id_that_was_read_before_all_is_read_even_after_a_listing() -> None:
    with two() as (master, _):
        master.knock("web0", 0)
        master.scan()
        master.knock("web0", 1)
        assert master.store.changed() == {"web0"}
        put(REJECTED, "web0", KEYS[1])(master)
        master.keeper.observe(["web0"])
        assert master.replica.applied("web0").stored.state == REJECTED


def shown(master: Master, minion_id: str) -> dict[str, Any]:
    """What is there of an id, what is known to be there, and what counts."""
    files = {of: text for of, text in master.files().items() if of[1] == minion_id}
    records = {key: record.state for key, record in master.replica.get(minion_id).items()}
    known = master.replica.applied(minion_id).stored
    return {"files": files, "known": known, "records": records}


def test_it_is_the_way_of_new_ids_with_one_sound_key(monkeypatch: pytest.MonkeyPatch) -> None:
    with two() as (short, _):
        reconciler, taken = short.keeper.reconciler, []
        one = reconciler._record_one

        def noted(minion_id: str, *rest: Any) -> Any:
            taken.append(minion_id)
            return one(minion_id, *rest)

        monkeypatch.setattr(reconciler, "_record_one", noted)
        for number, state in enumerate((ACCEPTED, PENDING, REJECTED)):
            short.knock(IDS[number], state=state)
        assert len(short.scan()) == 3
        assert taken == []
        short.knock(IDS[0], 1, DENIED)
        short.knock(IDS[4], 1, DENIED)
        short.knock(IDS[5], 0, ACCEPTED)
        short.knock(IDS[5], 1, DENIED)
        assert len(short.scan()) == 4
        assert sorted(taken) == [IDS[0], IDS[4], IDS[5]]
