"""Each rule of ``ha.lint``: files that fire exactly it, and the mended ones that fire nothing."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import NamedTuple

import pytest
import salt.config
import yaml

from saltext_ha.lint import check, collect
from saltext_ha.lint.model import MASTER, MINION, HostFacts
from saltext_ha.lint.rules import CODES, RULES
from saltext_ha.lint.rules.master import no_signature
from tests.unit.lint.linting import (
    BASES,
    BY_CODE,
    CASES,
    GROUPS,
    LAST,
    NEWEST,
    Case,
    facts_of_text,
    inspect,
    members,
    minion,
    salt_is,
)

pytestmark = pytest.mark.core

ALONE = [case for case in CASES if "group" not in case]


def role_of(case: Case) -> str:
    return MASTER if case["base"] in ("master", "cluster") else MINION


def write(root: Path, case: Case, fixed: bool = False) -> Path:
    """The configuration of *case* as files; the main one."""
    role = role_of(case)
    changes = {**case.get("config", {}), **(case.get("fixed", {}) if fixed else {})}
    config = {"root_dir": str(root), "id": "web1" if role == MINION else "m1"}
    config = {**config, **BASES[case["base"]], **changes}
    text = yaml.safe_dump({k: v for k, v in config.items() if v is not None}, sort_keys=False)
    path = root / role
    path.write_text(case["text"] if "text" in case and not fixed else text)
    folder = root / f"{role}.d"
    folder.mkdir(exist_ok=True)
    included = case.get("included")
    if fixed:
        included = case.get("fixed_included", included)
    for name, values in (("a", included), ("b", case.get("included_too"))):
        if values is not None:
            (folder / f"{name}.conf").write_text(yaml.safe_dump(values))
    if not fixed or "default_include" in changes:
        for name in case.get("unread", []):
            (folder / name).write_text("timeout: 7\n")
    pki = root / "etc/salt/pki" / role
    pki.mkdir(parents=True, exist_ok=True)
    files = {**case.get("files", {}), **(case.get("fixed_files", {}) if fixed else {})}
    for name, content in files.items():
        (pki / name).write_text(content)
    return path


def facts_of(
    root: Path, case: Case, monkeypatch: pytest.MonkeyPatch, fixed: bool = False
) -> HostFacts:
    known = {
        host: None if ips is None else frozenset(ips)
        for host, ips in case.get("addresses", {}).items()
    }
    monkeypatch.setattr(collect, "addresses", lambda masters: known)  # the name service
    path = write(root, case, fixed)
    pki_dir = root / "etc/salt/pki" / role_of(case)
    running = {"conf_file": str(path), "pki_dir": str(pki_dir), "id": "web1"}
    major, _, minor = str(case.get("salt", NEWEST[0])).partition(".")
    version = (int(major), int(minor or LAST))
    salt_is(version[0], monkeypatch)
    found = collect.of_minion(running) if role_of(case) == MINION else collect.of_master(running)
    told = {}
    for address, port in case.get("told", {}).items():
        host, _, request = address.partition(":")
        told[host, int(request)] = port
    shared = case.get("fixed_shared" if fixed else "shared", case.get("shared", {}))
    owner = "" if fixed else case.get("state_owner", "")
    checkouts = case.get("checkouts", ())
    edited = () if fixed else case.get("edited", ())
    return dataclasses.replace(
        found,
        told=told,
        shared=shared,
        version=version,
        state_owner=owner,
        checkouts=checkouts,
        edited=edited,
    )


def title(case: Case) -> str:
    return f"{case['code']}-{CASES.index(case)}"


def test_every_rule_has_a_case() -> None:
    assert {case["code"] for case in CASES} == CODES
    assert len(RULES) == len(CODES), "a code stands twice"
    assert all(re.fullmatch(r"HA\d{3}", code) for code in CODES)


@pytest.mark.parametrize("case", ALONE, ids=title)
def test_fires_exactly_it(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    findings = inspect(facts_of(tmp_path, case, monkeypatch))
    assert {finding["code"] for finding in findings} == {case["code"]}
    for finding in findings:
        line = line_at(finding)
        if line and case["code"] != "HA001":
            # The option itself, an entry of it, or what makes a default that is not written matter.
            near = (finding["option"], "- ", "master_type", "cluster_id", "master:")
            assert line.lstrip().startswith(near), finding


def line_at(finding: check.Finding) -> str:
    if not finding["line"]:
        return ""
    lines = Path(finding["file"]).read_text().splitlines()
    return lines[finding["line"] - 1] if finding["line"] <= len(lines) else ""


@pytest.mark.parametrize("case", ALONE, ids=title)
def test_mended_nothing_fires(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "included_too" in case:
        case = {key: value for key, value in case.items() if key != "included_too"}
        case["fixed_included"] = {**case["included"]}
    assert inspect(facts_of(tmp_path, case, monkeypatch, fixed=True)) == []


@pytest.mark.parametrize("case", ALONE, ids=title)
def test_only_on_the_releases_that_have_it(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = facts_of(tmp_path, case, monkeypatch)
    rule = BY_CODE[case["code"]]
    for release in (3006, 3007, 3008):
        there = dataclasses.replace(facts, version=(release, facts.version[1]))
        fires = case["code"] in {finding["code"] for finding in inspect(there)}
        assert fires == rule.holds_on((release, 1)), release


@pytest.mark.parametrize("case", GROUPS, ids=title)
def test_masters_beside_each_other(case: Case) -> None:
    findings = check.compare(members(case["group"]))
    assert {finding["code"] for finding in findings} == {case["code"], *case.get("beside", ())}
    for finding in findings:
        assert finding["on"] in ("m1", "m2")
        written = finding["option"] in case["group"][int(finding["on"][1]) - 1]
        assert (finding["file"], finding["line"]) == (
            ("/etc/salt/master", 7) if written else ("", 0)
        )
    assert check.compare(members(case["fixed_group"])) == []
    assert check.compare(members(case["group"])[:1]) == [], "one master differs from nobody"


@pytest.mark.parametrize(
    "option", ["my_company_option", "auth_retries", "mysql.hosts", "maestro", "roles", "app_port"]
)
def test_an_option_of_somebody_else_is_no_misspelling(tmp_path: Path, option: str) -> None:
    facts = minion(tmp_path, f"master: 10.0.0.1\n{option}: 1\n")
    assert check.inspect("x", facts) == []


def test_one_master_by_name_and_by_address(tmp_path: Path) -> None:
    """As the name service of this host has it."""
    text = "master: [127.0.0.1, localhost]\nretry_dns: 30\nzmq_monitor: False\n"
    facts = facts_of_text(text, MINION, tmp_path)
    assert {f["code"] for f in check.inspect("x", facts)} == {"HA105", "HA109"}


def test_names_are_looked_up() -> None:
    entries = ["localhost", "no-such-host.invalid:4506", "10.0.0.1", "a,b", "[::1]:4506"]
    found = collect.addresses(entries)
    assert set(found) == {"localhost", "no-such-host.invalid"}
    assert found["no-such-host.invalid"] is None
    assert found["localhost"] is not None
    assert found["localhost"] & {"127.0.0.1", "::1"}


def test_network_file_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Part(NamedTuple):
        mountpoint: str
        fstype: str

    mounts = [("/", "ext4"), (str(tmp_path), "nfs4"), (str(tmp_path / "own"), "xfs")]
    mounts.append((str(tmp_path / "gluster"), "fuse.glusterfs"))
    monkeypatch.setattr(
        collect.psutil, "disk_partitions", lambda all: [Part(*mount) for mount in mounts]
    )
    folders = {"cachedir": str(tmp_path / "cache/master"), "pki_dir": str(tmp_path / "own/pki")}
    assert collect._on_network(folders) == {"cachedir": "nfs4"}
    assert collect._on_network({"pki_dir": f"{tmp_path}/gluster"}) == {"pki_dir": "fuse.glusterfs"}


def test_where_salt_looks_for_a_signature_that_has_no_name(tmp_path: Path) -> None:
    """Salt 3006 and 3007 have a name for it; 3008 names it after the master."""
    path, pki_dir = tmp_path / "master", tmp_path / "etc/salt/pki/master"
    pki_dir.mkdir(parents=True)
    path.write_text(
        f"root_dir: {tmp_path}\nid: m1\nmaster_sign_pubkey: true\n"
        "master_use_pubkey_signature: true\n"
    )
    opts = salt.config.master_config(str(path))
    name = opts["master_pubkey_signature"] or f"{opts['id']}_pubkey_signature"

    def found() -> list[str]:
        facts = collect.of_master({"conf_file": str(path)})
        return [hit.detail for hit in no_signature(facts)]

    assert found() == [f"{pki_dir}/{name} is not there"]
    (pki_dir / name).write_text("signed")
    assert found() == []
