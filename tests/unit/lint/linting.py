"""What tests of ``ha.lint`` look at: the cases, and configurations of which facts are taken."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from saltext_ha.common import cluster
from saltext_ha.lint import check, collect, wire
from saltext_ha.lint.model import MASTER, MINION, HostFacts, Member, Place
from saltext_ha.lint.rules import RULES

Case = Mapping[str, Any]
CASES: list[Case] = yaml.safe_load((Path(__file__).parent / "lint_cases.yaml").read_text())
GROUPS = [case for case in CASES if "group" in case]
BY_CODE = {rule.code: rule for rule in RULES}

BASES: dict[str, dict[str, Any]] = {
    "single": {"master": "10.0.0.1"},
    "hot": {"master": ["10.0.0.1", "10.0.0.2"], "zmq_monitor": False},
    "failover": {
        "master": ["10.0.0.1", "10.0.0.2"],
        "master_type": "failover",
        "master_alive_interval": 30,
        "retry_dns": 0,
        "tcp_keepalive_idle": 20,
        "tcp_keepalive_intvl": 5,
        "tcp_keepalive_cnt": 3,
        "ha": {"lint": {"ignore": ["HA218"]}},
    },
    "master": {"interface": "10.0.0.1", "engines": [{"ha": {}}], "ha": {"name": "m1"}},
    "cluster": {
        "interface": "10.0.0.1",
        "id": "10.0.0.1",
        "cluster_id": "prod",
        "cluster_peers": ["10.0.0.2"],
        "cluster_secret": "drowssap",
        "cluster_isolated_filesystem": True,
        "engines": [{"ha": {}}],
        "ha": {"name": "m1", "repair": True},
    },
}
NEWEST = (3008, 3)
# Of each major release the last.
LAST = 99


def salt_is(release: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What that *release* of Salt knows of clusters counts, whichever is installed."""
    known = {3006: (), 3007: ("cluster_id",)}.get(release, ("cluster_id", cluster.ISOLATED))
    monkeypatch.setattr(cluster.of, "__defaults__", (known,))


def facts_of_text(text: str, role: str, folder: Path, name: str = "x") -> HostFacts:
    """*text* is a part of a configuration: what else it takes stands elsewhere on that page."""
    path = folder / name / role
    path.parent.mkdir(exist_ok=True)
    path.write_text(text if role == MINION or "engines" in text else f"{text}engines: [ha: {{}}]\n")
    running = {"conf_file": str(path), "id": name, "pki_dir": str(path.parent)}
    return collect.of_minion(running) if role == MINION else collect.of_master(running)


def configured(folder: Path, role: str, text: str, **included: str) -> dict[str, Any]:
    """The options of a process with this configuration: *text*, and files in the folder beside."""
    path = folder / role
    path.write_text(text)
    for name, more in included.items():
        (folder / f"{role}.d").mkdir(exist_ok=True)
        (folder / f"{role}.d" / f"{name}.conf").write_text(more)
    name = "web1" if role == MINION else "m1"
    return {"conf_file": str(path), "id": name, "pki_dir": str(folder)}


def minion(folder: Path, text: str, **included: str) -> HostFacts:
    return collect.of_minion(configured(folder, MINION, text, **included))


def master(folder: Path, text: str, **included: str) -> HostFacts:
    return collect.of_master(configured(folder, MASTER, text, **included))


def hits(facts: HostFacts, code: str) -> list[check.Finding]:
    """What that rule finds."""
    return [finding for finding in check.inspect("x", facts) if finding["code"] == code]


def inspect(facts: HostFacts) -> list[check.Finding]:
    ignored = check.configured(facts.options)
    return [f for f in check.inspect("x", facts) if f["code"] not in ignored]


def members(described: list[dict[str, Any]]) -> list[Member]:
    found = []
    for number, values in enumerate(described, 1):
        options = {k: v for k, v in values.items() if k not in ("marks", "fingerprint")}
        places = {option: Place("/etc/salt/master", 7) for option in options}
        mark, key = values.get("marks", {}), values.get("fingerprint")
        common = {"publish_port": 4505, "ret_port": 4506, "hash_type": "sha256"}
        found.append(Member(f"m{number}", NEWEST, {**common, **options}, places, key, mark))
    return found


def answer(*codes: str, **more: Any) -> dict[str, Any]:
    findings = [
        {"code": code, "severity": BY_CODE[code].severity, "on": "m1", "file": "f", "line": 1}
        for code in codes
    ]
    choice = check.Choice(more.get("only", frozenset()), more.get("ignore", frozenset()))
    return check.answer(findings, choice, ["m1"], more.get("unknown", {}))


def peer() -> dict[str, Any]:
    (member,) = members([{"publish_port": 4507, "schedule": ["nightly"], "ha": {"masters": []}}])
    finding = {**answer("HA502")["findings"][0], "option": "open_mode", "title": "t", "detail": "d"}
    finding |= {"why": "w", "fix": "f", "versions": "all"}
    return wire.to_wire(member, [finding], {"master key": "why"})
