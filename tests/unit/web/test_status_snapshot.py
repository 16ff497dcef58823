"""What a snapshot shows of a comparison."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from saltext_ha.health.group_state import compared
from saltext_ha.minions.failovers import Failover, Failovers
from saltext_ha.web import pages, snapshot
from saltext_ha.web.snapshot import Snapshots, Taken
from tests.loop import in_a_loop

LAST: dict[str, Any] = {"status": "differ", "at": 7.0, "counts": {"access": 2}, "unknown": {}}


def difference(number: int) -> dict[str, Any]:
    return {"path": f"path{number}", "values": {}, "severity": "drift"}


def test_only_so_many_differences_are_listed() -> None:
    many = [difference(number) for number in range(snapshot.LISTED + 5)]
    section = {"status": "differ", "differences": many, "left_out": 30}
    last = {**LAST, "counts": {"access": 135}}
    whole = compared(last, {"sections": {"access": section}}, "", False)
    shown = snapshot._listed(whole)["sections"]["access"]
    assert shown["differences"] == many[: snapshot.LISTED]
    assert shown["count"] == 135
    assert shown["left_out"] == 35


def test_after_a_restart_it_is_known_how_many_and_not_which() -> None:
    shown = compared(LAST, None, "", False)
    assert (shown["status"], shown["at"], shown["stale"]) == ("differ", 7.0, "")
    assert shown["sections"] == {
        "access": {
            "status": "differ", "count": 2, "differences": [], "left_out": 2, "unknown": {},
        }
    }  # fmt: skip


def test_what_is_stale_is_unknown_and_still_shown() -> None:
    section = {"status": "differ", "differences": [difference(1)], "unknown": {"m3": "down"}}
    answer = {"sections": {"access": section, "roots": {"status": "same", "differences": []}}}
    shown = compared(LAST, answer, "more than a day ago", False)
    assert (shown["status"], shown["stale"]) == ("unknown", "more than a day ago")
    assert {name: part["status"] for name, part in shown["sections"].items()} == {
        "access": "unknown",
        "roots": "unknown",
    }
    assert shown["sections"]["access"]["differences"] == [difference(1)]
    assert shown["sections"]["access"]["unknown"] == {"m3": "down"}
    assert shown["sections"]["roots"]["count"] == 0


def test_never_compared() -> None:
    shown = compared({"status": "", "at": 0.0, "counts": {}, "unknown": {}}, None, "", False)
    assert (shown["status"], shown["at"], shown["sections"]) == ("unknown", None, {})


def test_a_moment_is_no_age() -> None:
    now = time.monotonic()
    assert pages._shown_age(Taken({}, b"", now - 1)) == 0
    assert pages._shown_age(Taken({}, b"", now - 60)) == pytest.approx(60, abs=5)


@in_a_loop
async def test_a_failover_that_comes_while_the_last_ones_are_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread of the bus hears of it."""
    failovers = Failovers()
    said = {"id": "web1", "from": "m1", "to": "m2", "why": "dead"}
    failovers("salt/ha/minion/web1/failover", said)
    data = Failover.data

    def meanwhile(failover: Failover) -> dict[str, Any]:
        failovers("salt/ha/minion/web1/failover", said)
        return data(failover)

    monkeypatch.setattr(Failover, "data", meanwhile)
    nothing = compared({"status": "", "at": 0.0, "counts": {}, "unknown": {}}, None, "", False)

    async def status(_: Any) -> dict[str, Any]:
        return {"conflicts": [], "consistency": nothing}

    async def glance(*_: Any) -> list[Any]:
        return []

    group: Any = SimpleNamespace(status=status)
    core: Any = SimpleNamespace(glance=glance)
    taken = await Snapshots("m1", group, core, failovers, 1.0).get()
    assert [each["id"] for each in taken.data["failovers"]["last"]] == ["web1"]
