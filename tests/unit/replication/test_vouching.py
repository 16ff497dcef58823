"""What of a peer's record counts: the pure rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saltext_ha.replica.replica import Replica
from saltext_ha.replica.vouched import MOST_NODES
from saltext_ha.replication.poisoned import is_poisoned
from saltext_ha.replication.record import (
    ACCEPTED,
    DELETED,
    PENDING,
    REJECTED,
    STATES,
    Dot,
    Record,
    Value,
    covers,
    merge,
    record_digest,
)
from saltext_ha.replication.vouching import (
    MAX_COUNTER,
    MOST_DROPPED,
    MOST_OF_ONE,
    MOST_UNKNOWN,
    MOST_WRITES,
    Vouch,
    bounded,
    is_sound,
    node_of,
    sift,
)

pytestmark = pytest.mark.core

NODES = [letter * 16 for letter in "abcdef"]
counters = st.integers(1, 12)
contexts = st.dictionaries(st.sampled_from(NODES), counters)


@st.composite
def records(draw: st.DrawFn) -> Record:
    """As codec.py lets them in: each value is covered by the context."""
    dots = draw(st.sets(st.tuples(st.sampled_from(NODES), counters), min_size=1, max_size=4))
    values = [
        Value(Dot(*dot), draw(st.sampled_from(sorted(STATES))), 1.0, "", "m1") for dot in dots
    ]
    context = draw(contexts)
    for node, counter in dots:
        context[node] = max(counter, context.get(node, 0))
    return Record("web1", b"", "", tuple(sorted(values)), tuple(sorted(context.items())))


owners = {node: bytes([number // 2]) * 32 for number, node in enumerate(NODES)}


@given(records(), st.none() | records(), contexts)
def test_what_is_left_claims_nothing_that_nobody_vouches_for(
    theirs: Record, ours: Record | None, highs: dict[str, int]
) -> None:
    left, reason = sift(theirs, ours, highs, owners)
    known = dict(ours.context) if ours else {}
    assert bool(reason) == (left != theirs)
    if is_sound(theirs, highs):
        assert left == theirs
    if left is None:
        assert all(v.dot.counter > highs.get(v.dot.node, MAX_COUNTER) for v in theirs.values)
        return
    context = dict(left.context)
    for node, counter in context.items():
        assert counter <= max(highs.get(node, MAX_COUNTER), known.get(node, 0))
        assert counter <= dict(theirs.context)[node]
    # It can be told again, and is left alone then.
    assert left.values
    assert all(covers(context, value.dot) for value in left.values)
    assert sift(left, ours, highs, owners) == (left, "")


@given(records(), contexts)
def test_what_a_master_vouches_for_counts(theirs: Record, highs: dict[str, int]) -> None:
    enough = {node: max(counter, highs.get(node, 0)) for node, counter in theirs.context}
    assert sift(theirs, None, enough, owners) == (theirs, "")
    assert is_sound(theirs, enough)


@given(records(), st.none() | records(), contexts)
def test_a_write_to_come_is_never_swallowed(
    theirs: Record, ours: Record | None, highs: dict[str, int]
) -> None:
    left, _ = sift(theirs, None, highs, owners)
    for node, high in highs.items():
        deletion = Value(Dot(node, high + 1), DELETED, 1.0, "", "m2")
        context = {**(dict(ours.context) if ours else {}), node: high + 1}
        told = Record("web1", b"", "", (deletion,), tuple(sorted(context.items())))
        assert deletion in (merge(left, told) if left else told).values


def test_a_write_that_nobody_made_is_cut_out_of_a_revocation() -> None:
    a, b = NODES[:2]
    gone = Value(Dot(a, 1), DELETED, 1.0, "", "m1")
    record = Record("web1", b"", "", (gone,), ((a, 1), (b, MOST_WRITES + 1)))
    left, reason = sift(record, None, {}, {})
    assert left == record._replace(context=((a, 1),))
    assert f"claims write {MOST_WRITES + 1} of node {b}, which nobody made" in reason
    # One that is all made up says nothing.
    forged = record._replace(values=(gone._replace(dot=Dot(b, MOST_WRITES + 1)),))
    assert sift(forged, None, {}, {})[0] is None


def crowded(nodes: list[str], *written: tuple[str, str]) -> Record:
    values = tuple(sorted(Value(Dot(node, 1), state, 1.0, "", "m1") for node, state in written))
    names = {*nodes, *(node for node, _ in written)}
    return Record("web1", b"", "", values, tuple((node, 1) for node in sorted(names)))


def names(count: int) -> list[str]:
    return [f"{number:016x}" for number in range(count)]


def test_writers_that_nobody_vouches_for_are_few() -> None:
    many = names(MOST_UNKNOWN + 1)
    left, reason = sift(crowded(many, ("f" * 16, DELETED)), None, {}, {})
    assert left is not None
    assert left.context == (("f" * 16, 1),)
    assert left.state == DELETED
    assert "writers that are new" in reason


def test_a_full_context_takes_the_write_of_a_master() -> None:
    ours = crowded(names(4 * MOST_OF_ONE), ("e" * 16, ACCEPTED))
    theirs = crowded(names(4 * MOST_OF_ONE), ("f" * 16, DELETED))
    assert sift(theirs, ours, {"f" * 16: 1}, {"f" * 16: b"bob"}) == (theirs, "")
    assert sift(theirs, ours, {}, {})[0] is None


def test_a_master_uses_up_its_own_share_only() -> None:
    eves = names(2 * MOST_OF_ONE)
    own = dict.fromkeys(eves, b"eve") | {"f" * 16: b"bob"}
    ours, _ = sift(crowded(eves[:MOST_OF_ONE], ("e" * 16, ACCEPTED)), None, {}, own)
    assert ours is not None
    assert len(ours.context) == MOST_OF_ONE + 1
    theirs, _ = sift(crowded(eves, (eves[-1], ACCEPTED), ("f" * 16, DELETED)), ours, {}, own)
    assert theirs is not None
    assert len(theirs.context) == MOST_OF_ONE + 1
    assert theirs.state == DELETED


@pytest.mark.parametrize("count", [MOST_OF_ONE, MOST_OF_ONE + 1, 4 * MOST_OF_ONE])
def test_what_is_too_much_of_a_master_is_too_much_for_a_record(count: int) -> None:
    """One number: what is taken of one master is no poison afterwards, nor the reverse."""
    eves = names(count)
    record = crowded(eves, (eves[0], ACCEPTED))
    taken, _ = sift(record, None, {}, dict.fromkeys(eves, b"eve"))
    assert is_poisoned(record) == (taken != record)


def test_a_horizon_is_what_was_had() -> None:
    a, b, gone = NODES[:3]
    horizon = {a: MAX_COUNTER - 1, b: 5, gone: 7}
    assert bounded(horizon, {a: 3, b: 9}, {a: 9, b: 9}) == {a: 3, b: 5, gone: 7}
    assert bounded(horizon, {}, {a: 9}) == {b: 5, gone: 7}
    many = dict.fromkeys(names(MOST_DROPPED + 1), 1)
    assert bounded({**many, a: 9}, {a: 3}, {a: 9}) == {a: 3}


def test_one_master_does_not_fill_what_is_remembered() -> None:
    with_table = Replica(None).vouched
    with_table.members(frozenset({b"1" * 32}))
    with_table.take(Vouch(b"1" * 32, n.to_bytes(8, "big"), 1, b"") for n in range(MOST_NODES + 5))
    assert len(with_table.highs) == MOST_NODES + 1  # and the one of this replica
    known = Vouch(b"1" * 32, bytes(8), 2, b"")
    with_table.take([known, Vouch(b"2" * 32, bytes(8), 2, b"")])
    assert with_table.get(known.node) == known
    assert with_table.highs[known.node] == 2
    assert node_of(b"2" * 32, bytes(8)) not in with_table.highs  # of nobody in the group
    assert with_table.get(node_of(b"2" * 32, bytes(8)))


def test_a_name_follows_from_the_certificate() -> None:
    vouch = Vouch(b"1" * 32, b"nonce...", 9)
    assert vouch.node == node_of(b"1" * 32, b"nonce...")
    assert len(vouch.node) == 16
    assert vouch.node != vouch._replace(owner=b"2" * 32).node
    assert str(vouch.high) in vouch.statement.decode()


@given(st.lists(records(), min_size=2, max_size=2), st.permutations(sorted(STATES)))
def test_one_write_that_stands_for_two_values_is_the_strictest_of_them(
    both: list[Record], states: list[str]
) -> None:
    one, other = both
    assert merge(one, other) == merge(other, one)
    forged = one._replace(values=tuple(v._replace(state=states[0]) for v in one.values))
    met = merge(one, forged)
    assert met == merge(forged, one)
    assert {value.dot for value in met.values} == {value.dot for value in one.values}
    if DELETED in states[:1]:
        assert all(value.state in (DELETED, REJECTED) for value in met.values)
    assert record_digest(merge(met, forged)) == record_digest(met)


def test_an_observation_is_no_stricter_than_a_grant() -> None:
    # ... it opens nothing, but would undo a decision.
    value = Value(Dot(NODES[0], 1), ACCEPTED, 1.0, "", "")
    one = Record("web1", b"", "", (value,), ((NODES[0], 1),))
    other = one._replace(values=(value._replace(state=PENDING),))
    assert merge(one, other).state == merge(other, one).state == ACCEPTED
