"""Keepers over real key folders and real replica files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from saltext_ha.reconciler.hints import Hint, read_hint, tasks
from saltext_ha.reconciler.own_writes import MINION, OPERATOR
from saltext_ha.reconciler.wheel_calls import WheelCalls
from saltext_ha.replication.record import ACCEPTED, DELETED, DENIED, PENDING, REJECTED
from tests.functional.keepers import (
    KEYS,
    PRINTS,
    Master,
    exchange,
    shared,
)

pytestmark = pytest.mark.core


# -- local changes


def test_accept_reject_and_delete_as_files_are_moved(m1: Master) -> None:
    m1.knock("web1")
    assert [r.state for r in m1.scan()] == [PENDING]
    m1.move("web1", PENDING, ACCEPTED)
    assert [r.state for r in m1.scan()] == [ACCEPTED]
    m1.move("web1", ACCEPTED, REJECTED)
    assert [r.state for r in m1.scan()] == [REJECTED]
    m1.remove("web1")
    assert [r.state for r in m1.scan()] == [DELETED]
    m1.knock("web1")
    assert [r.state for r in m1.scan()] == [PENDING]
    m1.settle()
    assert m1.files() == {(PENDING, "web1"): KEYS[0]}
    # Salt revokes what is done here; only what comes from peers is ours to revoke.
    assert m1.revoked == 0


def test_a_key_removed_for_an_instant_before_it_is_written_is_not_deleted(m1: Master) -> None:
    # 3008's localfs_key removes a key before it writes its new state.
    m1.knock("web1", state=ACCEPTED)
    m1.settle()
    m1.remove("web1")
    assert m1.scan_once() == []
    assert m1.keeper.work.ids() == ["web1"]
    m1.knock("web1", state=REJECTED)
    changed = m1.keeper.observe(["web1"], certain=True)
    assert [[v.state for v in record.values] for record in changed] == [[REJECTED]]


def test_a_minion_that_signs_in_before_salt_tells_who_accepted_it_is_not_the_one(
    m1: Master,
) -> None:
    m1.knock("web1")
    m1.settle()
    m1.move("web1", PENDING, ACCEPTED)
    assert m1.keeper.reconcile_all(tasks([Hint("web1", MINION, False)])) == []
    (told,) = m1.keeper.reconcile_all(tasks([Hint("web1", OPERATOR, False)]))
    assert [(value.state, value.by) for value in told.values] == [(ACCEPTED, OPERATOR)]


def test_a_pending_key_that_salt_accepts_by_itself_is_accepted_a_moment_later(m1: Master) -> None:
    m1.knock("web1")
    m1.settle()
    m1.move("web1", PENDING, ACCEPTED)
    m1.knock("new", state=ACCEPTED)
    hints = [Hint("web1", MINION, False), Hint("new", MINION, False)]
    (new,) = m1.keeper.reconcile_all(tasks(hints))
    assert [(value.state, value.by) for value in new.values] == [(ACCEPTED, MINION)]
    # A pass over the folders is no reason to believe it sooner.
    assert m1.scan_once() == []
    (web1,) = m1.look_again()
    assert [(value.state, value.by) for value in web1.values] == [(ACCEPTED, MINION)]
    m1.move("web1", ACCEPTED, REJECTED)
    (web1,) = m1.scan_once()
    assert [(value.state, value.by) for value in web1.values] == [(REJECTED, OPERATOR)]


def test_a_sign_in_says_nothing_of_an_acceptance_after_the_key_was_pending_again(
    m1: Master,
) -> None:
    m1.knock("web1")
    m1.settle()
    m1.move("web1", PENDING, ACCEPTED)
    assert m1.keeper.reconcile_all(tasks([Hint("web1", MINION, False)])) == []
    m1.move("web1", ACCEPTED, PENDING)
    assert m1.look_again() == []
    m1.move("web1", PENDING, ACCEPTED)
    (told,) = m1.scan_once()
    assert [(value.state, value.by) for value in told.values] == [(ACCEPTED, OPERATOR)]


def test_a_key_that_is_about_to_be_accepted_was_not_deleted_by_a_peers_word(
    m1: Master, m2: Master
) -> None:
    """Salt 3008 removed it first. Who accepts it does not know that a peer deleted it."""
    m1.knock("web1")
    exchange(m1, m2)
    m1.remove("web1")
    m1.scan()
    m2.hear(m1.records())
    m2.remove("web1")
    m2.scan_once()
    m2.knock("web1", 0, ACCEPTED)
    exchange(m1, m2)
    assert m1.state("web1") == m2.state("web1") == DELETED
    assert m1.files() == m2.files() == {}


def test_a_denied_key_is_recorded_beside_the_accepted_one(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1")
    m1.knock("web1", 1, DENIED)
    assert [(r.fingerprint, r.state) for r in m1.scan()] == [(PRINTS[1], DENIED)]
    exchange(m1, m2)
    assert m2.file(DENIED, "web1").read_text() == KEYS[1]
    assert m2.file(ACCEPTED, "web1").read_text() == KEYS[0]


def test_looking_twice_records_once(m1: Master) -> None:
    m1.knock("web1")
    m1.settle()
    counter = m1.replica.counter
    m1.settle()
    m1.restart()
    m1.settle()
    assert m1.replica.counter == counter


def test_a_change_while_the_engine_was_down_is_found_at_start(m1: Master) -> None:
    m1.knock("web1")
    m1.settle()
    m1.replica.close()
    m1.move("web1", PENDING, ACCEPTED)
    m1.open()
    assert [r.state for r in m1.scan()] == [ACCEPTED]


@pytest.mark.parametrize("key", [0, 1])
def test_a_second_file_of_an_id_is_tidied_up(m1: Master, m2: Master, key: int) -> None:
    """As ``wheel.key.gen_accept`` leaves one, or a folder that was copied over another."""
    m1.knock("web1")
    exchange(m1, m2)
    m1.knock("web1", key, ACCEPTED)
    m1.settle()
    assert (PENDING, "web1") not in m1.files()
    exchange(m1, m2)
    assert m1.files() == m2.files()
    m2.knock("web1", key)  # beside the accepted one
    m2.settle()
    m1.remove("web1")
    exchange(m1, m2)
    assert (ACCEPTED, "web1") not in {*m1.files(), *m2.files()}
    assert m2.revoked == 1


@pytest.mark.parametrize("minion_id", ["../minions/web1", "../outside", "a\0b", "x" * 300])
def test_an_event_that_names_a_path_changes_nothing(m1: Master, minion_id: str) -> None:
    # Any minion can fire salt/auth with any id.
    m1.knock("web1", 0, ACCEPTED)
    (m1.root / "outside").write_text(KEYS[1])
    m1.settle()
    changed = m1.keeper.observe([minion_id], certain=True)
    m1.settle()
    assert changed == []
    assert m1.file(ACCEPTED, "web1").exists()
    assert (m1.root / "outside").exists()
    assert list(m1.replica.ids()) == ["web1"]


def test_nobody_deletes_a_pending_key_by_an_event(m1: Master, m2: Master) -> None:
    """A minion can have Salt fire ``salt/key`` with any id; the key has to be another one."""
    m1.knock("web1")
    exchange(m1, m2)
    m2.move("web1", PENDING, ACCEPTED)
    m2.scan()
    for _ in range(3):
        assert m1.deletion_told(["web1"]) == []
    exchange(m1, m2)
    assert m1.files() == m2.files()
    assert {state for state, _ in m1.files()} == {ACCEPTED}
    assert DELETED not in {line.state for line in m1.replica.history.lines("web1")}


def test_a_pending_key_that_was_deleted_and_knocked_again(m1: Master, m2: Master) -> None:
    m1.knock("web1")
    exchange(m1, m2)
    m2.move("web1", PENDING, ACCEPTED)
    m2.scan()
    m1.remove("web1")
    m1.knock("web1")
    m1.deletion_told(["web1"])
    assert DELETED in {line.state for line in m1.replica.history.lines("web1")}
    exchange(m1, m2)
    assert {state for state, _ in m1.files()} == {state for state, _ in m2.files()} == {PENDING}


def test_a_call_that_is_told_of_after_what_it_did_is_known(m1: Master) -> None:
    """Salt's events of one call come over several connections."""
    calls = WheelCalls()
    m1.keeper.reconciler.observer.calls = calls
    m1.knock("web1")
    m1.settle()
    m1.move("web1", PENDING, ACCEPTED)
    # First comes that it was accepted, then by whose call.
    hint = read_hint("salt/key", {"id": "web1", "act": "accept"}, calls)
    assert hint == Hint("web1", OPERATOR, False)
    new = {"fun": "wheel.key.accept", "user": "alice", "fun_args": ["web1"]}
    calls.heard("salt/wheel/1/new", new)
    m1.keeper.reconcile_all(tasks([hint]))
    (value,) = m1.replica.get("web1")[PRINTS[0]].values
    assert (value.state, value.by) == (ACCEPTED, "alice")


