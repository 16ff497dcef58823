"""Somebody acts on an id in the middle of our move of its key."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from saltext_ha.common.errors import ReplicaError
from saltext_ha.replication.record import ACCEPTED, DELETED, DENIED, PENDING
from tests.functional.keepers import (
    KEYS,
    Follow,
    Master,
    crowded,
    decided,
    exchange,
    shared,
)

pytestmark = pytest.mark.core


def test_the_same_key_accepted_here_in_the_middle_of_our_move(
    m1: Master, m2: Master, follow: Follow
) -> None:
    decided(m1, m2, PENDING, ACCEPTED)
    m2.store.between = lambda: m2.move("web1", PENDING, ACCEPTED)
    follow(m2, m1.records())
    assert m2.store.between is None
    # Salt's event of an acceptance is a hint like any other.
    m2.keeper.observe(["web1"], by="operator")
    exchange(m1, m2)
    assert m1.files() == m2.files() == {(ACCEPTED, "web1"): KEYS[0]}


def deleted_on_the_way(m1: Master, m2: Master, follow: Follow) -> None:
    """On m1 a key is accepted; m2 does the same, and in that moment it is deleted there."""
    decided(m1, m2, PENDING, ACCEPTED)
    m2.store.between = lambda: m2.file(PENDING, "web1").unlink()
    follow(m2, m1.records())


def test_a_key_deleted_here_in_the_middle_of_our_move(
    m1: Master, m2: Master, follow: Follow
) -> None:
    deleted_on_the_way(m1, m2, follow)
    m2.deletion_told(["web1"])
    exchange(m1, m2)
    assert m1.files() == m2.files() == {}
    assert m1.revoked == m2.revoked == 1


def test_such_a_deletion_is_recorded_when_there_is_room_again(
    m1: Master, m2: Master, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise ReplicaError("the disk is full")

    deleted_on_the_way(m1, m2, follow)
    monkeypatch.setattr(m2.replica.history, "explain", full)
    monkeypatch.setattr(m2.replica, "set_applied", full)
    with pytest.raises(ReplicaError):
        m2.deletion_told(["web1"])
    monkeypatch.undo()
    m2.deletion_told(["web1"])
    exchange(m1, m2)
    assert m1.files() == m2.files() == {}


def test_a_deletion_in_the_middle_of_our_move_means_what_was_refused_too(
    m1: Master, m2: Master
) -> None:
    """The fifth undecided key of an id has no record."""
    crowded(m2)
    m1.knock("web1", 5, ACCEPTED)
    m1.settle()
    m2.store.before = lambda: m2.remove("web1")
    m2.keeper.learn(m1.records())
    m2.deletion_told(["web1"], "root")
    m2.settle()
    exchange(m1, m2)
    assert m1.files() == m2.files() == {}


def replaced(m1: Master, m2: Master, follow: Follow, act: Callable[[], None]) -> None:
    """
    On m1 a denied key took the place of the accepted one; m2 does the same, and in that moment
    somebody does *act* there.
    """
    shared(m1, m2, "web1", key=0)
    m1.knock("web1", 1, DENIED)
    exchange(m1, m2)
    m1.move("web1", DENIED, ACCEPTED)
    m1.scan()
    m2.store.before = act
    follow(m2, m1.records())


def test_an_id_deleted_here_when_another_key_was_about_to_take_its_place(
    m1: Master, m2: Master, follow: Follow
) -> None:
    replaced(m1, m2, follow, lambda: m2.remove("web1"))
    m2.deletion_told(["web1"])
    exchange(m1, m2)
    assert m1.files() == m2.files() == {}
    assert m1.state("web1", 1) == m2.state("web1", 1) == DELETED


def test_that_deletion_does_not_mean_a_key_that_knocked_since(
    m1: Master, m2: Master, follow: Follow
) -> None:
    replaced(m1, m2, follow, lambda: m2.remove("web1"))
    m2.knock("web1", 2, DENIED)
    m2.deletion_told(["web1"])
    exchange(m1, m2)
    assert m1.files() == m2.files() == {(DENIED, "web1"): KEYS[2]}


def test_who_deleted_an_id_and_accepted_it_again_has_the_last_word(
    m1: Master, m2: Master, follow: Follow
) -> None:
    replaced(m1, m2, follow, lambda: m2.remove("web1"))
    # All of it before the engine comes to hear of the first deletion.
    m2.remove("web1")
    m2.knock("web1", 1)
    m2.move("web1", PENDING, ACCEPTED)
    m2.deletion_told(["web1"])
    exchange(m1, m2)
    assert m1.files() == m2.files() == {(ACCEPTED, "web1"): KEYS[1]}


def test_who_deletes_a_denied_key_at_the_same_time_here_deletes_no_other(
    m1: Master, m2: Master, follow: Follow
) -> None:
    shared(m1, m2, "web1")
    m1.knock("web1", 1, DENIED)
    exchange(m1, m2)
    m1.file(DENIED, "web1").unlink()
    m1.scan()
    m2.store.before = lambda: m2.file(DENIED, "web1").unlink()
    follow(m2, m1.records())
    m2.deletion_told(["web1"])
    exchange(m1, m2)
    assert m1.files() == m2.files() == {(ACCEPTED, "web1"): KEYS[0]}


def test_nobody_deletes_a_key_by_an_event_and_a_knock(
    m1: Master, m2: Master, follow: Follow
) -> None:
    replaced(m1, m2, follow, lambda: m2.knock("web1", 2, DENIED))
    m2.deletion_told(["web1"])
    exchange(m1, m2)
    assert m1.file(ACCEPTED, "web1").read_text() == m2.file(ACCEPTED, "web1").read_text() == KEYS[1]


def test_a_key_that_is_denied_meanwhile_makes_no_difference_to_the_last_word(
    m1: Master, m2: Master, follow: Follow
) -> None:
    replaced(m1, m2, follow, lambda: m2.remove("web1"))
    m2.remove("web1")
    m2.knock("web1", 1, ACCEPTED)
    m2.knock("web1", 2, DENIED)
    m2.deletion_told(["web1"])
    exchange(m1, m2)
    assert m1.file(ACCEPTED, "web1").read_text() == KEYS[1]


def test_a_deletion_in_a_race_is_seen_after_another_apply(
    m1: Master, m2: Master, follow: Follow
) -> None:
    replaced(m1, m2, follow, lambda: m2.remove("web1"))
    m1.knock("web1", 2, DENIED)
    m1.scan()
    m2.learn(m1.records())
    m2.deletion_told(["web1"])
    exchange(m1, m2)
    assert m1.files() == m2.files() == {(DENIED, "web1"): KEYS[2]}


def test_a_deletion_after_another_move_is_of_what_that_move_put_there(
    m1: Master, m2: Master
) -> None:
    """What was removed in the middle of the first move says nothing about it."""
    decided(m1, m2, ACCEPTED, DELETED)
    m2.store.before = lambda: m2.remove("web1")
    m2.keeper.learn(m1.records())
    m1.knock("web1")
    m1.scan()
    m2.keeper.learn(m1.records())
    assert m2.files() == {(PENDING, "web1"): KEYS[0]}
    m2.remove("web1")
    m2.deletion_told(["web1"])
    m2.settle()
    assert m2.state("web1") == DELETED
    assert m2.files() == {}


def test_a_key_accepted_here_in_the_middle_of_our_move_replaces_no_other(
    m1: Master, m2: Master, follow: Follow
) -> None:
    m1.knock("web1", 0, ACCEPTED)
    m1.scan()
    m2.knock("web1", 1)
    m2.scan()
    # The operator saw a pending key, and not the one that is just being accepted.
    m2.store.between = lambda: m2.move("web1", PENDING, ACCEPTED)
    follow(m2, m1.records())
    m2.keeper.observe(["web1"], by="operator")
    exchange(m1, m2)
    assert m1.state("web1", 0) == m1.state("web1", 1) == ACCEPTED
    assert m1.replica.conflicts() == m2.replica.conflicts() == ["web1"]
    assert m1.file(ACCEPTED, "web1").read_text() == KEYS[0]


def test_an_accepted_key_never_shares_its_file_with_one_that_salt_writes_in_place(
    m1: Master, m2: Master, follow: Follow
) -> None:
    shared(m1, m2, "web1", key=1)
    m1.knock("web1", 0, DENIED)
    exchange(m1, m2)
    # As salt-key --include-denied: the denied key replaces the accepted one.
    m1.move("web1", DENIED, ACCEPTED)
    m1.scan()
    # Salt 3006 writes a denied key into the file that is there.
    m2.store.between = lambda: m2.knock("web1", 2, DENIED)
    follow(m2, m1.records())
    assert m2.file(ACCEPTED, "web1").read_text() == KEYS[0]
