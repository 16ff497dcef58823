"""A replica that was lost: what the peers know holds, and what the store shows is adopted."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from saltext_ha.common.errors import StoreError
from saltext_ha.reconciler.dropping import Dropping
from saltext_ha.reconciler.own_writes import MINION
from saltext_ha.replication.record import ACCEPTED, DELETED, DENIED, PENDING, REJECTED
from tests.functional.keepers import (
    KEYS,
    PRINTS,
    Master,
    exchange,
    lose,
    reverted,
    shared,
)

pytestmark = pytest.mark.core


def test_after_a_lost_replica_what_peers_decided_holds(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1", "web2")
    lose(m1)
    m2.remove("web1")
    m2.scan()
    m1.knock("new")
    m1.open(adopting=True)
    assert m1.scan() == [], "nothing is recorded before it is known what peers decided"
    m1.learn(m2.records())
    adopted = m1.keeper.reconciler.rebuilt()
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
    m1.keeper.reconciler.adopt_undecided()
    assert m1.keeper.mode.adopting is expected
    assert m1.keeper.mode.lost, "it is not whole yet"
    assert bool(m1.records()) is (bool(folder) and not expected)
    # What was looked at is adopted all the same.
    m1.keeper.reconciler.rebuilt()
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
    m2.keeper.reconciler.adopt_undecided()
    m2.learn(m1.records())
    m2.keeper.reconciler.rebuilt()
    exchange(m1, m2)
    assert m1.files() == m2.files() == {}


def test_what_is_decided_while_keys_are_coming_holds_after_a_crash(m1: Master, m2: Master) -> None:
    for number in range(4):
        m1.knock(f"web{number}", 0, ACCEPTED)
    m1.settle()
    lose(m2)
    m2.open(adopting=True)
    m2.replica.take_node()
    m2.keeper.reconciler.adopt_undecided()
    m2.learn([record for record in m1.records() if record.minion_id < "web2"])
    m2.remove("web1")
    m2.restart(adopting=m2.replica.meta.blank, adopted=m2.replica.meta.adopted)
    m2.replica.take_node()
    m2.keeper.reconciler.adopt_undecided()
    m2.learn(m1.records())
    m2.keeper.reconciler.rebuilt()
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
    assert master.keeper.tombstones.drop(master.replica.records.root, dropping)


def whole(master: Master, peer: Master) -> None:
    """All that *peer* knows was pulled, the horizon last."""
    with master.replica.transaction():
        master.replica.dropped.raise_horizon(peer.replica.dropped.horizon(), 1)
    master.keeper.reconciler.rebuilt()


def test_an_older_store_is_adopted_when_all_has_come(m1: Master, m2: Master) -> None:
    """Until then it is unknown what was deleted and dropped since."""
    names = ("dead", "web1", "web2", "web3")
    forgotten(m1, *names)
    lose(m2)
    m2.open(adopting=True)
    m2.keeper.reconciler.adopt_undecided()
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
    m2.keeper.reconciler.adopt_undecided()
    m2.settle()
    m2.store.sign("m2", None)
    for name in names:
        m2.knock(name, 0, ACCEPTED)
    m2.restart(adopting=m2.replica.meta.blank, adopted=m2.replica.meta.adopted)
    m2.scan()
    assert "signature is gone" in m2.keeper.mode.doubt
    m2.keeper.learn(m1.records())
    whole(m2, m1)
    m2.keeper.reconciler.adopt()  # ha.refill
    m2.settle()
    exchange(m1, m2)
    assert m1.files() == m2.files()
    assert m1.file(PENDING, "dead").exists(), "somebody has to decide about it anew"


def test_an_old_replica_writes_nothing_into_an_empty_mount_point(m1: Master, m2: Master) -> None:
    shared(m1, m2, "web1", "web2")
    m1.settle()
    with reverted(m1):
        pass
    m1.scan()
    assert m1.keeper.mode.adopting
    shutil.rmtree(m1.root / "minions")
    (m1.root / "minions").mkdir()
    m1.keeper.learn(m2.records())
    with pytest.raises(StoreError, match="not mounted"):
        m1.keeper.reconciler.rebuilt()
    assert m1.keeper.mode.lost
    assert list((m1.root / "minions").iterdir()) == []


def test_where_others_bring_keys_nothing_is_adopted_early(m1: Master) -> None:
    """When these were decided about is not known."""
    m1.restart(adopting=True, enforce=False)
    m1.keeper.reconciler.adopt_undecided()
    assert m1.keeper.mode.adopting


def test_adopting_says_of_known_keys_only_what_nobody_has_decided(m1: Master, m2: Master) -> None:
    m1.knock("web1")
    m1.knock("web2")
    exchange(m1, m2)
    lose(m1)
    m1.move("web1", PENDING, ACCEPTED)
    m1.open(adopting=True)
    m1.keeper.learn(m2.records())
    adopted = m1.keeper.reconciler.rebuilt()
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
    m1.keeper.reconciler.rebuilt()
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
    m1.keeper.reconciler.rebuilt()
    assert told == [("conflict", "web1")]
    assert [line.account for line in m1.replica.history.lines("web1") if line.account]


@pytest.mark.parametrize("unchanged", [True, False])
def test_an_event_of_a_deletion_that_nobody_made_after_adopting(
    m1: Master, unchanged: bool
) -> None:
    """Any minion can have Salt fire it: a knock that is there unchanged was deleted by nobody."""
    m1.knock("web1")
    m1.restart(adopting=True)
    m1.keeper.reconciler.rebuilt()
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
    m1.keeper.reconciler.rebuilt()
    m1.settle()
    assert m1.files() == {(REJECTED, "web1"): KEYS[0]}
    assert m1.state("web1") == REJECTED
