"""Whether a step of an orchestration succeeds, and what it says."""

from __future__ import annotations

from typing import Any

import pytest

from saltext_ha.commands.minions.cmd_batches import THIS
from saltext_ha.commands.minions.orchestrated import (
    Expected,
    arguments,
    changed,
    ids,
    number,
    shown,
)
from saltext_ha.common.errors import HaError
from saltext_ha.minions.own_jobs import NO_ROOM
from saltext_ha.salt_bus.intake import TOO_MUCH
from saltext_ha.states import ha as state

NOTHING: dict[str, Any] = {
    "returned": {"w1": True},
    "failed": {},
    "missing": {},
    "running": {},
    "unreachable": [],
    "unsure": [],
    "not_begun": [],
    "unknown": {},
    "targets": [{"m1": "w*"}],
    "jobs": [{"m1": "1"}],
}


def step(
    tgt_type: str = "glob", expected: dict[str, Any] | None = None, **answer: Any
) -> tuple[bool, list[str]]:
    """Whether a step succeeds, and its lines but the last, which tells of jobs."""
    usual = Expected(lambda value: value is not False, minions=True, masters=True, may_fail=())
    found = shown(
        {**NOTHING, **answer}, tgt_type, usual._replace(**(expected or {})), lambda value: False
    )
    return found["result"], found["comment"].splitlines()[:-1]


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ({"returned": {"w1": False}}, "w1: failed"),
        ({"returned": {"w1": "no such thing"}, "failed": {"w1": 1}}, "w1: no such thing"),
        ({"returned": {"w1": ["a", "b"]}, "failed": {"w1": 1}}, "w1: a; b"),
        ({"returned": {"w1": {}}, "failed": {"w1": 2}}, "w1: failed, exit code 2"),
        ({"missing": {"w2": "m2"}}, "w2: did not return to m2 in time"),
        (
            {"missing": {"w2": "m2"}, "running": {"w2": "7"}},
            "w2: did not return to m2 in time; it says that it still runs job 7",
        ),
        ({"unreachable": ["w2"]}, "w2: no master reaches it, or its key is not accepted there"),
        (
            {"unsure": ["w2"]},
            "w2: may have run it: the master that published it cannot be asked any more",
        ),
        ({"not_begun": ["w2"]}, "w2: was not asked: an earlier batch was cut off"),
        ({"unknown": {"m1": "gone"}}, "master m1: gone"),
        ({"unknown": {THIS: "gone"}}, f"master {THIS}: gone"),
    ],
)
def test_each_kind_of_failure_fails_the_step(answer: dict[str, Any], line: str) -> None:
    assert step(**answer) == (False, [line])


def test_a_master_without_a_part_matters_where_it_alone_knows_whom_the_target_means() -> None:
    assert step(unknown={"m2": "away"}) == (True, [])
    assert step("list", unknown={"m2": "away"}) == (True, [])
    assert step("grain", unknown={"m2": "away"}) == (False, ["master m2: away"])
    assert step("grain", {"masters": False}, unknown={"m2": "away"}) == (True, [])


def test_what_may_fail_is_named_and_does_not_count() -> None:
    failed = {"returned": {"w1": False, "w2": True}}
    assert step(expected={"may_fail": ["w1"]}, **failed) == (
        True,
        ["failed, which is allowed: w1"],
    )
    assert step(expected={"allowed": 1}, **failed) == (True, ["w1: failed"])
    assert step(expected={"minions": False}, missing={"w2": "m2"}, unreachable=["w3"]) == (True, [])
    assert step(expected={"minions": False}, unsure=["w2"])[0] is False


def test_nobody_is_a_failure_unless_nobody_need_return() -> None:
    nobody: dict[str, Any] = {"returned": {}, "targets": [], "jobs": []}
    assert step(**nobody) == (False, [])
    assert step(expected={"minions": False}, **nobody) == (True, [])


def test_thousands_of_failures_are_counted_not_listed() -> None:
    result, lines = step(returned={f"w{n:04}": False for n in range(1000)})
    assert (result, len(lines), lines[-1]) == (False, 21, "and 980 more")


def test_of_a_long_error_the_comment_has_the_beginning() -> None:
    _, (line,) = step(returned={"w1": "x" * 1_000_000}, failed={"w1": 1})
    assert line == f"w1: {'x' * 300} …"


def test_what_failed_is_shown_with_the_changes() -> None:
    expected = Expected(lambda value: value != "bad", minions=True, masters=True, may_fail=())
    answer = {**NOTHING, "returned": {"w1": "bad", "w2": "same", "w3": "new"}}
    found = shown(answer, "glob", expected, lambda value: value == "new")
    assert found["changes"] == {"w1": "bad", "w3": "new"}


