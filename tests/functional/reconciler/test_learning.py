"""A keeper that brings its key store to what a peer decided in the moment in which it hears it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from saltext_ha.common.errors import ReplicaError, StoreError
from saltext_ha.keystore.base import Change, Content, Outcome
from saltext_ha.reconciler import applier, reconcile
from saltext_ha.replication.guard import RevocationGuard
from saltext_ha.replication.poisoned import is_poisoned
from saltext_ha.replication.record import ACCEPTED, DELETED, DENIED, PENDING, REJECTED
from saltext_ha.replication.vouching import MOST_OF_ONE
from tests.functional.keepers import KEYS, PRINTS, Master, crowded, decided, exchange, shared, wipe
from tests.keys import JUNK

pytestmark = pytest.mark.core


def test_it_is_in_the_store_and_nothing_is_left_to_do(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1", "web2")
    m1.move("web1", ACCEPTED, REJECTED)
    m1.knock("web3", 3, ACCEPTED)
    m1.scan()
    assert m2.keeper.learn(m1.records()).learned == 2
    assert m2.files() == m1.files()
    assert m2.replica.dirty() == []
    assert m2.revoked == 1
    m2.keeper.reconciler.apply()
    assert m2.revoked == 1


def test_each_id_is_one_move_however_many_of_its_records_come(m1: Master, m2: Master) -> None:
    """Of 501 records the last two are of one id: the one key goes, the other takes its place."""
    shared(m1, m2, "web1", key=0)
    m1.knock("web1", 1, DENIED)
    exchange(m1, m2)
    m1.move("web1", DENIED, ACCEPTED)
    for number in range(499):
        m1.knock(f"db{number}", 2)
    m1.scan()
    records = sorted(m1.records(), key=lambda record: (record.minion_id, record.state != DELETED))
    moves: list[Change] = []
    apply = m2.store.apply

    def watch(changes: Sequence[Change]) -> Outcome:
        moves.extend(change for change in changes if change.minion_id == "web1")
        return apply(changes)

    m2.store.apply = watch  # type: ignore[method-assign]
    m2.keeper.learn(records)
    assert len(moves) == 1
    assert m2.files() == m1.files()


def test_what_was_written_anew_is_not_spoilt_again_by_one_that_was_down(
    m1: Master, m2: Master
) -> None:
    shared(m1, m2, "web1")
    (record,) = m1.records()
    # All are of one master, so that none of them is left out.
    crowd = {f"{number:016x}": 1 for number in range(2 * MOST_OF_ONE)}
    context = tuple(sorted({**dict(record.context), **crowd}.items()))
    for master in (m1, m2):
        master.replica.vouched.owners.update(dict.fromkeys(crowd, b"m3"))
        with master.replica.transaction():
            master.replica.put(record._replace(context=context))
        assert is_poisoned(*master.records())
    m1.replica.take_node()
    m1.keeper.rewrite("web1", "root")
    fresh = m1.records()
    assert m1.keeper.learn(m2.records()).learned == 0
    assert m1.records() == fresh
    m2.keeper.learn(fresh)
    assert m2.records() == fresh


def test_what_ha_rewrite_only_shows_is_recorded_all_the_same(m1: Master) -> None:
    """It was read for that, so a pass does not name it again."""
    m1.knock("web1", 0, ACCEPTED)
    m1.settle()
    (record,) = m1.records()
    crowd = {f"{number:016x}": 1 for number in range(2 * MOST_OF_ONE)}
    context = tuple(sorted({**dict(record.context), **crowd}.items()))
    with m1.replica.transaction():
        m1.replica.put(record._replace(context=context))
    m1.move("web1", ACCEPTED, REJECTED)
    assert m1.keeper.shown_anew("web1") == {record.fingerprint: REJECTED}
    m1.settle()
    assert m1.state("web1") == REJECTED


def test_whoever_decided_here_before_is_heard_first(m1: Master, m2: Master) -> None:
    decided(m1, m2, PENDING, ACCEPTED)
    m2.move("web1", PENDING, REJECTED)
    changed = m2.keeper.learn(m1.records()).records
    assert [record.state for record in changed] == [REJECTED]
    exchange(m1, m2)
    assert m1.files() == m2.files() == {(REJECTED, "web1"): KEYS[0]}


def test_whoever_deletes_what_both_rejected_means_both_decisions(
    m1: Master, m2: Master, tmp_path: Path
) -> None:
    """The store showed what the records said: who acts on that knows all of them."""
    decided(m1, m2, ACCEPTED, REJECTED)
    m2.hear(m1.records())
    m2.move("web1", ACCEPTED, REJECTED)
    m3 = Master(tmp_path, "m3")
    m3.knock("web1", 1, ACCEPTED)
    m3.scan()
    m2.hear(m3.records())
    m2.remove("web1")
    m2.scan()
    assert m2.state("web1") == DELETED


def test_a_deletion_that_is_not_certain_yet_is_waited_for(m1: Master, m2: Master) -> None:
    decided(m1, m2, PENDING, ACCEPTED)
    m2.remove("web1")
    m2.keeper.learn(m1.records())
    assert m2.keeper.work.ids() == ["web1"]
    assert m2.files() == {}
    m2.look_again()
    exchange(m1, m2)
    assert m1.files() == m2.files() == {}
    assert m1.state("web1") == DELETED


def test_whoever_deletes_an_id_does_not_mean_a_key_that_comes_in_that_moment(
    m1: Master, m2: Master
) -> None:
    m2.knock("web1", 1)
    m2.settle()
    m1.knock("web1", 0, ACCEPTED)
    m1.scan()
    m2.remove("web1")
    m2.keeper.learn(m1.records())
    m2.look_again()
    exchange(m1, m2)
    assert m1.files() == m2.files() == {(ACCEPTED, "web1"): KEYS[0]}
    assert {record.fingerprint: record.state for record in m2.records()} == {
        PRINTS[0]: ACCEPTED,
        PRINTS[1]: DELETED,
    }


@pytest.mark.parametrize("hindered", ["paused", "full"])
def test_whoever_deletes_an_id_means_what_was_shown_though_it_was_refused(
    m1: Master, m2: Master, hindered: str
) -> None:
    """The fifth undecided key of an id has no record."""
    crowded(m2)
    m1.knock("web1", 5, ACCEPTED)
    m1.settle()
    m2.keeper.mode.paused = "by somebody" if hindered == "paused" else ""
    m2.store.broken = hindered == "full"
    m2.keeper.learn(m1.records())
    m2.look_again()
    m2.remove("web1")
    m2.scan()
    m2.keeper.mode.paused, m2.store.broken = "", False
    m2.settle()
    exchange(m1, m2)
    assert m1.files() == m2.files() == {}


def test_whoever_releases_an_id_means_all_that_was_shown_of_it(m1: Master, m2: Master) -> None:
    """``ha.release deletes=1`` counted the key that came while the other one was held."""
    shared(m1, m2, "web1")
    m2.keeper.holds._guard = RevocationGuard(0.0, 0)
    m2.remove("web1")
    m2.scan()
    assert "web1" in m2.replica.held.all()
    m1.file(ACCEPTED, "web1").write_text(KEYS[1])
    m1.settle()
    m2.keeper.learn(m1.records())
    m2.keeper.release("", ["web1"])
    assert (m2.state("web1", 0), m2.state("web1", 1)) == (DELETED, DELETED)


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
    m2.junk("web1", PENDING)
    m2.scan()
    m1.knock("web1", 0, ACCEPTED)
    m1.scan()
    m2.keeper.learn(m1.records())
    assert m2.files() == {(PENDING, "web1"): JUNK}
    m2.keeper.reconciler.apply()
    assert m2.files() == {(ACCEPTED, "web1"): KEYS[0]}


def test_a_store_that_is_another_one_is_not_written(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1")
    wipe(m2)
    m1.knock("web2", 2, ACCEPTED)
    m1.scan()
    m2.keeper.learn(m1.records())
    assert m2.files() == {}
    assert m2.keeper.mode.doubt


def test_what_is_still_to_be_done_is_done_with_what_it_was_known_for(
    m1: Master, m2: Master
) -> None:
    """An apply began it; what the store shows may be our own doing, of whichever of the two."""
    decided(m1, m2, ACCEPTED, REJECTED)
    m2.hear(m1.records())
    m1.move("web1", REJECTED, ACCEPTED)
    m1.scan()
    m2.keeper.learn(m1.records())
    assert m2.replica.dirty() == []
    assert m2.files() == {(ACCEPTED, "web1"): KEYS[0]}


def test_a_store_that_fails_does_not_keep_the_rest_from_being_learned(
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
    assert tries == [500, 1]
    with pytest.raises(StoreError, match="the disk is full"):
        m2.keeper.reconciler.apply()
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


def brought_back(m1: Master, m2: Master) -> list[str]:
    """Both rejected these ids; a backup has them accepted again on *m2*, where they are held."""
    ids = [f"web{number}" for number in range(30)]
    for minion_id in ids:
        m1.knock(minion_id, 0, REJECTED)
    exchange(m1, m2)
    for minion_id in ids:
        m2.move(minion_id, REJECTED, ACCEPTED)
    m2.scan()
    assert set(m2.replica.held.all()) == set(ids)
    return ids


def test_what_is_held_stays_so(m1: Master, m2: Master) -> None:
    ids = brought_back(m1, m2)
    m1.remove("web0")
    m1.scan()
    m2.keeper.learn(m1.records())
    assert set(m2.replica.held.all()) == set(ids)
    assert m2.file(ACCEPTED, "web0").exists()


@pytest.mark.parametrize("told", [True, False])
def test_what_was_held_and_is_deleted_is_held_as_rejected(
    m1: Master, m2: Master, told: bool
) -> None:
    """Gone or back, the group's rejection holds until an operator ends that."""
    ids = brought_back(m1, m2)
    m2.remove("web0")
    if told:
        m2.deletion_told(["web0"])
    m2.settle()
    assert set(m2.replica.held.all()) == set(ids)
    m2.keeper.reconciler.adopt()  # ha.refill
    exchange(m1, m2)
    assert m1.files() == m2.files() == {(REJECTED, minion_id): KEYS[0] for minion_id in ids}


