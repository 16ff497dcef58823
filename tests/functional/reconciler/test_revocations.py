"""What follows when keys are revoked: the AES key is rotated, and caches are cleaned."""

from __future__ import annotations

from typing import Any

import pytest

from saltext_ha.common.errors import StoreError
from saltext_ha.reconciler.write_mode import OBSERVE, WriteMode
from saltext_ha.replication.record import ACCEPTED, DELETED, DENIED, PENDING, REJECTED
from tests.functional.keepers import (
    Crash,
    Follow,
    Master,
    decided,
    exchange,
    shared,
    wipe,
)

pytestmark = pytest.mark.core


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
    m2.keeper.reconciler.apply()
    assert m2.gone == [{"web2"}]
    # It was looked at by the way, and is not taken for known.
    assert list(m2.store.changed()) == ["web1"]
    m2.settle()
    assert m2.state("web1", 1) == PENDING


def test_the_aes_key_does_not_wait_for_a_look_at_the_store(
    m1: Master, m2: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That may fail then, and the minion would go on with the old one."""
    order: list[str] = []
    peek = m2.store.peek

    def noted(*arguments: Any, **how: Any) -> Any:
        order.append("read")
        return peek(*arguments, **how)

    decided(m1, m2, ACCEPTED, DELETED)
    m2.hear(m1.records())
    monkeypatch.setattr(m2.store, "peek", noted)
    m2.revoking = lambda: order.append("rotate")
    m2.keeper.reconciler.apply()
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


@pytest.mark.parametrize("why", ["paused", "shared", "doubt"])
def test_a_rotation_that_failed_does_not_wait_until_the_store_is_written_again(
    m1: Master, m2: Master, follow: Follow, why: str
) -> None:
    """The key is gone here, and its minion still hears jobs."""

    def fail() -> None:
        raise StoreError("the rotate file cannot be written")

    shared(m1, m2, "web2")
    decided(m1, m2, ACCEPTED, DELETED)
    m2.revoking = fail
    with pytest.raises(StoreError):
        follow(m2, m1.records())
    assert not m2.file(ACCEPTED, "web1").exists()
    if why == "doubt":
        wipe(m2)
    else:
        setattr(m2.keeper.mode, why, "tried")
    m2.revoking = lambda: None
    m2.keeper.reconciler.apply()
    assert m2.revoked == 1
    assert m2.gone == [set()], "a store that is not written does not say who has no key"


@pytest.mark.parametrize("how", ["observes", "in a cluster"])
def test_a_master_that_only_reports_rotates_nothing(m1: Master, m2: Master, how: str) -> None:
    """Who deletes a key there, Salt or an operator, has rotated, or has meant not to."""
    shared(m1, m2, "web1", "web2")
    mode = WriteMode(OBSERVE) if how == "observes" else WriteMode(in_cluster="Salt does")
    mode.paused = "it observes" if how == "observes" else ""
    m2.restart(mode=mode)
    m1.remove("web1")
    m1.scan()
    m2.keeper.learn(m1.records())
    m2.remove("web1")
    m2.scan()
    m2.settle()
    assert m2.state("web1") == DELETED
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


def test_who_only_reports_does_not_collect_what_was_deleted(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1", "web2")
    m1.keeper.mode.shared = "tried"
    m1.remove("web1")
    m1.settle()
    m1.keeper.reconciler.apply()
    m1.keeper.mode.shared = ""
    m1.remove("web2")
    m1.settle()
    assert m1.gone == [{"web2"}]
