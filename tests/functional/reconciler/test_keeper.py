"""Keepers over real key folders and real replica files."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from saltext_ha.common.errors import ReplicaError, StoreError
from saltext_ha.keystore import reading
from saltext_ha.reconciler.dropping import Dropping
from saltext_ha.reconciler.hints import Hint, read_hint, tasks
from saltext_ha.reconciler.observer import MINION, OPERATOR
from saltext_ha.reconciler.refused import MAX_UNDECIDED
from saltext_ha.reconciler.wheel_calls import WheelCalls
from saltext_ha.replication.record import ACCEPTED, DELETED, DENIED, PENDING, REJECTED, Record
from tests.functional.keepers import (
    KEYS,
    PRINTS,
    Crash,
    Master,
    crowded,
    decided,
    exchange,
    lose,
    shared,
    wipe,
)
from tests.keys import JUNK

pytestmark = pytest.mark.core

Follow = Callable[[Master, Iterable[Record]], None]


@pytest.fixture(params=["in two steps", "at once"])
def follow(request: pytest.FixtureRequest) -> Follow:
    """How a master follows a peer: it writes down what is to be done, and does that; or at once."""

    def follow(master: Master, records: Iterable[Record]) -> None:
        learn = master.keeper.learn if request.param == "at once" else master.hear
        learn(records)
        master.keeper.apply()

    return follow


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


def test_a_revocation_wins_over_a_grant_that_did_not_know_it(m1: Master, m2: Master) -> None:
    m1.knock("web1")
    exchange(m1, m2)
    m1.move("web1", PENDING, ACCEPTED)
    m2.move("web1", PENDING, REJECTED)
    exchange(m1, m2)
    assert m1.files() == m2.files() == {(REJECTED, "web1"): KEYS[0]}


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


# -- crashes


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


def test_what_was_merged_before_a_crash_is_applied_after_it(m1: Master, m2: Master) -> None:
    m1.knock("web1", 0, ACCEPTED)
    m1.scan()
    m2.hear(m1.records())
    assert m2.files() == {}
    m2.restart()
    m2.settle()
    assert m2.files() == {(ACCEPTED, "web1"): KEYS[0]}


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


# -- revoking


def test_revoking_is_done_once_a_batch(m1: Master, m2: Master) -> None:
    ids = [f"web{number}" for number in range(8)]
    shared(m1, m2, *ids)
    for minion_id in ids:
        m1.remove(minion_id)
    exchange(m1, m2)
    assert m2.files() == {}
    assert m2.gone == [set(ids)]
    m2.settle()
    assert m2.revoked == 1


def test_caches_are_cleaned_of_ids_without_a_key_only(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1", "web2", "web3")
    m1.move("web1", ACCEPTED, REJECTED)
    m1.remove("web2")
    exchange(m1, m2)
    assert m2.gone == [{"web2"}]
    m1.remove("web3")
    exchange(m1, m2)
    assert m2.gone == [{"web2"}, {"web3"}]


def test_an_id_that_knocked_again_before_caches_could_be_cleaned_keeps_its_own(
    m1: Master, m2: Master, follow: Follow
) -> None:
    def fail() -> None:
        raise StoreError("the rotate file cannot be written")

    shared(m1, m2, "web1", "web2")
    m1.remove("web1")
    m1.remove("web2")
    m1.scan()
    m2.revoking = fail
    with pytest.raises(StoreError):
        follow(m2, m1.records())
    m2.knock("web1", 1)
    m2.revoking = lambda: None
    m2.keeper.apply()
    assert m2.gone == [{"web2"}]
    # It was looked at by the way, and is not taken for known.
    assert m2.keeper.work.ids() == ["web1"]
    m2.settle()
    assert m2.state("web1", 1) == PENDING


def test_the_aes_key_does_not_wait_for_a_look_at_the_store(
    m1: Master, m2: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That may fail then, and the minion would go on with the old one."""
    order: list[str] = []
    read = m2.store.read

    def noted(*arguments: Any, **how: Any) -> Any:
        order.append("read")
        return read(*arguments, **how)

    decided(m1, m2, ACCEPTED, DELETED)
    m2.hear(m1.records())
    monkeypatch.setattr(m2.store, "read", noted)
    m2.revoking = lambda: order.append("rotate")
    m2.keeper.apply()
    assert order[-2:] == ["rotate", "read"]


