"""What is current of a tree merges as a key's record does."""

from __future__ import annotations

import itertools
from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import given

from saltext_ha.replication import deployment
from saltext_ha.replication.deployment import (
    KEPT,
    MOST_NUMBER,
    Entry,
    Register,
)
from saltext_ha.replication.record import Dot
from saltext_ha.replication.register import MOST_VALUES
from saltext_ha.replication.vouching import MOST_OF_ONE, MOST_UNKNOWN
from saltext_ha.trees import registers

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
            masters[one] = masters[one].merged(masters[other])
    return masters


@given(groups())
def test_merge_is_commutative_associative_and_idempotent(masters: list[Register]) -> None:
    one, two, three = masters
    assert one.merged(two) == two.merged(one)
    assert one.merged(two).merged(three) == one.merged(two.merged(three))
    assert one.merged(one) == one
    assert one.merged(two).merged(two) == one.merged(two)


@given(groups(), st.integers(0, 4))
def test_who_knows_all_ends_every_conflict(masters: list[Register], version: int) -> None:
    whole = masters[0].merged(masters[1]).merged(masters[2])
    after = deploy(whole, NODES[0], entry(version))
    for master in masters:
        assert master.merged(after) == after
    assert after.current is not None
    assert after.current.version == entry(version).version
    assert not after.conflict
    numbers = [kept.number for kept in after.current.kept]
    assert len(numbers) <= KEPT
    assert numbers[0] > max([kept.number for kept in whole.entries], default=0)


@given(groups())
def test_it_travels_as_it_is(masters: list[Register]) -> None:
    for master in masters:
        assert registers.from_rows(registers.to_rows(master)) == master
        assert (master.digest == Register().digest) == (master == Register())


def test_different_versions_side_by_side_are_a_conflict() -> None:
    first = deploy(Register(), NODES[0], entry(1))
    one, two = deploy(first, NODES[1], entry(2)), deploy(first, NODES[2], entry(3))
    both = one.merged(two)
    assert both.conflict
    assert both.current is None
    assert {kept.version[0] for kept in both.entries} == {1, 2, 3}


def test_the_same_version_side_by_side_is_none() -> None:
    one, two = deploy(Register(), NODES[1], entry(2)), deploy(Register(), NODES[2], entry(2))
    both = one.merged(two)
    assert not both.conflict
    assert both.current is not None


def test_deployments_of_the_same_version_do_not_use_up_the_way_back() -> None:
    """As of cron, each time that somebody has edited what is live."""
    register = Register()
    for version in (1, 2, 3, 2, *[4] * 9):
        register = deploy(register, NODES[0], entry(version))
    assert [(kept.number, kept.version[0]) for kept in register.entries] == [
        (13, 4),
        (12, 4),
        (4, 2),
        (3, 3),
        (1, 1),
    ]
    for version in (5, 6, 7):
        register = deploy(register, NODES[0], entry(version))
    assert [kept.version[0] for kept in register.entries] == [7, 6, 5, 4, 2]


def test_a_forged_write_makes_nothing_vanish() -> None:
    one = deploy(Register(), NODES[0], entry(1))
    forged = Register((one.values[0]._replace(kept=(entry(2)._replace(number=1),)),), one.context)
    assert one.merged(forged) == forged.merged(one)
    assert one.merged(forged).current is not None


def test_what_a_master_has_yet_to_write_is_claimed_by_nobody() -> None:
    first = deploy(Register(), NODES[0], entry(1))
    high = first.values[0].dot.counter
    claimed = Register(first.values, ((NODES[0], 2**40),))
    counts, reason = claimed.sifted(Register(), {NODES[0]: high}, {})
    assert str(2**40) in reason
    later = deploy(first, NODES[0], entry(2))
    assert counts.merged(later).current == later.current
    # Of one that was not met yet it is believed, until it is met.
    counts, reason = claimed.sifted(Register(), {}, {})
    assert not reason
    assert counts.merged(later).conflict
    assert counts.disclaimed({NODES[0]: high}).merged(later).current == later.current


def test_names_of_writers_are_bounded_and_no_deployment_is_lost_to_them() -> None:
    mine = deploy(Register(), NODES[0], entry(1))
    for part in range(3):
        names = tuple((f"{part:08x}{number:08x}", 1) for number in range(MOST_OF_ONE))
        crowded = Register(mine.values, tuple(sorted((*mine.context, *names))))
        counts, reason = crowded.sifted(mine, {}, {NODES[0]: b"one"})
        assert reason
        mine = mine.merged(counts)
    assert len(mine.context) <= MOST_UNKNOWN
    after = deploy(mine, NODES[1], entry(2))
    assert Register().merged(after.sifted(Register(), {}, {})[0]).current == after.current


def test_two_that_claim_to_have_replaced_each_other_leave_both() -> None:
    one, two = deploy(Register(), NODES[0], entry(1)), deploy(Register(), NODES[1], entry(2))
    both = tuple(sorted((*one.context, *two.context)))
    one, two = replace(one, context=both), replace(two, context=both)
    assert one.merged(two) == two.merged(one)
    assert one.merged(two).conflict
    assert one.merged(two).values == (*one.values, *two.values)


def test_more_than_there_can_be_side_by_side() -> None:
    register = Register()
    for number in range(MOST_VALUES + 3):
        register = register.merged(deploy(Register(), f"{number:016x}", entry(number)))
    assert len(register.values) == MOST_VALUES
    assert registers.from_rows(registers.to_rows(register)) == register


def test_numbers_that_are_used_up_begin_anew() -> None:
    last = deploy(Register(), NODES[0], entry(1)._replace(number=MOST_NUMBER))
    (value,) = last.values
    last = replace(last, values=(value._replace(kept=(entry(1)._replace(number=MOST_NUMBER),)),))
    after = deploy(last, NODES[1], entry(2))
    assert after.current is not None
    assert after.current.entry.number == 1
    assert [kept.version[0] for kept in after.entries] == [2, 1], "the newest first"
    assert registers.from_rows(registers.to_rows(after)) == after
