"""Every command of the tutorials, typed in a lab: it does and prints what they say."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lab import Master, wait_for
from saltext_ha import minion_key
from tests.integration.conftest import MakeLab
from tests.integration.group import QUICK, SOON, group, level, plant, shown
from tests.integration.tutorial import DOCS, Tutorial

pytestmark = pytest.mark.timeout(300)

TESTED_ELSEWHERE = {"unattended"}  # its setup is that of containers; see test_unattended.py


def test_a_new_group(make_lab: MakeLab) -> None:
    with make_lab() as lab:
        m1, m2 = (lab.add_master(name, ha=QUICK) for name in ("m1", "m2"))
        for folder in (m2.pki_dir, m2.sock_dir, Path(m2.opts["cachedir"])):
            shutil.rmtree(folder)  # never started
        m1.start()
        web1 = lab.add_minion("web1", masters=[m1, m2])
        web1.launch()
        wait_for(lambda: "web1" in m1.keys()["minions_pre"], 60, "web1 knocks")
        assert Tutorial("new-group", lab).follow() > 8


def test_masters_that_have_grown_apart(make_lab: MakeLab) -> None:
    with make_lab() as lab:
        m1, m2 = (lab.add_master(name, ha={**QUICK, "mode": "observe"}) for name in ("m1", "m2"))
        keys = {minion_id: lab.key_pair()[1] for minion_id in ("web1", "web2", "web3", "db1")}
        for master, others in ((m1, ("web1", "web2", "db1")), (m2, ("web2", "web3"))):
            for minion_id in others:
                master.plant("minions", minion_id, keys[minion_id])
        m2.plant("minions_pre", "web1", keys["web1"])
        m2.plant("minions", "db1", lab.key_pair()[1])
        lab.start_all()
        meant = minion_key.show(minion_key.fingerprint(minion_key.normalise(keys["db1"])), False)
        assert Tutorial("grown-masters", lab, FINGERPRINT=meant).follow() > 8


def test_replacing_a_dead_master(make_lab: MakeLab) -> None:
    with group(make_lab, "m1", "m2") as lab:
        m1, m2 = lab.masters.values()
        plant(lab, "minions", "web1", m1, m2)
        m2.kill()
        for folder in (m2.pki_dir, m2.sock_dir, Path(m2.opts["cachedir"])):
            shutil.rmtree(folder)  # a new machine under the old name
        assert Tutorial("replace-a-dead-master", lab).follow() > 5


def test_a_master_was_stolen(make_lab: MakeLab) -> None:
    with group(make_lab, "m1", "m2", "m3") as lab:
        m1, m2, m3 = lab.masters.values()
        web1 = lab.add_minion("web1", masters=[m1, m2])
        m1.plant("minions", "web1", web1.pub)
        shown("web1", {"minions": web1.pub.strip()}, m1, m2)
        web1.start(wait_accepted=True)
        before = master_keys(m1)
        m3.kill()
        assert Tutorial("stolen-master", lab).follow() > 8
        assert len(before) == len(master_keys(m1)) == 1
        assert before != master_keys(m1)


def test_restoring_a_mistake(make_lab: MakeLab) -> None:
    with group(make_lab, "m1", "m2") as lab:
        m1, m2 = lab.masters.values()
        for minion_id in ("web1", "web2", "web3", "db1"):
            plant(lab, "minions", minion_id, m1, m2)
        wait_for(lambda: level(m1), SOON, "level")
        assert Tutorial("restore-a-mistake", lab).follow() > 8


def master_keys(master: Master) -> set[str]:
    """The fingerprints of the keys that minions know the masters of its group by."""
    return {row["master_key"] for row in master.control("status")["masters"]}


def test_every_tutorial_is_followed() -> None:
    here = Path(__file__).read_text()
    names = {path.stem for path in DOCS.glob("*.md")} - TESTED_ELSEWHERE
    assert [name for name in names if f'Tutorial("{name}"' not in here] == []
