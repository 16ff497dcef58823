"""Tombstones that are dropped, and old copies of a replica that still know better, or worse."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from saltext_ha.reconciler.dropping import Dropping
from saltext_ha.replication.record import ACCEPTED, DELETED, PENDING, REJECTED, record_digest
from tests.functional.keepers import KEYS, PRINTS, Master, exchange, shared

pytestmark = pytest.mark.core


@pytest.fixture
def m3(tmp_path: Path) -> Master:
    return Master(tmp_path, "m3")


def level(*masters: Master) -> None:
    for _ in range(2):
        for one in masters:
            for other in masters:
                if one is not other:
                    exchange(one, other)
    assert len({master.replica.records.root for master in masters}) == 1


def drop(*masters: Master) -> None:
    """What the group does when all are level."""
    first = masters[0]
    keys = [(r.minion_id, r.fingerprint) for r in first.records() if r.state == DELETED]
    root = first.replica.records.root
    dropping = Dropping(keys, first.replica.nodes.seen(), first.replica.dropped.epoch + 1)
    for master in masters:
        assert master.keeper.tombstones.drop(root, dropping)


def meet(one: Master, other: Master) -> None:
    """Two rounds of anti-entropy, with what is told about dropped records."""
    for source, target in ((one, other), (other, one)) * 2:
        source.scan()
        merged = target.hear(source.records())
        target.look_again()
        target.settle()
        told = {(r.minion_id, r.fingerprint): record_digest(r) for r in merged.dropped}
        source.keeper.tombstones.dropped_elsewhere(told)
        source.settle()


def snapshot(master: Master) -> Path:
    """The master as a virtual machine's snapshot has it."""
    master.replica.close()
    copy = master.root.with_name("snapshot")
    shutil.copytree(master.root, copy, symlinks=True)
    master.open()
    return copy


def revert(master: Master, copy: Path) -> None:
    master.replica.close()
    shutil.rmtree(master.root)
    copy.rename(master.root)
    master.open()
    master.replica.take_node()


