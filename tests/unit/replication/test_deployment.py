"""What is current of a tree merges as a key's record does."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
from hypothesis import given

from saltext_ha.replication import deployment
from saltext_ha.replication.deployment import (
    KEPT,
    MOST_NUMBER,
    Entry,
    Register,
    disclaimed,
    merge,
    sifted,
)
from saltext_ha.replication.record import Dot
from saltext_ha.replication.register import MOST_VALUES
from saltext_ha.replication.vouching import MOST_OF_ONE, MOST_UNKNOWN
from saltext_ha.trees import register_rows

NODES = ("a" * 16, "b" * 16, "c" * 16)
NUMBERS = itertools.count(1)


def deploy(register: Register, node: str, what: Entry) -> Register:
    """By a master that gives each write a name of its own."""
    return deployment.deploy(register, Dot(node, next(NUMBERS)), what)


def entry(version: int) -> Entry:
    return Entry(0, bytes([version]) * 32, 1.7e9, "root", "m1", "/srv", "", 1, 1)


@st.composite
def groups(draw: st.DrawFn) -> list[Register]:
    """Three masters that deployed, and heard of each other, in any order."""
    masters = [Register()] * 3
    for _ in range(draw(st.integers(0, 12))):
        one, other = draw(st.integers(0, 2)), draw(st.integers(0, 2))
        if one == other:
            masters[one] = deploy(masters[one], NODES[one], entry(draw(st.integers(0, 4))))
        else:
            masters[one] = merge(masters[one], masters[other])
    return masters


@given(groups())
def test_merge_is_commutative_associative_and_idempotent(masters: list[Register]) -> None:
    one, two, three = masters
    assert merge(one, two) == merge(two, one)
    assert merge(merge(one, two), three) == merge(one, merge(two, three))
    assert merge(one, one) == one
    assert merge(merge(one, two), two) == merge(one, two)


@given(groups(), st.integers(0, 4))
def test_who_knows_all_ends_every_conflict(masters: list[Register], version: int) -> None:
    whole = merge(merge(masters[0], masters[1]), masters[2])
    after = deploy(whole, NODES[0], entry(version))
    for master in masters:
        assert merge(master, after) == after
    assert after.current is not None
    assert after.current.version == entry(version).version
    assert not after.conflict
    numbers = [kept.number for kept in after.current.kept]
    assert len(numbers) <= KEPT
    assert numbers[0] > max([kept.number for kept in whole.entries], default=0)


@given(groups())
def test_it_travels_as_it_is(masters: list[Register]) -> None:
    for master in masters:
        assert register_rows.unpack(register_rows.pack(master)) == master
        assert (master.digest == Register().digest) == (master == Register())


def test_different_versions_side_by_side_are_a_conflict() -> None:
    first = deploy(Register(), NODES[0], entry(1))
    one, two = deploy(first, NODES[1], entry(2)), deploy(first, NODES[2], entry(3))
    both = merge(one, two)
    assert both.conflict
    assert both.current is None
    assert {kept.version[0] for kept in both.entries} == {1, 2, 3}


def test_the_same_version_side_by_side_is_none() -> None:
    one, two = deploy(Register(), NODES[1], entry(2)), deploy(Register(), NODES[2], entry(2))
    both = merge(one, two)
    assert not both.conflict
    assert both.current is not None


def test_a_forged_write_makes_nothing_vanish() -> None:
    one = deploy(Register(), NODES[0], entry(1))
    forged = Register((one.values[0]._replace(kept=(entry(2)._replace(number=1),)),), one.context)
    assert merge(one, forged) == merge(forged, one)
    assert deployment.merge(one, forged).current is not None


def test_what_a_master_has_yet_to_write_is_claimed_by_nobody() -> None:
    first = deploy(Register(), NODES[0], entry(1))
    high = first.values[0].dot.counter
    claimed = Register(first.values, ((NODES[0], 2**40),))
    counts, reason = sifted(claimed, Register(), {NODES[0]: high}, {})
    assert str(2**40) in reason
    later = deploy(first, NODES[0], entry(2))
    assert merge(counts, later).current == later.current
    # Of one that was not met yet it is believed, until it is met.
    counts, reason = sifted(claimed, Register(), {}, {})
    assert not reason
    assert merge(counts, later).conflict
    assert merge(disclaimed(counts, {NODES[0]: high}), later).current == later.current


def test_names_of_writers_are_bounded_and_no_deployment_is_lost_to_them() -> None:
    mine = deploy(Register(), NODES[0], entry(1))
    for part in range(3):
        names = tuple((f"{part:08x}{number:08x}", 1) for number in range(MOST_OF_ONE))
        crowded = Register(mine.values, tuple(sorted((*mine.context, *names))))
        counts, reason = sifted(crowded, mine, {}, {NODES[0]: b"one"})
        assert reason
        mine = merge(mine, counts)
    assert len(mine.context) <= MOST_UNKNOWN
    after = deploy(mine, NODES[1], entry(2))
    assert merge(Register(), sifted(after, Register(), {}, {})[0]).current == after.current


def test_two_that_claim_to_have_replaced_each_other_leave_both() -> None:
    one, two = deploy(Register(), NODES[0], entry(1)), deploy(Register(), NODES[1], entry(2))
    both = tuple(sorted((*one.context, *two.context)))
    one, two = one._replace(context=both), two._replace(context=both)
    assert merge(one, two) == merge(two, one)
    assert merge(one, two).conflict
    assert merge(one, two).values == (*one.values, *two.values)


def test_more_than_there_can_be_side_by_side() -> None:
    register = Register()
    for number in range(MOST_VALUES + 3):
        register = merge(register, deploy(Register(), f"{number:016x}", entry(number)))
    assert len(register.values) == MOST_VALUES
    assert register_rows.unpack(register_rows.pack(register)) == register


def test_numbers_that_are_used_up_begin_anew() -> None:
    last = deploy(Register(), NODES[0], entry(1)._replace(number=MOST_NUMBER))
    (value,) = last.values
    last = last._replace(values=(value._replace(kept=(entry(1)._replace(number=MOST_NUMBER),)),))
    after = deploy(last, NODES[1], entry(2))
    assert after.current is not None
    assert after.current.entry.number == 1
    assert [kept.version[0] for kept in after.entries] == [2, 1], "the newest first"
    assert register_rows.from_rows(register_rows.to_rows(after)) == after