# -- two masters


def test_a_decision_on_one_master_is_in_the_folders_of_the_other(m1: Master, m2: Master) -> None:
    m1.knock("web1")
    exchange(m1, m2)
    assert m2.files() == {(PENDING, "web1"): KEYS[0]}
    for old, new in ((PENDING, ACCEPTED), (ACCEPTED, REJECTED)):
        m2.move("web1", old, new)
        exchange(m1, m2)
        assert m1.files() == m2.files() == {(new, "web1"): KEYS[0]}
    assert (m1.revoked, m2.revoked) == (1, 0)
    m1.remove("web1")
    exchange(m1, m2)
    assert m1.files() == m2.files() == {}
    assert m1.replica.records.root == m2.replica.records.root
    assert m1.replica.placements.root == m2.replica.placements.root


def test_records_that_are_known_teach_nothing_and_touch_nothing(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1")
    before = m2.file(ACCEPTED, "web1").stat()
    counter = m2.replica.counter
    assert m2.learn(m1.records()) == 0
    assert m2.file(ACCEPTED, "web1").stat() == before
    assert m2.replica.counter == counter


def test_two_accepted_keys_are_a_conflict_and_nothing_is_overwritten(
    m1: Master, m2: Master
) -> None:
    m1.knock("web1", 0, ACCEPTED)
    m2.knock("web1", 1, ACCEPTED)
    exchange(m1, m2)
    assert m1.files() == {(ACCEPTED, "web1"): KEYS[0]}
    assert m2.files() == {(ACCEPTED, "web1"): KEYS[1]}
    assert m1.replica.conflicts() == m2.replica.conflicts() == ["web1"]
    assert m1.replica.records.root == m2.replica.records.root
    m1.restart()
    m1.settle()
    assert m1.files() == {(ACCEPTED, "web1"): KEYS[0]}
    # Rejecting the id on either master is meant for both keys.
    m1.move("web1", ACCEPTED, REJECTED)
    exchange(m1, m2)
    assert m2.replica.conflicts() == []
    assert (ACCEPTED, "web1") not in m2.files()
    assert m2.revoked == 1


def test_more_ids_than_one_batch(m1: Master, m2: Master) -> None:
    ids = [f"web{number}" for number in range(510)]
    for minion_id in ids:
        m1.knock(minion_id, 0, ACCEPTED)
    assert len(m1.scan()) == 510
    assert m2.learn(m1.records()) == 510
    assert {name for _, name in m2.files()} == set(ids)
    assert m1.replica.placements.root == m2.replica.placements.root


def test_what_a_peer_decided_is_told_when_it_is_in_the_store(m1: Master, m2: Master) -> None:
    m1.knock("web1")
    exchange(m1, m2)
    m2.move("web1", PENDING, ACCEPTED)
    m2.scan()
    told: list[tuple[str, str, str]] = []
    m1.keeper._writer.announce = lambda tag, data: told.append((tag, data["id"], data["before"]))
    m1.learn(m2.records())
    m1.knock("web1", 1, DENIED)  # that changes nothing of the key that counts
    exchange(m1, m2)
    assert told == [("key/accepted", "web1", PENDING)]


def gone_when_a_third_speaks(m1: Master, m2: Master, root: Path) -> None:
    """web1 is gone from the folder of *m2*, and a third master tells of another key for it."""
    m3 = Master(root, "m3")
    shared(m1, m2, "web1")
    m3.knock("web1", 1, REJECTED)
    m3.scan()
    m2.remove("web1")
    m2.hear(m3.records())


def test_a_deletion_does_not_mean_a_key_that_was_heard_of_after_it(
    m1: Master, m2: Master, tmp_path: Path
) -> None:
    """Found by torture: the deletion stood in a full disk's folder only, and then a peer spoke."""
    gone_when_a_third_speaks(m1, m2, tmp_path)
    assert m2.keeper.work.ids() == ["web1"]
    m2.look_again()
    assert (m2.state("web1"), m2.state("web1", 1)) == (DELETED, REJECTED)
    m2.settle()
    assert m2.file(REJECTED, "web1").read_text() == KEYS[1]


def test_what_was_gone_for_an_instant_while_a_peer_spoke_is_as_before(
    m1: Master, m2: Master, tmp_path: Path
) -> None:
    gone_when_a_third_speaks(m1, m2, tmp_path)
    m2.knock("web1", state=ACCEPTED)  # Salt 3008 takes a key away before it writes the new state
    m2.settle()
    assert (m2.state("web1"), m2.state("web1", 1)) == (ACCEPTED, REJECTED)
    assert not m2.replica.dirty()


# -- what is written


def test_keys_from_peers_are_written_for_their_owner_only(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1")
    info = m2.file(ACCEPTED, "web1").stat()
    assert info.st_mode & 0o777 == 0o600
    assert info.st_uid == os.geteuid()


def test_observing_masters_record_and_do_not_write(m1: Master, m2: Master) -> None:
    m2.restart(enforce=False)
    m1.knock("web1", 0, ACCEPTED)
    m1.scan()
    assert m2.learn(m1.records()) == 1
    assert m2.files() == {}
    assert m2.replica.dirty() == ["web1"]
    m2.restart()
    m2.settle()
    assert m2.files() == {(ACCEPTED, "web1"): KEYS[0]}


# -- before a peer's word is applied


@pytest.mark.parametrize("decided", [ACCEPTED, REJECTED])
def test_a_minion_that_knocks_before_the_decision_is_applied(
    m1: Master, m2: Master, decided: str
) -> None:
    """It deleted nothing: the decision stands."""
    m1.knock("web1", 0, decided)
    m1.scan()
    m2.hear(m1.records())
    m2.knock("web1", 0)
    m2.settle()
    exchange(m1, m2)
    assert m1.files() == m2.files() == {(decided, "web1"): KEYS[0]}


def test_a_key_that_is_deleted_here_before_a_peers_word_is_applied_stays_deleted(
    m1: Master, m2: Master
) -> None:
    m1.knock("web1")
    exchange(m1, m2)
    m2.move("web1", PENDING, ACCEPTED)
    m2.scan()
    m1.hear(m2.records())
    m1.remove("web1")
    m1.keeper.reconciler.apply()
    assert "web1" in m1.keeper.work
    assert m1.files() == {}, "first it is recorded"
    m1.settle()
    assert m1.files() == {}
    exchange(m1, m2)
    assert m1.files() == m2.files()


def test_who_decides_twice_before_a_peers_word_is_applied_has_the_last_word(
    m1: Master, m2: Master
) -> None:
    """The second decision is made knowing the first."""
    shared(m1, m2, "web1")
    m1.knock("web1", 1, DENIED)
    m1.scan()
    m2.hear(m1.records())
    m2.keeper.mode.shared = "tried"
    assert m2.replica.dirty() == ["web1"]
    m2.move("web1", ACCEPTED, REJECTED)
    m2.scan()
    m2.move("web1", REJECTED, ACCEPTED)
    m2.scan()
    assert m2.state("web1") == ACCEPTED


def test_a_rejection_on_a_paused_master_is_recorded(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1")
    m2.keeper.mode.shared = "tried"
    m1.move("web1", ACCEPTED, REJECTED)
    m1.scan()
    m2.hear(m1.records())
    m1.move("web1", REJECTED, ACCEPTED)
    m1.scan()
    m2.hear(m1.records())
    # Its operator sees an accepted key, knows of nothing, and rejects it.
    m2.move("web1", ACCEPTED, REJECTED)
    m2.scan()
    m2.keeper.mode.shared = ""
    exchange(m1, m2)
    assert m1.files() == m2.files() == {(REJECTED, "web1"): KEYS[0]}


def test_what_was_done_by_hand_on_an_observing_master_is_no_difference(
    m1: Master, m2: Master
) -> None:
    m1.knock("web1")
    m2.knock("web1")
    exchange(m1, m2)
    m2.keeper.mode.shared = "tried"
    m1.move("web1", PENDING, ACCEPTED)
    m1.scan()
    m2.hear(m1.records())
    m2.move("web1", PENDING, ACCEPTED)
    m2.scan()
    m1.learn(m2.records())
    assert m2.replica.dirty() == []
    assert m1.replica.placements.root == m2.replica.placements.root