@pytest.mark.parametrize("how", ["deletes", "rejects"])
def test_a_held_id_that_a_peer_decides_about_is_held_no_longer(
    m1: Master, m2: Master, how: str
) -> None:
    shared(m1, m2, "web1", "web2")
    m2.keeper.holds._guard = RevocationGuard(0.0, 0)
    m2.remove("web1")
    m2.scan()
    assert list(m2.replica.held.all()) == ["web1"]
    if how == "deletes":
        m1.remove("web1")
    else:
        m1.move("web1", ACCEPTED, REJECTED)
    m1.scan()
    m2.learn(m1.records())
    assert m2.replica.held.all() == {}
    assert m2.files() == m1.files()
    assert m2.revoked == 1


@pytest.mark.parametrize("act", ["deletes", "rejects", "lets another key knock"])
def test_whoever_acts_while_it_is_being_written_down_is_heard(
    m1: Master, m2: Master, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    decided(m1, m2, PENDING, ACCEPTED)

    def strike(name: str) -> None:
        if name == "reconcile.done":
            m2.remove("web1")
            if act == "rejects":
                m2.knock("web1", 0, REJECTED)
            elif act != "deletes":
                m2.knock("web1", 1)

    monkeypatch.setattr(reconcile, "point", strike)
    m2.keeper.learn(m1.records())
    monkeypatch.undo()
    assert not m2.file(ACCEPTED, "web1").exists()
    assert m2.keeper.work.ids() == ["web1"]
    m2.look_again()
    exchange(m1, m2)
    assert m1.files() == m2.files()
    expected = {"deletes": DELETED, "rejects": REJECTED}.get(act, DELETED)
    assert m1.state("web1") == expected


def test_the_aes_key_is_rotated_also_when_the_master_is_paused_at_once(
    m1: Master, m2: Master
) -> None:
    decided(m1, m2, ACCEPTED, DELETED)
    m2.keeper.learn(m1.records())
    m2.keeper.mode.paused = "paused"
    m2.keeper.reconciler.apply()
    assert m2.files() == {}
    assert m2.revoked == 1


@contextmanager
def once_full() -> Iterator[None]:
    raise ReplicaError("the disk is full")
    yield


def once_unreadable(minion_id: str, *how: Any, **more: Any) -> Content | None:
    raise StoreError("too many open files")


@pytest.mark.parametrize("failing", ["", "replica", "store"])
def test_a_rejection_in_that_moment_is_not_taken_for_our_own(
    m1: Master, m2: Master, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Else who accepts the key elsewhere, knowing the peer's rejection only, would win over it."""
    decided(m1, m2, ACCEPTED, REJECTED)

    def strike(name: str) -> None:
        if name == "reconcile.done":
            m2.move("web1", ACCEPTED, REJECTED)
            if failing == "replica":
                monkeypatch.setattr(m2.replica, "transaction", once_full)
            elif failing == "store":
                monkeypatch.setattr(m2.store, "read", once_unreadable)

    monkeypatch.setattr(reconcile, "point", strike)
    m2.keeper.learn(m1.records())
    monkeypatch.undo()
    m1.move("web1", REJECTED, ACCEPTED)
    m1.scan()
    m2.scan()
    exchange(m1, m2)
    assert m1.files() == m2.files() == {(REJECTED, "web1"): KEYS[0]}


def test_a_rejection_after_a_restart_is_not_taken_for_a_move_that_never_began(
    m1: Master, m2: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided(m1, m2, ACCEPTED, REJECTED)

    def strike(name: str) -> None:
        if name == "reconcile.done":
            monkeypatch.setattr(m2.store, "read", once_unreadable)

    monkeypatch.setattr(reconcile, "point", strike)
    m2.keeper.learn(m1.records())
    monkeypatch.undo()
    m2.restart()
    m2.move("web1", ACCEPTED, REJECTED)
    m1.move("web1", REJECTED, ACCEPTED)
    m1.scan()
    m2.scan()
    exchange(m1, m2)
    assert m1.files() == m2.files() == {(REJECTED, "web1"): KEYS[0]}


@pytest.mark.parametrize("key", [0, 1])
def test_who_accepts_a_key_while_another_is_being_put_there_is_heard(
    m1: Master, m2: Master, key: int
) -> None:
    """The last look is over, nothing is written yet."""
    m2.knock("web1", key)
    m2.settle()
    m1.knock("web1", 0, ACCEPTED)
    m1.scan()
    m2.store.before = lambda: m2.move("web1", PENDING, ACCEPTED)
    m2.keeper.learn(m1.records())
    assert m2.files() == {(ACCEPTED, "web1"): KEYS[key]}
    assert m2.keeper.work.ids() == ["web1"]
    m2.look_again()
    assert "m2" in {value.on for value in m2.replica.get("web1")[PRINTS[key]].values}
    exchange(m1, m2)
    assert m1.replica.conflicts() == (["web1"] if key else [])


def test_who_replaces_a_key_that_was_just_put_there_did_not_know_of_it(
    m1: Master, m2: Master
) -> None:
    m1.knock("web1", 0, ACCEPTED)
    m1.scan()
    m2.store.between = lambda: m2.knock("web1", 1, ACCEPTED)
    m2.keeper.learn(m1.records())
    m2.settle()
    exchange(m1, m2)
    assert m1.replica.conflicts() == m2.replica.conflicts() == ["web1"]


def test_a_key_that_is_half_written_over_one_that_was_just_put_there(
    m1: Master, m2: Master
) -> None:
    m1.knock("web1", 0, ACCEPTED)
    m1.scan()
    file = m2.file(ACCEPTED, "web1")

    def write_half() -> None:
        file.write_text(KEYS[1][:100])

    m2.store.between = write_half
    m2.keeper.learn(m1.records())
    assert m2.keeper.work.ids() == ["web1"]
    file.write_text(KEYS[1])
    m2.settle()
    exchange(m1, m2)
    assert m1.replica.conflicts() == m2.replica.conflicts() == ["web1"]


def cannot_be_named(m2: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    m2.file(ACCEPTED, "web1").mkdir()


def cannot_be_written(m2: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key folder is full, and so is the disk of the replica."""

    def fail(changes: Sequence[Change]) -> Outcome:
        monkeypatch.setattr(m2.replica, "transaction", once_full)
        raise StoreError("the disk is full")

    monkeypatch.setattr(m2.store, "apply", fail)


@pytest.mark.parametrize("spoil", [cannot_be_named, cannot_be_written])
def test_what_could_not_be_written_was_not_deleted_by_anybody(
    m1: Master,
    m2: Master,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Master, pytest.MonkeyPatch], None],
) -> None:
    """The minion then knocks here, as it does at every master that does not know it."""
    shared(m1, m2, "other")
    m1.knock("web1", 0, ACCEPTED)
    m1.scan()
    spoil(m2, monkeypatch)
    m2.keeper.learn(m1.records())
    monkeypatch.undo()
    m2.knock("web1")
    m2.scan()
    shutil.rmtree(m2.file(ACCEPTED, "web1"), ignore_errors=True)
    m2.settle()
    exchange(m1, m2)
    assert m1.state("web1") == ACCEPTED
    assert m1.files() == m2.files()
    assert m1.revoked == 0


def test_who_deletes_a_key_that_was_put_there_before_it_failed_is_heard(
    m1: Master, m2: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could be written, but not that it was; the minion knocks again."""
    m1.knock("web1", 0, ACCEPTED)
    m1.scan()
    m2.store.before = lambda: monkeypatch.setattr(m2.replica, "transaction", once_full)
    m2.keeper.learn(m1.records())
    monkeypatch.undo()
    assert m2.file(ACCEPTED, "web1").exists()
    m2.remove("web1")
    m2.knock("web1")
    m2.settle()
    exchange(m1, m2)
    assert m1.files() == m2.files() == {(PENDING, "web1"): KEYS[0]}


def test_the_aes_key_is_rotated_once_however_many_keys_go(m1: Master, m2: Master) -> None:
    m1.minimum = m2.minimum = 1000
    m1.restart()
    m2.restart()
    many = [f"web{number}" for number in range(501)]
    shared(m1, m2, *many)
    for minion_id in many:
        m1.remove(minion_id)
    m1.scan()
    before = m2.revoked
    m2.keeper.learn(m1.records())
    assert m2.files() == {}
    assert m2.revoked == before + 1


def once_made(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Somebody acts when the store shows the next move, and replica.db does not know it yet."""

    def strike(name: str) -> None:
        if name == "apply.store":
            monkeypatch.undo()
            act()

    monkeypatch.setattr(applier, "point", strike)


def test_the_aes_key_is_rotated_though_a_file_comes_back_at_once(
    m1: Master, m2: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Salt 3006 writes the accepted key of a minion that logs in, where it finds no file."""
    decided(m1, m2, ACCEPTED, REJECTED)
    once_made(monkeypatch, lambda: m2.knock("web1", 0, ACCEPTED))
    m2.learn(m1.records())
    assert m2.files() == {(REJECTED, "web1"): KEYS[0]}
    assert m2.revoked == 1


@pytest.mark.parametrize(
    ("before", "after"), [(ACCEPTED, REJECTED), (PENDING, ACCEPTED), (REJECTED, ACCEPTED)]
)
def test_who_takes_a_move_back_at_once_is_heard(
    m1: Master, m2: Master, monkeypatch: pytest.MonkeyPatch, before: str, after: str
) -> None:
    """The key stood in its new folder, but replica.db did not say so yet."""
    decided(m1, m2, before, after)
    once_made(monkeypatch, lambda: m2.move("web1", after, before))
    m2.learn(m1.records())
    m2.settle()
    exchange(m1, m2)
    exchange(m2, m1)
    assert m1.files() == m2.files() == {(before, "web1"): KEYS[0]}
    assert m1.replica.conflicts() == []


def test_a_deleted_key_that_comes_back_at_once_is_deleted_again(
    m1: Master, m2: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Salt 3006 does that, too; nobody can tell it from a deletion that was interrupted."""
    decided(m1, m2, ACCEPTED, DELETED)
    once_made(monkeypatch, lambda: m2.knock("web1", 0, ACCEPTED))
    m2.learn(m1.records())
    m2.settle()
    assert m2.files() == {}


@pytest.mark.parametrize("beside", [JUNK, KEYS[1]])
def test_what_stood_beside_a_key_that_goes_counts_then(m1: Master, m2: Master, beside: str) -> None:
    shared(m1, m2, "web1")
    m2.file(PENDING, "web1").write_text(beside)
    m2.settle()
    m1.remove("web1")
    m1.scan()
    m2.learn(m1.records())
    for _ in range(3):
        m2.settle()
    assert m2.files() == {(PENDING, "web1"): beside}
    assert m2.revoked == 1
    if beside == JUNK:
        assert "web1" in m2.keeper.refused.reasons
    else:
        exchange(m1, m2)
        assert m1.files() == m2.files()


def test_who_copied_an_accepted_key_beside_a_rejected_one_meant_it_for_all(
    m1: Master, m2: Master
) -> None:
    m1.knock("web1", 0, REJECTED)
    exchange(m1, m2)
    m2.knock("web1", 1, ACCEPTED)
    m2.settle()
    m1.remove("web1")
    exchange(m1, m2)
    assert m1.files() == m2.files() == {(ACCEPTED, "web1"): KEYS[1]}
