"""Which changes are held back, what ends that, and how often it is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from saltext_ha.reconciler.hints import Hint, tasks
from saltext_ha.reconciler.own_writes import MINION
from saltext_ha.replication.record import ACCEPTED, DELETED, DENIED, PENDING, REJECTED
from tests.functional.keepers import KEYS, Master, exchange, shared

pytestmark = pytest.mark.core

NAMES = [f"web{number:02}" for number in range(30)]


def test_keys_that_go_one_by_one_are_not_told_of_one_by_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A reactor is to page somebody once, not for each."""
    m1, m2 = Master(tmp_path, "m1"), Master(tmp_path, "m2")
    shared(m1, m2, *NAMES)
    told: list[dict[str, Any]] = []
    m1.keeper.holds._writer.announce = lambda event, data: told.append({"event": event, **data})
    for name in NAMES:
        m1.remove(name)
        m1.keeper.observe([name], certain=True)
    assert [data["count"] for data in told] == [1, 2, 4, 8, 16]
    assert {(data["event"], data["master"]) for data in told} == {("held", "m1")}
    assert told[-1]["ids"] == NAMES[10:26]
    assert len([line for line in caplog.messages if line.startswith("ha held")]) == len(told)
    # All are held, whatever was said.
    assert list(m1.replica.held.all()) == NAMES[10:]
    exchange(m1, m2)
    assert m2.files().keys() == {("accepted", name) for name in NAMES[10:]}


def test_what_salt_says_was_deleted_is_one_decision(tmp_path: Path) -> None:
    """``salt-key -d 'web*'`` tells of each key by itself: none of them is held, however many."""
    m1, m2 = Master(tmp_path, "m1"), Master(tmp_path, "m2")
    shared(m1, m2, *NAMES)
    for name in NAMES[:20]:
        m1.remove(name)
        m1.deletion_told([name])
    assert not m1.replica.held.all()
    exchange(m1, m2)
    assert m2.files().keys() == {("accepted", name) for name in NAMES[20:]}
    # What goes without a word counts by itself.
    for name in NAMES[20:]:
        m1.remove(name)
    m1.keeper.observe(NAMES[20:], certain=True)
    assert not m1.replica.held.all()


def test_a_minion_that_knocked_since_does_not_make_its_deletion_a_doubtful_one(
    tmp_path: Path,
) -> None:
    m1, m2 = Master(tmp_path, "m1"), Master(tmp_path, "m2")
    shared(m1, m2, *NAMES)
    for name in NAMES[:20]:
        m1.remove(name)
        m1.knock(name)
        m1.deletion_told([name])
    assert not m1.replica.held.all()
    exchange(m1, m2)
    there = {("pending", name) for name in NAMES[:20]} | {("accepted", n) for n in NAMES[20:]}
    assert m1.files().keys() == m2.files().keys() == there
    # Of what nobody tells, it may be an emptied store that minions knock at.
    for name in NAMES[20:]:
        m1.remove(name)
        m1.knock(name)
    m1.minimum = 5
    m1.keeper.holds._guard._minimum = 5
    m1.keeper.observe(NAMES[20:], certain=True)
    assert list(m1.replica.held.all()) == NAMES[20:]


def test_who_knocks_at_an_emptied_folder_before_a_pass_is_held_with_the_others(
    tmp_path: Path,
) -> None:
    """Salt's event of the knock comes first; a few of them alone would be believed."""
    m1, m2 = Master(tmp_path, "m1"), Master(tmp_path, "m2")
    shared(m1, m2, *NAMES)
    for name in NAMES:
        m1.remove(name)
    for name in NAMES[:5]:
        m1.knock(name)
        m1.keeper.reconcile_all(tasks([Hint(name, "", False)]))
    m1.scan()
    assert list(m1.replica.held.all()) == NAMES
    exchange(m1, m2)
    assert m2.files().keys() == {(ACCEPTED, name) for name in NAMES}