def test_caches_of_a_rejected_id_are_cleaned_when_its_key_has_gone(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1", "web2")
    m1.move("web1", ACCEPTED, REJECTED)
    exchange(m1, m2)
    m1.file(REJECTED, "web1").unlink()
    exchange(m1, m2)
    assert m2.gone == [set(), {"web1"}]
    assert m2.revoked == 1  # nobody lost access by the second


def test_revoking_is_done_after_a_crash_before_it(m1: Master, m2: Master, follow: Follow) -> None:
    def die() -> None:
        raise Crash

    decided(m1, m2, ACCEPTED, DELETED)
    m2.revoking = die
    with pytest.raises(Crash):
        follow(m2, m1.records())
    assert m2.files() == {}
    m2.revoking = lambda: None
    m2.restart()
    m2.settle()
    # Of whom, was not written down.
    assert m2.gone == [None]


def test_a_new_pending_key_revokes_nothing(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1")
    m1.knock("web2")
    exchange(m1, m2)
    assert m2.revoked == 0


def test_junk_among_the_denied_does_not_stop_a_revocation(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1")
    m2.file(DENIED, "web1").write_text("sent by the minion that is to go")
    m1.remove("web1")
    exchange(m1, m2)
    assert not m2.file(ACCEPTED, "web1").exists()
    assert m2.revoked == 1


def test_a_revocation_that_waits_for_a_readable_key_is_due_until_it_is_done(
    m1: Master, m2: Master, follow: Follow
) -> None:
    shared(m1, m2, "web1")
    # Beside the accepted key lies a pending one that is being written.
    half = m2.file(PENDING, "web1")
    half.write_text("")
    m1.remove("web1")
    m1.scan()
    follow(m2, m1.records())
    assert m2.file(ACCEPTED, "web1").exists()
    half.unlink()
    # A rotation before the removal is worth nothing: the minion just authenticates again.
    there: list[bool] = []
    m2.revoking = lambda: there.append(m2.file(ACCEPTED, "web1").exists())
    m2.settle()
    assert not m2.file(ACCEPTED, "web1").exists()
    assert there[-1:] == [False]


# -- what is not believed


@pytest.mark.parametrize("count", [11, 505])
def test_a_wiped_folder_is_held_and_no_peer_hears_of_it(m1: Master, m2: Master, count: int) -> None:
    ids = {f"web{number}" for number in range(count)}
    shared(m1, m2, *ids)
    assert wipe(m1) == []
    assert set(m1.replica.held.all()) == ids
    m1.settle()
    exchange(m1, m2)
    assert len(m2.files()) == count
    m1.restart()
    m1.settle()
    assert set(m1.replica.held.all()) == ids


def test_a_folder_that_comes_back_is_no_longer_held(m1: Master, m2: Master) -> None:
    ids = [f"web{number}" for number in range(11)]
    shared(m1, m2, *ids)
    away = m1.root / "away"
    (m1.root / "minions").rename(away)
    assert m1.scan() == []
    assert len(m1.replica.held.all()) == 11
    away.rename(m1.root / "minions")
    assert m1.scan() == []
    assert m1.replica.held.all() == {}
    exchange(m1, m2)
    assert len(m1.files()) == len(m2.files()) == 11


@pytest.mark.parametrize("state", [ACCEPTED, REJECTED])
def test_who_decides_in_an_emptied_folder_does_not_mean_the_key_that_is_held(
    m1: Master, m2: Master, state: str
) -> None:
    ids = {f"web{number}" for number in range(11)}
    shared(m1, m2, *ids)
    for minion_id in ids:
        m1.remove(minion_id)
    m1.scan()
    m1.knock("web0", key=1)
    m1.scan()
    m1.move("web0", PENDING, state)
    exchange(m1, m2)
    assert m2.file(ACCEPTED, "web0").read_text() == KEYS[0]
    assert m2.state("web0", key=0) == ACCEPTED
    assert m2.state("web0", key=1) == state
    assert m2.revoked == 0
    # Of two accepted keys each master keeps its own, until the conflict is ended.
    here = KEYS[1] if state == ACCEPTED else KEYS[0]
    assert m1.files()[ACCEPTED, "web0"] == here


def test_what_an_operator_releases_is_deleted_everywhere(m1: Master, m2: Master) -> None:
    ids = [f"web{number}" for number in range(11)]
    shared(m1, m2, *ids)
    wipe(m1)
    changed = m1.keeper.release()
    assert {record.state for record in changed} == {DELETED}
    assert m1.replica.held.all() == {}
    exchange(m1, m2)
    assert m2.files() == {}


def test_up_to_the_minimum_is_believed(m1: Master) -> None:
    for number in range(30):
        m1.knock(f"web{number}", 0, ACCEPTED)
    m1.settle()
    for number in range(10):
        m1.remove(f"web{number}")
    assert len(m1.scan()) == 10
    m1.remove("web29")
    assert m1.scan() == []
    assert list(m1.replica.held.all()) == ["web29"]


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


# -- what is ignored


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
        m2.keeper.apply()
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
    m2.keeper.apply()
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
    m1.keeper.apply()
    m1.settle()
    assert m1.state("web1") == DELETED
    exchange(m1, m2)
    assert m1.files() == m2.files() == {}


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


# -- a replica that was lost


def test_after_a_lost_replica_what_peers_decided_holds(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1", "web2")
    lose(m1)
    m2.remove("web1")
    m2.scan()
    m1.knock("new")
    m1.open(adopting=True)
    assert m1.scan() == [], "nothing is recorded before it is known what peers decided"
    m1.learn(m2.records())
    adopted = m1.keeper.rebuilt()
    assert [(r.minion_id, r.state) for r in adopted] == [("new", PENDING)]
    m1.settle()
    exchange(m1, m2)
    assert m1.files() == m2.files() == {(ACCEPTED, "web2"): KEYS[0], (PENDING, "new"): KEYS[0]}
    # The deleted key was still accepted here.
    assert m1.revoked == 1


@pytest.mark.parametrize(
    ("folder", "text", "expected"),
    [
        (None, "", False),
        (PENDING, KEYS[0], False),
        (DENIED, KEYS[0], False),
        (ACCEPTED, KEYS[0], True),
        (REJECTED, KEYS[0], True),
        (ACCEPTED, "", True),  # being written
    ],
)
def test_what_could_be_taken_for_a_decision(
    m1: Master, folder: str | None, text: str, expected: bool
) -> None:
    m1.restart(adopting=True)
    if folder:
        m1.file(folder, "web1").write_text(text)
    m1.keeper.adopt_undecided()
    assert m1.keeper.mode.adopting is expected
    assert m1.keeper.mode.lost, "it is not whole yet"
    assert bool(m1.records()) is (bool(folder) and not expected)
    # What was looked at is adopted all the same.
    m1.keeper.rebuilt()
    m1.settle()
    assert not m1.keeper.mode.lost
    assert [r.minion_id for r in m1.records()] == (["web1"] if folder and text else [])


def test_a_store_that_had_another_life_is_not_adopted_early(m1: Master, m2: Master) -> None:
    """What lies there pending did not knock now: it may have been deleted meanwhile."""
    m1.knock("web1")
    exchange(m1, m2)
    m2.settle()
    lose(m2)
    m1.remove("web1")
    m1.settle()
    m2.open(adopting=True)
    m2.replica.take_node()
    m2.keeper.adopt_undecided()
    m2.learn(m1.records())
    m2.keeper.rebuilt()
    exchange(m1, m2)
    assert m1.files() == m2.files() == {}


def test_what_is_decided_while_keys_are_coming_holds_after_a_crash(m1: Master, m2: Master) -> None:
    for number in range(4):
        m1.knock(f"web{number}", 0, ACCEPTED)
    m1.settle()
    lose(m2)
    m2.open(adopting=True)
    m2.replica.take_node()
    m2.keeper.adopt_undecided()
    m2.learn([record for record in m1.records() if record.minion_id < "web2"])
    m2.remove("web1")
    m2.restart(adopting=m2.replica.meta.blank, adopted=m2.replica.meta.adopted)
    m2.replica.take_node()
    m2.keeper.adopt_undecided()
    m2.learn(m1.records())
    m2.keeper.rebuilt()
    exchange(m1, m2)
    assert m2.state("web1") == DELETED
    assert {minion_id for _, minion_id in m1.files()} == {"web0", "web2", "web3"}


def forgotten(master: Master, dead: str, *others: str) -> None:
    """*master* accepted these; *dead* was deleted then, and its tombstone dropped."""
    for name in (dead, *others):
        master.knock(name, 0, ACCEPTED)
    master.settle()
    master.remove(dead)
    master.settle()
    dropping = Dropping([(dead, PRINTS[0])], master.replica.nodes.seen(), 1)
    assert master.keeper.drop(master.replica.records.root, dropping)


def whole(master: Master, peer: Master) -> None:
    """All that *peer* knows was pulled, the horizon last."""
    with master.replica.transaction():
        master.replica.dropped.raise_horizon(peer.replica.dropped.horizon(), 1)
    master.keeper.rebuilt()


def test_an_older_store_is_adopted_when_all_has_come(m1: Master, m2: Master) -> None:
    """Until then it is unknown what was deleted and dropped since."""
    names = ("dead", "web1", "web2", "web3")
    forgotten(m1, *names)
    lose(m2)
    m2.open(adopting=True)
    m2.keeper.adopt_undecided()
    m2.learn([record for record in m1.records() if record.minion_id == "web1"])
    older = m2.store.signature("m2")
    m2.keeper.holds.provenance.sign()
    m2.store.sign("m2", older)
    for name in names:
        m2.knock(name, 0, ACCEPTED)
    m2.scan()
    assert m2.keeper.mode.lost
    assert m2.keeper.mode.adopting
    m2.learn(m1.records())
    whole(m2, m1)
    exchange(m1, m2)
    assert m1.files() == m2.files()
    assert m1.file(PENDING, "dead").exists(), "somebody has to decide about it anew"


def test_a_folder_that_is_put_back_while_keys_are_coming_is_not_believed(
    m1: Master, m2: Master
) -> None:
    """It may be of before a key was deleted, and that forgotten."""
    names = ("dead", "web1")
    forgotten(m1, *names)
    lose(m2)
    m2.open(adopting=True)
    m2.keeper.adopt_undecided()
    m2.settle()
    m2.store.sign("m2", None)
    for name in names:
        m2.knock(name, 0, ACCEPTED)
    m2.restart(adopting=m2.replica.meta.blank, adopted=m2.replica.meta.adopted)
    m2.scan()
    assert "signature is gone" in m2.keeper.mode.doubt
    m2.keeper.learn(m1.records())
    whole(m2, m1)
    m2.keeper.adopt()  # ha.refill
    m2.settle()
    exchange(m1, m2)
    assert m1.files() == m2.files()
    assert m1.file(PENDING, "dead").exists(), "somebody has to decide about it anew"


def test_an_old_replica_writes_nothing_into_an_empty_mount_point(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1", "web2")
    m1.settle()
    m1.replica.close()
    shutil.copy2(m1.root / "replica.db", m1.root / "old.db")
    m1.open()
    m1.keeper.holds.provenance.sign()
    m1.replica.close()
    (m1.root / "old.db").replace(m1.root / "replica.db")
    m1.open()
    m1.replica.take_node()
    m1.scan()
    assert m1.keeper.mode.adopting
    shutil.rmtree(m1.root / "minions")
    (m1.root / "minions").mkdir()
    m1.keeper.learn(m2.records())
    with pytest.raises(StoreError, match="not mounted"):
        m1.keeper.rebuilt()
    assert m1.keeper.mode.lost
    assert list((m1.root / "minions").iterdir()) == []


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


def test_where_others_bring_keys_nothing_is_adopted_early(m1: Master) -> None:
    """When these were decided about is not known."""
    m1.restart(adopting=True, enforce=False)
    m1.keeper.adopt_undecided()
    assert m1.keeper.mode.adopting


def test_adopting_says_of_known_keys_only_what_nobody_has_decided(m1: Master, m2: Master) -> None:
    m1.knock("web1")
    m1.knock("web2")
    exchange(m1, m2)
    lose(m1)
    m1.move("web1", PENDING, ACCEPTED)
    m1.open(adopting=True)
    m1.keeper.learn(m2.records())
    adopted = m1.keeper.rebuilt()
    assert [(r.minion_id, r.state) for r in adopted] == [("web1", ACCEPTED)]
    exchange(m1, m2)
    assert m1.files() == m2.files() == {(ACCEPTED, "web1"): KEYS[0], (PENDING, "web2"): KEYS[0]}


def test_what_is_adopted_is_written_as_a_look_at_the_store_would(m1: Master, m2: Master) -> None:
    """Knocks as those of minions; an acceptance in one value, in the place of what was known."""
    m1.knock("web1")
    exchange(m1, m2)
    lose(m1)
    m1.move("web1", PENDING, ACCEPTED)
    m1.knock("new")
    m1.open(adopting=True)
    m1.keeper.learn(m2.records())
    m1.keeper.rebuilt()
    (knock,) = m1.replica.get("new")[PRINTS[0]].values
    assert (knock.state, knock.by) == (PENDING, MINION)
    (accepted,) = m1.replica.get("web1")[PRINTS[0]].values
    assert (accepted.state, accepted.by) == (ACCEPTED, "")


def test_a_conflict_that_adopting_finds_is_told(m1: Master, m2: Master) -> None:
    m2.knock("web1", 1, ACCEPTED)
    m2.scan()
    m1.knock("web1", 0, ACCEPTED)
    m1.restart(adopting=True)
    told: list[tuple[str, Any]] = []
    m1.keeper._writer.announce = lambda tag, data: told.append((tag, data["id"]))
    m1.hear(m2.records())
    assert told == []
    m1.keeper.rebuilt()
    assert told == [("conflict", "web1")]
    assert [line.account for line in m1.replica.history.lines("web1") if line.account]


@pytest.mark.parametrize("unchanged", [True, False])
def test_an_event_of_a_deletion_that_nobody_made_after_adopting(
    m1: Master, unchanged: bool
) -> None:
    """Any minion can have Salt fire it: a knock that is there unchanged was deleted by nobody."""
    m1.knock("web1")
    m1.restart(adopting=True)
    m1.keeper.rebuilt()
    assert m1.state("web1") == PENDING
    if not unchanged:
        m1.remove("web1")
        m1.knock("web1")  # deleted indeed, and it knocked again: the entry is another one
    changed = m1.deletion_told(["web1"])
    assert bool(changed) is not unchanged


def test_adopting_does_not_lift_a_rejection(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1")
    lose(m1)
    m2.move("web1", ACCEPTED, REJECTED)
    m2.scan()
    m1.open(adopting=True)
    m1.learn(m2.records())
    m1.keeper.rebuilt()
    m1.settle()
    assert m1.files() == {(REJECTED, "web1"): KEYS[0]}
    assert m1.state("web1") == REJECTED


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


# -- somebody else acts in the middle of an apply


def test_a_key_that_is_deleted_here_before_a_peers_word_is_applied_stays_deleted(
    m1: Master, m2: Master
) -> None:
    m1.knock("web1")
    exchange(m1, m2)
    m2.move("web1", PENDING, ACCEPTED)
    m2.scan()
    m1.hear(m2.records())
    m1.remove("web1")
    m1.keeper.apply()
    assert "web1" in m1.keeper.work
    assert m1.files() == {}, "first it is recorded"
    m1.settle()
    assert m1.files() == {}
    exchange(m1, m2)
    assert m1.files() == m2.files()


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


def test_who_only_reports_does_not_collect_what_was_deleted(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1", "web2")
    m1.keeper.mode.shared = "tried"
    m1.remove("web1")
    m1.settle()
    m1.keeper.apply()
    m1.keeper.mode.shared = ""
    m1.remove("web2")
    m1.settle()
    assert m1.gone == [{"web2"}]


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


# -- without applying


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


# -- one bad file


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


def test_a_call_that_is_told_of_after_what_it_did_is_known(m1: Master) -> None:
    """Salt's events of one call come over several connections."""
    calls = WheelCalls()
    m1.keeper._reconciler.observer.calls = calls
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
