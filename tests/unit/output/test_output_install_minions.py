"""What ``ha.install_minions`` shows."""

from __future__ import annotations

from typing import Any

from saltext_ha.output import _install_minions
from saltext_ha.output._text import Screen


def row(name: str, result: str, **values: Any) -> dict[str, Any]:
    found = {"id": name, "result": result, "before": None, "now": None, "restarted": None}
    return {**found, "problem": "", **values}


def test_trouble_comes_first_and_its_reason_below() -> None:
    rows = [
        row("web1", "installed", now="0.1.0"),
        row("web2", "installed", before="0.0.9", now="0.1.0", restarted=True),
        row("web4", "failed", problem="Salt's Python there is 3.9.2; it takes >=3.10"),
    ]
    data = {"minions": rows, "counts": {"installed": 2, "failed": 1}, "version": "0.1.0"}
    assert _install_minions.install_minions(
        {**data, "unknown": {"m3": "timed out"}}, Screen(100)
    ) == [
        "m3 could not be asked: timed out",
        "Minion  Result     Before  Now    Restarted",
        "web4    failed     -       -      -",
        "web1    installed  -       0.1.0  -",
        "web2    installed  0.0.9   0.1.0  yes",
        "  web4: Salt's Python there is 3.9.2; it takes >=3.10",
        "3 minions: 2 installed, 1 failed · saltext-ha 0.1.0",
    ]


def test_nobody_matches() -> None:
    shown = _install_minions.install_minions({"minions": [], "version": "0.1.0"}, Screen(100))
    assert shown == ["0 minions: no minion matches · saltext-ha 0.1.0"]