@pytest.mark.parametrize("knocks", ["", PENDING, ACCEPTED])
def test_many_rejected_keys_that_are_gone_are_held(tmp_path: Path, knocks: str) -> None:
    """``rm -r minions_rejected``, or a backup of it: where keys are accepted automatically, their
    minions would get in. How many other keys are accepted does not count."""
    m1, m2 = Master(tmp_path, "m1"), Master(tmp_path, "m2")
    for number in range(200):
        m1.knock(f"db{number}", 0, ACCEPTED)
    for name in NAMES[:11]:
        m1.knock(name, 0, REJECTED)
    exchange(m1, m2)
    m1.settle()
    m1.keeper.holds._guard._fraction = 0.1
    for name in NAMES[:11]:
        m1.remove(name)
    m1.scan()
    for name in NAMES[:11] if knocks else ():
        m1.knock(name, 0, knocks)
        by = MINION if knocks == ACCEPTED else ""
        m1.keeper.reconcile_all(tasks([Hint(name, by, False)]))
    m1.scan()
    assert list(m1.replica.held.all()) == NAMES[:11]
    exchange(m1, m2)
    assert [m2.file(REJECTED, name).exists() for name in NAMES[:11]] == [True] * 11
    for name in NAMES[:11]:
        m1.remove(name)
        m1.knock(name, 0, REJECTED)
    m1.settle()
    assert not m1.replica.held.all()
    assert m1.files() == m2.files()
    # What somebody deletes, as Salt says, is never held.
    for name in NAMES[:11]:
        m1.remove(name)
    m1.deletion_told(NAMES[:11])
    exchange(m1, m2)
    assert {state for state, _ in m2.files()} == {ACCEPTED}


def test_a_held_key_is_deleted_on_another_master(tmp_path: Path) -> None:
    """On its own master the deletion counts only there: the event may be forged."""
    m1, m2 = Master(tmp_path, "m1", minimum=0), Master(tmp_path, "m2")
    shared(m1, m2, "web1", "web2")
    m1.remove("web1")
    m1.scan()
    m1.knock("web1")
    m1.scan()
    assert list(m1.replica.held.all()) == ["web1"]
    m1.remove("web1")
    m1.deletion_told(["web1"])
    assert list(m1.replica.held.all()) == ["web1"]
    exchange(m1, m2)
    assert m2.files().keys() == {(ACCEPTED, "web1"), (ACCEPTED, "web2")}
    m2.remove("web1")
    m2.deletion_told(["web1"])
    exchange(m1, m2)
    assert m1.state("web1") == m2.state("web1") == DELETED
    assert not m1.replica.held.all()


@pytest.mark.parametrize("state", [PENDING, REJECTED])
def test_many_revoked_keys_that_come_back_without_access_are_not_held(
    tmp_path: Path, state: str
) -> None:
    m1 = Master(tmp_path, "m1")
    for name in NAMES:
        m1.knock(name, state=ACCEPTED)
    m1.scan()
    for name in NAMES:
        m1.remove(name)
    m1.deletion_told(NAMES)
    m1.keeper.holds._guard._believed.clear()  # long after
    for name in NAMES:
        m1.knock(name, state=state)
    m1.scan()
    assert not m1.replica.held.all()
    assert {stored.state for _, stored in m1.replica.placed()} == {state}


def test_more_than_salt_told_of_are_held(tmp_path: Path) -> None:
    m1, m2 = Master(tmp_path, "m1"), Master(tmp_path, "m2")
    shared(m1, m2, *NAMES)
    for name in NAMES:
        m1.remove(name)
    m1.deletion_told(NAMES[:15])
    m1.keeper.observe(NAMES, certain=True)
    assert list(m1.replica.held.all()) == NAMES[15:]
    m1.deletion_told(NAMES[15:])
    assert list(m1.replica.held.all()) == NAMES[15:], (
        "an event takes back no hold: it may be forged"
    )


