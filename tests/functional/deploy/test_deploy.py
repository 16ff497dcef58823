"""The alert rules and the dashboard: sound, and about metrics that there are."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from saltext_ha.web import metrics
from tests.tools import program

DEPLOY = Path(__file__).parents[3] / "deploy"
RULES = DEPLOY / "prometheus-alerts.yml"
DASHBOARD = DEPLOY / "grafana-dashboard.json"
SUFFIX = re.compile(r"_(total|bucket|sum|count|info)$")


def rules() -> dict[str, dict[str, Any]]:
    """Name → rule, of all alerts."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def alerts() -> list[str]:
    """The expressions of all alerts."""
    return [rule["expr"] for rule in rules().values()]


def drawn() -> list[str]:
    """The expressions of all panels."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def check(file: Path) -> subprocess.CompletedProcess[str]:
    """What promtool says of *file*."""
    command = [program("promtool"), "check", "rules", str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_promtool_finds_nothing_wrong(tmp_path: Path) -> None:
    checked = check(RULES)
    assert checked.returncode == 0, checked.stderr
    assert f"{len(alerts())} rules found" in checked.stdout
    # The panels' expressions are checked the same way, as rules that record them.
    expressions = [expr.replace("$__rate_interval", "5m") for expr in drawn()]
    records = [{"record": f"panel:{n}", "expr": expr} for n, expr in enumerate(expressions)]
    recorded = tmp_path / "panels.yml"
    recorded.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": records}]}))
    checked = check(recorded)
    assert checked.returncode == 0, checked.stderr


@dataclass(frozen=True)
class Case:
    """
    What Prometheus has scraped every minute, and what follows after so many *minutes*.

    :param fires: series → values with which the alert fires then, and not a minute before.
    :param quiet: the same with which it does not.
    :param labels: of the alert, beside its severity.
    :param summary: as a person reads it.
    """

    fires: Mapping[str, str]
    quiet: Mapping[str, str]
    minutes: int
    labels: Mapping[str, str]
    summary: str


HISTOGRAM = 'saltext_ha_propagation_seconds_bucket{group="prod",peer="m2",instance="m1",le="%s"}'
TOLERATES, INFO = (
    "saltext_ha_tolerates{group='prod',instance='%s'}",
    "saltext_ha_info{group='prod',instance='%s'}",
)
STATE = "saltext_ha_state{group='prod',saltext_ha_state='%s',instance='%s'}"
GROUP = {INFO % "m1": "1x200", INFO % "m2": "1x200"}
# Another group whose masters were compared, in the same Prometheus.
OTHER = {
    "saltext_ha_info{group='test',instance='x1'}": "1x200",
    "saltext_ha_consistency_timestamp_seconds{group='test',instance='x1'}": "0+60x200",
    "saltext_ha_consistency_stale{group='test',instance='x1'}": "0x200",
}
ENDS = "saltext_ha_certificate_expiry_timestamp_seconds{group='prod',instance='m1'}"
DAY = 86400
CASES = {
    "SaltHaNotScraped": Case(
        {},
        {"saltext_ha_up{group='prod',master='m2',instance='m1'}": "0x200"},
        5,
        {},
        "No Salt master's ha metrics are scraped: no other of these alerts can fire",
    ),
    # One master that does not reach it is enough, also when others do.
    "SaltMasterUnknown": Case(
        {
            "saltext_ha_up{group='prod',master='m2',instance='m1'}": "0x200",
            "saltext_ha_up{group='prod',master='m2'}": "1x200",
        },
        {"saltext_ha_up{group='prod',master='m2',instance='m1'}": "1x200"},
        2,
        {"group": "prod", "master": "m2"},
        "The ha engine of Salt master m2 (group prod) does not answer its peers",
    ),
    "SaltMasterDoesNotServe": Case(
        {
            "saltext_ha_healthy{group='prod',master='m2',instance='m1'}": "0x200",
            "saltext_ha_healthy{group='prod',master='m2',instance='m3'}": "1x200",
        },
        {"saltext_ha_healthy{group='prod',master='m2',instance='m1'}": "1x200"},
        1,
        {"group": "prod", "master": "m2"},
        "Salt master m2 (group prod) does not serve",
    ),
    "SaltNoMasterMayBeLost": Case(
        {TOLERATES % "m1": "0x200", TOLERATES % "m2": "0x200", **GROUP},
        {TOLERATES % "m1": "0x200", TOLERATES % "m2": "1x200", **GROUP},
        10,
        {"group": "prod"},
        "Salt group prod tolerates the loss of no master",
    ),
    # A master that is not ready, a note, something unknown: no other alert is about these.
    "SaltGroupNotOk": Case(
        {STATE % ("ok", "m1"): "0x200", STATE % ("unknown", "m1"): "1x200", **GROUP},
        {STATE % ("ok", "m1"): "1x200", STATE % ("unknown", "m1"): "0x200", **GROUP},
        60,
        {"group": "prod"},
        "Salt group prod has not been ok for an hour",
    ),
    "SaltMastersDiffer": Case(
        {"saltext_ha_drift{group='prod',section='access',instance='m1'}": "1x200"},
        {"saltext_ha_drift{group='prod',section='access',instance='m1'}": "0x200"},
        15,
        {"group": "prod", "section": "access"},
        "The masters of Salt group prod differ: access",
    ),
    # Another alert is about one that is old; how old it may be depends on  interval:.
    "SaltMastersNotCompared": Case(
        {**GROUP, **OTHER},
        {"saltext_ha_consistency_timestamp_seconds{group='prod',instance='m1'}": "0x200", **GROUP},
        30,
        {"group": "prod"},
        "The masters of Salt group prod were never compared",
    ),
    # One engine whose comparison counts is enough: it tells the others' differences, too.
    "SaltComparisonStale": Case(
        {
            "saltext_ha_consistency_stale{group='prod',instance='m1'}": "1x200",
            "saltext_ha_consistency_stale{group='prod',instance='m2'}": "1x200",
            **GROUP,
            **OTHER,
        },
        {
            "saltext_ha_consistency_stale{group='prod',instance='m1'}": "1x200",
            "saltext_ha_consistency_stale{group='prod',instance='m2'}": "0x200",
            **GROUP,
        },
        30,
        {"group": "prod"},
        "It is unknown whether the masters of Salt group prod differ: no comparison counts",
    ),
    "SaltKeyConflict": Case(
        {"saltext_ha_conflicts{group='prod',instance='m1'}": "1x200"},
        {"saltext_ha_conflicts{group='prod',instance='m1'}": "0x200"},
        5,
        {"group": "prod"},
        "1 minion ids of Salt group prod have different accepted keys",
    ),
    "SaltKeyChangesHeld": Case(
        {"saltext_ha_held_keys{group='prod',master='m2',instance='m1'}": "30x200"},
        {"saltext_ha_held_keys{group='prod',master='m2',instance='m1'}": "0x200"},
        0,
        {"group": "prod", "master": "m2"},
        "30 key changes are held back on m2 (group prod)",
    ),
    "SaltKeysBehind": Case(
        {"saltext_ha_behind_keys{group='prod',master='m2',instance='m1'}": "1x200"},
        {"saltext_ha_behind_keys{group='prod',master='m2',instance='m1'}": "0x200"},
        10,
        {"group": "prod", "master": "m2"},
        "Keys on Salt master m2 (group prod) stay behind",
    ),
    "SaltKeysSpreadSlowly": Case(
        {HISTOGRAM % 5.0: "0x200", HISTOGRAM % 10.0: "0+9x200", HISTOGRAM % "+Inf": "0+9x200"},
        {HISTOGRAM % 5.0: "0+9x200", HISTOGRAM % 10.0: "0+9x200", HISTOGRAM % "+Inf": "0+9x200"},
        16,
        {"group": "prod", "peer": "m2"},
        "Key changes take more than 5 s to reach m2 (group prod)",
    ),
    "SaltHaCertificateEnds": Case(
        {ENDS: f"{59 * DAY}x200"},
        {ENDS: f"{61 * DAY}x200"},
        0,
        {"group": "prod", "instance": "m1"},
        "The ha certificate of m1 (group prod) ends within 60 days",
    ),
}


def test_every_alert_has_its_case() -> None:
    assert CASES.keys() == rules().keys()


@pytest.mark.parametrize("name", CASES)
def test_every_alert_names_the_command_to_begin_with(name: str) -> None:
    assert "salt-run ha." in rules()[name]["annotations"].get("description", "")


@pytest.mark.parametrize("name", CASES)
def test_alerts_fire_when_they_should_and_only_then(name: str, tmp_path: Path) -> None:
    case, rule = CASES[name], rules()[name]
    alert = {
        "exp_labels": {**rule["labels"], **case.labels},
        "exp_annotations": {**rule["annotations"], "summary": case.summary},
    }
    tests = [at(name, case.fires, case.minutes, [alert]), at(name, case.quiet, 190, [])]
    if case.minutes:
        tests.append(at(name, case.fires, case.minutes - 1, []))
    assert promtool_says(tests, tmp_path) == ""


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.fires])
def test_a_group_neither_hides_nor_takes_the_alert_of_another_one(
    name: str, tmp_path: Path
) -> None:
    """Masters of both have the same names, and all are scraped as the same instances."""
    case, rule = CASES[name], rules()[name]

    def alert(group: str) -> dict[str, Any]:
        summary = case.summary.replace("prod", group)
        return {
            "exp_labels": {**rule["labels"], **case.labels, "group": group},
            "exp_annotations": {**rule["annotations"], "summary": summary},
        }

    def of(group: str, series: Mapping[str, str]) -> dict[str, str]:
        own = {key: values for key, values in series.items() if "prod" in key}
        return {key.replace("prod", group): values for key, values in own.items()}

    well, ill = of("well", case.quiet), of("ill", case.fires)
    tests = [
        at(name, {**ill, **well}, case.minutes, [alert("ill")]),
        at(name, {**ill, **of("sick", case.fires)}, case.minutes, [alert("ill"), alert("sick")]),
    ]
    assert promtool_says(tests, tmp_path) == ""


def at(
    name: str, series: Mapping[str, str], minutes: int, alerts: list[dict[str, Any]]
) -> dict[str, Any]:
    """One case as promtool takes it."""
    return {
        "interval": "1m",
        "input_series": [{"series": key, "values": value} for key, value in series.items()],
        "alert_rule_test": [{"eval_time": f"{minutes}m", "alertname": name, "exp_alerts": alerts}],
    }


def promtool_says(tests: list[dict[str, Any]], folder: Path) -> str:
    """What goes otherwise than *tests* expect; empty when nothing does."""
    file = folder / "tests.yml"
    told = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}
    file.write_text(yaml.safe_dump(told))
    command = [program("promtool"), "test", "rules", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_the_dashboard_shows_what_is_and_not_what_was(tmp_path: Path) -> None:
    """Grafana would show the last value of hours: a master that is unknown now would serve."""
    stats = [
        panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] == "stat"
    ]
    for panel in stats:
        assert all(target["instant"] for target in panel["targets"]), panel["title"]
        bad = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        assert {step["color"] for step in bad} == {"green", "red"}, panel["title"]
    serves = next(panel for panel in stats if panel["title"] == "Master serves")
    expected = {"m1": 1, "m2": 0, "m3": -1}
    asked = {
        "expr": serves["targets"][0]["expr"],
        "eval_time": "5m",
        "exp_samples": [
            {"labels": f'{{group="prod",master="{name}"}}', "value": value}
            for name, value in expected.items()
        ],
    }
    series = {
        f"saltext_ha_up{{group='prod',master='{name}',instance='m1'}}": "1x9" for name in expected
    }
    series |= {"saltext_ha_healthy{group='prod',master='m1',instance='m1'}": "1x9"}
    series |= {"saltext_ha_healthy{group='prod',master='m2',instance='m1'}": "0x9"}
    inputs = [{"series": key, "values": values} for key, values in series.items()]
    test = {"interval": "1m", "input_series": inputs, "promql_expr_test": [asked]}
    assert promtool_says([test], tmp_path) == ""
    mapped = serves["fieldConfig"]["defaults"]["mappings"][0]["options"]
    assert mapped["-1"]["text"] == "unknown"


def test_the_dashboard_shows_what_each_group_tolerates(tmp_path: Path) -> None:
    """Not the best of all groups that Prometheus scrapes."""
    (expression,) = (each for each in drawn() if "tolerates" in each)
    series = {
        **GROUP,
        **OTHER,
        TOLERATES % "m1": "0x9",
        (TOLERATES % "x1").replace("prod", "test"): "2x9",
    }
    expected = [{"labels": '{group="prod"}', "value": 0}, {"labels": '{group="test"}', "value": 2}]
    test = {
        "interval": "1m",
        "input_series": [{"series": key, "values": values} for key, values in series.items()],
        "promql_expr_test": [{"expr": expression, "eval_time": "5m", "exp_samples": expected}],
    }
    assert promtool_says([test], tmp_path) == ""


@pytest.mark.parametrize("expression", [*alerts(), *drawn()])
def test_every_metric_is_there(expression: str) -> None:
    source = Path(metrics.__file__).read_text()
    named = set(re.findall(r'"saltext_ha_([a-z_]+)"', source))
    named |= set(re.findall(r'(?:_gauge|_by_master)\(\s*"([a-z_]+)"', source))
    for name in re.findall(r"saltext_ha_([a-z_]+)", expression):
        assert name == "info" or SUFFIX.sub("", name) in named, name