def test_all_drop_a_tombstone_and_stay_level(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1", "web2")
    m1.remove("web1")
    level(m1, m2)
    drop(m1, m2)
    assert [r.minion_id for r in m1.records()] == ["web2"]
    level(m1, m2)
    assert m1.replica.dropped.epoch == m2.replica.dropped.epoch == 1


def test_nothing_is_dropped_where_something_else_is_known(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1")
    m1.remove("web1")
    level(m1, m2)
    root = m1.replica.records.root
    m2.knock("web2", 1)
    m2.scan()
    dropping = Dropping([("web1", PRINTS[0])], m1.replica.nodes.seen(), 1)
    assert not m2.keeper.tombstones.drop(root, dropping)
    assert m2.state("web1") == DELETED
    assert m2.replica.dropped.horizon() == {}


def test_who_was_not_told_drops_it_on_the_next_meeting(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1")
    m1.remove("web1")
    level(m1, m2)
    drop(m1)
    meet(m1, m2)
    assert m1.records() == m2.records() == []


def test_a_tombstone_is_kept_while_its_key_is_still_in_the_store(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1")
    m2.keeper.mode.shared = "tried"
    m1.remove("web1")
    exchange(m1, m2)
    assert m2.file(ACCEPTED, "web1").exists()
    drop(m1, m2)
    assert m2.state("web1") == DELETED
    m2.keeper.mode.shared = ""
    meet(m1, m2)
    assert m1.files() == m2.files() == {}
    meet(m1, m2)
    assert m1.records() == m2.records() == []


def test_a_minion_may_knock_again_after_its_tombstone_was_dropped(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1")
    m1.remove("web1")
    level(m1, m2)
    drop(m1, m2)
    m1.knock("web1")
    meet(m1, m2)
    assert m2.files() == {(PENDING, "web1"): KEYS[0]}
    m2.move("web1", PENDING, ACCEPTED)
    meet(m1, m2)
    assert m1.files() == {(ACCEPTED, "web1"): KEYS[0]}


def miss_the_dropping(m1: Master, m2: Master) -> None:
    """web1 is deleted and dropped on both; then m2 is its snapshot from before."""
    level(m1, m2)
    copy = snapshot(m2)
    m1.remove("web1")
    level(m1, m2)
    drop(m1, m2)
    revert(m2, copy)


def test_a_snapshot_from_before_the_deletion_brings_nothing_back(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1", "web2")
    miss_the_dropping(m1, m2)
    m2.settle()
    assert m2.file(ACCEPTED, "web1").exists()
    meet(m1, m2)
    assert m1.files() == m2.files() == {(ACCEPTED, "web2"): KEYS[0]}
    assert m2.revoked > 0
    meet(m1, m2)
    level(m1, m2)


def test_what_a_reverted_master_decides_anew_counts(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1")
    miss_the_dropping(m1, m2)
    # An operator accepts, on the reverted master, what the others have not heard of.
    m2.knock("new", 1, ACCEPTED)
    meet(m1, m2)
    assert m1.files() == m2.files() == {(ACCEPTED, "new"): KEYS[1]}


def test_a_new_master_takes_everything_and_says_nothing_was_dropped(
    m1: Master, m2: Master, m3: Master
) -> None:
    shared(m1, m2, "web1", "web2")
    m1.remove("web1")
    level(m1, m2)
    drop(m1, m2)
    meet(m3, m1)
    assert m3.files() == m1.files() == {(ACCEPTED, "web2"): KEYS[0]}
    m3.replica.close()


def test_a_removed_master_that_comes_back_after_months(m1: Master, m2: Master, m3: Master) -> None:
    shared(m1, m2, "web1", "web2")
    level(m1, m2, m3)
    m1.remove("web1")
    level(m1, m2)
    drop(m1, m2)
    meet(m3, m1)
    level(m1, m2, m3)
    assert m1.files() == m2.files() == m3.files() == {(ACCEPTED, "web2"): KEYS[0]}
    m3.replica.close()


def test_a_record_that_changed_since_it_was_offered_is_not_dropped(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1")
    m1.remove("web1")
    level(m1, m2)
    record = m2.records()[0]
    told = {("web1", record.fingerprint): record_digest(record)}
    m2.knock("web1")
    m2.scan()
    assert m2.keeper.tombstones.dropped_elsewhere(told) == []
    assert m2.state("web1") == PENDING


@pytest.mark.parametrize("first", ["the one that dropped it", "the one that has it"])
def test_a_key_accepted_again_counts_against_a_tombstone_that_others_still_have(
    m1: Master, m2: Master, m3: Master, first: str
) -> None:
    shared(m1, m2, "web1")
    level(m1, m2, m3)
    m3.remove("web1")
    level(m1, m2, m3)
    drop(m1, m2)  # m3 was just busy with another minion
    m1.knock("web1")
    m1.scan()
    m1.move("web1", PENDING, ACCEPTED)
    m1.scan()
    meet(*((m1, m3) if first == "the one that dropped it" else (m3, m1)))
    level(m1, m2, m3)
    assert m1.files() == m2.files() == m3.files() == {(ACCEPTED, "web1"): KEYS[0]}
    m3.replica.close()


def test_what_only_the_one_that_is_told_has_seen_is_within_its_horizon(
    m1: Master, m2: Master
) -> None:
    shared(m1, m2, "web1")
    level(m1, m2)
    # The other replica was rebuilt since, and remembers less.
    assert m2.keeper.tombstones.drop(m2.replica.records.root, Dropping([], {}, 1))
    assert m2.replica.dropped.horizon() == m2.replica.nodes.seen() != {}


def test_what_others_missed_of_a_removed_master_counts_where_nothing_else_is_left(
    m1: Master, m2: Master, m3: Master
) -> None:
    shared(m1, m2, "web1", "web2", "web3")
    level(m1, m2, m3)
    # m3 rejects two, and is removed; the word of one of them never came through.
    m3.move("web1", ACCEPTED, REJECTED)
    m3.scan()
    m3.move("web2", ACCEPTED, REJECTED)
    m3.scan()
    m1.learn([record for record in m3.records() if record.minion_id == "web2"])
    m1.remove("web3")
    level(m1, m2)
    drop(m1, m2)
    # It joins again.
    meet(m3, m1)
    level(m1, m2, m3)
    assert m1.files() == m2.files() == m3.files()
    assert (REJECTED, "web1") in m1.files()
    assert all(record.values for record in m1.records())
    m3.replica.close()


def test_the_horizon_survives_a_restart(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1")
    m1.remove("web1")
    level(m1, m2)
    drop(m1, m2)
    horizon = m1.replica.dropped.horizon()
    assert horizon
    m1.restart()
    assert (m1.replica.dropped.horizon(), m1.replica.dropped.epoch) == (horizon, 1)
