"""The list of masters that Salt keeps: the watchdog keeps it too, whoever moves the minion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from saltext_ha.common.errors import HaError
from saltext_ha.minion import binding
from saltext_ha.minion.tcp_links import TcpLinks
from saltext_ha.minion.watchdog import journal, move, request
from saltext_ha.minion.watchdog.admission import AuthRefusal
from saltext_ha.minion.watchdog.decide import State
from saltext_ha.minion.watchdog.journal import Journal, RecordedMove
from saltext_ha.minion.watchdog.move import DISCONNECTED, FAILBACK
from saltext_ha.minion.watchdog.run import Watch
from tests.unit.minion.watched import M1, M2, M3, Salt, last_of, on, turns, without_pauses

pytestmark = pytest.mark.core

PENDING = AuthRefusal("the key of web1 is pending there", final=True)


def orders(book: Journal) -> list[list[str] | None]:
    return [each.order for each in book.read()]


def test_past_a_dead_master_and_back(salt: Salt, watch: Watch) -> None:
    assert turns(watch) == [M1]
    salt.up = {M3}
    assert turns(watch) == [M1, M3]
    assert orders(watch.journal) == [[M1, M2, M3], [M2, M3, M1]]
    assert salt.order == [M2, M3, M1]

    # m2 is back, without this minion's key, where Salt would go to next, and stay.
    salt.up, salt.closed = {M1, M2, M3}, {M2: PENDING}
    assert request.plan(salt.site, M1).target == M1  # that is straight
    with pytest.raises(HaError, match=f"{M2} would not let this minion in"):
        request.plan(salt.site, None)
    salt.up, salt.asked = {M1, M2}, []
    watch.state = State(M3)  # the last move was long ago
    assert turns(watch) == [M1, M3, M1]
    assert salt.asked == [M2, M1]
    assert salt.tags().count(FAILBACK) == 1
    assert orders(watch.journal)[-1] == [M1, M2, M3]


@pytest.mark.parametrize("called", ["m1.example", M1])
def test_away_from_a_master_that_has_two_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, called: str
) -> None:
    resolve = binding.resolve
    monkeypatch.setattr(
        binding, "resolve", lambda host: resolve(M1 if host == "m1.example" else host)
    )
    monkeypatch.setattr(move, "HEEDED", 0.05)
    salt = Salt(monkeypatch, master=["m1.example", M1, M2])
    watch = salt.watch(tmp_path)
    assert turns(watch, 1) == ["m1.example"]
    assert request.plan(salt.site, M2).source == "m1.example"
    salt.called, salt.up = called, {M2}
    assert turns(watch) == ["m1.example", M2]


def test_past_the_second_name_of_a_master(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = binding.resolve
    monkeypatch.setattr(
        binding, "resolve", lambda host: resolve(M1 if host == "m1.example" else host)
    )
    monkeypatch.setattr(move, "HEEDED", 0.05)
    salt = Salt(monkeypatch, master=["m1.example", M1, M2])
    salt.called = "m1.example"
    fire = salt.fire

    def fired(tag: str, data: Any) -> None:
        if tag == DISCONNECTED and data["master"] == "m1.example" == salt.called:
            salt.fired.append((tag, data))
            salt.called, salt.steps = M1, [on(M1), TcpLinks(frozenset())]  # and it is back there
        else:
            fire(tag, data)
            salt.called = None if salt.here == M2 else salt.called

    monkeypatch.setattr(salt.site.mover, "fire", fired)
    reached = salt.site.mover.move(salt.site.master("m1.example"), M2, 5.0)
    assert reached is not None
    assert reached.configured == M2


def test_where_one_of_two_masters_has_a_name_for_both(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = binding.resolve
    both = frozenset({M1, M2})
    monkeypatch.setattr(
        binding, "resolve", lambda host: both if host == "any.example" else resolve(host)
    )
    salt = Salt(monkeypatch, master=["any.example", M2])
    book, (name, second) = salt.site.book, salt.site.book.masters
    assert book.hosts(name) == ["any.example", M2]  # it has no connection to go by
    book.used = frozenset({M1})
    assert book.hosts(name) == ["any.example"]
    book.used = frozenset({M2})
    assert book.hosts(second) == [M2, "any.example"]


def test_why_there_is_nowhere_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    salt = Salt(monkeypatch)
    salt.up = {M1}
    with pytest.raises(HaError, match=rf"no other master answers \({M2}: .*; {M3}: "):
        request.plan(salt.site, None)
    alone = Salt(monkeypatch, master=[M1])
    with pytest.raises(HaError, match=r"no other master answers \(there is none\)"):
        request.plan(alone.site, None)


def test_when_salt_moves_it(salt: Salt, watch: Watch) -> None:
    assert turns(watch, 1) == [M1]
    salt.up = {M3}
    salt.fire(DISCONNECTED, {})
    salt.steps = []
    assert turns(watch, 1) == [M1, M3]
    assert orders(watch.journal)[-1] == salt.order == [M2, M3, M1]


@pytest.mark.parametrize("configured", [True, False])
def test_when_salt_takes_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configured: bool
) -> None:
    salt = Salt(monkeypatch, master_failback=configured, local_masters=[M2, M3, M1])
    salt.here = M3
    watch = salt.watch(tmp_path)
    assert turns(watch, 1) == [M3]
    salt.here = M1
    assert turns(watch, 1) == [M3, M1]
    assert orders(watch.journal)[-1] == ([M1, M2, M3] if configured else [M2, M1, M3])


def test_when_somebody_else_moved_it(salt: Salt, watch: Watch) -> None:
    assert turns(watch, 1) == [M1]
    # By way of m2, which the watchdog did not see.
    salt.here = M3
    watch.journal.add(RecordedMove(1.0, M1, M3, journal.ASKED, 2.0, [M3, M1, M2]))
    watch.turn()
    assert salt.site.mover.order == (M3, M1, M2)


def test_who_moves_it_has_a_moment_to_note_it(
    salt: Salt, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert turns(watch, 1) == [M1]
    asked = RecordedMove(1.0, M1, M2, journal.ASKED, 2.0, [M2, M3, M1])
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if sum(pauses) >= 1 and watch.journal.last() != asked:
            watch.journal.add(asked)  # its machine is busy

    without_pauses(monkeypatch, pause)
    salt.here = M2
    assert turns(watch) == [M1, M2]
    assert watch.journal.last() == asked
    assert not salt.told()


def test_a_look_from_before_a_move_is_none_of_salt_itself(salt: Salt, watch: Watch) -> None:
    assert turns(watch, 1) == [M1]
    # It is moved, and that is noted, while the watchdog waits for its masters' answers.
    salt.here, salt.steps = M2, [on(M1)]
    asked = RecordedMove(1.0, M1, M2, journal.ASKED, 2.0, [M2, M3, M1])
    watch.journal.add(asked)
    assert turns(watch) == [M1, M2]
    assert watch.journal.last() == asked


def test_what_was_asked_for_is_noted_with_the_list_that_salt_has_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    salt = Salt(monkeypatch, cachedir=str(tmp_path))
    request.execute(salt.site, salt.opts, M3)
    last = last_of(Journal(tmp_path))
    assert (last.target, last.order) == (M3, salt.order)
    assert salt.order == [M3, M1, M2]


@pytest.mark.parametrize("up", [{M1}, set()], ids=["it is back", "it is nowhere"])
def test_a_move_that_leads_nowhere_is_not_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, up: set[str]
) -> None:
    salt = Salt(monkeypatch, cachedir=str(tmp_path))
    salt.up = up
    if not up:
        monkeypatch.setattr(salt.site.mover, "move", lambda *values: None)
    request.execute(salt.site, salt.opts, M3)
    assert Journal(tmp_path).last() is None
    assert not salt.told()


def test_what_was_asked_for_is_told_also_when_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Journal, entry: RecordedMove) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(Journal, "add", full)
    salt = Salt(monkeypatch, cachedir=str(tmp_path))
    request.execute(salt.site, salt.opts, M3)
    assert salt.told()


def test_a_move_is_told_once_also_when_the_disk_is_full(
    salt: Salt, watch: Watch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert turns(watch, 1) == [M1]
    add = Journal.add

    def full(self: Journal, entry: RecordedMove) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(Journal, "add", full)
    salt.up = {M2, M3}
    assert turns(watch, 5) == [M1]
    assert salt.here == M2
    assert [data["why"][:9] for data in salt.told()] == ["no answer"]
    assert caplog.text.count("not written") == 1
    assert watch.place.mover.order == (M2, M3, M1)

    # There is room again.
    monkeypatch.setattr(Journal, "add", add)
    salt.up = {M1, M3}
    watch.state = State(M2)  # the last move was long ago
    assert turns(watch) == [M1, M3]


def test_salt_call_has_a_list_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"caller": True, "cachedir": str(tmp_path), "local_masters": [M3, M2, M1]}
    assert Salt(monkeypatch, **own).site.mover.order == (M1, M2, M3)
    Journal(tmp_path).add(RecordedMove(1.0, M1, M3, "no answer", 2.0, [M2, M3, M1]))
    assert Salt(monkeypatch, **own).site.mover.order == (M2, M3, M1)
    Journal(tmp_path).add(RecordedMove(1.0, M1, M3, "as older ones wrote it"))
    assert Salt(monkeypatch, **own).site.mover.order == (M1, M2, M3)


def test_a_move_that_led_nowhere_is_none(salt: Salt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(salt.site.mover, "fire", lambda tag, data: None)
    assert salt.site.mover.move(salt.site.master(M1), None, 0.05) is None
    assert salt.site.mover.order == (M1, M2, M3)
