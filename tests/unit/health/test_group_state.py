"""How a group is, over a table of facts: never ok for what is not known."""

from __future__ import annotations

from typing import Any

import pytest

from saltext_ha.health import group_state
from saltext_ha.health.fitness import unfit
from saltext_ha.health.group_state import compared, judge

WELL = {"healthy": True, "ready": True, "reason": "", "problem": ""}
LAST = {"status": "same", "at": 7.0, "counts": {}, "unknown": {}}
PARTS: dict[str, Any] = {
    name: {"status": "same", "differences": [], "unknown": {}} for name in ("keys", "access")
}


def row(name: str = "m2", state: str = "running", **more: Any) -> dict[str, Any]:
    return {"name": name, "state": state, "behind": 0, "held": 0, "note": "", **more} | {
        "health": {**WELL, **more.get("health", {})}
    }


M1 = row("m1")
SAME = compared(LAST, {"sections": PARTS}, "", True)
DIFFER = compared({**LAST, "status": "differ", "counts": {"access": 2}}, None, "", True)
NEVER = compared({"status": "", "at": 0.0, "counts": {}, "unknown": {}}, None, "", True)
FAILED = compared(LAST, {"sections": PARTS}, "the last check failed: boom", True)
FIRST_FAILED = compared(
    {**LAST, "status": "", "at": 0.0}, None, "the last check failed: boom", True
)
WITHOUT_M2 = compared({**LAST, "status": "unknown", "unknown": {"m2": "down"}}, None, "", True)


def part(**more: Any) -> dict[str, Any]:
    return {**PARTS, "access": {**PARTS["access"], **more}}


PARTLY = compared(
    {**LAST, "status": "unknown"},
    {"sections": part(status="unknown", unknown={"m2": "no permission"})},
    "",
    True,
)
DIFFER_AND_PARTLY = compared(
    {**LAST, "status": "differ", "counts": {"access": 1}, "unknown": {"m2": "down"}}, None, "", True
)


@pytest.mark.parametrize(
    ("other", "comparison", "conflicts", "troubles", "state", "retcode", "tolerates", "said"),
    [
        (row(), SAME, 0, [], "ok", 0, 1, ""),
        (row(note="a disk is full"), SAME, 0, [], "degraded", 1, 1, "a disk is full"),
        (row(behind=3), SAME, 0, [], "degraded", 1, 0, "3 keys"),
        (row(behind=None), SAME, 0, [], "unknown", 2, 0, "not known whether it has the same"),
        (row(doubt="its signature is gone"), SAME, 0, [], "degraded", 1, 0, "signature"),
        (row(held=4), SAME, 0, [], "degraded", 1, 0, "holds 4 keys back"),
        (row(), SAME, 2, [], "degraded", 1, 1, "2 in conflict"),
        (row(), SAME, 0, ["different master keys"], "degraded", 1, 1, "different master keys"),
        # Whoever does not answer: what is known of it is over.
        (row(state="unknown", note="timed out"), SAME, 0, [], "degraded", 2, 0, "timed out"),
        (row(state="unknown", health={}), SAME, 0, [], "degraded", 2, 0, "does not answer"),
        # Whether it serves.
        (row(health={"healthy": None}), SAME, 0, [], "unknown", 2, 1, "whether it serves"),
        (row(health={"healthy": None, "asked": False}), SAME, 0, [], "unknown", 2, 1, "false"),
        (row(health={"healthy": False, "ready": False}), SAME, 0, [], "degraded", 1, 0, "serve"),
        (row(health={"ready": False, "reason": "late"}), SAME, 0, [], "degraded", 1, 0, "late"),
        # Whether they differ.
        (row(), DIFFER, 0, [], "degraded", 1, 1, "2 in access"),
        (row(), NEVER, 0, [], "unknown", 2, 1, "not compared yet"),
        (row(), FAILED, 0, [], "unknown", 2, 1, "failed: boom"),
        (row(), FIRST_FAILED, 0, [], "unknown", 2, 1, "failed: boom"),
        (row(), WITHOUT_M2, 0, [], "unknown", 2, 1, "m2: down"),
        (row(), PARTLY, 0, [], "unknown", 2, 1, "m2: access: no permission"),
        (row(), DIFFER_AND_PARTLY, 0, [], "degraded", 2, 1, "m2: down"),
        # What is wrong outweighs what is not known; the exit code is the other way round.
        (row(behind=3), NEVER, 0, [], "degraded", 2, 0, "3 keys"),
    ],
)
def test_what_follows(
    other: dict[str, Any],
    comparison: dict[str, Any],
    conflicts: int,
    troubles: list[str],
    state: str,
    retcode: int,
    tolerates: int,
    said: str,
) -> None:
    fit = sum(not unfit(each) for each in (M1, other))
    verdict = judge([M1, other], comparison, conflicts, troubles, fit)
    found = verdict.state, verdict.retcode, verdict.tolerates
    assert found == (state, retcode, tolerates), verdict.reasons
    assert said in "; ".join(reason.text for reason in verdict.reasons)
    assert bool(verdict.reasons) == (state != "ok")


