"""
``ha.check_consistency`` over three real masters: nothing on a clean group, and of what is planted
in each section exactly that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import Lab, Master, wait_for
from lab.cli import Result
from lab.keys import write_whole
from saltext_ha.consistency import sections
from saltext_ha.keystore import minion_key
from tests.integration.conftest import MakeLab
from tests.integration.group import QUICK, SOON, Three, configure, level, meet, plant, row, shown
from tests.repositories import commit, head, repository

REMOTES = ("states", "secrets")
ABSENT = {"absent": True}
AHEAD = 60.0
# What an installed extension, and a clock that is wrong, are to a process of its own.
EXTENSION = {
    "saltext_planted/__init__.py": "",
    "saltext_planted-1.2.3.dist-info/METADATA": "Name: saltext.planted\nVersion: 1.2.3\n",
    "saltext_planted-1.2.3.dist-info/entry_points.txt": (
        "[salt.loader]\nsaltext.planted = saltext_planted\n"
    ),
    "sitecustomize.py": f"import time\nright = time.time\ntime.time = lambda: right() + {AHEAD}\n",
}


@pytest.fixture(scope="module")
def lab(make_lab: MakeLab) -> Iterator[Lab]:
    """Each with state and pillar files of its own, which are the same, and with git remotes."""
    with make_lab() as lab:
        git = {name: repository(lab.root / name) for name in REMOTES}
        for name in ("m1", "m2", "m3"):
            srv = lab.root / f"{name}-srv"
            for file in ("states/top.sls", "states/web/init.sls", "pillar/top.sls"):
                write_whole(srv / file, f"# {file}\n")
            roots = {
                "file_roots": {"base": [str(srv / "states")]},
                "pillar_roots": {"base": [str(srv / "pillar")]},
                "fileserver_backend": ["roots", "gitfs"],
                "gitfs_remotes": [f"file://{git['states']}"],
                "gitfs_base": "main",
                "ext_pillar": [{"git": [f"main file://{git['secrets']}"]}],
                # Each fetches at its start, and then when it is told to.
                "gitfs_update_interval": 86400,
                "git_pillar_update_interval": 86400,
                "autosign_file": "autosign.conf",
                "nodegroups": {"web": "web*"},
            }
            ha = {**QUICK, "consistency": {"interval": 0}}
            lab.add_master(name, ha=ha, config=roots)
        m1, m2, m3 = lab.masters.values()
        m1.share_master_key(m2, m3)
        lab.start_all()
        meet(lab)
        wait_for(lambda: fetched(m1, m2, m3), SOON, "all have fetched")
        yield lab


@pytest.fixture
def masters(lab: Lab) -> Iterator[Three]:
    """All three, running and the same; what a test did to them is undone."""
    m1, m2, m3 = lab.masters.values()
    former = [(master, master.config_file.read_text()) for master in (m1, m2, m3)]
    yield m1, m2, m3
    for master, text in former:
        master.config_file.write_text(text)
    for master in (m1, m2, m3):
        if not master.running:
            master.start()
    wait_for(lambda: all(map(level, (m1, m2, m3))), SOON, "the group is well again")


def fetched(*masters: Master) -> bool:
    """Whether all have fetched their git remotes once."""
    return all(
        list(Path(master.opts["cachedir"], kind).glob("*/_/**/refs/remotes/origin/main"))
        for master in masters
        for kind in ("gitfs", "git_pillar")
    )


def found(result: Result) -> dict[str, dict[str, Any]]:
    """``section:path`` → the value on each master, of everything that is told."""
    return {
        f"{name}:{difference['path']}": difference["values"]
        for name, part in result.data["sections"].items()
        for difference in part["differences"]
    }


def clean(*masters: Master) -> None:
    """Each of *masters* says that all is the same."""
    for master in masters:
        result = master.salt_run("ha.check_consistency").check()
        assert found(result) == {}
        assert set(result.data["sections"]) == set(sections.NAMES)
        assert {part["status"] for part in result.data["sections"].values()} == {"same"}
        assert (result.data["status"], result.data["masters"]) == ("same", ["m1", "m2", "m3"])


@pytest.mark.core
def test_a_clean_group_whoever_is_asked(masters: Three) -> None:
    clean(*masters)


def test_what_differs_without_a_restart(masters: Three) -> None:
    """Files that are served, the keys' own files, and configuration that nobody runs with yet."""
    m1, m2, m3 = masters
    states = {master: Path(master.opts["file_roots"]["base"][0]) for master in masters}
    pillar = Path(m2.opts["pillar_roots"]["base"][0])
    autosign = [Path(master.opts["autosign_file"]) for master in masters]
    (states[m1] / "only-here.sls").write_text("# m1")
    (states[m2] / "web" / "init.sls").write_text("# another")
    (states[m3] / "web" / "init.sls").rename(states[m3] / "gone")
    (pillar / "top.sls").write_text("password: hunter2")
    for path, lines in zip(autosign, ("web*\n", "web*\n", "web*\ndb*\n"), strict=True):
        write_whole(path, lines, 0o600)
    configure(m3, nodegroups={"web": "www*"})
    try:
        result = m1.salt_run("ha.check_consistency")
        assert result.returncode == 1
        told = found(result)
        assert {
            path: sorted(k for k, v in values.items() if v == ABSENT)
            for path, values in told.items()
        } == {
            "access:autosign_file:db*": ["m1", "m2"],
            "roots:file_roots:base:gone": ["m1", "m2"],
            "roots:file_roots:base:only-here.sls": ["m2", "m3"],
            "roots:file_roots:base:web/init.sls": ["m3"],
            "roots:pillar_roots:base:top.sls": [],
            "running:nodegroups:web": [],
        }
        changed = told["roots:file_roots:base:web/init.sls"]
        assert changed["m1"] != changed["m2"]
        secret = told["roots:pillar_roots:base:top.sls"]
        assert secret["m1"] == secret["m3"] != secret["m2"]
        assert told["running:nodegroups:web"] == {"m3": {"file": "www*", "running": "web*"}}
        assert "hunter2" not in result.stdout
        only = m2.salt_run("ha.check_consistency", only="keys,options,versions,clock").check()
        assert found(only) == {}
    finally:
        (states[m1] / "only-here.sls").unlink()
        (states[m2] / "web" / "init.sls").write_text("# states/web/init.sls\n")
        (states[m3] / "gone").rename(states[m3] / "web" / "init.sls")
        (pillar / "top.sls").write_text("# pillar/top.sls\n")
        for path in autosign:
            path.unlink()
        configure(m3, nodegroups={"web": "web*"})
    clean(m1)


