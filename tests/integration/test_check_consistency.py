"""``salt-run ha.check_consistency`` and the commands around it, on masters that differ."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import Lab, Master, wait_for
from lab.cli import Result
from saltext_ha.consistency import sections
from tests.integration.bus import CHECKED, Events, documented, heard
from tests.integration.conftest import MakeLab
from tests.integration.group import SOON, configure, files_of, group, level, plant, row, shown, well

SECRET = "hunter2-do-not-print"
ACCESS: dict[str, Any] = {
    "external_auth": {"pam": {"alice": [".*", "@runner"], "bob": ["test.*"]}},
    "publisher_acl": {"ops": ["test.*"]},
    "nodegroups": {"web": "web*"},
    "ext_pillar": [{"vault": {"token": SECRET}}],
}
SECTIONS = set(sections.NAMES)


@pytest.fixture(scope="module")
def lab(make_lab: MakeLab) -> Iterator[Lab]:
    with group(
        make_lab,
        "m1",
        "m2",
        # Nothing is found, and told, before it is asked for.
        ha={"consistency": {"interval": 0}},
        config={**ACCESS, "autosign_file": "autosign.conf"},
    ) as lab:
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
    well(m1, but="comparison")


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


@pytest.mark.core
def test_every_planted_difference_is_found_and_nothing_else(
    lab: Lab, pair: tuple[Master, Master]
) -> None:
    m1, m2 = pair
    former = m2.config_file.read_text()
    srv = Path(m2.opts["file_roots"]["base"][0])
    states, pillar = lab.root / "m2-srv", lab.root / "m2-pillar"
    for folder in (states, pillar):
        shutil.copytree(srv, folder, dirs_exist_ok=True)
    (states / "extra.sls").write_text("# only there")
    (pillar / "secret.sls").write_text(f"password: {SECRET}")
    configure(
        m2,
        external_auth={"pam": {"bob": ["test.*"]}},
        publisher_acl={"ops": ["test.*"], "night": ["state.apply"]},
        nodegroups={"web": "web1*"},
        rest_cherrypy={"port": 8000, "webhook_disable_auth": True},
        ext_pillar=[{"vault": {"token": f"{SECRET}-other"}}],
        gather_job_timeout=17,
        worker_threads=2,
        file_roots={"base": [str(states)], "dev": [str(srv)]},
        pillar_roots={"base": [str(pillar)]},
    )
    restart(m2)
    wait_for(lambda: level(m1), SOON, "m2 is back")
    with heard(m1) as events:
        result = m1.salt_run("ha.check_consistency")
        assert result.returncode == 1
        absent = {"absent": True}
        assert differences(result, "access") == {
            "external_auth:pam:alice": {"m1": [".*", "@runner"], "m2": absent},
            "publisher_acl:night": {"m1": absent, "m2": ["state.apply"]},
            "nodegroups:web": {"m1": "web*", "m2": "web1*"},
            "rest_cherrypy:webhook_disable_auth": {"m1": False, "m2": True},
        }
        assert differences(result, "options") == {
            "ext_pillar": {"m1": {"secret": "#1"}, "m2": {"secret": "#2"}},
            "gather_job_timeout": {"m1": m1.opts["gather_job_timeout"], "m2": 17},
        }
        roots = differences(result, "roots")
        assert roots.keys() == {
            "file_roots:base:extra.sls",
            "file_roots:dev",
            "pillar_roots:base:secret.sls",
        }
        assert roots["file_roots:base:extra.sls"]["m1"] == absent
        same = [name for name, part in result.data["sections"].items() if part["status"] == "same"]
        assert same == ["keys", "master_key", "versions", "running", "clock"]
        text = m1.salt_run_text("ha.check_consistency")
        assert text.returncode == 1
        assert "external_auth:pam:alice" in text.stdout
        assert m1.salt_run("ha.status").data["consistency"]["counts"]["access"] == 4
        only = m1.salt_run("ha.check_consistency", only="keys,versions").check()
        assert [*only.data["sections"]] == ["keys", "versions"]
        for output in (result.stdout, text.stdout, log(m1), log(m2)):
            assert SECRET not in output

        m2.kill()
        m2.config_file.write_text(former)
        m2.start()
        wait_for(lambda: level(m1), SOON, "m2 is back")
        m1.salt_run("ha.check_consistency").check()
        wait_for(lambda: len(told(events)) == 2, SOON, "both events are heard")
    (drift, differed), (consistent, agreed) = told(events)
    assert (drift, consistent) == ("salt/ha/drift", "salt/ha/consistent")
    assert "access:external_auth:pam:alice" in differed["differences"]
    assert (agreed["count"], agreed["differences"]) == (0, [])
    for tag, data in told(events):
        assert set(data) - {"_stamp", "fired", "proof"} == documented()[tag]


def told(events: Events) -> Events:
    return [(tag, data) for tag, data in events if tag in CHECKED]


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
    assert m1.salt_run("ha.status").data["state"] == "degraded"

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
