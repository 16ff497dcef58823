"""Three masters: two of them were never started. They come, go and return."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import Lab, Master, wait_for
from tests.integration.conftest import MakeLab
from tests.integration.group import QUICK, SOON, files_of, level, met, plant, settled, shown, well

Three = tuple[Master, Master, Master]
STATES = {
    "minions": "accepted",
    "minions_pre": "pending",
    "minions_rejected": "rejected",
    "minions_denied": "denied",
}
SECRETS = ("master.pem", "master_sign.pem")


@pytest.fixture(scope="module")
def lab(make_lab: MakeLab) -> Iterator[Lab]:
    """m1 runs, with keys of minions and a signing pair; m2 and m3 have a configuration only."""
    with make_lab() as lab:
        signing = {"master_sign_pubkey": True}
        m1, *others = (
            lab.add_master(name, ha=QUICK, config=signing) for name in ("m1", "m2", "m3")
        )
        for master in others:
            for folder in (master.pki_dir, master.sock_dir, Path(master.opts["cachedir"])):
                shutil.rmtree(folder)
        m1.start()
        for folder, minion_id in (("minions", "grown1"), ("minions_pre", "grown2")):
            m1.plant(folder, minion_id, lab.key_pair()[1])
        yield lab


@pytest.fixture
def masters(lab: Lab) -> Three:
    m1, m2, m3 = lab.masters.values()
    return m1, m2, m3


def members(master: Master) -> dict[str, str]:
    """The other members, as *master* knows them: name → certificate."""
    return {peer["name"]: peer["fingerprint"] for peer in master.control("peers")["peers"]}


def places(master: Master) -> dict[str, set[tuple[str, str]]]:
    """id → the states that its files are in, with their keys."""
    found: dict[str, set[tuple[str, str]]] = {}
    for folder, keys in master.keys().items():
        for minion_id, text in keys.items():
            found.setdefault(minion_id, set()).add((STATES[folder], text.strip()))
    return found


def test_masters_that_were_never_started_get_the_key_from_one_another(masters: Three) -> None:
    m1, m2, m3 = masters
    plan = m2.join(m1.invite(share_master_key=True), test=True).check().data
    assert "would be put in place" in str(plan["notes"])
    assert not (m2.pki_dir / "master.pem").exists()
    m2.join(m1.invite(share_master_key=True)).check()
    m2.start()
    # The second lets the third in, though the key is not its own.
    joined = m3.join(m2.invite(share_master_key=True)).check().data
    assert set(joined["members"]) == {"m1", "m2"}
    for name in ("master.pem", "master.pub", "master_sign.pem", "master_sign.pub"):
        ours = (m1.pki_dir / name).read_text().strip()
        for other in (m2, m3):
            placed = other.pki_dir / name
            assert placed.read_text().strip() == ours
            assert placed.stat().st_uid == os.getuid()
            if name in SECRETS:
                assert stat.S_IMODE(placed.stat().st_mode) == 0o400
    m3.start()
    for minion_id in ("grown1", "grown2"):
        shown(minion_id, files_of(m1, minion_id), m2, m3)
    met(*masters)
    well(*masters)
    check = m3.salt_run("ha.check_consistency").check().data
    assert check["sections"]["master_key"]["status"] == "same"


def test_one_is_away_while_the_others_decide_and_renew(lab: Lab, masters: Three) -> None:
    m1, m2, m3 = masters
    accepted = plant(lab, "minions_pre", "away-accepted", *masters)
    rejected = plant(lab, "minions", "away-rejected", *masters)
    plant(lab, "minions", "away-deleted", *masters)
    former = members(m2)["m1"]
    m3.stop()
    m1.salt_key("-a", "away-accepted", "-y").check()
    m2.salt_key("-r", "away-rejected", "--include-accepted", "-y").check()
    m1.salt_key("-d", "away-deleted", "-y").check()

    def m2_knows() -> str:
        """What the command says; nothing: m2 was too busy to hear of it in time."""
        renewed = str(m1.salt_run("ha.renew").check().data["notes"])
        return renewed if "m2 knows it" in renewed else ""

    renewed = wait_for(m2_knows, SOON, "m2 knows the new certificate")
    assert "m3 has not taken it over yet" in renewed
    m2.salt_run("ha.renew").check()

    m3.start()
    for minion_id, files in (
        ("away-accepted", {"minions": accepted}),
        ("away-rejected", {"minions_rejected": rejected}),
        ("away-deleted", {}),
    ):
        shown(minion_id, files, *masters)
    wait_for(lambda: all(map(level, masters)), 2 * SOON, "all know the new certificates")
    assert members(m3) == {"m1": members(m2)["m1"], "m2": members(m1)["m2"]}
    assert members(m3)["m1"] != former
    settled(lab, *masters)


def test_one_leaves_and_what_it_has_stays(lab: Lab, masters: Three) -> None:
    m1, m2, m3 = masters
    before = places(m3)
    m3.salt_run("ha.leave").check()
    assert members(m3) == {}
    wait_for(
        lambda: [set(members(master)) for master in (m1, m2)] == [{"m2"}, {"m1"}],
        SOON,
        "both have heard that it left",
    )
    wait_for(lambda: level(m1) and level(m2), SOON, "the others go on as two")
    # What either side does now is its own affair.
    plant(lab, "minions", "apart-group", m1, m2)
    m3.plant("minions", "apart-m3", lab.key_pair()[1])
    m3.salt_key("-d", "grown2", "-y").check()
    settled(lab, m1, m2)
    assert files_of(m3, "apart-group") == files_of(m1, "apart-m3") == {}
    assert {k: v for k, v in places(m3).items() if k != "apart-m3"} == {
        k: v for k, v in before.items() if k != "grown2"
    }
    assert "grown2" in places(m1)


def test_coming_back_is_what_was_planned_and_writes_when_told_to(lab: Lab, masters: Three) -> None:
    """m3 comes back as a master with keys of its own, which is only to observe at first."""
    m1, m2, m3 = masters
    m3.stop()
    shutil.rmtree(m3.pki_dir / "ha")  # nothing is left of what it knew about the group
    configuration = m3.config_file.read_text()
    settings = yaml.safe_load(configuration)
    settings["ha"]["mode"] = "observe"
    m3.config_file.write_text(yaml.safe_dump(settings))
    m3.start()
    keys = {name: lab.key_pair()[1].strip() for name in ("one", "two", "three", "mine", "theirs")}
    for folder, minion_id, key in (
        ("minions", "back-one", "one"),
        ("minions_rejected", "back-two", "two"),
        ("minions_pre", "back-three", "three"),
        ("minions", "back-clash", "theirs"),
        ("minions", "back-beside", "theirs"),
    ):
        m1.plant(folder, minion_id, keys[key])
        shown(minion_id, {folder: keys[key]}, m1, m2)
    for folder, minion_id, key in (
        ("minions_pre", "back-one", "one"),
        ("minions", "back-two", "two"),
        ("minions", "back-three", "three"),
        ("minions", "back-clash", "mine"),
        ("minions_pre", "back-beside", "mine"),
    ):
        m3.plant(folder, minion_id, keys[key])
    wait_for(lambda: len(m3.control("keys", {"glob": "back-*"})["keys"]) == 5, SOON, "m3 has seen")
    settled(lab, m1, m2)
    before = [places(master) for master in masters]

    token = m2.invite()
    plan = m3.join(token, test=True)
    assert plan.returncode == 1, plan
    assert [conflict["id"] for conflict in plan.data["conflicts"]] == ["back-clash"]
    assert [places(master) for master in masters] == before
    assert [set(members(master)) for master in masters] == [{"m2"}, {"m1"}, set()]
    expected = [
        states_after(before[0], plan.data["changes"], "the group (m2)"),
        states_after(before[1], plan.data["changes"], "the group (m2)"),
        states_after(before[2], plan.data["changes"], "m3"),
    ]
    assert expected[2]["back-beside"] == {"accepted", "denied"}
    assert expected[0]["back-two"] == expected[2]["back-two"] == {"rejected"}
    # It deleted the key and forgot that it did: the group's stays.
    assert expected[2]["grown2"] == {"pending"}

    m3.join(token).check()
    wait_for(lambda: states(m1) == states(m2) == expected[0], SOON, f"as planned: {expected[0]}")
    assert places(m3) == before[2]
    wait_for(lambda: planned(m3) == changed(before[2], expected[2]), SOON, "only m3 is to change")
    m3.salt_run("ha.resume").check()
    wait_for(lambda: states(m3) == expected[2], SOON, f"as planned: {expected[2]}")
    for master, clash in zip(masters, ("theirs", "theirs", "mine"), strict=True):
        assert files_of(master, "back-clash") == {"minions": keys[clash]}

    def accepted_on_m3() -> str:
        rows = m1.control("keys", {"glob": "back-clash"})["keys"]
        return next(row["fingerprint"] for row in rows if row["states"]["m3"] == "accepted")

    keep = wait_for(accepted_on_m3, SOON, "m1 asks m3 again")
    m1.salt_run("ha.resolve", "back-clash", keep).check()
    shown("back-clash", {"minions": keys["mine"]}, *masters)
    well(*masters)
    m3.config_file.write_text(configuration)


def states(master: Master) -> dict[str, set[str]]:
    return {name: {state for state, _ in found} for name, found in places(master).items()}


def states_after(
    before: dict[str, set[tuple[str, str]]], changes: list[dict[str, Any]], side: str
) -> dict[str, set[str]]:
    """The states of each id when *changes* are made on *side* of a plan."""
    after = {name: {state for state, _ in found} for name, found in before.items()}
    for change in changes:
        if change["master"] == side:
            words = set(change["to"].replace(",", "").split())
            after[change["id"]] = words & set(STATES.values())
    return {name: found for name, found in after.items() if found}


def planned(master: Master) -> set[str]:
    """The ids that ``ha.sync test=True`` would change on *master*, when it changes no other."""
    changes = master.control("sync", {"test": True})["changes"]
    assert {change["master"] for change in changes} <= {master.name}
    return {change["id"] for change in changes}


def changed(before: dict[str, set[tuple[str, str]]], after: dict[str, set[str]]) -> set[str]:
    now = {name: {state for state, _ in found} for name, found in before.items()}
    return {name for name in {*now, *after} if now.get(name) != after.get(name)}
