"""Torture's own judgement of what must happen once: the book sees what is planted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from proving.torture import once_book, once_schedule, schedule
from proving.torture.history import History
from proving.torture.once_book import Event, Half, OnceBook, Reaction, verdict, wrong_runs

ONE = frozenset({"m1", "m2", "m3"})
HALVES = [frozenset({"m1"}), frozenset({"m2", "m3"})]


def told(leader: str | None, leads: bool, **reactor: Any) -> dict[str, Any]:
    known = {"reacts": leads, "waiting": 0, **reactor}
    return {"leader": leader, "leads": leads, "why": "", "reactor": known}


def book(halves: Iterable[Half], heard: Iterable[str], **more: Any) -> OnceBook:
    made = OnceBook(calm=list(halves), since=9.0, **more)
    names = frozenset(heard)
    made.events.append(Event(1, names, 10.0, made.halves_of(names), made.since))
    return made


def reacted(*on: str) -> list[Reaction]:
    return [Reaction(1, name, 11.0) for name in on]


def test_one_leads_and_all_name_it() -> None:
    good = {"m1": told("m1", True), "m2": told("m1", False)}
    assert once_book.leading(good) == ""
    assert "nobody leads" in once_book.leading({"m1": told(None, False)})
    assert "m1, m2 leads" in once_book.leading({"m1": told("m1", True), "m2": told("m2", True)})
    assert "named" in once_book.leading({"m1": told("m1", True), "m2": told(None, False)})


def test_only_the_reactor_of_the_leader_reacts_and_nothing_waits() -> None:
    assert once_book.reacting({"m1": told("m1", True), "m2": told("m1", False)}) == ""
    assert "m2" in once_book.reacting({"m2": told("m1", False, reacts=True)})
    assert "m1" in once_book.reacting({"m1": told("m1", True, reacts=None)})
    assert "m2" in once_book.reacting({"m2": told("m1", False, waiting=1)})
    # It names m1 by what others say, and cannot hand events over.
    assert once_book.reacting({"m2": told("m1", False, waiting=1)}, {"m2"}) == ""
    assert "m2" in once_book.reacting({"m2": told("m1", False, reacts=True)}, {"m2"})


@pytest.mark.parametrize(
    ("halves", "heard", "on", "flaw"),
    [
        ([ONE], ONE, ["m1"], ""),
        ([ONE], ["m3"], ["m1"], ""),
        ([ONE], ONE, [], "L3"),
        ([ONE], ONE, ["m1", "m2"], "L4"),
        ([ONE], ["m3"], ["m1", "m1"], "L4"),
        (HALVES, ONE, ["m1", "m2"], ""),
        (HALVES, ["m2", "m3"], ["m2", "m3"], "L4"),
        ([HALVES[1]], ONE, ["m1", "m2"], ""),
        ([HALVES[1]], ONE, [], "L3"),
    ],
)
def test_each_half_reacts_once(
    halves: list[Half], heard: Iterable[str], on: list[str], flaw: str
) -> None:
    found = verdict(book(halves, heard), reacted(*on))
    assert [each.split()[0] for each in found] == ([flaw] if flaw else [])


def test_in_trouble_two_may_react() -> None:
    two = reacted("m1", "m2")
    assert verdict(book([ONE], ONE, troubles=[(10.5, 10.7)]), two) == []
    assert verdict(book([ONE], ONE, troubles=[(9.0, 9.5), (11.5, 12.0)]), two) != []
    # A machine that is too busy for its masters to see each other.
    assert verdict(book([ONE], ONE, changes=[11.5]), two) == []
    assert verdict(book([ONE], ONE, changes=[8.5]), two) != []


def test_what_only_masters_heard_that_ended_may_be_lost() -> None:
    assert verdict(book([ONE], ["m1"], ended={"m1": [10.5]}), []) == []
    assert verdict(book([ONE], ["m1"], ended={"m1": [9.5]}), []) != []
    assert verdict(book([ONE], ["m1", "m2"], ended={"m1": [10.5]}), []) != []


def test_what_was_due_before_they_ended_may_not() -> None:
    late = book([ONE], ["m1"], ended={"m1": [12.0]})
    assert verdict(late, []) == []
    late.agreed([HALVES[1]], 10.2)
    assert verdict(late, []) == [], "m1 had not been asked"
    late.agreed([ONE], 11.0)
    assert [each.split()[0] for each in verdict(late, [])] == ["L3"]


def test_what_is_called_everywhere_runs_once_in_each_half() -> None:
    assert wrong_runs("nightly", ONE, ["m1"], []) == ""
    assert "L2 nightly ran on no master" in wrong_runs("nightly", ONE, [], [])
    assert wrong_runs("nightly", ONE, [], [], begun=True) == ""
    assert "L2" in wrong_runs("nightly", ONE, ["m1"], ["m1"], begun=True)
    assert "L2" in wrong_runs("nightly", ONE, ["m1", "m2"], [])
    assert wrong_runs("nightly", ONE, [], ["m1"]) == ""
    assert "before: m1" in wrong_runs("nightly", ONE, ["m1"], ["m1"])
    # Whether this half has heard of what ran in the other one is open.
    assert wrong_runs("nightly", HALVES[0], ["m1"], ["m2"]) == ""
    assert wrong_runs("nightly", HALVES[0], [], ["m2"]) == ""


def test_the_steps_of_a_history_stay_as_they_are() -> None:
    bare = History(7, (), schedule.history(7).spare, tuple({"do": "settle"} for _ in range(40)))
    masters = schedule.history(7).masters
    bare = History(7, masters, bare.spare, bare.steps)
    woven = once_schedule.woven(bare)
    kept = [step for step in woven.steps if step["do"] not in ("event", "once", "start")]
    assert tuple(kept) == bare.steps
    assert once_schedule.woven(bare) == woven
    happened = {step["do"] for step in woven.steps}
    assert {"event", "once", "start"} <= happened, "one of the calls has a master killed"
    called = [step["name"] for step in woven.steps if step["do"] == "once"]
    assert len(set(called)) < len(called), "some are called again"