def test_a_health_of_which_nothing_is_told_is_not_ok() -> None:
    assert judge([{**M1, "health": {}}], SAME, 0, [], 1).state == "unknown"


KEYS_DIFFER: dict[str, Any] = {
    "keys": {"status": "differ", "differences": [{"path": "web1"}], "unknown": {}}
}


@pytest.mark.parametrize(
    ("sections", "unknown", "level", "status"),
    [
        (KEYS_DIFFER, {}, False, "differ"),
        # All have the same keys now: what was found then is over.
        (KEYS_DIFFER, {}, True, "same"),
        (KEYS_DIFFER | {"access": part(status="differ")["access"]}, {}, True, "differ"),
        (KEYS_DIFFER | {"access": part(status="unknown")["access"]}, {}, True, "unknown"),
        (KEYS_DIFFER, {"m3": "down"}, True, "unknown"),
        (None, {}, True, "unknown"),
    ],
)
def test_keys_that_are_level_again(
    sections: dict[str, Any] | None, unknown: dict[str, str], level: bool, status: str
) -> None:
    last = {"status": "differ", "at": 7.0, "counts": {"keys": 1}, "unknown": unknown}
    found = compared(last, sections and {"sections": sections}, "", level)
    assert found["status"] == status
    assert found["sections"]["keys"]["status"] == ("same" if level else "differ")
    assert found["counts"] == ({} if level else {"keys": 1})
    assert last["counts"] == {"keys": 1}
    stale = compared(last, sections and {"sections": sections}, "too old", level)
    assert (stale["status"], stale["counts"]) == ("unknown", {"keys": 1})


def test_who_is_level() -> None:
    assert group_state.level([M1, row()], 0)
    assert not group_state.level([M1, row()], 1)
    for other in (row(behind=1), row(behind=None), row(held=1)):
        assert not group_state.level([M1, other], 0)


@pytest.mark.parametrize("told", ["note", "doubt"])
def test_a_reason_is_not_told_twice(told: str) -> None:
    why = "its signature is gone"
    not_ready = {"ready": False, "reason": why}
    reasons = judge([row(**{told: why}, health=not_ready)], SAME, 0, [], 1).reasons
    assert [each.text for each in reasons] == [why, "is not ready for callers because of that"]
    (alone,) = judge([row(health=not_ready)], SAME, 0, [], 1).reasons
    assert alone.text == f"is not ready for callers: {why}"


def test_keys_that_this_master_holds_back_differ_from_none_of_its_own() -> None:
    reasons = judge([row(behind=4, held=4, self=True)], SAME, 0, [], 1).reasons
    assert [each.text for each in reasons] == ["it holds 4 keys back"]