def test_a_held_id_under_which_another_key_knocks_is_not_looked_at_again_and_again(
    tmp_path: Path,
) -> None:
    m1, m2 = Master(tmp_path, "m1"), Master(tmp_path, "m2")
    shared(m1, m2, *NAMES)
    m1.scan()
    for name in NAMES:
        m1.remove(name)
    m1.scan()
    assert set(NAMES) == m1.replica.held.all().keys()
    m1.knock("web07", 1)
    m1.scan()
    m2.move("web07", ACCEPTED, REJECTED)
    m2.scan()
    m1.learn(m2.records())  # fails when what is unsettled never ends
    assert m1.files() == {(PENDING, "web07"): KEYS[1]}
    assert m1.keeper.reconciler.unfinished()
    # Once that is over, it comes to what was decided meanwhile.
    m1.remove("web07")
    for name in NAMES:
        m1.knock(name, 0, ACCEPTED)
    m1.settle()
    exchange(m1, m2)
    assert not m1.replica.held.all()
    assert m1.files() == m2.files()
    assert m1.state("web07") == m2.state("web07") == REJECTED


def test_a_look_at_one_id_does_not_read_all_that_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be 100 000, and each event has an id looked at."""
    m1 = Master(tmp_path, "m1")
    for name in NAMES:
        m1.knock(name, 0, ACCEPTED)
    m1.settle()
    for name in NAMES[1:]:
        m1.remove(name)
    m1.scan()
    assert m1.replica.held.count == len(NAMES) - 1
    monkeypatch.setattr(m1.replica.held, "all", lambda: pytest.fail("all are read"))
    m1.remove(NAMES[0])
    m1.deletion_told([NAMES[0]])
    assert m1.state(NAMES[0]) == DELETED
    m1.deletion_told([NAMES[1]])
    assert m1.state(NAMES[1]) == ACCEPTED


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


def test_denied_keys_that_do_not_come_back_with_the_held_one_were_not_deleted(
    m1: Master, m2: Master
) -> None:
    """The key folder is emptied, and only ``minions`` comes back."""
    m1.minimum = 0
    m1.restart()
    shared(m1, m2, "web1")
    m1.knock("web1", 1, DENIED)
    exchange(m1, m2)
    m1.remove("web1")
    m1.scan()
    assert list(m1.replica.held.all()) == ["web1"]
    m1.knock("web1", 0, ACCEPTED)
    m1.settle()
    assert not m1.replica.held.all()
    assert m1.state("web1", key=1) == DENIED
    assert m1.files() == m2.files()
    assert m1.files().keys() == {(ACCEPTED, "web1"), (DENIED, "web1")}


@pytest.mark.parametrize("told", [True, False])
def test_who_deletes_a_revoked_key_that_came_back_deletes_the_denied_one_too(
    m1: Master, m2: Master, told: bool
) -> None:
    m1.minimum = 0
    m1.restart()
    shared(m1, m2, "web1")
    m1.remove("web1")
    m1.deletion_told(["web1"])
    m1.settle()
    m1.knock("web1", 1, DENIED)
    exchange(m1, m2)
    m1.knock("web1", 0, ACCEPTED)
    m1.scan()
    assert list(m1.replica.held.all()) == ["web1"]
    m1.remove("web1")
    if told:
        m1.deletion_told(["web1"])
    m1.settle()
    exchange(m1, m2)
    assert m1.files() == m2.files() == {}


def test_held_keys_of_one_state_do_not_count_for_another(m1: Master) -> None:
    rejected = [f"bad{number:02}" for number in range(20)]
    for name in rejected:
        m1.knock(name, 0, REJECTED)
    for name in NAMES:
        m1.knock(name, 0, ACCEPTED)
    m1.settle()
    m1.keeper.holds._guard._fraction = 0.5
    for name in rejected:
        m1.remove(name)
    m1.scan()
    assert list(m1.replica.held.all()) == rejected
    for name in NAMES[:15]:
        m1.remove(name)
    m1.scan()
    assert list(m1.replica.held.all()) == rejected, "15 of 30 accepted ones are not too many"


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
