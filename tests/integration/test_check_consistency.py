"""``salt-run ha.check_consistency`` and the commands around it, on masters that differ."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import Lab, Master, wait_for
from lab.cli import Result
from tests.integration.conftest import MakeLab
from tests.integration.group import SOON, files_of, group, plant, row, shown

pytestmark = pytest.mark.timeout(120)

SECRET = "hunter2-do-not-print"
ACCESS: dict[str, Any] = {
    "external_auth": {"pam": {"alice": [".*", "@runner"], "bob": ["test.*"]}},
    "publisher_acl": {"ops": ["test.*"]},
    "nodegroups": {"web": "web*"},
    "ext_pillar": [{"vault": {"token": SECRET}}],
}
SECTIONS = {"keys", "master_key", "access", "versions", "ports", "roots", "running", "clock"}


@pytest.fixture(scope="module")
def lab(make_lab: MakeLab) -> Iterator[Lab]:
    with group(make_lab, "m1", "m2", config={**ACCESS, "autosign_file": "autosign.conf"}) as lab:
        yield lab


@pytest.fixture
def pair(lab: Lab) -> Iterator[tuple[Master, Master]]:
    """Both masters, running and the same; whatever a test changes is undone."""
    m1, m2 = lab.masters.values()
    former = m2.config_file.read_text()
    yield m1, m2
    if m2.config_file.read_text() != former or not m2.running:
        m2.kill()
        m2.config_file.write_text(former)
        m2.start()
    wait_for(lambda: m1.control("status")["state"] == "ok", SOON, "the group is well again")


def configure(master: Master, **settings: Any) -> None:
    """Change the file; the running master does not know."""
    now = yaml.safe_load(master.config_file.read_text())
    ha = {**now["ha"], **settings.pop("ha", {})}
    master.config_file.write_text(yaml.safe_dump({**now, **settings, "ha": ha}))


def restart(master: Master) -> None:
    master.kill()
    master.start()


def differences(result: Result, section: str) -> dict[str, dict[str, Any]]:
    """path → values on each master"""
    found = result.data["sections"][section]["differences"]
    return {difference["path"]: difference["values"] for difference in found}


@pytest.mark.core
def test_masters_that_are_the_same(pair: tuple[Master, Master]) -> None:
    result = pair[0].salt_run("ha.check_consistency").check()
    assert result.data["status"] == "same"
    assert result.data["masters"] == ["m1", "m2"]
    assert result.data["unknown"] == {}
    assert set(result.data["sections"]) == SECTIONS
    assert {s["status"] for s in result.data["sections"].values()} == {"same"}
    assert SECRET not in result.stdout
    text = pair[1].salt_run_text("ha.check_consistency").check()
    assert text.stdout.startswith("m1, m2: all the same (")


def test_what_the_file_says_and_the_master_does_not_know_yet(pair: tuple[Master, Master]) -> None:
    m1, m2 = pair
    configure(m2, publisher_acl={"ops": ["test.*", "state.apply"]})
    result = m1.salt_run("ha.check_consistency")
    assert result.returncode == 1
    assert result.data["status"] == "differ"
    assert differences(result, "access") == {}
    assert differences(result, "running") == {
        "publisher_acl:ops": {
            "m2": {"file": ["state.apply", "test.*"], "running": ["test.*"]},
        }
    }
    assert "restart salt-master on m2" in m1.salt_run_text("ha.check_consistency").stdout


def test_access_that_differs(pair: tuple[Master, Master]) -> None:
    m1, m2 = pair
    configure(
        m2,
        external_auth={"pam": {"bob": ["test.*"]}},
        publisher_acl={"ops": ["test.*"], "night": ["state.apply"]},
        nodegroups={"web": "web1*"},
        ext_pillar=[{"vault": {"token": f"{SECRET}-other"}}],
    )
    restart(m2)
    wait_for(lambda: row(m1, m2)["state"] == "running", SOON, "m2 is back")
    result = m1.salt_run("ha.check_consistency")
    assert result.returncode == 1
    assert differences(result, "access") == {
        "external_auth:pam:alice": {"m1": [".*", "@runner"], "m2": {"absent": True}},
        "publisher_acl:night": {"m1": {"absent": True}, "m2": ["state.apply"]},
        "nodegroups:web": {"m1": "web*", "m2": "web1*"},
    }
    hidden = differences(result, "roots")["ext_pillar"]
    assert hidden["m1"] != hidden["m2"]
    assert set(hidden["m1"]) == {"secret"}
    assert differences(result, "running") == {}
    text = m1.salt_run_text("ha.check_consistency")
    assert text.returncode == 1
    assert "external_auth:pam:alice" in text.stdout
    for output in (result.stdout, text.stdout, log(m1), log(m2)):
        assert SECRET not in output


def test_files_that_sign_keys(pair: tuple[Master, Master]) -> None:
    m1, _ = pair
    autosign = [Path(master.opts["autosign_file"]) for master in pair]
    try:
        for path, lines in zip(autosign, ("web*\n", "web*\ndb*\n"), strict=True):
            path.write_text(lines)
            path.chmod(0o600)
        result = m1.salt_run("ha.check_consistency")
        assert result.returncode == 1
        assert differences(result, "access") == {
            "autosign_file:db*": {"m1": {"absent": True}, "m2": "listed"}
        }
    finally:
        for path in autosign:
            path.unlink()


def test_a_dead_master_is_unknown_and_never_the_same(pair: tuple[Master, Master]) -> None:
    m1, m2 = pair
    m2.kill()
    for function in ("check_consistency", "status", "keys", "sync", "peers"):
        assert m1.salt_run(f"ha.{function}").returncode == 2, function
    result = m1.salt_run("ha.check_consistency")
    assert result.data["status"] == "unknown"
    assert "refused" in result.data["unknown"]["m2"]
    assert {s["status"] for s in result.data["sections"].values()} == {"unknown"}
    text = m1.salt_run_text("ha.check_consistency").stdout
    assert text.startswith("m2 could not be asked")
    assert "all the same" not in text


def test_keys_that_differ_are_found_planned_and_made_the_same(
    lab: Lab, pair: tuple[Master, Master]
) -> None:
    """m2 observes: what it is told it keeps, and changes nothing, until it enforces again."""
    m1, m2 = pair
    configure(m2, ha={"mode": "observe"})
    restart(m2)
    wait_for(lambda: row(m1, m2)["state"] == "running", SOON, "m2 is back")
    key = plant(lab, "minions", "drift", m1)
    wait_for(lambda: row(m1, m2)["behind"], SOON, "m2 is behind")
    assert m1.salt_run("ha.status").returncode == 1

    check = m1.salt_run("ha.check_consistency")
    assert check.returncode == 1
    assert check.data["sections"]["keys"]["counts"]["differ"] == 1
    values = differences(check, "keys")["drift"]
    assert values["m1"].startswith("accepted ")
    assert values["m2"] == {"absent": True}
    listed = m1.salt_run("ha.keys", "drift")
    assert listed.returncode == 1
    assert listed.data["keys"][0]["states"] == {"m1": "accepted", "m2": None}

    for master in pair:
        plan = master.salt_run("ha.sync", test=True).data
        assert [(c["master"], c["id"], c["from"]) for c in plan["changes"]] == [
            ("m2", "drift", "absent")
        ], f"planned by {master.name}"
        assert plan["test"] is True
    assert files_of(m2, "drift") == {}

    # It cannot be made the same, and nobody says that it was.
    for master in pair:
        done = master.salt_run("ha.sync")
        assert done.returncode == 1
        assert done.data["changes"] == []
        assert any("m2" in note and "observe" in note for note in done.data["notes"])
    assert files_of(m2, "drift") == {}

    configure(m2, ha={"mode": "enforce"})
    restart(m2)
    shown("drift", {"minions": key}, m1, m2)
    done = m1.salt_run("ha.sync").check().data
    assert (done["changes"], done["unreachable"]) == ([], {})


def log(master: Master) -> str:
    return master.log_file.read_text(encoding="utf-8", errors="replace")