def test_git_remotes_by_commit(lab: Lab, masters: Three) -> None:
    """m3 has not fetched what the others have."""
    m1, m2, m3 = masters
    remotes = [lab.root / name for name in REMOTES]
    before = [head(remote) for remote in remotes]
    after = [commit(remote, "two") for remote in remotes]

    def update(*behind: Master) -> None:
        for master in behind:
            master.salt_run("fileserver.update", backend="git").check()
            master.salt_run("git_pillar.update").check()

    update(m1, m2)
    result = m1.salt_run("ha.check_consistency")
    assert result.returncode == 1
    states, pillar = (f"file://{remote}" for remote in remotes)
    assert found(result) == {
        f"roots:gitfs:{states}:main": {"m1": after[0], "m2": after[0], "m3": before[0]},
        f"roots:git_pillar:{pillar}:main": {"m1": after[1], "m2": after[1], "m3": before[1]},
    }
    # What it is told to do is what mends it.
    fixes = [difference["fix"] for difference in result.data["sections"]["roots"]["differences"]]
    assert fixes == [
        "salt-run fileserver.update backend=git on m3",
        "salt-run git_pillar.update on m3",
    ]
    update(m3)
    clean(m1)


def test_what_masters_were_started_with(lab: Lab, masters: Three) -> None:
    """Access and options of m2; master key, installation, clock and minion keys of m3."""
    m1, m2, m3 = masters
    planted = lab.root / "planted"
    for name, text in EXTENSION.items():
        write_whole(planted / name, text)
    environment = m3.daemon.env
    path = environment.get("PYTHONPATH", "")
    m2.kill()
    m3.kill()
    configure(
        m2,
        external_auth={"pam": {"alice": [".*"]}},
        client_acl_verify=False,
        file_recv=True,
        job_cache=False,
    )
    configure(m3, ha={"mode": "observe"})
    # Salt 3008 names the files by the master's id, and links these to them.
    files = [(m3.pki_dir / name).resolve() for name in ("master.pem", "master.pub")]
    pair = [file.read_text() for file in files]
    try:
        for file, text in zip(files, lab.key_pair(), strict=True):
            write_whole(file, text, 0o400)
        environment["PYTHONPATH"] = os.pathsep.join([str(planted), *([path] if path else [])])
        lab.start_all([m2, m3])
        wait_for(
            lambda: {row(m1, peer)["state"] for peer in (m2, m3)} == {"running"}, SOON, "they run"
        )
        key = plant(lab, "minions", "planted", m1, m2)
        result = m1.salt_run("ha.check_consistency")
        assert result.returncode == 1
        told = found(result)
        assert told.keys() == {
            "keys:planted",
            "master_key:fingerprint",
            "access:external_auth:pam:alice",
            "access:client_acl_verify",
            "options:file_recv",
            "options:job_cache",
            "versions:extension:saltext.planted",
            "clock:clock",
        }
        accepted = f"accepted {minion_key.show(minion_key.fingerprint(key))}"
        assert told["keys:planted"] == {"m1": accepted, "m2": accepted, "m3": ABSENT}
        keys = told["master_key:fingerprint"]
        assert keys["m1"] == keys["m2"] != keys["m3"]
        assert told["access:external_auth:pam:alice"] == {"m1": ABSENT, "m2": [".*"], "m3": ABSENT}
        assert told["access:client_acl_verify"] == {"m1": True, "m2": False, "m3": True}
        assert told["options:job_cache"] == {"m1": True, "m2": False, "m3": True}
        assert told["versions:extension:saltext.planted"] == {
            **{"m1": ABSENT, "m2": ABSENT},
            "m3": "1.2.3",
        }
        clocks = told["clock:clock"]
        assert abs(clocks["m3"]["offset"] - AHEAD) <= clocks["m3"]["error"] < AHEAD / 4
        assert abs(clocks["m2"]["offset"]) <= clocks["m2"]["error"]
        for difference in result.data["sections"]["access"]["differences"]:
            assert "restart salt-master" in difference["fix"]
            assert "on m2" in difference["fix"] or "of m2" in difference["fix"]
    finally:
        m2.kill()
        m3.kill()
        for file, text in zip(files, pair, strict=True):
            write_whole(file, text, 0o400)
        environment["PYTHONPATH"] = path
        configure(m2, external_auth={}, client_acl_verify=True, file_recv=False, job_cache=True)
        configure(m3, ha={"mode": "enforce"})
    lab.start_all([m2, m3])
    shown("planted", {"minions": key}, *masters)
    wait_for(lambda: all(map(level, masters)), SOON, "the group is well again")
    clean(m1, m3)


def test_a_master_that_is_away_is_unknown_and_the_others_are_compared(masters: Three) -> None:
    m1, m2, m3 = masters
    extra = Path(m2.opts["file_roots"]["base"][0]) / "extra.sls"
    extra.write_text("# m2")
    m3.kill()
    try:
        result = m1.salt_run("ha.check_consistency")
        assert (result.returncode, [*result.data["unknown"]]) == (2, ["m3"])
        assert {name: part["status"] for name, part in result.data["sections"].items()} == {
            **dict.fromkeys(sections.NAMES, "unknown"),
            "roots": "differ",
        }
        ((path, values),) = found(result).items()
        assert path == "roots:file_roots:base:extra.sls"
        assert values["m1"] == ABSENT
        assert "unknown" in values["m3"]
        assert "m3 could not be asked" in m1.salt_run_text("ha.check_consistency").stdout
    finally:
        extra.unlink()
        m3.start()
    wait_for(lambda: all(map(level, masters)), SOON, "m3 is back")
    clean(m1)
