"""Beside Salt's own cluster whose members share one key folder (Salt 3007 and newer)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import salt.config

from lab import Lab, Master, wait_for
from lab.cluster import add_cluster, start_cluster
from lab.keys import write_whole
from tests.integration.conftest import MakeLab
from tests.integration.group import QUICK, SOON, files_of, log_lines, meet, plant, shown

pytestmark = pytest.mark.core
HAS_CLUSTERS = "cluster_id" in salt.config.DEFAULT_MASTER_OPTS


@pytest.fixture(scope="module")
def lab(make_lab: MakeLab) -> Iterator[Lab]:
    """Two members, and a master that is in their group but in no cluster."""
    with make_lab() as lab:
        config = {"autosign_file": "/autosign"}  # Salt puts root_dir before the path
        members = add_cluster(lab, "m1", "m2", isolated=False, ha=QUICK, config=config)
        outside = lab.add_master("outside", ha=QUICK, config=config)
        outside.launch()
        (start_cluster if HAS_CLUSTERS else lab.start_all)(members)
        outside.wait_ready()
        meet(lab)
        yield lab


@pytest.mark.skipif(not HAS_CLUSTERS, reason="this release of Salt has no cluster_id")
def test_a_shared_key_folder_is_never_written(lab: Lab) -> None:
    m1, m2, outside = lab.masters.values()
    key = plant(lab, "minions_pre", "shared", m1, m2)
    m2.salt_key("-a", "shared", "-y").check()
    shown("shared", {"minions": key}, m1, m2)
    wait_for(lambda: files_of(outside, "shared"), SOON, "the other master is told")
    before = tree(m1.key_dir)

    only = plant(lab, "minions", "only-outside", outside)
    outside.salt_key("-d", "shared", "-y").check()
    wait_for(
        lambda: len(m1.control("sync", {"test": True})["changes"]) == 4, SOON, "both members know"
    )
    answer = m1.salt_run("ha.sync").data
    assert answer["changes"] == []
    assert [note.split(":")[0] for note in answer["notes"]] == ["m1", "m2"]

    status = m1.salt_run("ha.status").data
    assert status["mode"] == "observe"
    keys, observes = status["notes"]
    assert "outside the cluster they are master.pem" in keys
    assert "m1 only observes: the masters of cluster lab share" in observes
    assert tree(m1.key_dir) == before
    assert files_of(m1, "shared") == {"minions": key}
    assert files_of(outside, "only-outside") == {"minions": only}


@pytest.mark.skipif(not HAS_CLUSTERS, reason="this release of Salt has no cluster_id")
def test_members_are_compared_as_other_masters_are(lab: Lab) -> None:
    """A master outside of the cluster has another master key and other settings; no member has."""
    m1, m2, _ = lab.masters.values()
    told = compared(m1)
    assert {path.partition(":")[0] for path in told} == {"master_key", "options"}
    assert {"master_key:fingerprint", "options:cluster_id"} <= told.keys()
    for path, values in told.items():
        assert values["m1"] == values["m2"] != values["outside"], path

    autosign, file = Path(m2.opts["autosign_file"]), Path(m2.opts["conf_file"])
    former, absent = file.read_text(), {"absent": True}
    write_whole(autosign, "more-*\n", 0o600)
    file.write_text(f"{former}\nnodegroups: {{web: 'web*'}}\n")
    try:
        planted = compared(m1)
    finally:
        autosign.unlink()
        file.write_text(former)
    assert {path: planted[path] for path in planted.keys() - told.keys()} == {
        "access:autosign_file:more-*": {"m1": absent, "m2": "listed", "outside": absent},
        "running:nodegroups:web": {"m2": {"file": "web*", "running": absent}},
    }
    assert planted.keys() >= told.keys()


def compared(master: Master) -> dict[str, dict[str, Any]]:
    """What differs, and how, but for the keys, of which members report only."""
    result = master.salt_run("ha.check_consistency", only="master_key,access,options,roots,running")
    return {
        f"{name}:{difference['path']}": difference["values"]
        for name, part in result.data["sections"].items()
        for difference in part["differences"]
    }


@pytest.mark.skipif(not HAS_CLUSTERS, reason="this release of Salt has no cluster_id")
def test_repair_is_refused_where_the_folder_is_shared(lab: Lab) -> None:
    m1 = lab.masters["m1"]
    m1.stop()
    file = Path(m1.opts["conf_file"])
    file.write_text(file.read_text().replace("ha:\n", "ha:\n  repair: true\n"))
    m1.start(wait_engine=False)
    (line,) = wait_for(lambda: log_lines(m1, "ha engine not started"), SOON, "the log says why")
    for words in (str(file), "repair", str(m1.key_dir), "never writes", "remove it"):
        assert words in line
    answer = m1.salt_run("ha.status")
    assert (answer.returncode, "repair" in answer.data["error"]) == (2, True)


@pytest.mark.skipif(HAS_CLUSTERS, reason="this release of Salt has clusters")
def test_a_salt_without_clusters_ignores_cluster_id_and_so_do_we(lab: Lab) -> None:
    masters = tuple(lab.masters.values())
    for master in masters:
        master.key_dir = master.pki_dir  # where this Salt keeps its keys
    key = plant(lab, "minions_pre", "no-cluster", *masters)
    masters[1].salt_key("-a", "no-cluster", "-y").check()
    shown("no-cluster", {"minions": key}, *masters)
    assert masters[0].control("status")["mode"] == "enforce"


def tree(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything below *folder* that Salt does not write by itself, and when it was written."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_ino,
            path.stat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(folder.rglob("*"))
        if path.name != ".aes" and path != folder
    }
