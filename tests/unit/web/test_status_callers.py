"""What callers of salt-api are told of the masters: nothing unknown is healthy."""

from __future__ import annotations

from typing import Any

import pytest

from saltext_ha.health import group_state
from saltext_ha.web import pages
from saltext_ha.web.pages import callers

GOOD = {"healthy": True, "ready": True, "url": "http://10.0.0.1:8000", "reason": ""}


def row(name: str, state: str = "running", note: str = "", **health: Any) -> dict[str, Any]:
    return {"name": name, "state": state, "note": note, "health": {**GOOD, **health}}


GONE = row("m2", "unknown", "refused the connection")
SICK = row("m2", healthy=False, ready=False, reason="request port: timed out")
WAITS = row("m2", ready=False, reason="not yet in sync with m1")
STARTS = row("m2", healthy=None, ready=False, reason="starting: not asked yet")
NO_API = row("m2", url="")
UNASKED = row("m2", healthy=None, asked=False)
SILENT: dict[str, Any] = {"name": "m2", "state": "running", "note": "", "health": {}}


@pytest.mark.parametrize(
    ("rows", "status", "healthy"),
    [
        ([row("m1"), row("m2")], "online", 2),
        ([row("m1"), WAITS], "online", 2),
        ([row("m1"), GONE], "degraded", 1),
        # Nobody can call it, however well it serves minions.
        ([row("m1"), NO_API], "degraded", 1),
        ([NO_API, NO_API], "offline", 0),
        ([row("m1"), SICK], "degraded", 1),
        ([row("m1"), STARTS], "degraded", 1),
        ([row("m1"), SILENT], "degraded", 1),
        ([GONE], "offline", 0),
        ([SICK, GONE], "offline", 0),
    ],
)
def test_how_many_are_healthy(rows: list[dict[str, Any]], status: str, healthy: int) -> None:
    told = callers({"masters": rows, "group": "prod", "at": 1.0})
    assert (told["status"], told["master_count"], told["healthy_count"]) == (
        status,
        len(rows),
        healthy,
    )


@pytest.mark.parametrize(
    ("master", "healthy", "ready", "known", "reason"),
    [
        (row("m2"), True, True, True, ""),
        (WAITS, True, False, True, "not yet in sync with m1"),
        (SICK, False, False, True, "request port: timed out"),
        # Its last answer said that it was well: that is over.
        (GONE, False, False, False, "refused the connection"),
        (NO_API, False, False, True, pages.NO_API),
        (UNASKED, False, False, False, group_state.NOT_ASKED),
        (STARTS, False, False, False, "starting: not asked yet"),
        (SILENT, False, False, False, ""),
    ],
)
def test_what_is_said_of_one(
    master: dict[str, Any], healthy: bool, ready: bool, known: bool, reason: str
) -> None:
    (told,) = callers({"masters": [master], "group": "prod", "at": 1.0})["masters"]
    assert (told["healthy"], told["ready"], told["known"], told["reason"]) == (
        healthy,
        ready,
        known,
        reason,
    )