def test_states_that_changed_something() -> None:
    assert changed({"a": {"changes": {}}, "b": {"changes": {"x": 1}}})
    assert not changed({"a": {"changes": {}}})
    assert not changed(["an error"])


def test_arguments_as_somebody_writes_them() -> None:
    assert ids("w1, w2") == ids(["w1", "w2"]) == ["w1", "w2"]
    assert ids(None) == []
    assert number("2") == 2
    for wrong in ([7], {"w1": 1, 2: 3}):
        with pytest.raises(HaError, match="fail_minions"):
            ids(wrong)
    with pytest.raises(HaError, match="allow_fail"):
        number(None)
    assert arguments(0, None) == ([0], {})
    assert arguments({"a": 1}, {"b": 2}) == ([{"a": 1}], {"b": 2})
    assert arguments(["a", "b"], None) == (["a", "b"], {})
    assert arguments((), {}) == arguments(None, {}) == ([], {})
    with pytest.raises(HaError, match="kwarg: takes a mapping"):
        arguments([], [{"b": 2}])


@pytest.mark.parametrize(
    ("role", "arguments", "why"),
    [
        ("minion", {"sls": "x"}, "this is a step of an orchestration"),
        ("master", {}, "nothing to apply: takes one of sls, highstate and top"),
        ("master", {"sls": "x", "fail_minions": 7}, "fail_minions: takes ids"),
        ("master", {"sls": "x", "tgt": 123}, "tgt: takes a text, or a list of them, not 123"),
        ("master", {"sls": "x", "tgt": ["w1", 2]}, "tgt: takes a text, or a list of them, not 2"),
    ],
)
def test_a_wrong_step_runs_nothing_and_says_why(
    monkeypatch: pytest.MonkeyPatch, role: str, arguments: dict[str, Any], why: str
) -> None:
    monkeypatch.setattr(state, "__opts__", {"__role": role, "id": "m1", "ha": {}}, raising=False)
    found = state.state("x", **{"tgt": "*", **arguments})
    assert found["result"] is False
    assert found["comment"].startswith(why)


def test_a_judge_that_does_not_exist_is_missed_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def run(tgt: Any, fun: str, *rest: Any, **options: Any) -> dict[str, Any]:
        asked.append(fun)
        return {**NOTHING, "returned": {"w1": 7, "w2": 8}}

    monkeypatch.setattr(state, "__opts__", {}, raising=False)
    monkeypatch.setattr(state, "__salt__", {"judge.odd": lambda value: value % 2}, raising=False)
    monkeypatch.setattr(state, "_cmd", run)
    found = state.function("cmd.run", "*", fail_function="judge.od")
    why = "fail_function: there is no function judge.od on this master"
    assert (found["result"], found["comment"], asked) == (False, why, [])
    found = state.function("cmd.run", "*", fail_function="judge.odd")
    assert (found["result"], asked) == (False, ["cmd.run"])
    assert "w2" in found["comment"]
    assert "w1" not in found["comment"]


@pytest.mark.parametrize(
    ("orchestration", "step_says", "told"),
    [
        (False, None, {}),
        (True, None, {"test": True}),
        (False, True, {"test": True}),
        (True, False, {"test": False}),  # else a minion with "test: True" would change nothing
        (False, False, {"test": False}),
    ],
)
def test_a_step_tells_minions_whether_it_is_a_test(
    monkeypatch: pytest.MonkeyPatch, orchestration: bool, step_says: bool | None, told: Any
) -> None:
    asked: list[Any] = []

    def run(tgt: Any, fun: str, arg: list[Any], kwarg: Any, **options: Any) -> dict[str, Any]:
        asked.append(kwarg)
        return {**NOTHING, "returned": {"w1": {"a": {"result": True, "changes": {"x": 1}}}}}

    monkeypatch.setattr(state, "__opts__", {"test": orchestration}, raising=False)
    monkeypatch.setattr(state, "_cmd", run)
    found = state.state("x", "*", sls="y", test=step_says)
    assert asked == [told]
    assert found["result"] is (None if told.get("test") else True)


@pytest.mark.parametrize("instead", [f"{TOO_MUCH}; …", {"error": f"{NO_ROOM}; …"}])
@pytest.mark.parametrize("code", [0, 2])
def test_a_return_that_is_too_large_counts_by_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, instead: Any, code: int
) -> None:
    """As of the first highstate of a minion, with the differences of all its files."""
    answer = {**NOTHING, "returned": {"w1": instead}, "failed": {"w1": code} if code else {}}
    monkeypatch.setattr(state, "__opts__", {}, raising=False)
    monkeypatch.setattr(state, "_cmd", lambda *_, **__: answer)
    found = state.state("x", "*", highstate=True)
    assert found["result"] is (code == 0)
    shown = found["changes"]["ret"]["w1"]  # whether it changed something is not known
    assert "left out" in shown or "does not fit" in shown
