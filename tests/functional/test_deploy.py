"""The alert rules and the dashboard: sound, and about metrics that there are."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from saltext_ha.web import metrics
from tests.tools import program

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus-alerts.yml"
DASHBOARD = DEPLOY / "grafana-dashboard.json"
SUFFIX = re.compile(r"_(total|bucket|sum|count|info)$")


def alerts() -> list[str]:
    """The expressions of all alerts."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule["expr"] for group in groups for rule in group["rules"]]


def drawn() -> list[str]:
    """The expressions of all panels."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def check(rules: Path) -> subprocess.CompletedProcess[str]:
    """What promtool says of *rules*."""
    command = [program("promtool", "prometheus"), "check", "rules", str(rules)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_promtool_finds_nothing_wrong(tmp_path: Path) -> None:
    checked = check(RULES)
    assert checked.returncode == 0, checked.stderr
    assert f"{len(alerts())} rules found" in checked.stdout
    # The panels' expressions are checked the same way, as rules that record them.
    expressions = [expr.replace("$__rate_interval", "5m") for expr in drawn()]
    rules = [{"record": f"panel:{n}", "expr": expr} for n, expr in enumerate(expressions)]
    recorded = tmp_path / "panels.yml"
    recorded.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    checked = check(recorded)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("expression", [*alerts(), *drawn()])
def test_every_metric_is_there(expression: str) -> None:
    source = Path(metrics.__file__).read_text()
    named = set(re.findall(r'"saltext_ha_([a-z_]+)"', source))
    named |= set(re.findall(r'(?:_gauge|_by_master)\(\s*"([a-z_]+)"', source))
    for name in re.findall(r"saltext_ha_([a-z_]+)", expression):
        assert name == "info" or SUFFIX.sub("", name) in named, name
