"""Entries of key folders that are refused: junk, half a key, too many keys, a blocked path."""

from __future__ import annotations

import errno
import os
from itertools import product

import pytest

from saltext_ha.keystore import reading
from saltext_ha.reconciler.refused import MAX_UNDECIDED
from saltext_ha.replication.record import ACCEPTED, DELETED, DENIED, PENDING, REJECTED
from tests.functional.keepers import (
    KEYS,
    Follow,
    Master,
    exchange,
    shared,
)
from tests.keys import JUNK

pytestmark = pytest.mark.core


def test_what_is_no_minion_key_is_left_where_it_is(m1: Master, m2: Master) -> None:
    accepted = m1.root / "minions"
    outside = m1.root / "outside"
    outside.write_text(KEYS[0])
    (accepted / "link").symlink_to(outside)
    (accepted / "folder").mkdir()
    (accepted / ".key_cache").write_text(KEYS[0])
    (accepted / "two\nlines").write_text(KEYS[0])
    exchange(m1, m2)
    m1.settle()
    assert m1.records() == []
    assert m2.files() == {}
    left = {path.name for path in accepted.iterdir()} - {".ha-m1"}
    assert left == {"link", "folder", ".key_cache", "two\nlines"}


@pytest.mark.parametrize(
    ("state", "junk"),
    [*product((ACCEPTED, PENDING, REJECTED), (JUNK, "junk")), (DENIED, JUNK)],
)
def test_junk_is_reported_and_left_where_it_is(
    m1: Master, m2: Master, state: str, junk: str
) -> None:
    m1.file(state, "web1").write_text(junk)
    exchange(m1, m2)
    assert m1.records() == []
    assert "web1" in m1.keeper.refused.reasons
    assert m2.files() == {}
    assert m1.files() == {(state, "web1"): junk}
    assert m1.revoked == 0


@pytest.mark.parametrize("state", [ACCEPTED, PENDING, REJECTED])
def test_junk_that_is_mended_counts(m1: Master, m2: Master, state: str) -> None:
    m1.file(state, "web1").write_text(JUNK)
    exchange(m1, m2)
    m1.file(state, "web1").write_text(KEYS[0])
    m1.knock("web2", 1)  # another one of the same pass
    exchange(m1, m2)
    assert m1.files() == m2.files() == {(state, "web1"): KEYS[0], (PENDING, "web2"): KEYS[1]}
    assert m1.keeper.refused.reasons == {}


@pytest.mark.parametrize("junk", ["", "junk", JUNK])
@pytest.mark.parametrize("state", [ACCEPTED, PENDING, REJECTED])
@pytest.mark.parametrize("decided", [ACCEPTED, PENDING, REJECTED])
def test_junk_that_knocked_does_not_keep_a_decision_out(
    m1: Master, m2: Master, junk: str, state: str, decided: str
) -> None:
    """Salt 3006 and 3007 keep whatever somebody sends under an id; ``salt-key -A`` accepts it."""
    m2.junk("web1", state, junk)
    m2.scan()
    m2.keeper.refused.reasons.clear()  # as when there is more of it than is remembered
    m1.knock("web1", 0, decided)
    m1.scan()
    exchange(m1, m2)
    assert m2.files() == {(decided, "web1"): KEYS[0]}
    assert m2.keeper.refused.reasons == {}
    assert m2.replica.dirty() == []
    assert m2.revoked == (state == ACCEPTED), "Salt takes more for a key than we do"


