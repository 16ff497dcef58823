"""The laws of merging, on records that came about by real decisions, knocks and merges."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saltext_ha.replication.record import (
    ACCEPTED,
    DECISIONS,
    DELETED,
    DENIED,
    OBSERVATIONS,
    PENDING,
    REJECTED,
    STATES,
    Dot,
    Record,
    Value,
    covers,
    decide,
    merge,
    observe,
    record_digest,
    visible,
)

pytestmark = pytest.mark.core

EMPTY = Record("web1", b"f" * 32, "key")
NODES = 3

# One act: on which node, what (merging with another node, or writing a state), how far it looked.
acts = st.lists(
    st.tuples(
        st.integers(0, NODES - 1),
        st.one_of(st.integers(0, NODES - 1), st.sampled_from(sorted(STATES))),
        st.booleans(),
    ),
    max_size=14,
)


def history(steps: list[tuple[int, int | str, bool]]) -> list[Record]:
    """Each node's record after the acts; contexts that writers know are now or from before."""
    records = [EMPTY] * NODES
    counters = [0] * NODES
    known: list[dict[str, int]] = [{} for _ in range(NODES)]
    for n, what, up_to_date in steps:
        if isinstance(what, int):
            records[n] = merge(records[n], records[what])
            continue
        if up_to_date:
            known[n] = dict(records[n].context)
        counters[n] += 1
        # Times run backwards and repeat: nothing may depend on them.
        value = Value(Dot(f"n{n}", counters[n]), what, float(-counters[n]), "", f"m{n}")
        write = observe if what in OBSERVATIONS else decide
        records[n] = write(records[n], known[n], value)
        known[n] = {**known[n], f"n{n}": counters[n]}
    return records


@settings(max_examples=100)
@given(acts)
def test_merge_is_commutative_associative_and_idempotent(
    steps: list[tuple[int, int | str, bool]],
) -> None:
    a, b, c = history(steps)
    assert merge(a, b) == merge(b, a)
    assert merge(merge(a, b), c) == merge(a, merge(b, c))
    assert merge(a, a) == a
    both = merge(a, b)
    assert merge(both, a) == merge(both, b) == both


@settings(max_examples=100)
@given(acts)
def test_every_value_stays_covered_by_its_context(
    steps: list[tuple[int, int | str, bool]],
) -> None:
    for record in history(steps):
        assert all(covers(dict(record.context), value.dot) for value in record.values)
        assert len({value.dot for value in record.values}) == len(record.values)
        assert record.values == tuple(sorted(record.values))
        assert record.context == tuple(sorted(record.context))
        assert bool(record.values) == bool(record.context)


@settings(max_examples=100)
@given(acts)
def test_digests_are_equal_exactly_when_values_and_context_are(
    steps: list[tuple[int, int | str, bool]],
) -> None:
    for one, other in itertools.combinations(history(steps), 2):
        same = (one.values, one.context) == (other.values, other.context)
        assert (record_digest(one) == record_digest(other)) is same


def test_digests_tell_ids_keys_and_contexts_apart() -> None:
    base = write(EMPTY, "a", ACCEPTED)
    others = [
        base,
        base._replace(minion_id="web2"),
        base._replace(fingerprint=b"g" * 32),
        # The same value, but of one who has seen more.
        base._replace(context=(*base.context, ("b", 1))),
    ]
    assert len({record_digest(record) for record in others}) == 4


def write(record: Record, node: str, state: str, known: Record | None = None) -> Record:
    """*record* with one more value of *node*, written knowing *known* (itself by default)."""
    counter = dict(record.context).get(node, 0) + 1
    context = dict((known or record).context)
    act = observe if state in OBSERVATIONS else decide
    return act(record, context, Value(Dot(node, counter), state, 0.0, "", ""))


@pytest.mark.parametrize(
    ("one", "other", "shown"),
    [
        (REJECTED, ACCEPTED, REJECTED),
        (REJECTED, DELETED, REJECTED),
        (REJECTED, PENDING, REJECTED),
        (DELETED, ACCEPTED, DELETED),
        (DELETED, PENDING, PENDING),
        (DELETED, DENIED, DENIED),
        (ACCEPTED, PENDING, ACCEPTED),
        (ACCEPTED, DENIED, ACCEPTED),
        (PENDING, DENIED, PENDING),
    ],
)
def test_what_two_masters_wrote_without_knowing_of_each_other(
    one: str, other: str, shown: str
) -> None:
    a, b = write(EMPTY, "a", one), write(EMPTY, "b", other)
    assert merge(a, b).state == merge(b, a).state == shown
    assert len(merge(a, b).values) == 2


def test_a_knock_after_a_tombstone_does_not_lift_it() -> None:
    shared = write(EMPTY, "a", PENDING)
    granted = write(shared, "b", ACCEPTED)
    knocked = write(write(shared, "a", DELETED), "a", PENDING)
    assert knocked.state == PENDING
    # Concurrent: the acceptance knew nothing of the deletion, and loses to it.
    assert merge(knocked, granted).state == PENDING
    assert merge(merge(knocked, granted), write(knocked, "a", ACCEPTED)).state == ACCEPTED


def test_a_decision_replaces_only_what_was_known() -> None:
    shared = write(EMPTY, "a", ACCEPTED)
    revoked = merge(shared, write(shared, "b", REJECTED))
    unaware = write(revoked, "a", ACCEPTED, known=shared)
    assert {value.state for value in unaware.values} == {REJECTED, ACCEPTED}
    assert unaware.state == REJECTED
    aware = write(unaware, "a", ACCEPTED)
    assert [value.state for value in aware.values] == [ACCEPTED]


def test_a_knock_replaces_knocks_and_leaves_decisions() -> None:
    record = write(write(write(EMPTY, "a", PENDING), "a", ACCEPTED), "a", DENIED)
    assert {value.state for value in record.values} == {ACCEPTED, DENIED}
    record = write(record, "a", PENDING)
    assert {value.state for value in record.values} == {ACCEPTED, PENDING}


def test_a_forgotten_value_does_not_come_back() -> None:
    old = write(EMPTY, "a", ACCEPTED)
    new = write(old, "b", DELETED)
    assert merge(new, old) == merge(old, new) == new


def test_every_combination_of_states_has_one_visible_state() -> None:
    for size in range(1, len(STATES) + 1):
        for states in itertools.combinations(sorted(STATES), size):
            assert visible(states) == visible(reversed(states))
            assert visible(states) in states
    assert visible([]) is None
    assert DECISIONS.isdisjoint(OBSERVATIONS)
