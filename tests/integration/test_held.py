"""A key folder that is wiped, unmounted or restored on one master deletes nothing on the others."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from lab import Lab, Master, wait_for
from tests.integration.conftest import MakeLab
from tests.integration.group import files_of, group, settled, shown

pytestmark = pytest.mark.timeout(120)

KEYS = 30


@pytest.fixture(scope="module")
def lab(make_lab: MakeLab) -> Iterator[Lab]:
    with group(make_lab, "m1", "m2", ha={"hold_minimum": 10}) as lab:
        yield lab


@pytest.fixture
def minions(lab: Lab) -> dict[str, str]:
    """Thirty keys accepted on both masters."""
    m1, m2 = lab.masters.values()
    keys = {f"web{number}": lab.key_pair()[1].strip() for number in range(KEYS)}
    for minion_id, key in keys.items():
        if files_of(m1, minion_id) != {"minions": key}:
            m1.plant("minions", minion_id, key)
    wait_for(lambda: m1.keys()["minions"] == m2.keys()["minions"] == keys, 20, "all keys on both")
    wait_for(lambda: m1.control("status")["state"] == "ok", 20, "the group is well")
    return keys


def wipe(master: Master) -> None:
    """Unmount the folder of accepted keys, which leaves an empty one."""
    folder = master.pki_dir / "minions"
    folder.rename(master.pki_dir / "minions.away")
    folder.mkdir()


def bring_back(master: Master) -> None:
    folder = master.pki_dir / "minions"
    shutil.rmtree(folder)
    (master.pki_dir / "minions.away").rename(folder)


def held(master: Master) -> list[dict[str, object]]:
    found: list[dict[str, object]] = master.control("status")["held"]
    return found


def test_a_wiped_folder_is_held_until_it_is_back(lab: Lab, minions: dict[str, str]) -> None:
    m1, m2 = lab.masters.values()
    wipe(m2)
    wait_for(lambda: held(m2) == [{"master": "m2", "keys": KEYS}], 20, "held on m2")
    assert held(m1) == [{"master": "m2", "keys": KEYS}]
    status = m1.salt_run("ha.status")
    assert status.returncode == 1
    assert status.data["state"] == "degraded"
    settled(lab, m1, m2)
    assert set(m1.keys()["minions"]) >= set(minions)

    bring_back(m2)
    wait_for(lambda: not held(m2), 20, "nothing held any more")
    settled(lab, m1, m2)
    assert m1.keys()["minions"].keys() == m2.keys()["minions"].keys() == minions.keys()


def test_minions_that_knock_at_the_wiped_master_delete_nothing_either(
    lab: Lab, minions: dict[str, str]
) -> None:
    m1, m2 = lab.masters.values()
    wipe(m2)
    wait_for(lambda: held(m2), 20, "held on m2")
    for minion_id, key in minions.items():
        m2.plant("minions_pre", minion_id, key)
    settled(lab, m1, m2)
    lost = minions.keys() - m1.keys()["minions"].keys()
    for minion_id in minions:
        (m2.pki_dir / "minions_pre" / minion_id).unlink(missing_ok=True)
    bring_back(m2)
    assert not lost


def test_the_same_while_the_engine_is_away(lab: Lab, minions: dict[str, str]) -> None:
    m1, m2 = lab.masters.values()
    m2.kill()
    wipe(m2)
    for minion_id, key in minions.items():
        m2.plant("minions_pre", minion_id, key)
    m2.start()
    settled(lab, m1, m2)
    lost = minions.keys() - m1.keys()["minions"].keys()
    for minion_id in minions:
        (m2.pki_dir / "minions_pre" / minion_id).unlink(missing_ok=True)
    bring_back(m2)
    assert not lost


def test_a_few_keys_are_believed_at_once(lab: Lab, minions: dict[str, str]) -> None:
    m1, m2 = lab.masters.values()
    for minion_id in list(minions)[:3]:
        (m2.pki_dir / "minions" / minion_id).unlink()
    for minion_id in list(minions)[:3]:
        shown(minion_id, {}, m1, m2)
    assert not held(m2)


def test_release_deletes_what_was_held(lab: Lab, minions: dict[str, str]) -> None:
    m1, m2 = lab.masters.values()
    wipe(m2)
    wait_for(lambda: held(m2), 20, "held on m2")
    plan = m2.salt_run("ha.release", test=True).check().data
    assert plan["test"] is True
    assert {change["id"] for change in plan["changes"]} == set(minions)
    settled(lab, m1, m2)
    assert set(m1.keys()["minions"]) >= set(minions)
    assert held(m2)

    done = m2.salt_run("ha.release").check().data
    assert {change["id"] for change in done["changes"]} == set(minions)
    wait_for(lambda: not m1.keys()["minions"], 20, "deleted on m1")
    wait_for(lambda: not held(m1), 20, "nothing held any more")
