"""Beside Salt's own cluster whose members keep key folders of their own (Salt 3008)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import salt.config

from lab import Lab, Master, wait_for
from lab.cluster import add_cluster, start_cluster
from lab.keys import write_whole
from saltext_ha.consistency import sections
from tests.integration.conftest import MakeLab
from tests.integration.group import (
    QUICK,
    SOON,
    files_of,
    log_lines,
    meet,
    plant,
    row,
    settled,
    shown,
)

pytestmark = [
    pytest.mark.skipif(
        "cluster_isolated_filesystem" not in salt.config.DEFAULT_MASTER_OPTS,
        reason="this release of Salt has no such cluster",
    ),
]
NAMES = ("m1", "m2", "m3")


@pytest.fixture(scope="module")
def lab(make_lab: MakeLab) -> Iterator[Lab]:
    with make_lab() as lab:
        # Salt puts root_dir before the path.
        config = {"loop_interval": 2, "autosign_file": "/autosign"}
        masters = add_cluster(
            lab, *NAMES, isolated=True, ha={**QUICK, "repair": True}, config=config
        )
        for master in masters:
            write_whole(master.root / "autosign", "auto-*\n", 0o600)
        start_cluster(masters)
        meet(lab)
        yield lab


@pytest.fixture
def masters(lab: Lab) -> tuple[Master, Master, Master]:
    m1, m2, m3 = lab.masters.values()
    return m1, m2, m3


def test_what_is_decided_on_one_member_holds_on_all(
    lab: Lab, masters: tuple[Master, Master, Master]
) -> None:
    m1, m2, m3 = masters
    key = plant(lab, "minions_pre", "accepted", m1, m2, m3)
    m2.salt_key("-a", "accepted", "-y").check()
    shown("accepted", {"minions": key}, m1, m2, m3)

    key = plant(lab, "minions_pre", "rejected", m2, m1, m3)
    m3.salt_key("-r", "rejected", "-y").check()
    shown("rejected", {"minions_rejected": key}, m1, m2, m3)

    m1.salt_key("-r", "accepted", "--include-accepted", "-y").check()
    shown("accepted", {"minions_rejected": files_of(m1, "accepted")["minions_rejected"]}, *masters)


def test_keys_that_salt_deletes_on_all_members_are_deleted_once(
    lab: Lab, masters: tuple[Master, Master, Master]
) -> None:
    """Salt's own deletion races with ours: neither is taken for somebody's second thought."""
    names = [f"deleted-{number}" for number in range(2)]
    for folder in ("minions", "minions_pre"):
        for name in names:
            plant(lab, folder, f"{name}-{folder}", *masters)
    with watched(masters, [f"{n}-{f}" for n in names for f in ("minions", "minions_pre")]) as saw:
        masters[0].salt_key("-d", "deleted-*", "-y").check()
        for name in names:
            for folder in ("minions", "minions_pre"):
                shown(f"{name}-{folder}", {}, *masters)
        settled(lab, *masters)
    for (master, minion_id), states in saw.items():
        assert len(states) == 2, (master, minion_id, states)
    calm(lab, "deleted-*")
    assert not masters[0].control("status")["conflicts"]


def test_a_minion_that_salt_accepts_on_all_members(
    lab: Lab, masters: tuple[Master, Master, Master]
) -> None:
    minion = lab.add_minion("auto-1", [masters[1]])
    before = rotations(lab)
    with watched(masters, ["auto-1"]) as saw:
        minion.start(wait_accepted=True)
        shown("auto-1", {"minions": minion.pub}, *masters)
        settled(lab, *masters)
    # Where ours came first, Salt's own removes and writes it once more; nobody revokes it.
    for states in saw.values():
        assert states.count(("minions",)) <= 2, saw
    assert rotations(lab) == before
    calm(lab, "auto-1")
    minion.stop()
    masters[2].salt_key("-d", "auto-1", "-y").check()
    shown("auto-1", {}, *masters)
    settled(lab, *masters)
    calm(lab, "auto-1")
    shown("auto-1", {}, *masters, timeout=0)
    assert not masters[0].control("status")["conflicts"]


def test_a_member_that_was_down_loses_what_was_deleted(
    lab: Lab, masters: tuple[Master, Master, Master]
) -> None:
    m1, m2, m3 = masters
    plant(lab, "minions", "down", m1, m2, m3)
    m3.kill()
    m1.salt_key("-d", "down", "-y").check()
    shown("down", {}, m1, m2)
    assert files_of(m3, "down")
    m3.start()
    shown("down", {}, m3)
    settled(lab, m1, m2, m3)
    shown("down", {}, m1, m2, m3, timeout=0)


def test_a_minion_that_is_deleted_on_one_member_can_run_no_job_of_another(lab: Lab) -> None:
    m1, m2, m3 = lab.masters.values()
    web, other = (lab.add_minion(name, [m2]) for name in ("web", "other"))
    for minion in (web, other):
        m1.plant("minions", minion.name, minion.pub)
        shown(minion.name, {"minions": minion.pub}, m1, m2, m3)
        minion.start(wait_accepted=True)
    both = {"web": True, "other": True}
    wait_for(lambda: m2.salt("web,other", "test.ping", "-L").data == both, SOON, "m2 reaches both")

    before = aes_key(m2)
    m1.salt_key("-d", "web", "-y").check()
    shown("web", {}, m1, m2, m3)
    # Salt itself makes a new key on m1 only; with the old one web could read every job of m2.
    wait_for(lambda: aes_key(m2) != before, SOON, "m2 has made a new AES key")

    # What it cannot read makes a minion authenticate anew, and nobody has accepted this one.
    there = {"other": True}
    wait_for(lambda: m2.salt("other", "test.ping").data == there, SOON, "m2 reaches other")
    shown("web", {"minions_pre": web.pub}, m1, m2, m3)
    canary = "Executing command test.echo"
    for master in (m1, m2, m3):  # Salt has m2 publish the jobs of all members
        before_that = len(log_lines(other, canary))

        def comes(master: Master = master, before_that: int = before_that) -> bool:
            """Of the first one, or of another: it is lost where keys change just then."""
            master.cli("salt", "--async", "*", "test.echo", "canary", out=None).check()
            wait_for(lambda: len(log_lines(other, canary)) > before_that, 15, "it comes")
            return True

        wait_for(comes, SOON, f"a job of {master.name}")
    # Only these: what was published before, as by the engine, may have come to it later.
    assert not log_lines(web, canary)
    for minion in (web, other):
        minion.stop()


def test_the_master_key_is_not_for_us_to_hand_over(
    masters: tuple[Master, Master, Master],
) -> None:
    answer = masters[0].salt_run("ha.invite", share_master_key=True)
    assert answer.returncode == 2
    assert "cluster.pem" in answer.data["error"]
    assert "without share_master_key" in answer.data["error"]


def test_members_are_compared_as_other_masters_are(
    lab: Lab,
    masters: tuple[Master, Master, Master],
) -> None:
    m1, m2, m3 = masters
    plant(lab, "minions", "auto-0", *masters)
    result = m1.salt_run("ha.check_consistency").check()
    assert {part["status"] for part in result.data["sections"].values()} == {"same"}
    assert set(result.data["sections"]) == set(sections.NAMES)

    autosign, config = Path(m2.opts["autosign_file"]), m3.config_file
    public = Path(m3.opts["cluster_pki_dir"]) / "cluster.pub"
    former = {path: path.read_text() for path in (autosign, config, public)}
    write_whole(autosign, "auto-*\nmore-*\n", 0o600)
    config.write_text(former[config] + "\ncluster_secret: hunter2\n")
    write_whole(public, m1.keys()["minions"]["auto-0"])
    try:
        result = m1.salt_run("ha.check_consistency")
        assert result.returncode == 1
        assert {
            f"{name}:{difference['path']}"
            for name, part in result.data["sections"].items()
            for difference in part["differences"]
        } == {
            "access:autosign_file:more-*",
            "master_key:fingerprint",
            "master_key:pair",
            "running:cluster_secret",
        }
        assert "hunter2" not in result.stdout
        fixes = result.data["sections"]["master_key"]["differences"]
        assert all("cluster_pki_dir of m3" in difference["fix"] for difference in fixes), fixes
    finally:
        for path, text in former.items():
            write_whole(path, text, 0o600)
    m1.salt_run("ha.check_consistency").check()


def test_all_members_restarted_at_once(lab: Lab, masters: tuple[Master, Master, Master]) -> None:
    """3008.3 lets no minion in then; keys are kept the same all the same."""
    m1, m2, m3 = masters
    key = plant(lab, "minions_pre", "restarted", m1, m2, m3)
    for master in masters:
        master.kill()
    lab.start_all(masters)
    m2.salt_key("-a", "restarted", "-y").check()
    shown("restarted", {"minions": key}, m1, m2, m3)


def test_without_repair_differences_are_shown_and_nothing_is_written(make_lab: MakeLab) -> None:
    with make_lab() as lab:
        m1, m2 = add_cluster(lab, "m1", "m2", isolated=True, ha=QUICK)
        start_cluster([m1, m2])
        lab.form_group()
        wait_for(lambda: m1.control("status")["state"] == "ok", SOON, "all is the same, and well")
        _, key = lab.key_pair()
        m1.plant("minions", "only-here", key)
        wait_for(lambda: row(m1, m2)["behind"], SOON, "m1 says they differ")

        status = m1.salt_run("ha.status")
        assert (status.returncode, status.data["mode"]) == (1, "observe")
        assert "ha: repair: true" in status.data["notes"][0]
        check = m1.salt_run("ha.check_consistency").data
        (difference,) = check["sections"]["keys"]["differences"]
        assert difference["path"] == "only-here"
        # Members are compared as other masters are; what each has of its own is no difference.
        assert {n for n, part in check["sections"].items() if part["differences"]} == {"keys"}
        assert check["unknown"] == {}
        (change,) = m1.salt_run("ha.sync", test=True).data["changes"]
        assert (change["master"], change["id"], change["from"]) == ("m2", "only-here", "absent")
        sync = m1.salt_run("ha.sync").data
        assert sync["changes"] == []
        assert "m2: 1 not changed: its mode is observe" in sync["notes"][0]
        refused = m2.salt_run("ha.resume")
        assert (refused.returncode, "repair" in refused.data["error"]) == (2, True)
        assert files_of(m2, "only-here") == {}


# -- what these tests are made of


@contextmanager
def watched(
    masters: tuple[Master, ...], ids: list[str]
) -> Iterator[dict[tuple[str, str], list[tuple[str, ...]]]]:
    """The key folders that ids were seen in on each master, one entry for every change."""
    saw: dict[tuple[str, str], list[tuple[str, ...]]] = {
        (master.name, minion_id): [] for master in masters for minion_id in ids
    }
    over = threading.Event()
    folders = ("minions", "minions_pre", "minions_rejected", "minions_denied")

    def watch() -> None:
        while not over.is_set():
            for master in masters:
                for minion_id in ids:
                    there = tuple(f for f in folders if (master.key_dir / f / minion_id).exists())
                    states = saw[master.name, minion_id]
                    if not states or states[-1] != there:
                        states.append(there)
            time.sleep(0.001)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield saw
    finally:
        over.set()
        thread.join()


def calm(lab: Lab, glob: str) -> None:
    """Nothing is written any more about ids: no record, no key file, no rotation."""

    def state() -> dict[str, object]:
        return {
            name: (
                [
                    (w["id"], w["state"], w["at"], w["on"])
                    for w in master.control("history", {"glob": glob})["writes"]
                ],
                {
                    str(path): (path.stat().st_ino, path.stat().st_mtime_ns)
                    for path in master.key_dir.glob(f"minions*/{glob}")
                },
            )
            for name, master in lab.masters.items()
        }

    masters = tuple(lab.masters.values())
    settled(lab, *masters)
    before, rotated = state(), rotations(lab)
    settled(lab, *masters)
    assert (state(), rotations(lab)) == (before, rotated)


def rotations(lab: Lab) -> list[int]:
    """How often each master was told to make a new AES key."""
    return [len(log_lines(master, "Rotating AES key")) for master in lab.masters.values()]


def aes_key(master: Master) -> str:
    """The key that the master's jobs are encrypted with."""
    return (Path(master.opts["cluster_pki_dir"]) / ".aes").read_text()
