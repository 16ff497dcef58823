"""Real masters that were never started become one group without an operator."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lab import Lab, Master, wait_for
from lab.cli import Result
from tests.integration.conftest import MakeLab
from tests.integration.group import QUICK, SOON, accept, answers, configure, master_pub, met

pytestmark = pytest.mark.core

SECRET = "0123456789abcdef0123456789abcdef"


def never_started(lab: Lab, *names: str) -> list[Master]:
    """Configured masters with nothing but their configuration, which is the same for all."""
    masters = [lab.add_master(name, ha=QUICK) for name in names]
    secret = lab.root / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    urls = [f"https://{master.address}:{master.peer_port}" for master in masters]
    unattended = {"masters": urls, "secret_file": str(secret), "share_master_key": True}
    for master in masters:
        configure(master, ha=unattended)
        for folder in (master.pki_dir, master.sock_dir, Path(master.opts["cachedir"])):
            shutil.rmtree(folder)
    return masters


def by_salt_run(master: Master) -> Result:
    return master.salt_run("ha.join", wait=300, timeout=320)


def by_salt_ha(master: Master) -> Result:
    return master.salt_ha("join", wait=300, timeout=320)


def test_three_masters_at_the_same_time(make_lab: MakeLab) -> None:
    with make_lab() as lab:
        masters = never_started(lab, "m1", "m2", "m3")
        ways: list[Callable[[Master], Result]] = [by_salt_run, by_salt_ha, by_salt_run]

        def bring_up(master: Master, join: Callable[[Master], Result]) -> Result:
            # What a container's entry point does, or a unit with ExecStartPre.
            done = join(master).check()
            master.start()
            return done

        with ThreadPoolExecutor(3) as hosts:
            joined = [result.data for result in hosts.map(bring_up, masters, ways)]
        assert [each["kind"] for each in joined] == ["notice", "join", "join"], joined
        met(*masters)
        for master in masters:
            assert len(master.control("peers")["peers"]) == 2
        m1, m2, m3 = masters
        assert master_pub(m1) == master_pub(m2) == master_pub(m3)
        # What a running master presents is what a hot minion finds out: it takes one key only.
        web = lab.add_minion("web1", masters=masters)
        web.start()
        wait_for(lambda: "web1" in m3.keys()["minions_pre"], SOON, "web1 knocks")
        accept(m3, web)
        for master in masters:
            answers(master, web)
        # Before every later start it does nothing.
        again = by_salt_run(m2).check().data
        assert "already in group" in again["notes"][0]
        assert master_pub(m2) == master_pub(m1)


def test_a_token_on_a_master_never_started(make_lab: MakeLab) -> None:
    """By ``salt-run``, which on 3008 lacks a folder then; the key is what the start presents."""
    with make_lab() as lab:
        m1, m2 = never_started(lab, "m1", "m2")
        configure(m2, ha={"masters": []})
        by_salt_run(m1).check()
        m1.start()
        m2.join(m1.invite(share_master_key=True)).check()
        placed = Path(m2.pki_dir) / "master.pem"
        assert stat.S_IMODE(placed.stat().st_mode) == 0o400
        assert placed.stat().st_uid == os.getuid()
        assert master_pub(m2) == master_pub(m1)
        m2.start()
        met(m1, m2)
        assert master_pub(m2) == master_pub(m1)


def test_nobody_there_fails_clearly_and_in_time(make_lab: MakeLab) -> None:
    with make_lab() as lab:
        m1, m2 = never_started(lab, "m1", "m2")
        for join in (
            lambda: m2.salt_run("ha.join", wait=1),
            lambda: m2.salt_ha("join", wait=1),
        ):
            failed = join()
            assert failed.returncode == 2, failed
            assert f"https://{m1.address}" in failed.data["error"]
            assert SECRET not in str(failed)
        assert not (Path(m2.pki_dir) / "master.pem").exists()


def test_salt_ha_says_what_is_wrong(make_lab: MakeLab) -> None:
    with make_lab() as lab:
        (m1,) = never_started(lab, "m1")
        unknown = m1.salt_ha("jion")
        assert unknown.returncode == 2
        assert "no function ha.jion" in unknown.stderr
        (lab.root / "secret").chmod(0o644)
        opened = m1.salt_ha("join")
        assert opened.returncode == 2
        assert "chmod 600" in opened.data["error"]