def test_junk_that_keeps_no_decision_out_stays(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1")
    m2.junk("web1", PENDING)
    m1.move("web1", ACCEPTED, REJECTED)
    m1.scan()
    m2.learn(m1.records())
    assert m2.files() == {(REJECTED, "web1"): KEYS[0], (PENDING, "web1"): JUNK}


@pytest.mark.parametrize("state", [ACCEPTED, REJECTED])
@pytest.mark.parametrize("spoilt", ["", "junk"])
def test_a_file_that_was_spoilt_was_not_deleted(
    m1: Master, m2: Master, state: str, spoilt: str
) -> None:
    """Somebody who knocks at the other master with another key must not have it taken so."""
    m1.knock("web1", 0, state)
    exchange(m1, m2)
    m2.junk("web1", state, spoilt)
    m2.scan()
    m1.knock("web1", 1, DENIED)
    exchange(m1, m2)
    assert m1.state("web1") == state
    assert m1.files() == m2.files()
    assert m2.file(state, "web1").read_text() == KEYS[0]


def rejected_where_junk_stays(m1: Master, m2: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    """m1 rejects web1; m2 has junk among the accepted keys under that id, and cannot remove it."""
    m2.junk("web1", ACCEPTED, "junk")
    m2.scan()
    m1.knock("web1", 0, REJECTED)
    m1.scan()
    unlink = os.unlink

    def refuse(path: str) -> None:
        if path.endswith("minions/web1"):
            raise PermissionError(errno.EPERM, "Operation not permitted")
        unlink(path)

    monkeypatch.setattr(os, "unlink", refuse)


def test_junk_that_cannot_be_removed_rotates_nothing(
    m1: Master, m2: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    rejected_where_junk_stays(m1, m2, monkeypatch)
    m2.keeper.learn(m1.records())
    for _ in range(3):
        m2.keeper.reconciler.apply()
    assert m2.revoked == 0
    assert "web1" in m2.keeper.refused.reasons, "it is still there"
    monkeypatch.undo()
    m2.settle()
    assert m2.files() == {(REJECTED, "web1"): KEYS[0]}
    assert m2.revoked == 1


def test_junk_that_cannot_be_removed_puts_off_no_rotation_that_is_due(
    m1: Master, m2: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    rejected_where_junk_stays(m1, m2, monkeypatch)
    with m2.replica.transaction():  # of another key; it was killed before the rotation
        m2.replica.meta.revocation_due = True
    m2.keeper.learn(m1.records())
    m2.keeper.reconciler.apply()
    assert m2.revoked == 1


@pytest.mark.parametrize("number", [errno.EUCLEAN, errno.EBADMSG, errno.EIO])
def test_a_file_that_its_disk_spoilt_holds_up_no_other(
    m1: Master, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    read_key = reading.read_key

    def fail(path: str) -> str | None:
        if path.endswith("/web1"):
            raise OSError(number, os.strerror(number))
        return read_key(path)

    monkeypatch.setattr(reading, "read_key", fail)
    m1.knock("web1")
    m1.knock("web2")
    m1.scan()
    assert (m1.state("web1"), m1.state("web2")) == (None, PENDING)
    assert "web1" in m1.keeper.refused.reasons


def test_a_pending_key_was_deleted_where_junk_knocked_in_its_place(m1: Master, m2: Master) -> None:
    """Salt takes no second knock beside a pending key; so somebody had deleted that."""
    m1.knock("web1")
    exchange(m1, m2)
    m2.move("web1", PENDING, ACCEPTED)
    m2.scan()
    m1.hear(m2.records())
    m1.junk("web1", PENDING, "junk")
    m1.keeper.reconciler.apply()
    m1.settle()
    assert m1.state("web1") == DELETED
    exchange(m1, m2)
    assert m1.files() == m2.files() == {}


@pytest.mark.parametrize("junk", ["", "junk"])
def test_junk_does_not_hide_a_deletion(m1: Master, m2: Master, junk: str) -> None:
    """The minion whose key was just deleted sends it, and Salt 3006 and 3007 keep it."""
    shared(m1, m2, "web1")
    m1.remove("web1")
    m1.file(PENDING, "web1").write_text(junk)
    exchange(m1, m2)
    assert m2.files() == {}
    assert m1.files() == {(PENDING, "web1"): junk}
    assert "web1" in m1.keeper.refused.reasons
    m1.scan()
    assert "web1" in m1.keeper.refused.reasons


def test_a_half_written_key_is_recorded_when_it_is_whole(m1: Master) -> None:
    path = m1.file(PENDING, "web1")
    path.write_text(KEYS[0][:80])
    assert m1.scan_once() == []
    assert m1.keeper.work.ids() == ["web1"]
    path.write_text(KEYS[0])
    assert [r.state for r in m1.scan()] == [PENDING]
    assert m1.keeper.refused.reasons == {}


def test_a_minion_with_ever_new_keys_does_not_fill_the_replica(m1: Master, m2: Master) -> None:
    m1.knock("web1", 0, ACCEPTED)
    m1.scan()
    for key in range(1, 7):
        m1.knock("web1", key, DENIED)
        m1.scan()
    undecided = [r for r in m1.records() if r.state == DENIED]
    assert len(undecided) == MAX_UNDECIDED
    assert "undecided" in m1.keeper.refused.reasons["web1"]
    # What was not recorded stays where Salt put it, and can still be decided upon.
    assert m1.file(DENIED, "web1").read_text() == KEYS[6]
    m1.settle()
    assert m1.file(ACCEPTED, "web1").read_text() == KEYS[0]
    m1.move("web1", DENIED, ACCEPTED)
    exchange(m1, m2)
    assert m2.file(ACCEPTED, "web1").read_text() == KEYS[6]


def test_one_path_that_cannot_be_written_holds_up_nothing_else(
    m1: Master, m2: Master, follow: Follow
) -> None:
    (m2.root / "minions" / "bad").mkdir()
    shared(m1, m2, "good")
    m1.knock("bad", 1, ACCEPTED)
    m1.knock("late", 2, ACCEPTED)
    m1.scan()
    follow(m2, m1.records())
    assert m2.file(ACCEPTED, "late").read_text() == KEYS[2]
    assert "bad" in m2.keeper.refused.reasons
    assert m2.replica.dirty() == ["bad"]
    (m2.root / "minions" / "bad").rmdir()
    m2.settle()
    assert m2.file(ACCEPTED, "bad").read_text() == KEYS[1]


def test_what_was_refused_is_forgotten_when_it_is_gone(m1: Master) -> None:
    m1.file(PENDING, "web1").write_text("junk")
    m1.scan()
    assert "web1" in m1.keeper.refused.reasons
    m1.file(PENDING, "web1").unlink()
    m1.keeper.observe(["web1"], certain=True)
    assert m1.keeper.refused.reasons == {}


def test_what_was_refused_is_forgotten_when_it_is_as_before(m1: Master) -> None:
    m1.knock("web1", 0, ACCEPTED)
    m1.settle()
    m1.file(ACCEPTED, "web1").write_text("no key")
    m1.scan()
    assert "web1" in m1.keeper.refused.reasons
    m1.knock("web1", 0, ACCEPTED)
    m1.scan()
    assert m1.keeper.refused.reasons == {}
