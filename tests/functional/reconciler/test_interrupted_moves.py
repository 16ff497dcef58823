"""Moves that a crash or a full disk interrupts, and what somebody does before they are finished."""

from __future__ import annotations

import pytest

from saltext_ha.common.errors import StoreError
from saltext_ha.replication.record import ACCEPTED, DELETED, PENDING, REJECTED
from tests.functional.keepers import (
    KEYS,
    Crash,
    Follow,
    Master,
    decided,
    exchange,
    shared,
)

pytestmark = pytest.mark.core


@pytest.mark.parametrize("steps", range(3))
@pytest.mark.parametrize("end", [REJECTED, DELETED, PENDING])
def test_a_move_is_finished_after_a_crash_in_its_middle(
    m1: Master, m2: Master, follow: Follow, end: str, steps: int
) -> None:
    shared(m1, m2, "web1")
    m1.remove("web1")
    if end != DELETED:
        m1.knock("web1", 0, end)
    m1.scan()
    m2.store.fuse = steps
    # A deletion takes one step only; with fuse to spare nothing strikes.
    struck = steps < (1 if end == DELETED else 2)
    if struck:
        with pytest.raises(Crash):
            follow(m2, m1.records())
        assert m2.revoked == 0
    else:
        follow(m2, m1.records())
    counter = m2.replica.counter
    m2.restart()
    m2.settle()
    assert m2.files() == m1.files()
    assert m2.revoked == 1
    assert m2.replica.counter == counter, "our own move was taken for somebody's"
    assert m2.replica.dirty() == []


def test_a_move_that_was_whole_when_the_crash_came_is_our_own(m1: Master, m2: Master) -> None:
    """All of it is in the store, and the journal still has it."""
    decided(m1, m2, ACCEPTED, REJECTED)
    m2.store.crash_after = True
    with pytest.raises(Crash):
        m2.keeper.learn(m1.records())
    assert m2.files() == m1.files()
    counter = m2.replica.counter
    m2.restart()
    m2.settle()
    assert m2.revoked == 1
    assert m2.replica.counter == counter, "our own move was taken for somebody's"
    assert m2.replica.applied("web1").stored.state == REJECTED
    assert m2.replica.dirty() == []


def test_what_an_earlier_move_left_is_our_own(m1: Master, m2: Master) -> None:
    """A crash after the first step of a move, and another before the first step of the next."""
    decided(m1, m2, ACCEPTED, REJECTED)
    m2.store.fuse = 1
    with pytest.raises(Crash):
        m2.keeper.learn(m1.records())
    m2.restart()
    m1.remove("web1")
    m1.scan()
    m1.knock("web1")
    m1.scan()
    m2.store.fuse = 0
    with pytest.raises(Crash):
        m2.keeper.learn(m1.records())
    m2.restart()
    counter = m2.replica.counter
    m2.settle()
    assert m2.replica.counter == counter, "our own move was taken for somebody's"
    assert m1.files() == m2.files() == {(PENDING, "web1"): KEYS[0]}


@pytest.mark.parametrize("knocked", [False, True])
def test_keys_that_we_removed_before_a_crash_are_not_held(
    m1: Master, m2: Master, knocked: bool
) -> None:
    ids = [f"web{number}" for number in range(3)]
    shared(m1, m2, *ids)
    for minion_id in ids:
        m1.remove(minion_id)
    m1.scan()
    if knocked:
        for minion_id in ids:
            m1.knock(minion_id)
        m1.scan()
    m2.store.crash_after = True
    with pytest.raises(Crash):
        m2.keeper.learn(m1.records())
    m2.minimum = 0
    m2.restart()
    m2.settle()
    assert m2.replica.held.all() == {}
    assert m2.replica.dirty() == []
    assert m2.files() == m1.files()
    assert m2.revoked == 1


def test_an_operator_who_acts_in_the_middle_of_our_move_is_heard(
    m1: Master, m2: Master, follow: Follow
) -> None:
    decided(m1, m2, ACCEPTED, REJECTED)
    m2.store.fuse = 1
    with pytest.raises(Crash):
        follow(m2, m1.records())
    m2.remove("web1")
    m2.restart()
    exchange(m1, m2)
    assert m1.files() == m2.files()
    assert ACCEPTED not in {state for state, _ in m1.files()}


def test_a_store_that_cannot_be_written_is_tried_again(
    m1: Master, m2: Master, follow: Follow
) -> None:
    decided(m1, m2, ACCEPTED, REJECTED)
    folder = m2.root / "minions_rejected"

    def be_in_the_way() -> None:
        folder.rmdir()
        folder.write_text("in the way")

    m2.store.before = be_in_the_way
    with pytest.raises(StoreError):
        follow(m2, m1.records())
    assert m2.file(ACCEPTED, "web1").exists()
    folder.unlink()
    m2.settle()
    assert m2.files() == {(REJECTED, "web1"): KEYS[0]}
    assert m2.revoked == 1


def test_a_key_that_was_put_there_before_a_crash_and_deleted_after_it(
    m1: Master, m2: Master, follow: Follow
) -> None:
    """The apply ended before its end was written down; then the minion knocked again."""
    m1.knock("web1", 0, ACCEPTED)
    m1.scan()
    m2.store.crash_after = True
    with pytest.raises(Crash):
        follow(m2, m1.records())
    assert m2.files() == {(ACCEPTED, "web1"): KEYS[0]}
    m2.remove("web1")
    m2.knock("web1", 0)
    m2.restart()
    m2.settle()
    exchange(m1, m2)
    assert m1.files() == m2.files() == {(PENDING, "web1"): KEYS[0]}


def test_a_knock_while_the_store_could_not_be_written(
    m1: Master, m2: Master, follow: Follow
) -> None:
    m1.knock("web1", 0, ACCEPTED)
    m1.scan()
    m2.store.broken = True
    with pytest.raises(StoreError):
        follow(m2, m1.records())
    m2.store.broken = False
    m2.knock("web1", 0)
    m2.settle()
    exchange(m1, m2)
    assert m1.files() == m2.files() == {(ACCEPTED, "web1"): KEYS[0]}
