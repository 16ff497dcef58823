"""A keeper that brings its key store to what a peer decided in the moment in which it hears it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from saltext_ha.errors import StoreError
from saltext_ha.keystore.base import Change, Outcome
from saltext_ha.replication.record import ACCEPTED, DELETED, PENDING, REJECTED
from tests.functional.keepers import KEYS, Master, exchange, shared, wipe

pytestmark = pytest.mark.core

JUNK = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"


def test_it_is_in_the_store_and_nothing_is_left_to_do(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1", "web2")
    m1.move("web1", ACCEPTED, REJECTED)
    m1.knock("web3", 3, ACCEPTED)
    m1.scan()
    assert m2.keeper.learn(m1.records()).learned == 2
    assert m2.files() == m1.files()
    assert m2.replica.dirty() == []
    assert m2.revoked == 0, "that is done once, when all has been learned"
    m2.keeper.apply()
    assert m2.revoked == 1


def test_each_entry_is_looked_at_before_and_after(
    m1: Master, m2: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    read = m2.store.read

    def count(minion_id: str, certain: bool = False) -> object:
        looks.append(minion_id)
        return read(minion_id, certain)

    m1.knock("web1", 1, ACCEPTED)
    m1.scan()
    monkeypatch.setattr(m2.store, "read", count)
    m2.keeper.learn(m1.records())
    m2.keeper.apply()
    assert m2.files() == m1.files()
    assert looks == ["web1", "web1"]


def test_whoever_decided_here_before_is_heard_first(m1: Master, m2: Master) -> None:
    m1.knock("web1")
    exchange(m1, m2)
    m1.move("web1", PENDING, ACCEPTED)
    m1.scan()
    m2.move("web1", PENDING, REJECTED)
    seen = m2.keeper.learn(m1.records()).seen
    assert [record.state for record in seen.records] == [REJECTED]
    exchange(m1, m2)
    assert m1.files() == m2.files() == {(REJECTED, "web1"): KEYS[0]}


def test_a_deletion_that_is_not_certain_yet_is_waited_for(m1: Master, m2: Master) -> None:
    m1.knock("web1")
    exchange(m1, m2)
    m1.move("web1", PENDING, ACCEPTED)
    m1.scan()
    m2.remove("web1")
    seen = m2.keeper.learn(m1.records()).seen
    assert seen.unsettled == ["web1"]
    assert m2.files() == {}
    m2.keeper.observe(seen.unsettled, certain=True)
    exchange(m1, m2)
    assert m1.files() == m2.files() == {}
    assert m1.state("web1") == DELETED


def test_an_entry_beside_the_one_that_counts_is_not_overwritten_unseen(
    m1: Master, m2: Master
) -> None:
    """Salt reads the rejected one first, so the other has never been recorded."""
    shared(m1, m2, "web1")
    m1.move("web1", ACCEPTED, REJECTED)
    exchange(m1, m2)
    m2.knock("web1", 1, ACCEPTED)
    m2.scan()
    m1.move("web1", REJECTED, ACCEPTED)
    m1.scan()
    m2.keeper.learn(m1.records())
    assert m2.file(ACCEPTED, "web1").read_text() == KEYS[1]


def test_what_is_no_key_is_taken_away_first(m1: Master, m2: Master) -> None:
    junk = m2.file(PENDING, "web1")
    junk.write_text(JUNK)
    os.utime(junk, (1, 1))
    m2.scan()
    m1.knock("web1", 0, ACCEPTED)
    m1.scan()
    m2.keeper.learn(m1.records())
    assert m2.files() == {(PENDING, "web1"): JUNK}
    m2.keeper.apply()
    assert m2.files() == {(ACCEPTED, "web1"): KEYS[0]}


def test_a_store_that_is_another_one_is_not_written(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1")
    wipe(m2)
    m1.knock("web2", 2, ACCEPTED)
    m1.scan()
    m2.keeper.learn(m1.records())
    assert m2.files() == {}
    assert m2.keeper.holds.doubt


def test_what_is_still_to_be_done_is_done_with_what_it_was_known_for(
    m1: Master, m2: Master
) -> None:
    """An apply began it; what the store shows may be our own doing, of whichever of the two."""
    shared(m1, m2, "web1")
    m1.move("web1", ACCEPTED, REJECTED)
    m1.scan()
    m2.keeper.merge(m1.records())
    m1.move("web1", REJECTED, ACCEPTED)
    m1.scan()
    m2.keeper.learn(m1.records())
    assert m2.replica.dirty() == ["web1"]
    m2.keeper.apply()
    assert m2.replica.dirty() == []
    assert m2.files() == {(ACCEPTED, "web1"): KEYS[0]}


def test_a_store_that_fails_is_tried_once_and_the_rest_is_learned(
    m1: Master, m2: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []

    def fail(changes: Sequence[Change]) -> Outcome:
        tries.append(len(changes))
        raise StoreError("the disk is full")

    many = [f"db{number}" for number in range(501)]
    for minion_id in many:
        m1.knock(minion_id, 0, ACCEPTED)
    m1.scan()
    monkeypatch.setattr(m2.store, "apply", fail)
    assert m2.keeper.learn(m1.records()).learned == len(many)
    assert tries == [500]
    with pytest.raises(StoreError, match="the disk is full"):
        m2.keeper.apply()
    monkeypatch.undo()
    # Nothing had been written: what stands there now is somebody's doing.
    m2.knock("db0", 0, REJECTED)
    m2.settle()
    exchange(m1, m2)
    assert m1.files() == m2.files()
    assert m2.file(REJECTED, "db0").exists()
    assert len(m2.files()) == len(many)


def test_an_older_copy_of_the_store_is_taken_in_first(
    m1: Master, m2: Master, tmp_path: Path
) -> None:
    shared(m1, m2, "web1")
    shutil.copytree(m2.root / "minions", tmp_path / "backup", symlinks=True)
    m2.keeper.holds.provenance.sign()
    shutil.rmtree(m2.root / "minions")
    shutil.move(tmp_path / "backup", m2.root / "minions")
    m2.file(ACCEPTED, "web1").write_text("")
    m1.move("web1", ACCEPTED, REJECTED)
    m1.scan()
    m2.keeper.learn(m1.records())
    assert m2.files() == {(ACCEPTED, "web1"): ""}, "nobody knows what stands there"
    m2.knock("web1", 0, ACCEPTED)
    exchange(m1, m2)
    assert m1.files() == m2.files() == {(REJECTED, "web1"): KEYS[0]}
