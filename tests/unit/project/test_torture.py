"""Torture's own judgement: histories are data, and the checker sees what is planted."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from proving.torture import __main__, report, schedule
from proving.torture.checker import replaced, tracebacks, verdict
from proving.torture.faults import Disk
from proving.torture.history import History
from proving.torture.keys import ACCEPTED, DENIED, PENDING, REJECTED, Folders, Slot
from proving.torture.ledger import DELETE, GRANT, KNOCK, REJECT, Ledger
from proving.torture.mutants import MUTANTS
from proving.torture.operators import Operator, make_folders
from proving.torture.run import Result, alike, broken
from proving.torture.shrink import shortest_prefix, without_idle_steps
from proving.torture.watch import Change, Operation, by_engines, revoked

ROOT = Path(__file__).parents[3]
PAIR = ("web1", "k0")
BOTH = ["m1", "m2"]


class Book(Ledger):
    """A ledger with short words."""

    def did(self, on: str, kind: str, pair: tuple[str, str] = PAIR) -> None:
        self.begin()
        self.act(on, kind, pair)
        self.noticed(on, pair[0])


@pytest.fixture
def book() -> Book:
    return Book()


def shows(slot: Slot | None) -> dict[str, dict[str, Slot]]:
    return {name: {PAIR[0]: slot} if slot else {} for name in BOTH}


def kinds(flaws: list[str]) -> set[str]:
    return {flaw.split()[0] for flaw in flaws}


# -- histories


def test_a_seed_is_one_history_and_another_seed_another() -> None:
    random.seed(1)
    first = schedule.history(5)
    random.seed(2)
    assert schedule.history(5) == first
    assert schedule.history(6) != first


def test_a_history_survives_being_written_down() -> None:
    for seed in range(50):
        history = schedule.history(seed)
        again = History.from_json(history.to_json())
        assert again.to_json() == history.to_json()
        assert again.masters == history.masters


def test_histories_have_all_that_may_happen_to_masters() -> None:
    happened: set[str] = set()
    for seed in range(300):
        history = schedule.history(seed)
        assert 3 <= len(history.masters) <= 5
        for step in history.steps:
            happened.add(step["do"])
            happened |= {act["do"] for act in step.get("acts", ())}
            happened.add(str(step.get("mode")))
    assert happened >= {
        "accept", "reject", "delete", "knock", "put", "remove", "bulk_accept", "bulk_delete",
        "kill", "freeze", "silent", "refuse", "deaf", "slow", "replay", "fill", "protect",
        "lose_replica", "restore_replica", "restore_folder", "restore_machine", "unmount",
        "remove_member", "join", "wipe", "refill", "put_back",
    }  # fmt: skip
    offsets = [m.offset for seed in range(100) for m in schedule.history(seed).masters]
    assert max(offsets) > 4 * 3600
    assert min(offsets) < -4 * 3600


# -- what a checker must and must not say


def test_a_deletion_that_nobody_overruled_stands(book: Book) -> None:
    book.did("m1", KNOCK)
    book.did("m1", GRANT)
    book.settled(BOTH)
    book.did("m2", DELETE)
    book.settled(BOTH)
    assert verdict(book, shows(None), []) == []
    assert kinds(verdict(book, shows((ACCEPTED, "k0")), [])) == {"I2/I3"}


def test_a_grant_that_cannot_have_known_the_deletion_does_not_undo_it(book: Book) -> None:
    book.did("m1", KNOCK)
    book.settled(BOTH)
    book.did("m1", DELETE)
    book.did("m2", GRANT)  # nothing flowed in between
    book.settled(BOTH)
    assert kinds(verdict(book, shows((ACCEPTED, "k0")), [])) == {"I2/I3"}
    assert verdict(book, shows(None), []) == []


def test_a_grant_that_may_have_known_leaves_both_open(book: Book) -> None:
    book.did("m1", KNOCK)
    book.settled(BOTH)
    book.did("m1", DELETE)
    book.can_flow([BOTH])
    book.did("m2", GRANT)
    book.settled(BOTH)
    assert verdict(book, shows((ACCEPTED, "k0")), []) == []
    assert verdict(book, shows(None), []) == []


def test_a_grant_that_knew_all_must_not_be_lost(book: Book) -> None:
    book.did("m1", KNOCK)
    book.did("m1", DELETE)
    book.settled(BOTH)
    book.did("m2", KNOCK)
    book.did("m2", GRANT)
    book.settled(BOTH)
    assert verdict(book, shows((ACCEPTED, "k0")), []) == []
    assert kinds(verdict(book, shows(None), [])) == {"I6"}


def test_acts_at_the_same_time_may_know_each_other_only_where_word_can_get_about(
    book: Book,
) -> None:
    book.did("m1", KNOCK)
    book.settled(BOTH)
    book.begin()
    acts = [book.act("m1", DELETE, PAIR)]
    book.begin()
    acts.append(book.act("m2", GRANT, PAIR))
    book.raced(acts, [["m1"], ["m2"]])
    assert kinds(verdict(book, shows((ACCEPTED, "k0")), [])) == {"I2/I3"}
    book.raced(acts, [BOTH])
    assert verdict(book, shows((ACCEPTED, "k0")), []) == []


def test_what_came_and_went_between_two_looks_need_not_count(book: Book) -> None:
    book.did("m1", GRANT)
    book.settled(BOTH)
    book.begin()
    book.act("m1", DELETE, PAIR)
    book.begin()
    book.act("m1", GRANT, PAIR)  # the deletion was not noticed yet
    assert verdict(book, shows((ACCEPTED, "k0")), []) == []
    assert verdict(book, shows(None), []) == []


def test_a_newcomer_may_bring_back_what_was_deleted_and_forgotten(book: Book) -> None:
    book.did("m1", GRANT)
    book.did("m1", DELETE)
    book.did("m2", GRANT)  # in no group yet
    book.forgotten(book.known_to("m1"), before="m3")
    assert verdict(book, shows((ACCEPTED, "k0")), []) != []

    book.forgotten(book.known_to("m1"), before="m2")
    assert verdict(book, shows((ACCEPTED, "k0")), []) == []
    book.did("m1", DELETE)
    assert kinds(verdict(book, shows((ACCEPTED, "k0")), [])) == {"I2/I3"}


def test_what_only_a_lost_replica_knew_need_not_count(book: Book) -> None:
    book.did("m1", GRANT)
    book.settled(BOTH)
    book.did("m1", DELETE)
    book.forgot("m1")
    assert verdict(book, shows((ACCEPTED, "k0")), []) == []
    book.settled(BOTH)
    book.did("m1", DELETE)
    book.settled(BOTH)
    book.forgot("m1")  # the other one knows, too
    assert kinds(verdict(book, shows((ACCEPTED, "k0")), [])) == {"I2/I3"}


def test_a_rejection_stays_until_somebody_decides_otherwise(book: Book) -> None:
    book.did("m1", KNOCK)
    book.did("m1", REJECT)
    book.settled(BOTH)
    assert verdict(book, shows((REJECTED, "k0")), []) == []
    assert kinds(verdict(book, shows(None), [])) == {"I2"}
    assert kinds(verdict(book, shows((PENDING, "k0")), [])) == {"I2"}


def test_a_deleted_key_is_pending_only_when_it_knocked_again(book: Book) -> None:
    book.did("m1", KNOCK)
    book.settled(BOTH)
    book.did("m1", DELETE)
    book.settled(BOTH)
    assert kinds(verdict(book, shows((PENDING, "k0")), [])) == {"I2"}
    book.did("m2", KNOCK)
    assert verdict(book, shows((PENDING, "k0")), []) == []


def test_masters_that_differ_are_seen_unless_two_keys_are_accepted(book: Book) -> None:
    book.did("m1", GRANT)
    shown = {"m1": {"web1": (ACCEPTED, "k0")}, "m2": {"web1": (ACCEPTED, "k1")}}
    assert "I1" in kinds(verdict(book, shown, ["web1"]))
    book.did("m2", GRANT, ("web1", "k1"))
    assert verdict(book, shown, ["web1"]) == []
    assert kinds(verdict(book, shown, [])) == {"I1"}


def test_a_key_that_nobody_accepted_is_seen(book: Book) -> None:
    book.did("m1", KNOCK)
    assert kinds(verdict(book, shows((ACCEPTED, "k0")), [])) == {"I2/I3"}


def test_a_key_that_took_anothers_place_is_seen(book: Book) -> None:
    book.did("m1", GRANT)
    book.did("m2", GRANT, ("web1", "k1"))
    change = Change("m1", "web1", {ACCEPTED: "k0"}, {ACCEPTED: "k1"}, 1.0, 2.0)
    assert kinds(replaced(book, [change])) == {"I4"}
    book.did("m1", DELETE)
    assert replaced(book, [change]) == []


def test_a_key_that_may_have_been_deleted_long_ago_is_only_a_knock(book: Book) -> None:
    book.did("m1", GRANT)
    book.did("m2", GRANT, ("web1", "k1"))
    book.ghost("m2", KNOCK, PAIR)
    change = Change("m1", "web1", {ACCEPTED: "k0"}, {ACCEPTED: "k1"}, 1.0, 2.0)
    assert kinds(replaced(book, [change])) == {"I4"}, "it was taken for one on the other master"
    book.ghost("m1", KNOCK, PAIR)
    assert replaced(book, [change]) == []


def test_only_what_nobodys_hands_explain_was_done_by_an_engine() -> None:
    change = Change("m1", "web1", {ACCEPTED: "k0"}, {}, 10.0, 11.0)
    assert revoked(change, legacy=True)
    near = [Operation("m1", "web1", 10.5, 10.6)]
    elsewhere = [Operation("m2", "web1", 10.5, 10.6), Operation("m1", "db1", 10.5, 10.6)]
    before = [Operation("m1", "web1", 9.0, 9.9)]
    assert by_engines([change], near, {}) == []
    assert by_engines([change], elsewhere + before, {}) == [change]
    assert by_engines([change], [], {"m1": [Operation("m1", "", 10.9, 12.0)]}) == []


# -- faults


def test_a_wiped_folder_keeps_its_signature_and_a_key_put_back_hides_no_other(
    tmp_path: Path,
) -> None:
    folders = Folders(tmp_path / "pki")
    make_folders(folders)
    disk = Disk(tmp_path, tmp_path / "pki", mounting=False)
    accepted = tmp_path / "pki" / "minions"
    (accepted / ".ha-m1").symlink_to("1.token.0")
    operator = Operator(folders, legacy=True)
    for minion_id in ("web1", "web2", "web3"):
        operator.put(minion_id, "k0")
    operator.knock("web3", "k1")
    disk.wipe()
    assert [path.name for path in accepted.iterdir()] == [".ha-m1"]
    assert not disk.healthy
    operator.knock("web2", "k1")
    disk.put_back()
    assert disk.healthy
    assert folders.look() == {
        "web1": {ACCEPTED: "k0"},
        "web2": {PENDING: "k1"},
        "web3": {ACCEPTED: "k0", DENIED: "k1"},
    }


# -- clocks

CLOCKS = """
from proving.torture import clock
clock.set_up()
import datetime, time
right = time.time()
clock.put_off(-7200)
utc = datetime.timezone.utc
shown = (
    time.time(), time.time_ns() / 1e9, datetime.datetime.now(utc).timestamp(),
    datetime.datetime.now().timestamp(),
    datetime.datetime.utcnow().replace(tzinfo=utc).timestamp(),
)
assert all(7190 < right - at < 7210 for at in shown), (right, shown)
assert isinstance(datetime.datetime.now(), datetime.datetime)
import pathlib, sys
from saltext_ha.transport import identity, succession
own = identity.load_or_create(pathlib.Path(sys.argv[1]), "m1")
begun = (succession.expiry(own.certificate) - identity.LIFETIME).timestamp()
assert 7190 < right - begun < 7210, (right, begun)
assert isinstance(datetime.datetime(2026, 1, 1), datetime.datetime)
"""


def test_every_wall_clock_of_an_engine_is_put_off(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", CLOCKS, str(tmp_path / "ha")]
    subprocess.run(command, cwd=ROOT, check=True)


# -- finding the part that fails


def test_the_shortest_prefix_ends_with_the_step_that_breaks() -> None:
    history = schedule.history(3)
    assert len(history.steps) > 12

    def fails(part: History) -> bool:
        return len(part.steps) > 11

    assert len(shortest_prefix(history, fails).steps) == 12


def test_steps_that_do_not_matter_are_left_out() -> None:
    history = schedule.history(3)
    once = [step for step in history.steps if history.steps.count(step) == 1]
    needed = [once[2], once[7]]

    def fails(part: History) -> bool:
        return all(step in part.steps for step in needed)

    assert list(without_idle_steps(history, fails).steps) == needed


# -- mutants


@pytest.mark.parametrize(
    ("flaw", "status"),
    [
        ("I2/I3 web1 on m2 is accepted/k0, against: #7", 0),
        ("torture itself failed: Traceback (most recent call last)", 1),
        ("m1: its log has a traceback", 1),
        ("", 1),
    ],
)
def test_only_a_broken_invariant_proves_that_a_mutant_is_seen(
    flaw: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def results(options: Any, mutant: str) -> Iterator[dict[str, object]]:
        for seed in range(3):
            yield {"seed": seed, "flaws": [flaw] if flaw else []}

    monkeypatch.setattr(__main__, "_parallel", results)
    assert __main__.main(["--mutants"]) == status


def test_which_invariants_are_broken() -> None:
    flaws = ["I2/I3 web1 on m2 is absent", "I8 node01 went", "torture itself failed: I1", "I am"]
    assert broken(flaws) == {"I2", "I3", "I8"}


def test_a_part_of_a_history_fails_alike_when_it_breaks_the_same_invariant() -> None:
    one, other = ["I2/I3 web1 on m1 is accepted"], ["I3 web2"]
    assert alike(one, other)
    assert not alike(one, ["I1 not settled"])
    assert not alike(one, ["m1: its log has a traceback"])
    assert not alike(one, [])
    assert alike(["m1: its log has a traceback"], ["torture itself failed"])
    assert not alike([], [])


def test_a_failure_says_what_its_seed_depends_on_and_where_it_begins_to_fail() -> None:
    history = schedule.history(3)
    part = history.with_steps(history.steps[4:6])
    text = report.failure(Result(history, ["I1 web1 differs"]), "Salt 3008.3; as root", 9, part)
    assert "  with Salt 3008.3; as root\n" in text
    assert f"  the first 9 of its {len(history.steps)} steps fail alike\n" in text
    assert text.count('"do"') == 4, "two steps, for people and as a file"


LOG = """\
12:00:01 ha: up
12:00:02 Task exception was never retrieved
Traceback (most recent call last):
  File "core.py", line 3, in scan
    raise KeyError(name)
KeyError: 'web1'
12:00:03 ha: up
ERROR: Traceback (most recent call last):
  File "core.py", line 4, in scan
"""


def test_a_traceback_is_shown_whole() -> None:
    first, cut = tracebacks(LOG)
    assert first.splitlines() == LOG.splitlines()[2:6]
    assert cut.splitlines() == LOG.splitlines()[7:]
    assert not tracebacks("12:00:01 ha: up\n")


def test_a_mutant_is_tried_where_only_its_guard_helps() -> None:
    wanted = filter(MUTANTS["horizon"].wanted, map(schedule.history, count(1)))
    history = next(wanted)
    assert history.drops
    assert history.has("restore_machine")


def test_every_guard_of_the_design_has_a_mutant() -> None:
    assert set(MUTANTS) >= {
        "tombstones", "causal-context", "guard", "provenance", "apply-journal", "pull-before-push",
    }  # fmt: skip
