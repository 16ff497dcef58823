"""Whether a master, by its row of ``ha.status``, could take over."""

from __future__ import annotations

from typing import Any

import pytest

from saltext_ha.health.fitness import unfit

READY = {"health": {"ready": True, "reason": ""}}
GOOD = {"state": "running", "behind": 0, "held": 0, "doubt": "", **READY}
OLDER = {"state": "running", "behind": 0, **READY}  # said nothing of what it holds


@pytest.mark.parametrize("row", [GOOD, OLDER])
def test_a_good_one(row: dict[str, Any]) -> None:
    assert unfit(row) == ""


@pytest.mark.parametrize(
    ("differs", "why"),
    [
        ({"state": "unknown"}, "it does not answer"),
        ({"doubt": "wiped?", "held": 3, "behind": 3}, "wiped?"),
        ({"doubt": "wiped?"}, "wiped?"),
        ({"held": 1, "behind": 1}, "its key store does not show what is known: 1 key is held back"),
        ({"held": 1200}, "its key store does not show what is known: 1200 keys are held back"),
        # With a store that hangs since the engine's start no numbers are known at all.
        (
            {"busy": 40.0, "held": None},
            "busy with its keys for 40 s: its key store is slow, or hangs",
        ),
        ({"busy": 2.0}, "busy with its keys for 2 s: its key store is slow, or hangs"),
        ({"busy": 0.0}, ""),
        ({"behind": None}, "it is not known how far behind it is"),
        ({"behind": 2}, "2 keys behind"),
        ({"behind": 1}, "1 key behind"),
        ({"health": {"ready": False, "reason": "draining"}}, "draining"),
        ({"health": {"ready": None}}, "it does not say that it is ready"),
        ({"health": {}}, "it does not say that it is ready"),
    ],
)
def test_why_another_is_not(differs: dict[str, Any], why: str) -> None:
    assert unfit({**GOOD, **differs}) == why
