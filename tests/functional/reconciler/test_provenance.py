"""A key store that is not the one that was there: emptied, unmounted, or an older copy of it."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from saltext_ha.common.errors import ReplicaError, StoreError
from saltext_ha.keystore import signature
from saltext_ha.reconciler import holds
from saltext_ha.reconciler.provenance import MISSING, OLDER, OURS, Provenance
from saltext_ha.replication.record import ACCEPTED, DELETED, DENIED, PENDING, REJECTED
from tests.functional.keepers import KEYS, Crash, Master, exchange, reverted, shared, wipe

pytestmark = pytest.mark.core


def names(count: int) -> list[str]:
    return [f"web{number}" for number in range(count)]


def copy_of(master: Master) -> Path:
    """A backup of the accepted keys, links and times as they are."""
    backup = master.root / "backup"
    shutil.copytree(master.root / "minions", backup, symlinks=True)
    return backup


def put_back(master: Master, backup: Path) -> None:
    shutil.rmtree(master.root / "minions")
    backup.rename(master.root / "minions")


def backup_with_a_deleted_key(m1: Master, m2: Master) -> Path:
    """A backup of *m1* from before it deleted "gone"."""
    shared(m1, m2, "old", "gone")
    backup = copy_of(m1)
    m1.remove("gone")
    m1.settle()
    return backup


def accepted(master: Master) -> set[str]:
    return {minion_id for state, minion_id in master.files() if state == ACCEPTED}


# -- the signature itself


def test_a_store_is_ours_while_it_has_the_signature_that_we_wrote_last(m1: Master) -> None:
    provenance = m1.keeper.holds.provenance
    assert (provenance.look(), provenance.token) == (OURS, "")
    provenance.sign()
    assert provenance.look() == OURS
    first = provenance.token
    provenance.sign()
    assert provenance.look() == OURS
    m1.store.sign("m1", first)
    assert provenance.look() == OLDER
    m1.store.sign("m1", None)
    assert provenance.look() == MISSING


def test_the_signature_survives_a_restart_and_a_crash_while_signing(m1: Master) -> None:
    m1.keeper.holds.provenance.sign()
    m1.restart()
    assert m1.keeper.holds.provenance.look() == OURS

    class Dead(Exception):
        pass

    def die(owner: str, token: str | None) -> None:
        raise Dead

    sign = m1.store.sign
    for act in (lambda o, t: die(o, t), lambda o, t: (sign(o, t), die(o, t))):
        m1.store.sign = act  # type: ignore[method-assign,assignment]
        with pytest.raises(Dead):
            m1.keeper.holds.provenance.sign()
        m1.restart()
        assert m1.keeper.holds.provenance.look() == OURS


def test_a_folder_that_cannot_be_written_keeps_its_signature(
    m1: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    m1.keeper.holds.provenance.sign()

    def full(folder: str, owner: str, token: str | None) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(signature, "write", full)
    for _ in range(3):
        with pytest.raises(StoreError, match="No space left"):
            m1.keeper.holds.provenance.sign()
    assert m1.keeper.holds.provenance.look() == OURS


def test_a_master_with_a_new_name_signs_anew(m1: Master) -> None:
    m1.keeper.holds.provenance.sign()
    other = Provenance(m1.store, m1.replica, "other")
    assert (other.look(), other.token) == (OURS, "")


# -- an emptied folder


@pytest.mark.parametrize("count", [1, 30])
def test_without_its_signature_nothing_is_believed_however_few_keys_are_gone(
    m1: Master, m2: Master, count: int
) -> None:
    shared(m1, m2, *names(count))
    wipe(m1)
    assert "signature is gone" in m1.keeper.mode.doubt
    assert set(m1.replica.held.all()) == set(names(count))
    exchange(m1, m2)
    assert accepted(m2) == set(names(count))


@pytest.mark.parametrize("command", ["refill", "release"])
def test_an_emptied_store_of_rejected_keys_only_is_not_believed(
    m1: Master, m2: Master, command: str
) -> None:
    """Where keys are accepted automatically, their minions would get in again."""
    m1.knock("web1", 0, REJECTED)
    exchange(m1, m2)
    m1.settle()
    m1.file(REJECTED, "web1").unlink()
    wipe(m1)
    m1.look_again()
    assert "signature is gone" in m1.keeper.mode.doubt
    exchange(m1, m2)
    assert m1.state("web1") == m2.state("web1") == REJECTED
    if command == "refill":
        m1.keeper.reconciler.adopt()
        m1.settle()
    else:
        m1.keeper.release()
        m1.look_again()
    exchange(m1, m2)
    assert m1.files() == m2.files()
    assert bool(m1.files()) is (command == "refill")


def test_what_is_gone_is_held_as_soon_as_that_can_be_written_down(
    m1: Master, m2: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(ids: object, at: float) -> None:
        raise ReplicaError("the disk is full")

    shared(m1, m2, "web1", "web2")
    monkeypatch.setattr(m1.replica.held, "add", full)
    with pytest.raises(ReplicaError):
        wipe(m1)
    assert "signature is gone" in m1.keeper.mode.doubt
    monkeypatch.undo()
    m1.scan()
    assert set(m1.replica.held.all()) == {"web1", "web2"}


def test_what_waits_for_the_store_that_was_here_costs_nothing_meanwhile(m1: Master) -> None:
    """It may be 100 000 ids, which are due again every few seconds."""
    for name in names(3):
        m1.knock(name, 0, ACCEPTED)
    m1.settle()
    shutil.rmtree(m1.root / "minions")
    m1.keeper.reconciler.weigh(m1.store.changed())
    assert m1.keeper.mode.doubt
    before = m1.replica.version
    m1.keeper.observe(m1.keeper.work.ids())
    assert m1.replica.version == before
    assert sorted(m1.keeper.work.ids()) == names(3)


def test_nothing_is_written_into_an_empty_mount_point(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1")
    away = m1.root / "away"
    (m1.root / "minions").rename(away)
    (m1.root / "minions").mkdir()
    m2.knock("web2", 1, ACCEPTED)
    m2.remove("web1")
    exchange(m1, m2)
    assert list((m1.root / "minions").iterdir()) == []

    (m1.root / "minions").rmdir()
    away.rename(m1.root / "minions")
    exchange(m1, m2)
    assert m1.keeper.mode.doubt == ""
    assert m1.replica.held.all() == {}
    assert m1.files() == m2.files() == {(ACCEPTED, "web2"): KEYS[1]}


@pytest.mark.parametrize("first", ["apply", "merge"])
def test_a_folder_that_is_back_holds_nothing_whoever_notices_first(
    m1: Master, m2: Master, first: str
) -> None:
    put_back(m1, folder_away(m1, m2, False, *names(3)))
    if first == "apply":
        m1.keeper.reconciler.apply()
    else:
        m1.hear(m2.records()[:1])
    m1.settle()
    assert m1.replica.held.all() == {}
    assert accepted(m1) == set(names(3))


def test_a_folder_that_came_back_while_the_engine_was_away_holds_nothing(
    m1: Master, m2: Master
) -> None:
    put_back(m1, folder_away(m1, m2, False, *names(3)))
    m1.restart()
    m1.store.recall(m1.replica.marks())  # as at every start: what is as it was is not named
    m1.settle()
    assert m1.replica.held.all() == {}


@pytest.fixture(params=[False, True], ids=["3006", "3008"])
def layout(request: pytest.FixtureRequest) -> bool:
    """Whether Salt takes an id that is pending and accepted as pending, as 3008 does."""
    return bool(request.param)


def folder_away(m1: Master, m2: Master, layout: bool, *ids: str) -> Path:
    """
    *ids* are accepted on both; an empty folder is in the place of that of m1, which has seen it.
    Returns where the keys lie.
    """
    m1.restart(pending_first=layout)
    shared(m1, m2, *ids)
    aside = m1.root / "aside"
    (m1.root / "minions").rename(aside)
    (m1.root / "minions").mkdir()
    m1.scan()
    assert set(m1.replica.held.all()) == set(ids)
    return aside


@pytest.mark.parametrize("restarted", [False, True])
def test_minions_that_knocked_while_the_folder_was_away_are_accepted_as_before(
    m1: Master, m2: Master, layout: bool, restarted: bool
) -> None:
    """Salt left their keys twice, and 3008 would have them wait; nobody has to do anything."""
    aside = folder_away(m1, m2, layout, *names(13))
    for minion_id in names(12):
        m1.knock(minion_id)
    m1.scan()
    put_back(m1, aside)
    if restarted:
        m1.restart(pending_first=layout)
    m1.settle()
    exchange(m1, m2)
    assert m1.replica.held.all() == {}
    assert m1.files() == m2.files() == {(ACCEPTED, minion_id): KEYS[0] for minion_id in names(13)}
    assert m1.revoked == m2.revoked == 0


def test_a_knock_with_another_key_while_the_folder_was_away_is_denied(
    m1: Master, m2: Master, layout: bool
) -> None:
    aside = folder_away(m1, m2, layout, "web1", "web2")
    m1.knock("web1", 1)
    m1.scan()
    put_back(m1, aside)
    m1.settle()
    exchange(m1, m2)
    assert m1.replica.held.all() == {}
    assert m1.files() == {
        (ACCEPTED, "web1"): KEYS[0],
        (DENIED, "web1"): KEYS[1],
        (ACCEPTED, "web2"): KEYS[0],
    }
    assert m1.files() == m2.files()
    assert (m2.state("web1"), m2.state("web1", 1)) == (ACCEPTED, PENDING)


def test_a_knock_while_the_folder_was_away_brings_no_deleted_key_back(
    m1: Master, m2: Master, layout: bool
) -> None:
    aside = folder_away(m1, m2, layout, "web1", "web2")
    m1.knock("web1")
    m2.remove("web1")
    m2.settle()
    m1.hear(m2.records())
    put_back(m1, aside)
    m1.settle()
    exchange(m1, m2)
    assert m1.files() == m2.files() == {(ACCEPTED, "web2"): KEYS[0]}
    assert m1.revoked > 0


@pytest.mark.parametrize("key", [0, 1])
def test_files_that_are_back_after_their_minions_knocked_are_believed(
    m1: Master, m2: Master, layout: bool, key: int
) -> None:
    """The folder is the right one; somebody had removed what was in it."""
    m1.restart(pending_first=layout)
    shared(m1, m2, *names(15))
    for minion_id in names(15):
        m1.remove(minion_id)
        m1.knock(minion_id, key)
    m1.scan()
    assert set(m1.replica.held.all()) == set(names(15))
    restore_over(m1, names(15))
    m1.settle()
    exchange(m1, m2)
    assert m1.replica.held.all() == {}
    assert accepted(m1) == accepted(m2) == set(names(15))
    assert PENDING not in {state for state, _ in (*m1.files(), *m2.files())}


def test_released_when_it_is_back_nothing_is_deleted(m1: Master, m2: Master, layout: bool) -> None:
    aside = folder_away(m1, m2, layout, *names(3))
    m1.knock("web1")
    m1.knock("web2", 1)
    put_back(m1, aside)
    m1.keeper.release()
    m1.settle()
    exchange(m1, m2)
    assert accepted(m1) == accepted(m2) == set(names(3))


def test_released_it_is_believed_and_signed_again(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1", "web2")
    wipe(m1)
    m1.knock("web2", 0, ACCEPTED)
    m1.keeper.release()
    assert m1.keeper.mode.doubt == ""
    assert m1.replica.held.all() == {}
    exchange(m1, m2)
    assert m1.files() == m2.files() == {(ACCEPTED, "web2"): KEYS[0]}
    assert m1.keeper.holds.provenance.look() == OURS


def test_refilled_it_shows_again_what_is_known(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1", "web2")
    wipe(m1)
    m1.knock("web1", 0, PENDING)
    m1.knock("new", 1, PENDING)
    m2.remove("web2")
    m2.settle()
    m1.keeper.reconciler.adopt()
    m1.settle()
    exchange(m1, m2)
    assert m1.files() == m2.files() == {(ACCEPTED, "web1"): KEYS[0], (PENDING, "new"): KEYS[1]}
    assert m1.keeper.holds.provenance.look() == OURS


def test_a_master_without_any_key_signs_a_new_folder(m1: Master) -> None:
    m1.settle()
    wipe(m1)
    m1.knock("web1", 0, ACCEPTED)
    m1.settle()
    assert m1.keeper.mode.doubt == ""
    assert m1.keeper.holds.provenance.look() == OURS


def test_an_observing_master_signs_nothing(m1: Master) -> None:
    m1.restart(enforce=False)
    m1.knock("web1", 0, ACCEPTED)
    m1.settle()
    assert m1.store.signature("m1") is None


@pytest.mark.parametrize("state", [ACCEPTED, REJECTED])
def test_where_a_master_observes_the_last_keys_are_not_believed_to_be_gone(
    m1: Master, m2: Master, state: str
) -> None:
    """It leaves no signature; nor is there one in the folder below a file system that is away."""
    m1.restart()
    m1.keeper.mode.paused = "it observes"
    for name in names(3):
        m1.knock(name, 0, state)
    exchange(m1, m2)
    m1.remove("web2")
    exchange(m1, m2)
    assert m2.state("web2") == DELETED
    for name in names(2):
        m1.remove(name)
    m1.scan()
    assert set(m1.replica.held.all()) == {"web0", "web1"}
    exchange(m1, m2)
    assert m2.files().keys() == {(state, "web0"), (state, "web1")}
    m1.deletion_told(["web0"])
    m1.keeper.release()
    m1.settle()
    exchange(m1, m2)
    assert m2.files() == {}
    assert m1.store.signature("m1") is None


def test_where_a_master_observes_a_revoked_key_that_is_back_is_no_last_one_that_is_gone(
    m1: Master,
) -> None:
    """As after ``salt-key -a`` while no engine ran. It is not among the keys that are there."""
    m1.restart()
    m1.keeper.mode.paused = "it observes"
    m1.knock("web0", 0, ACCEPTED)
    m1.scan()
    m1.remove("web0")
    m1.deletion_told(["web0"])
    assert m1.state("web0") == DELETED
    m1.knock("web0", 0, ACCEPTED)
    m1.settle()
    assert not m1.replica.held.all()
    assert m1.state("web0") == ACCEPTED


# -- an older copy


def test_an_older_copy_brings_no_deleted_key_back_and_deletes_no_new_one(
    m1: Master, m2: Master
) -> None:
    shared(m1, m2, "old", "gone", "turned")
    backup = copy_of(m1)
    m1.remove("gone")
    m1.move("turned", ACCEPTED, REJECTED)
    m1.settle()
    m1.keeper.holds.provenance.sign()
    shared(m1, m2, "new", key=1)
    before = m1.files()
    put_back(m1, backup)
    exchange(m1, m2)
    assert m1.files() == m2.files() == before
    assert m1.keeper.mode.doubt == ""
    assert m1.keeper.holds.provenance.look() == OURS
    # Salt read a revoked key for a moment: a minion may have got the AES key.
    assert m1.revoked > 0


@pytest.mark.parametrize("copying", [False, True])
def test_an_older_copy_is_told_of_once(
    m1: Master, m2: Master, caplog: pytest.LogCaptureFixture, copying: bool
) -> None:
    backup = backup_with_a_deleted_key(m1, m2)
    m1.keeper.holds.provenance.sign()
    put_back(m1, backup)
    for m1.store.copying in (copying, False):
        m1.keeper.reconciler.weigh(m1.store.changed())
        m1.scan()
    assert accepted(m1) == {"old"}
    assert caplog.text.count("is an older copy") == 1


def test_an_older_copy_while_the_engine_was_away(m1: Master, m2: Master) -> None:
    backup = backup_with_a_deleted_key(m1, m2)
    m1.keeper.holds.provenance.sign()
    put_back(m1, backup)
    m1.restart()
    exchange(m1, m2)
    assert accepted(m1) == accepted(m2) == {"old"}


def test_an_older_copy_is_adopted_when_all_of_it_is_there(m1: Master, m2: Master) -> None:
    """What is copied after the signature is no decision of now."""
    shared(m1, m2, "old", "gone", "turned", "half")
    backup = copy_of(m1)
    m1.move("turned", ACCEPTED, REJECTED)
    m1.remove("gone")
    m1.remove("half")
    m1.settle()
    exchange(m1, m2)
    m1.keeper.holds.provenance.sign()
    before = m1.files()

    m1.store.copying = True
    link = m1.root / "minions" / ".ha-m1"
    link.unlink()
    shutil.copy2(backup / ".ha-m1", link, follow_symlinks=False)
    m1.file(ACCEPTED, "half").write_text(KEYS[0][:80])
    exchange(m1, m2)
    m1.file(ACCEPTED, "half").write_text(KEYS[0])
    exchange(m1, m2)
    m2.knock("new", 1, ACCEPTED)
    for minion_id in ("gone", "turned"):
        shutil.copy2(backup / minion_id, m1.root / "minions")
        exchange(m1, m2)
    assert "older copy" in m1.keeper.mode.doubt
    assert (ACCEPTED, "new") not in m1.files(), "nothing is written meanwhile"
    assert (m1.state("new", 1), m2.files()) == (ACCEPTED, {**before, (ACCEPTED, "new"): KEYS[1]})

    m1.store.copying = False
    exchange(m1, m2)
    assert m1.keeper.mode.doubt == ""
    assert m1.files() == m2.files() == {**before, (ACCEPTED, "new"): KEYS[1]}
    assert m1.keeper.holds.provenance.look() == OURS


def test_a_deleted_key_that_is_copied_before_the_signature_stays_deleted(
    m1: Master, m2: Master
) -> None:
    """The order in which a tool copies files is any: the signature may come last."""
    backup = backup_with_a_deleted_key(m1, m2)
    exchange(m1, m2)
    m1.keeper.holds.provenance.sign()

    m1.store.copying = True
    shutil.copy2(backup / "gone", m1.root / "minions")
    for _ in range(2):
        assert m1.scan() == []
    assert m1.keeper.work.overdue() == -math.inf, "looked at without a pause, and believed"
    link = m1.root / "minions" / ".ha-m1"
    link.unlink()
    shutil.copy2(backup / ".ha-m1", link, follow_symlinks=False)
    exchange(m1, m2)
    m1.store.copying = False
    exchange(m1, m2)
    assert accepted(m1) == accepted(m2) == {"old"}


def test_each_key_that_may_be_copied_is_waited_for_anew_but_not_for_ever(
    m1: Master, m2: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other keys may come and go all the time, and nothing says when a copy ends."""
    backup = backup_with_a_deleted_key(m1, m2)
    at = [time.monotonic()]
    monkeypatch.setattr(holds, "time", SimpleNamespace(monotonic=lambda: at[0]))
    m1.store.copying = True
    for _ in range(2):  # a day apart
        shutil.copy2(backup / "gone", m1.root / "minions")
        assert m1.scan() == [], "not believed yet"
        m1.file(ACCEPTED, "gone").unlink()
        m1.settle()
        at[0] += 86400
    shutil.copy2(backup / "gone", m1.root / "minions")
    end = at[0] + holds.LONGEST_COPY
    while at[0] < end:
        assert m1.scan() == []
        at[0] += holds.AGAIN / 2
    m1.settle()
    assert m1.state("gone") == ACCEPTED


