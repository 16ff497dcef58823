"""Which minions are moved where, and which are left alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from saltext_ha.minions import move_planner
from saltext_ha.minions.move_planner import (
    BoundMinion,
    RebalanceStep,
    drain,
    found,
    host_of,
    level,
    names_of,
)

pytestmark = pytest.mark.core

ENTRIES = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
NAMES = {"10.0.0.1": "m1", "10.0.0.2": "m2", "10.0.0.3": "m3"}


def minions(**where: int) -> dict[str, BoundMinion]:
    """So many movable minions on each master."""
    return {
        f"{name}-{number}": BoundMinion(name, ENTRIES)
        for name, count in where.items()
        for number in range(count)
    }


def after(found: dict[str, BoundMinion], steps: list[RebalanceStep]) -> dict[str, int]:
    where = {minion_id: each.on for minion_id, each in found.items()}
    for step in steps:
        assert where[step.minion] == step.source
        assert NAMES[step.entry] == step.target
        where[step.minion] = step.target
    return dict(Counter(where.values()))


@pytest.mark.parametrize(
    ("answer", "stays"),
    [
        ({"type": "failover", "masters": ["m1", "m2"], "address": "m1"}, ""),
        ({"type": "failover", "masters": ["m1"], "address": "m1"}, "names no other master"),
        ({"type": "list", "masters": ["m1", "m2"], "address": "m1"}, "hot-hot"),
        ({"type": "str", "masters": ["m1"]}, "knows no other master"),
        ({"type": "func", "masters": ["m1"]}, "knows no other master"),
        ({"error": "'ha.current_master' is not available."}, "not installed"),
        ({"error": "Traceback: boom"}, "it says: Traceback: boom"),
        (None, "it says: None"),
        ({"type": "failover", "masters": "m1"}, "names no other master"),
    ],
)
def test_who_can_be_moved(answer: Any, stays: str) -> None:
    reason = found("m1", answer).stays
    assert stays in reason
    assert bool(stays) == bool(reason)


@pytest.mark.parametrize(
    ("entry", "host"),
    [
        ("m1", "m1"), ("M1.Example", "m1.example"), ("10.0.0.1:4506", "10.0.0.1"),
        ("::1", "::1"), ("[::1]", "::1"), ("[::1]:4506", "::1"), ("[::1", "[::1"),
    ],
)  # fmt: skip
def test_the_host_of_an_entry(entry: str, host: str) -> None:
    assert host_of(entry) == host


@pytest.mark.parametrize(
    ("kind", "entries", "hears", "all_asked", "goes_on"),
    [
        ("list", ENTRIES, ["m2"], True, True),
        ("list", ENTRIES, [], True, False),
        # Who could not ask it may be the one that hears it.
        ("list", ENTRIES, [], False, None),
        ("str", ENTRIES[:1], [], True, False),
        ("str", ENTRIES[:1], [], False, False),
        ("failover", ENTRIES[:1], [], True, False),
        ("failover", ENTRIES, [], True, None),
        # On its way, maybe to the master that is to be stopped.
        ("failover", ENTRIES, ["m2"], True, None),
        # It has no saltext-ha to say what it is.
        ("", (), [], True, None),
        ("", (), ["m2"], True, True),
    ],
)
def test_who_goes_on_without_being_moved(
    kind: str, entries: tuple[str, ...], hears: list[str], all_asked: bool, goes_on: bool | None
) -> None:
    staying = BoundMinion("m1", entries, stays="because", type=kind)
    assert move_planner.goes_on(staying, hears, all_asked) is goes_on


def test_names_are_learnt_from_who_is_there() -> None:
    there = [
        BoundMinion("m1", here="salt-a"),
        BoundMinion("m2", here="salt-b"),
        BoundMinion("m1", here="10.0.0.3"),
    ]
    names = names_of(there, {"m1": {"10.0.0.1"}, "m2": {"10.0.0.2"}, "m3": {"10.0.0.3"}})
    # By a port map m1 is at the address by which its peers know m3: minions know better.
    assert names == {
        "salt-a": "m1", "salt-b": "m2", "10.0.0.1": "m1", "10.0.0.2": "m2", "10.0.0.3": "m1",
    }  # fmt: skip
    # One address for two: nobody knows which.
    assert names_of([BoundMinion("m1", here="vip"), BoundMinion("m2", here="vip")], {}) == {}
    # Unless it is the address of one of them: one minion cannot take it away.
    lying = [BoundMinion("m1", here="10.0.0.2"), BoundMinion("m2", here="10.0.0.2")]
    assert names_of(lying, {"m1": {"10.0.0.1"}, "m2": {"10.0.0.2"}})["10.0.0.2"] == "m2"


def test_a_drained_master_is_left_for_the_emptiest() -> None:
    here = minions(m1=5)
    steps, stay = drain(here, NAMES, {"m2": 4, "m3": 1})
    assert stay == {}
    assert after(here, steps) == {"m2": 1, "m3": 4}


def test_a_step_knows_the_other_masters_emptiest_first() -> None:
    (step,), _ = drain(minions(m1=1), NAMES, {"m2": 4, "m3": 1})
    assert (step.target, step.entry) == ("m3", "10.0.0.3")
    other = step.instead()
    assert other == RebalanceStep("m1-0", "m1", "m2", "10.0.0.2")
    assert other.instead() is None


def test_nobody_goes_where_it_cannot() -> None:
    here = {
        "two": BoundMinion("m1", ("10.0.0.1", "10.0.0.2")),
        "far": BoundMinion("m1", ("10.0.0.1", "192.0.2.1")),
        "hot": BoundMinion("m1", ENTRIES, stays="hot-hot"),
        "odd": BoundMinion("m1", ("10.0.0.1", "$(reboot)")),
    }
    steps, stay = drain(here, {**NAMES, "$(reboot)": "m2"}, {"m3": 0, "m2": 9})
    assert steps == [RebalanceStep("two", "m1", "m2", "10.0.0.2")]
    assert stay["hot"] == "hot-hot"
    assert "192.0.2.1" in stay["far"]
    assert set(stay) == {"hot", "far", "odd"}
    # m2 does not work: it is not among those that may be gone to.
    steps, stay = drain(here, NAMES, {"m3": 0})
    assert (steps, set(stay)) == ([], {"two", "far", "hot", "odd"})


def test_nobody_goes_to_a_master_that_is_drained_too() -> None:
    here = {**minions(m1=2), "two": BoundMinion("m1", ("10.0.0.1", "10.0.0.2"))}
    steps, stay = drain(here, NAMES, {"m3": 0}, closed={"m2": "drained until a restart"})
    assert after(here, steps) == {"m1": 1, "m3": 2}
    assert stay == {"two": "it could only go to m2, drained until a restart"}


def test_each_master_that_gets_no_minions_is_named_with_its_reason() -> None:
    here, closed = minions(m1=1), {"m3": "not ready: event bus: timed out", "m2": "drained"}
    steps, stay = drain(here, NAMES, {}, closed=closed)
    assert steps == []
    assert list(stay.values()) == [
        "it could only go to m2, drained; or to m3, not ready: event bus: timed out"
    ]


@pytest.mark.parametrize(
    ("before", "moves", "result"),
    [
        ({"m1": 0, "m2": 6, "m3": 0}, 4, [2, 2, 2]),
        ({"m1": 3, "m2": 3, "m3": 1}, 1, [2, 2, 3]),
        ({"m1": 2, "m2": 2, "m3": 3}, 0, [2, 2, 3]),
        ({"m1": 10, "m2": 1, "m3": 0}, 6, [3, 4, 4]),
    ],
)
def test_the_fewest_moves_to_an_even_spread(
    before: dict[str, int], moves: int, result: list[int]
) -> None:
    there = minions(**before)
    steps = level(there, NAMES, ("m1", "m2", "m3"))
    assert len(steps) == moves
    assert sorted(after(there, steps).values()) == result
    assert level(there, NAMES, ("m1", "m2", "m3")) == steps


def test_an_even_spread_as_far_as_minions_can_go() -> None:
    there = minions(m1=4) | {f"stuck{n}": BoundMinion("m2", ("10.0.0.2", "x")) for n in range(4)}
    there["hot"] = BoundMinion("m1", ENTRIES, stays="hot-hot")
    steps = level(there, NAMES, ("m1", "m2", "m3"))
    assert {step.target for step in steps} == {"m3"}
    assert len(steps) == 2
    assert level(minions(m1=4), NAMES, ("m1",)) == []


def test_ten_thousand_are_planned_at_once() -> None:
    there = minions(m1=10_000)
    steps = level(there, NAMES, ("m1", "m2", "m3"))
    assert sorted(after(there, steps).values()) == [3333, 3333, 3334]
    assert move_planner.drain(there, NAMES, {"m2": 0, "m3": 0})[1] == {}
