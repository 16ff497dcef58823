"""Random histories of keys and dropped tombstones: who drops one, who is told, who was too busy."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saltext_ha.replication.record import (
    ACCEPTED,
    DELETED,
    OBSERVATIONS,
    PENDING,
    REJECTED,
    Dot,
    Record,
    Value,
    decide,
    join,
    merge,
    observe,
    record_digest,
    within,
    without_dropped,
)

pytestmark = pytest.mark.core

KEYS = (b"a", b"b")
MOST = 3
ROUNDS = 20  # after which anti-entropy must have come to an end

masters = st.integers(0, MOST - 1)
keys = st.sampled_from(KEYS)
acts = st.one_of(
    st.tuples(st.just("write"), masters, keys, st.integers(0, 1)),
    st.tuples(st.just("offer"), masters, keys, masters),
    # All meet, and drop what they can: this one and those in the set, a bit each.
    st.tuples(st.just("drop"), masters, st.integers(0, 2**MOST - 1), st.just(0)),
)


class Act:
    """What somebody did to a key, and which acts they could know of."""

    def __init__(self, state: str, past: frozenset[Act]) -> None:
        self.state = state
        self.past = past


class Master:
    """Records and a horizon, and whose acts they come from."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.counter = 0
        self.records: dict[bytes, Record] = {}
        self.horizon: dict[str, int] = {}
        self.seen: dict[str, int] = {}
        self.past: dict[bytes, frozenset[Act]] = dict.fromkeys(KEYS, frozenset())

    def state(self, key: bytes) -> str | None:
        record = self.records.get(key)
        return record.state if record else None

    def put(self, record: Record) -> None:
        self.records[record.fingerprint] = record
        self.seen = join(self.seen, dict(record.context))

    def write(self, key: bytes, choice: int) -> Act:
        """Whatever may come next: a knock, or an operator's decision."""
        may = {None: (PENDING,), DELETED: (PENDING,), PENDING: (ACCEPTED, DELETED)}
        several = may.get(self.state(key), (DELETED, REJECTED))
        state = several[choice % len(several)]
        record = self.records.get(key) or Record("web1", key, "")
        self.counter += 1
        value = Value(Dot(self.name, self.counter), state, 0.0, "", self.name)
        write = observe if state in OBSERVATIONS else decide
        self.put(write(record, dict(record.context), value))
        act = Act(state, self.past[key])
        self.past[key] |= {act}
        return act

    def offer(self, key: bytes, other: Master) -> None:
        """As anti-entropy does; the other one may say that it dropped that."""
        theirs = self.records.get(key)
        if theirs is None or other is self:
            return
        ours = other.records.get(key)
        rest = without_dropped(theirs, ours, other.horizon)
        if ours is None and not rest.values:
            assert theirs.state == DELETED, "nobody has lost a replica"
            del self.records[key]
            return
        other.past[key] |= self.past[key]
        other.put(merge(ours, rest) if ours else rest)

    def drop(self, seen: dict[str, int]) -> None:
        self.horizon = join(self.horizon, seen)
        for key, record in list(self.records.items()):
            if record.state == DELETED and within(record, seen):
                del self.records[key]

    def digests(self) -> dict[bytes, bytes]:
        return {key: record_digest(record) for key, record in self.records.items()}


def meet(group: list[Master]) -> None:
    # In one order always, two could hand each other for ever what a third one has dropped.
    order = random.Random(0)
    for _ in range(ROUNDS):
        talks = list(itertools.product(group, KEYS, group))
        order.shuffle(talks)
        for one, key, other in talks:
            one.offer(key, other)
    assert len({tuple(sorted(master.digests().items())) for master in group}) == 1
    for key in KEYS:
        everything = frozenset[Act]().union(*(master.past[key] for master in group))
        for master in group:
            master.past[key] = everything


def histories(steps: list[tuple[str, int, object, int]]) -> Iterator[tuple[bytes, Act, Master]]:
    """Act *steps* out; each write, and in the end the group has met."""
    group = [Master(f"m{number}") for number in range(MOST)]
    for what, number, about, more in steps:
        master = group[number]
        if what == "drop":
            meet(group)
            assert isinstance(about, int)
            for place, one in enumerate(group):
                if place == number or about >> place & 1:
                    one.drop(master.seen)
            continue
        assert isinstance(about, bytes)
        if what == "write":
            yield about, master.write(about, more), master
        else:
            master.offer(about, group[more])
    meet(group)
    yield from ((key, Act("", frozenset()), group[0]) for key in KEYS)


@settings(max_examples=400)
@given(st.lists(acts, max_size=30))
def test_no_decision_is_lost_or_undone_by_dropping(
    steps: list[tuple[str, int, object, int]],
) -> None:
    done: dict[bytes, list[Act]] = {key: [] for key in KEYS}
    for key, act, master in histories(steps):
        if act.state:
            done[key].append(act)
            continue
        grants = [one for one in done[key] if one.state == ACCEPTED]
        revocations = [one for one in done[key] if one.state in (DELETED, REJECTED)]
        known = [all(one in grant.past for one in revocations) for grant in grants]
        if any(known):
            assert master.state(key) == ACCEPTED
        if not all(any(one in grant.past for grant in grants) for one in revocations):
            assert master.state(key) != ACCEPTED
