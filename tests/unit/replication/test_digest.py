"""The digest tree finds exactly what differs between two sets."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saltext_ha.common.errors import InvalidRecord
from saltext_ha.replication.digest import BUCKETS, FANOUT, DigestTree, bucket_of
from saltext_ha.sync.antientropy import differing

pytestmark = pytest.mark.core

Item = tuple[int, bytes]
numbers = st.sets(st.integers(0, 400), max_size=60)


def item(number: int) -> Item:
    # Few buckets, so that some hold several items.
    bucket = (number % 50) * 1237 % BUCKETS
    return bucket, hashlib.blake2b(str(number).encode(), digest_size=16).digest()


def found(one: DigestTree, other: DigestTree) -> set[int]:
    return {
        branch * FANOUT + position
        for branch in differing(one.children(), other.children())
        for position in differing(one.children(branch), other.children(branch))
    }


@settings(max_examples=30)
@given(numbers, numbers)
def test_walking_two_trees_finds_the_difference_of_the_sets(one: set[int], two: set[int]) -> None:
    a, b = (DigestTree(map(item, sorted(side))) for side in (one, two))
    assert found(a, b) == {item(number)[0] for number in one ^ two}
    assert (a.root == b.root) == (one == two)


@settings(max_examples=20)
@given(numbers, st.lists(st.integers(0, 400), max_size=30))
def test_toggling_gives_the_tree_of_what_is_left(begin: set[int], toggled: list[int]) -> None:
    tree = DigestTree(map(item, begin))
    left = set(begin)
    for number in toggled:
        tree.toggle(*item(number))
        left ^= {number}
    fresh = DigestTree(map(item, left))
    assert tree.root == fresh.root
    assert tree.children() == fresh.children()
    for branch in {item(number)[0] // FANOUT for number in {*begin, *toggled}}:
        assert tree.children(branch) == fresh.children(branch)


def test_an_empty_tree_is_all_zero() -> None:
    assert DigestTree().root == bytes(16)
    assert DigestTree().children() == bytes(FANOUT * 8)


def test_buckets_are_the_same_on_every_master_and_spread() -> None:
    # Fixed on purpose: another function would make every record differ between two releases.
    assert (bucket_of("web1"), bucket_of("büro")) == (16335, 44684)
    used = {bucket_of(f"minion{n}") for n in range(5000)}
    assert len(used) > 4500
    assert all(0 <= bucket < BUCKETS for bucket in used)


@pytest.mark.parametrize("length", [0, 8, FANOUT * 8 - 1, FANOUT * 16])
def test_an_answer_of_the_wrong_length_is_refused(length: int) -> None:
    with pytest.raises(InvalidRecord, match=f"{FANOUT * 8} bytes were expected"):
        differing(DigestTree().children(), bytes(length))
