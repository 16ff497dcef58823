"""What a master tells of itself is read once, and nonsense in it is no answer."""

from __future__ import annotations

from typing import Any

import pytest

from saltext_ha.common.errors import InvalidRecord
from saltext_ha.sync.summary import MasterSummary, Unused

TOLD: dict[str, Any] = {
    "name": "m2",
    "busy": 0.0,
    "root": b"x",
    "held": 1,
    "bound": None,
    "conflicts": ["web1"],
    "unreached": {"m3": "timed out"},
    "mines": {"older": 1, "unknown": 0, "new": b"x"},
    "unused": {"masters": ["m3"], "at": 9.0, "new": b"x"},
    "health": {"ready": True, "since": None, "checks": [{"name": "bus", "ok": None}], "new": b"x"},
    "new": b"x",
}


def test_what_is_told_is_read_without_what_a_later_release_adds() -> None:
    assert MasterSummary.read(TOLD) == MasterSummary(
        name="m2",
        root=b"x",
        held=1,
        conflicts=["web1"],
        unreached={"m3": "timed out"},
        mines={"older": 1, "unknown": 0},
        unused=Unused(["m3"], 9.0),
        health={"ready": True, "since": None, "checks": [{"name": "bus", "ok": None}]},
    )


def test_an_older_release_may_tell_less() -> None:
    assert MasterSummary.read({}) == MasterSummary()
    assert MasterSummary.read({"health": {}}).health == {"checks": []}


@pytest.mark.parametrize(
    ("lie", "about"),
    [
        ({"held": "many"}, "held"),
        ({"held": -1}, "held"),
        ({"dirty": True}, "dirty"),
        ({"busy": float("nan")}, "busy"),
        ({"busy": -1.0}, "busy"),
        ({"busy": "long"}, "busy"),
        ({"doubt": 7}, "doubt"),
        ({"root": "x"}, "root"),
        ({"notes": "text"}, "notes"),
        ({"conflicts": [5]}, "conflicts"),
        ({"unreached": ["m3"]}, "unreached"),
        ({"unreached": {"m3": 5}}, "m3"),
        ({"mines": [1, 2]}, "mines"),
        ({"mines": {"older": 1}}, "unknown"),
        ({"unused": ["m1"]}, "unused"),
        ({"unused": {}}, "masters"),
        ({"unused": {"masters": "m1", "at": 11.0}}, "masters"),
        ({"unused": {"masters": ["m1", 5], "at": 11.0}}, "masters"),
        ({"unused": {"masters": ["m1"], "at": float("inf")}}, "at"),
        ({"health": [1]}, "health"),
        ({"health": {"draining": "yes"}}, "draining"),
        ({"health": {"since": float("inf")}}, "since"),
        ({"health": {"checks": [5]}}, "checks"),
        ({"health": {"checks": [{"ok": 1}]}}, "ok"),
    ],
)
def test_nonsense(lie: dict[str, Any], about: str) -> None:
    with pytest.raises(InvalidRecord, match=f"malformed {about}:"):
        MasterSummary.read({**TOLD, **lie})
