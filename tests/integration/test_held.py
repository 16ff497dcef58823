"""A key folder that is wiped, unmounted or restored on one master deletes nothing on the others."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from lab import Lab, Master, wait_for
from tests.integration.conftest import MakeLab
from tests.integration.group import (
    SOON,
    arrived,
    files_of,
    group,
    rm,
    settled,
    shown,
    unseen,
    well,
)

KEYS = 30


@pytest.fixture(scope="module")
def lab(make_lab: MakeLab) -> Iterator[Lab]:
    with group(make_lab, "m1", "m2", ha={"hold_minimum": 10}) as lab:
        yield lab


@pytest.fixture(scope="module")
def keys(lab: Lab) -> dict[str, str]:
    return {f"web{number}": lab.key_pair()[1].strip() for number in range(KEYS)}


@pytest.fixture
def minions(lab: Lab, keys: dict[str, str]) -> dict[str, str]:
    """Thirty keys accepted on both masters."""
    m1, m2 = lab.masters.values()
    for minion_id, key in keys.items():
        if files_of(m1, minion_id) != {"minions": key}:
            m1.plant("minions", minion_id, key)
    wait_for(lambda: m1.keys()["minions"] == m2.keys()["minions"] == keys, SOON, "all keys on both")
    well(m1)
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


def note(master: Master, about: Master) -> str:
    rows = {row["name"]: row for row in master.control("status")["masters"]}
    return str(rows[about.name]["note"])


def test_a_wiped_folder_is_held_until_it_is_back(lab: Lab, minions: dict[str, str]) -> None:
    m1, m2 = lab.masters.values()
    wipe(m2)
    wait_for(lambda: held(m2) == [{"master": "m2", "keys": KEYS}], SOON, "held on m2")
    wait_for(lambda: held(m1) == [{"master": "m2", "keys": KEYS}], SOON, "m1 knows")
    wait_for(lambda: "its signature is gone" in note(m1, m2), SOON, "m1 knows why")
    # Its minions find no key there, whatever its replica knows; what is there is not believed.
    wait_for(lambda: m1.control("status")["tolerates"] == 0, SOON, "m2 does not count")
    status = m1.salt_run("ha.status")
    assert status.returncode == 1
    assert status.data["state"] == "degraded"
    row = next(row for row in status.data["masters"] if row["name"] == "m2")
    assert (row["accepted"], row["behind"], row["health"]["ready"]) == (None, KEYS, False)
    keys = m1.salt_run("ha.keys")
    assert (keys.returncode, m2.keys()["minions"]) == (1, {})
    assert {key["id"] for key in keys.data["keys"] if not key["same"]} == minions.keys()
    # What is decided meanwhile is not written into the wrong folder, and follows later.
    first = next(iter(minions))
    (m1.pki_dir / "minions" / first).unlink()
    wait_for(lambda: "not yet written" in note(m1, m2), SOON, "m2 has heard of it")
    assert not any((m2.pki_dir / "minions").iterdir())

    bring_back(m2)
    wait_for(lambda: not held(m2), SOON, "nothing held any more")
    settled(lab, m1, m2)
    assert m1.keys()["minions"].keys() == m2.keys()["minions"].keys() == minions.keys() - {first}


def test_minions_that_knock_at_the_wiped_master_delete_nothing_either(
    lab: Lab, minions: dict[str, str]
) -> None:
    m1, m2 = lab.masters.values()
    m2.kill()
    wipe(m2)
    m2.start()
    wait_for(lambda: held(m2), SOON, "held on m2")
    for minion_id, key in minions.items():
        m2.plant("minions_pre", minion_id, key)
    m2.control("check")  # looks at the key store
    for minion_id in minions:
        (m2.pki_dir / "minions_pre" / minion_id).unlink()
    bring_back(m2)
    settled(lab, m1, m2)
    assert m1.keys()["minions"].keys() == m2.keys()["minions"].keys() == minions.keys()


def test_files_that_are_removed_in_great_number_are_held(lab: Lab, minions: dict[str, str]) -> None:
    m1, m2 = lab.masters.values()
    rm(m2)
    wait_for(lambda: held(m2) == [{"master": "m2", "keys": KEYS}], SOON, "held on m2")
    # The master goes on with everything else; minions that knock now bring nothing back.
    for minion_id, key in minions.items():
        m2.plant("minions_pre", minion_id, key)
    arrived(lab, m1, m2)
    assert m1.keys()["minions"].keys() == minions.keys()

    plan = m2.salt_run("ha.refill", test=True).check().data
    assert {change["id"] for change in plan["changes"]} == minions.keys()
    done = m2.salt_run("ha.refill").check().data
    assert {change["id"] for change in done["changes"]} == minions.keys()
    settled(lab, m1, m2)
    assert m1.keys()["minions"] == m2.keys()["minions"] == minions
    assert not held(m1)


def test_an_emptied_folder_is_filled_again(lab: Lab, minions: dict[str, str]) -> None:
    m1, m2 = lab.masters.values()
    with unseen(m2):
        shutil.rmtree(m2.pki_dir / "minions")
    wait_for(lambda: held(m2), SOON, "held on m2")
    m2.salt_run("ha.refill").check()
    assert m2.keys()["minions"] == m1.keys()["minions"] == minions
    well(m1)


def test_a_backup_of_the_keys_undoes_no_decision(lab: Lab, minions: dict[str, str]) -> None:
    m1, m2 = lab.masters.values()
    folder, backup = m2.pki_dir / "minions", m2.pki_dir / "minions.backup"
    shutil.copytree(folder, backup, symlinks=True)
    gone, rejected = sorted(minions)[:2]
    m1.salt_key("-d", gone, "-y").check()
    m1.salt_key("-r", rejected, "--include-accepted", "-y").check()
    shown(gone, {}, m1, m2)
    # The signature is renewed every hour, and when the engine starts.
    m2.kill()
    m2.start()
    new = lab.key_pair()[1].strip()
    m1.plant("minions", "new", new)
    shown("new", {"minions": new}, m1, m2)
    before = m1.keys()
    with unseen(m2):
        shutil.rmtree(folder)
        backup.rename(folder)
    settled(lab, m1, m2)
    for state in ("minions", "minions_rejected"):
        assert m1.keys()[state] == m2.keys()[state] == before[state]
    assert not held(m2)
    for path in (m1.pki_dir / "minions_rejected").iterdir():
        path.unlink()
    m1.salt_key("-d", "new", "-y").check()
    shown("new", {}, m1, m2)


def test_a_few_keys_are_believed_at_once(lab: Lab, minions: dict[str, str]) -> None:
    m1, m2 = lab.masters.values()
    for minion_id in list(minions)[:3]:
        (m2.pki_dir / "minions" / minion_id).unlink()
    for minion_id in list(minions)[:3]:
        shown(minion_id, {}, m1, m2)
    assert not held(m2)


def test_what_an_operator_deletes_is_deleted_whole(lab: Lab, minions: dict[str, str]) -> None:
    m1, m2 = lab.masters.values()
    gone = {minion_id for minion_id in minions if minion_id.startswith(("web1", "web2"))}
    assert len(gone) > 20
    m1.salt_key("-d", "web[12]*", "-y").check()
    for master in (m1, m2):
        wait_for(lambda m=master: not gone & set(m.keys()["minions"]), SOON, "all are deleted")
        assert not held(master)
    m2.salt_run("ha.restore", "web*", since="10m").check()
    wait_for(lambda: m1.keys()["minions"] == m2.keys()["minions"] == minions, SOON, "restored")


def test_minions_that_knocked_at_the_wiped_master_are_accepted_when_it_is_back(
    lab: Lab, minions: dict[str, str]
) -> None:
    """Also while the other master is down, and without any command."""
    m1, m2 = lab.masters.values()
    first, second = sorted(minions)[:2]
    stranger = lab.key_pair()[1].strip()
    m1.kill()
    wipe(m2)
    wait_for(lambda: held(m2), SOON, "held on m2")
    m2.plant("minions_pre", first, minions[first])
    m2.plant("minions_pre", second, stranger)
    m2.control("check")  # looks at the key store
    bring_back(m2)
    wait_for(lambda: not held(m2), SOON, "nothing held any more")
    wait_for(lambda: not {first, second} & m2.keys()["minions_pre"].keys(), SOON, "neither waits")
    m1.start()
    settled(lab, m1, m2)
    for master in (m1, m2):
        assert files_of(master, first) == {"minions": minions[first]}
        assert files_of(master, second) == {
            "minions": minions[second],
            "minions_denied": stranger,
        }
    assert m1.keys()["minions"] == m2.keys()["minions"] == minions


def test_release_deletes_what_was_held(lab: Lab, minions: dict[str, str]) -> None:
    m1, m2 = lab.masters.values()
    wipe(m2)
    wait_for(lambda: held(m2), SOON, "held on m2")
    plan = m2.salt_run("ha.release", test=True).check().data
    assert (plan["test"], plan["deletes"]) == (True, KEYS)
    assert {change["id"] for change in plan["changes"]} == set(minions)
    for master, wish, why in (
        (m2, {}, f"ha.release deletes={KEYS}"),
        (m2, {"deletes": 1}, f"ha.release deletes={KEYS}"),
        (m1, {"deletes": KEYS}, f"nothing is held on m1, but {KEYS} keys on m2"),
    ):
        refused = master.salt_run("ha.release", **wish)
        assert (refused.returncode, why in refused.data["error"]) == (2, True)
    assert held(m2)
    assert set(m1.keys()["minions"]) >= set(minions)

    done = m2.salt_run("ha.release", deletes=KEYS).check().data
    assert {change["id"] for change in done["changes"]} == set(minions)
    wait_for(lambda: not m1.keys()["minions"], SOON, "deleted on m1")
    wait_for(lambda: not held(m1), SOON, "nothing held any more")
    # A mistake, after all.
    done = m1.salt_run("ha.restore", "web*", since="10m").check().data
    assert {change["id"] for change in done["changes"]} >= set(minions)
    wait_for(lambda: m1.keys()["minions"] == m2.keys()["minions"] == minions, SOON, "restored")
