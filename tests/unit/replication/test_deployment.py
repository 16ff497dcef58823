"""What is current of a tree merges as a key's record does."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from saltext_ha.replication import deployment
from saltext_ha.replication.deployment import KEPT, Entry, Register, deploy, merge
from saltext_ha.trees import register_rows

NODES = ("a" * 16, "b" * 16, "c" * 16)


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
