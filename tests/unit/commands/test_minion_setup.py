"""What minions say before they are given anything."""

from __future__ import annotations

import json
from typing import Any

import pytest

from saltext_ha.commands.rollout import minion_setup

TOLD: dict[str, Any] = {
    "python": "/opt/saltstack/salt/bin/python3.10",
    "release": [3, 10, 15, "final", 0],
    "kernel": "Linux",
    "cache": "/var/cache/salt/minion",
    "conf": "/etc/salt/minion",
    "delay": 0,
    "watchdog": False,
    "has": None,
}


def facts(**changes: Any) -> minion_setup.Facts:
    found = minion_setup.read(json.dumps({**TOLD, **changes}))
    assert isinstance(found, minion_setup.Facts)
    return found


def test_a_minion_without_anything() -> None:
    assert facts().version is None
    assert facts().obstacle(">=3.10") == ""
    assert facts(has={"version": "0.1.0", "started": 1.5, "process": [7, 20.0]}).version == "0.1.0"


def test_what_cannot_have_it() -> None:
    assert "Windows" in facts(kernel="Windows").obstacle(">=3.10")
    assert "proxy minion" in facts(kernel="proxy").obstacle(">=3.10")
    assert facts(release=[3, 9, 2]).obstacle(">=3.10") == (
        "Salt's Python there is 3.9.2; it takes >=3.10"
    )


@pytest.mark.parametrize(
    "returned",
    [
        None,
        "'file.apply_template_on_contents' is not available.",
        "[]",
        "{}",
        {"result": False},
        json.dumps({**TOLD, "python": ""}),
        json.dumps({**TOLD, "release": 3}),
    ],
)
def test_nonsense_is_named(returned: Any) -> None:
    found = minion_setup.read(returned)
    assert isinstance(found, str)
    assert found.startswith("says nothing of its Python")