def test_a_store_that_never_rests_is_adopted_all_the_same(
    m1: Master, m2: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = backup_with_a_deleted_key(m1, m2)
    m1.keeper.holds.provenance.sign()
    m1.store.copying = True
    put_back(m1, backup)
    m1.settle()
    assert m1.keeper.mode.doubt
    monkeypatch.setattr(holds, "LONGEST_COPY", 0.0)
    exchange(m1, m2)
    assert (m1.keeper.mode.doubt, accepted(m1)) == ("", {"old"})


def test_a_key_that_only_the_older_copy_has_is_adopted(m1: Master, m2: Master) -> None:
    m1.keeper.holds.provenance.sign()
    shared(m1, m2, "old")
    backup = copy_of(m1)
    (backup / "forgotten").write_text(KEYS[2])
    m1.keeper.holds.provenance.sign()
    put_back(m1, backup)
    exchange(m1, m2)
    assert accepted(m1) == accepted(m2) == {"old", "forgotten"}


@pytest.mark.parametrize("signed", [True, False])
def test_a_copy_from_before_tombstones_were_dropped_accepts_nothing_unknown(
    m1: Master, m2: Master, signed: bool
) -> None:
    shared(m1, m2, "old")
    backup = copy_of(m1)
    (backup / "unknown").write_text(KEYS[2])
    with m1.replica.transaction():
        m1.replica.dropped.raise_horizon({}, 1)
    m1.settle()
    assert m1.keeper.holds.provenance.token.endswith(".1")
    put_back(m1, backup)
    if not signed:
        m1.store.sign("m1", None)
        assert m1.scan() == []
        m1.keeper.reconciler.adopt()
    exchange(m1, m2)
    assert accepted(m1) == accepted(m2) == {"old"}
    assert m1.files()[PENDING, "unknown"] == m2.files()[PENDING, "unknown"] == KEYS[2]


# -- an older replica


@pytest.mark.parametrize("kept", [{"web2"}, set()], ids=["one is left", "none"])
def test_an_older_replica_waits_for_a_peer_and_brings_nothing_back(
    m1: Master, m2: Master, kept: set[str]
) -> None:
    shared(m1, m2, "web1", *kept)
    with reverted(m1):
        m1.remove("web1")
        m1.settle()
        exchange(m1, m2)
    m1.settle()
    m1.keeper.reconciler.adopt_undecided()
    m1.settle()
    assert m1.keeper.mode.adopting
    assert accepted(m1) == kept
    m1.knock("new", 1, ACCEPTED)
    m1.settle()
    assert accepted(m1) == {*kept, "new"}
    m1.hear(m2.records())
    m1.keeper.reconciler.rebuilt()
    exchange(m1, m2)
    assert accepted(m1) == accepted(m2) == {*kept, "new"}
    assert m1.keeper.holds.provenance.look() == OURS


@pytest.mark.parametrize("news", [False, True])
def test_what_was_revoked_since_an_older_replica_holds_unless_a_peer_has_news_of_it(
    m1: Master, m2: Master, news: bool
) -> None:
    """The peer may be restored from a backup, too, or never have heard of it."""
    shared(m1, m2, "web1", "web2", "web3")
    with reverted(m1):
        m1.remove("web1")
        m1.move("web2", ACCEPTED, REJECTED)
        m1.settle()
        if news:
            exchange(m1, m2)
            m2.knock("web1", 0, ACCEPTED)
            m2.move("web2", REJECTED, ACCEPTED)
            m2.settle()
    m1.scan()
    assert m1.keeper.mode.adopting
    m1.hear(m2.records())
    m1.keeper.reconciler.rebuilt()
    m1.settle()
    exchange(m1, m2)
    assert m1.files() == m2.files()
    assert accepted(m1) == ({"web1", "web2", "web3"} if news else {"web3"})
    assert (m1.state("web1"), m1.state("web2")) == (
        (ACCEPTED, ACCEPTED) if news else (DELETED, REJECTED)
    )


def test_of_keys_that_were_forgotten_since_an_older_replica_nothing_is_accepted(
    m1: Master, m2: Master
) -> None:
    """The key store shows one that was deleted since, on a master that was down meanwhile."""
    shared(m1, m2, "web1")
    with reverted(m1):
        m1.knock("unknown", 0, ACCEPTED)
        m1.settle()
    m1.scan()
    with m1.replica.transaction():
        m1.replica.dropped.raise_horizon({}, 1)
    m1.hear(m2.records())
    m1.keeper.reconciler.rebuilt()
    m1.settle()
    exchange(m1, m2)
    assert accepted(m1) == accepted(m2) == {"web1"}
    assert m1.state("unknown") == PENDING


def test_many_keys_that_are_gone_since_an_older_replica_are_held(m1: Master, m2: Master) -> None:
    """Its signature came back from a backup, and the keys may be on their way."""
    shared(m1, m2, *names(30))
    with reverted(m1):
        pass
    for name in names(30):
        m1.remove(name)
    m1.keeper.reconciler.weigh(m1.store.changed())
    m1.scan()
    m1.hear(m2.records())
    m1.keeper.reconciler.rebuilt()
    m1.scan()
    assert set(m1.replica.held.all()) == set(names(30))
    exchange(m1, m2)
    assert accepted(m2) == set(names(30))


# -- a copy without its signature, over the folder that is there


def restore_over(master: Master, ids: list[str]) -> None:
    for minion_id in ids:
        master.knock(minion_id, 0, ACCEPTED)


def test_what_is_adopted_on_a_full_disk_is_adopted_when_there_is_room(
    m1: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was read, so the folder does not name it again."""
    for name in names(3):
        m1.knock(name, 0, ACCEPTED)
    m1.restart(adopting=True)

    def full() -> None:
        raise ReplicaError("the disk is full")

    with monkeypatch.context() as disk:
        disk.setattr(m1.replica, "transaction", full)
        with pytest.raises(ReplicaError):
            m1.keeper.reconciler.adopt()
    m1.keeper.reconciler.adopt()
    assert [m1.state(name) for name in names(3)] == [ACCEPTED] * 3
    assert m1.keeper.work.ids() == []


@pytest.mark.parametrize("how", [Master.remove, lambda m, i: m.move(i, ACCEPTED, REJECTED)])
def test_many_revoked_keys_that_come_back_at_once_are_held(
    m1: Master, m2: Master, how: Callable[[Master, str], None]
) -> None:
    shared(m1, m2, *names(11))
    for minion_id in names(11):
        how(m1, minion_id)
        m1.settle()
        m1.keeper.holds._guard._believed.clear()  # a minute later
    exchange(m1, m2)
    revoked = m2.files()
    for minion_id in names(11):
        m1.file(REJECTED, minion_id).unlink(missing_ok=True)
    restore_over(m1, names(11))
    exchange(m1, m2)
    assert set(m1.replica.held.all()) == set(names(11))
    assert m2.files() == revoked

    m1.keeper.reconciler.adopt()
    exchange(m1, m2)
    assert m1.files() == m2.files() == revoked
    assert m1.replica.held.all() == {}


def test_revoked_keys_that_came_back_can_be_released(m1: Master, m2: Master) -> None:
    shared(m1, m2, *names(11))
    for minion_id in names(11):
        m1.remove(minion_id)
        m1.deletion_told([minion_id])
        m1.keeper.holds._guard._believed.clear()  # a minute later
    exchange(m1, m2)
    assert m2.files() == {}
    restore_over(m1, names(11))
    m1.scan()
    assert len(m1.replica.held.all()) == 11
    m1.keeper.release()
    exchange(m1, m2)
    assert accepted(m1) == accepted(m2) == set(names(11))


def test_an_operator_who_accepts_many_rejected_keys_is_believed(m1: Master, m2: Master) -> None:
    m1.minimum = m2.minimum = 10
    for minion_id in names(15):
        m1.knock(minion_id, 0, REJECTED)
    exchange(m1, m2)
    for minion_id in names(15):
        m1.move(minion_id, REJECTED, ACCEPTED)
    m1.scan()  # the folders' times are seen before the events
    for minion_id in names(15):
        m1.keeper.observe([minion_id], by="operator")
    assert m1.replica.held.all() == {}
    exchange(m1, m2)
    assert accepted(m2) == set(names(15))


def test_one_deleted_key_that_somebody_puts_back_by_hand_is_accepted(
    m1: Master, m2: Master
) -> None:
    shared(m1, m2, "web1")
    m1.remove("web1")
    exchange(m1, m2)
    assert m2.state("web1") == DELETED
    m1.knock("web1", 0, ACCEPTED)
    exchange(m1, m2)
    assert accepted(m2) == {"web1"}


def test_it_is_believed_when_no_copy_is_under_way(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1", "web2")
    for minion_id in ("web1", "web2"):
        m1.remove(minion_id)
    exchange(m1, m2)
    m1.store.copying = True
    restore_over(m1, ["web1", "web2"])
    m1.scan()
    m1.keeper.observe(["web2"], by="operator")  # an event of Salt names it
    assert (m1.state("web1"), m1.state("web2")) == (DELETED, ACCEPTED)
    m1.store.copying = False
    exchange(m1, m2)
    assert accepted(m2) == {"web1", "web2"}


def test_a_crash_at_the_very_first_signature_leaves_the_store_unsigned(
    m1: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(owner: str, token: str | None) -> None:
        raise Crash

    monkeypatch.setattr(m1.store, "sign", crash)
    with pytest.raises(Crash):
        m1.keeper.holds.provenance.sign()
    m1.restart()
    # Not MISSING: nothing was taken away, and nobody has to release anything.
    assert m1.keeper.holds.provenance.look() == OURS
