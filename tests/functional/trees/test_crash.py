"""
Promises T1 to T4 of docs/design.md §8: ``kill -9``, and a full disk, at any point of a deployment.

Real engines in processes of their own. Whatever a master serves at any time is a whole version.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.wait import wait_for
from saltext_ha.common.errors import HaError
from saltext_ha.common.fail_points import POINTS
from tests.disk_steps import Files, put, read
from tests.functional.trees.tree_place import carried_out
from tests.processes import SOON, Group, Master

POINTS_OF_TREES = [point for point in POINTS if point.startswith("tree.")]
OLD = {"a.sls": "old\n" * 100, "folder/b.sls": "old\n", "same.sls": "same\n"}
NEW = {"a.sls": "new\n" * 100, "folder/c.sls": "new\n", "same.sls": "same\n"}


def live(master: Master) -> Path:
    return master.place.root / "live" / master.name


def source(master: Master) -> Path:
    return master.place.root / "source"


def served(master: Master) -> Files:
    """Of one version, also while another takes its place."""
    return read(live(master).resolve())


def deploy(master: Master, **options: Any) -> dict[str, Any]:
    """What ``ha.deploy`` is answered; empty when the engine is gone."""
    job = master.ask("deploy", by="root", **options).get("job")
    while job:
        found = master.ask("deploy_progress", job=job)
        if "answer" in found:
            return dict(found["answer"])
        if not found:
            return {}
    return {}


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Master, Master]]:
    """Two masters that serve OLD, where NEW is about to be deployed on the first."""
    (tmp_path / "live").mkdir()
    trees = {
        name: {
            "trees": {
                "states": {
                    "source": str(tmp_path / "source"),
                    "live": str(tmp_path / "live" / name),
                }
            }
        }
        for name in ("m1", "m2")
    }
    group = Group(tmp_path, "m1", "m2", ha=trees)
    try:
        group.start()
        m1, m2 = group.masters
        wait_for(lambda: m1.is_fine() and m2.is_fine(), SOON, "they have met", poll=0.1)
        put(source(m1), OLD)
        assert deploy(m1)["retcode"] == 0
        shutil.rmtree(source(m1))
        put(source(m1), NEW)
        yield m1, m2
    finally:
        group.kill()


def whole(*masters: Master) -> None:
    for master in masters:
        assert served(master) in (OLD, NEW), master.name


def heals(m1: Master, m2: Master) -> None:
    """Both serve the same, and what is deployed next is served by both."""
    wait_for(lambda: m1.is_fine() and m2.is_fine(), SOON, "both are fine", poll=0.1)
    wait_for(lambda: served(m1) == served(m2), SOON, "both serve the same")
    whole(m1, m2)
    assert deploy(m1)["retcode"] == 0
    assert served(m1) == served(m2) == NEW
    assert not m1.ask("deployments")["trees"][0]["edits"]


@pytest.mark.parametrize("point", POINTS_OF_TREES)
def test_the_master_that_deploys_is_killed(pair: tuple[Master, Master], point: str) -> None:
    m1, m2 = pair
    with m1.dying(point):
        deploy(m1)
        whole(m1, m2)
    heals(m1, m2)


@pytest.mark.parametrize("point", [p for p in POINTS_OF_TREES if p != "tree.decided"])
def test_a_master_that_follows_is_killed(pair: tuple[Master, Master], point: str) -> None:
    m1, m2 = pair
    with m2.dying(point):
        deploy(m1)
        whole(m1, m2)
    heals(m1, m2)


@pytest.mark.parametrize("point", ["tree.linked", "tree.staged"])
@pytest.mark.parametrize("full", ["m1", "m2"])
def test_a_full_disk_switches_nowhere(pair: tuple[Master, Master], point: str, full: str) -> None:
    m1, m2 = pair
    with (m1 if full == "m1" else m2).failing(f"ENOSPC {point}"):
        job = m1.ask("deploy", by="root")["job"]
        wait_for(lambda: m1.ask("deploy_progress", job=job) == {}, SOON, "it is refused", poll=0.1)
        assert served(m1) == served(m2) == OLD
    heals(m1, m2)


def test_a_master_that_cannot_write_down_what_is_current_goes_on(
    pair: tuple[Master, Master],
) -> None:
    m1, m2 = pair
    with m2.failing("ENOSPC tree.record"):
        assert deploy(m1)["retcode"] == 2
        wait_for(lambda: "is not taken" in m2.note(), SOON, "m2 says so", poll=0.1)
        assert (served(m1), served(m2)) == (NEW, OLD)
    wait_for(lambda: served(m2) == NEW, SOON, "m2 follows")
    heals(m1, m2)


def test_a_master_that_cannot_switch_says_so_and_follows(pair: tuple[Master, Master]) -> None:
    m1, m2 = pair
    with m2.failing("ENOSPC tree.switch"):
        answer = deploy(m1)
        assert answer["retcode"] == 2
        assert ".ha: No space left" in answer["unknown"]["m2"]
        assert (served(m1), served(m2)) == (NEW, OLD)
        assert not m2.is_fine()
        assert "not served here yet" in m2.note()
    wait_for(lambda: served(m2) == NEW, SOON, "m2 follows")
    heals(m1, m2)


def test_a_master_that_is_unresponsive_is_named_and_follows(pair: tuple[Master, Master]) -> None:
    m1, m2 = pair
    os.kill(m2.engine.pid, signal.SIGSTOP)
    try:
        with pytest.raises(HaError, match="m2"):
            carried_out(m1.engine)
        assert served(m1) == served(m2) == OLD
        assert deploy(m1, without="m2")["left_out"] == ["m2"]
        assert (served(m1), served(m2)) == (NEW, OLD)
    finally:
        os.kill(m2.engine.pid, signal.SIGCONT)
    wait_for(lambda: served(m2) == NEW, SOON, "m2 follows")
    heals(m1, m2)


def test_a_master_that_is_cut_off_just_before_it_switches_follows(
    pair: tuple[Master, Master],
) -> None:
    m1, m2 = pair
    with m2.failing("WAIT tree.record"):
        answer = deploy(m1)
        assert answer["retcode"] == 2
        assert "will when it can" in answer["unknown"]["m2"]
        assert (served(m1), served(m2)) == (NEW, OLD)
    wait_for(lambda: served(m2) == NEW, SOON, "m2 follows")
    heals(m1, m2)
