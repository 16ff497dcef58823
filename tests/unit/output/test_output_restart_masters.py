"""What ``ha.restart_masters`` shows."""

from __future__ import annotations

from typing import Any

from saltext_ha.output import _restart_masters
from saltext_ha.output._text import Screen


def row(name: str, **values: Any) -> dict[str, Any]:
    found = {"name": name, "command": "service restart", "restarted": None, "seconds": None}
    return {**found, "problem": "", **values}


def shown(test: bool, retcode: int, *rows: dict[str, Any]) -> list[str]:
    data = {"kind": "restart_masters", "test": test, "masters": list(rows), "retcode": retcode}
    return [line.rstrip() for line in _restart_masters.restart_masters(data, Screen(100))]


def test_a_plan() -> None:
    assert shown(True, 0, row("m2"), row("m1")) == [
        "Master  Restarted  Took  Command",
        "m2      -          -     service restart",
        "m1      -          -     service restart",
        "planned, in this order; nothing was restarted (test=True)",
    ]


def test_one_that_does_not_come_back() -> None:
    lost = row("m2", restarted=False, seconds=300.0, problem="not within 300 s: cannot be asked")
    assert shown(False, 1, row("m3", restarted=True, seconds=4.2), lost, row("m1")) == [
        "Master  Restarted  Took   Command          Note",
        "m3      yes        4.2 s  service restart",
        "m2      no         300 s  service restart  not within 300 s: cannot be asked",
        "m1      -          -      service restart",
        "stopped there: look at that master, then run it again",
    ]


def test_what_the_command_said_is_shown_in_full() -> None:
    """The command and its exit code leave no room in the table for the reason."""
    said = "service restart: exit code 1: System has not been booted with systemd as init system"
    lines = shown(False, 1, row("m2", restarted=False, seconds=0.8, problem=said), row("m1"))
    assert f"  m2: {said}" in lines
