"""Two grown masters that become one group: the plan, the join, and minions that know both."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from lab import Lab, Master, wait_for
from tests.integration.conftest import MakeLab
from tests.integration.group import QUICK, SOON, configure, files_of, level

STATES = {
    "minions": "accepted",
    "minions_pre": "pending",
    "minions_rejected": "rejected",
    "minions_denied": "denied",
}


@pytest.fixture(scope="module")
def apart(make_lab: MakeLab) -> Iterator[Lab]:
    """m1 and m2 with keys of their own; m1 signs its public key. A failover minion, not started."""
    with make_lab() as lab:
        m1 = lab.add_master("m1", ha=QUICK, config={"master_sign_pubkey": True})
        m2 = lab.add_master("m2", ha=QUICK)
        config = {"verify_master_pubkey_sign": True}
        lab.add_minion("mover", [m1, m2], type="failover", config=config)
        lab.start_all([m1, m2])
        yield lab


def masters(lab: Lab) -> tuple[Master, Master]:
    return lab.masters["m1"], lab.masters["m2"]


def shown(master: Master) -> dict[str, dict[str, str]]:
    """id → state → key, as the key folders have it."""
    found: dict[str, dict[str, str]] = {}
    for folder, keys in master.keys().items():
        for minion_id, text in keys.items():
            found.setdefault(minion_id, {})[STATES[folder]] = text.strip()
    return found


def everything(master: Master) -> dict[str, bytes]:
    """The files of a master's pki_dir that its engine does not write by itself, at some time."""
    return {
        str(path.relative_to(master.pki_dir)): path.read_bytes()
        for path in master.pki_dir.rglob("*")
        if path.is_file() and not path.name.startswith(("replica.db", "consistency.json"))
    }


def states_after(
    before: dict[str, dict[str, str]], changes: list[dict[str, Any]], side: str
) -> dict[str, set[str]]:
    planned = {minion_id: set(states) for minion_id, states in before.items()}
    for change in changes:
        if change["master"] == side:
            words = set(change["to"].replace(",", "").split())
            planned[change["id"]] = words & set(STATES.values())
    return {minion_id: states for minion_id, states in planned.items() if states}


def test_the_plan_of_a_first_contact_is_what_happens(apart: Lab) -> None:
    m1, m2 = masters(apart)
    keys = [apart.key_pair()[1] for _ in range(8)]
    for number, (ours, theirs) in enumerate(
        [
            ("minions", None),
            (None, "minions"),
            ("minions_pre", "minions"),
            ("minions", "minions_rejected"),
            ("minions_pre", "minions_pre"),
            ("minions_rejected", None),
        ]
    ):
        for master, folder in ((m1, ours), (m2, theirs)):
            if folder:
                master.plant(folder, f"key{number}", keys[number])
    m1.plant("minions", "clash", keys[6])
    m2.plant("minions", "clash", keys[7])
    m1.plant("minions", "beside", keys[6])
    m2.plant("minions_pre", "beside", keys[7])
    for master in (m1, m2):
        master.plant("minions", "gone", keys[0])

    def recorded(master: Master) -> bool:
        return bool(master.control("keys", {"glob": "gone"})["keys"])

    for master in (m1, m2):
        wait_for(lambda m=master: recorded(m), SOON, f"{master.name} recorded its keys")
    m1.salt_key("-d", "gone", "-y").check()
    wait_for(lambda: not recorded(m1), SOON, "m1 recorded that one is deleted")
    before = shown(m1), shown(m2)
    token = m1.invite(share_signing_key=True)
    files = everything(m1), everything(m2)

    plan = m2.join(token, test=True)
    assert plan.returncode == 1, plan  # there is a conflict
    words = ("--token-file", "-")
    text = m2.cli("salt-ha", "join", *words, out=None, stdin=token, test=True).stdout
    assert (everything(m1), everything(m2)) == files
    assert "Would join group default: m1" in text
    assert "changes planned; nothing was changed" in text
    assert [conflict["id"] for conflict in plan.data["conflicts"]] == ["clash"]
    notes = "\n".join(plan.data["notes"])
    assert "this master's differs from the group's" in notes
    assert "sign key: the group's" in notes
    expected = (
        states_after(before[0], plan.data["changes"], "the group (m1)"),
        states_after(before[1], plan.data["changes"], "m2"),
    )
    assert expected[1]["beside"] == {"accepted", "denied"}
    assert "gone" not in expected[1]

    joined = m2.join(token).check().data
    wait_for(lambda: level(m1) and level(m2), SOON, "both are level")
    wait_for(
        lambda: tuple({i: set(s) for i, s in shown(m).items()} for m in (m1, m2)) == expected,
        SOON,
        f"the stores show what was planned: {expected}",
    )
    assert shown(m1)["clash"] == before[0]["clash"]
    assert shown(m2)["clash"] == before[1]["clash"]
    # The signing pair came along, and nothing else.
    for name in ("master_sign.pem", "master_sign.pub"):
        assert (m2.pki_dir / name).read_text() == (m1.pki_dir / name).read_text()
    assert (m2.pki_dir / "master_sign.pem").stat().st_mode & 0o077 == 0
    assert "master_sign_pubkey: True" in str(joined["notes"])
    assert "verify_master_pubkey_sign: True" in str(joined["notes"])
    section = m1.salt_run("ha.check_consistency").data["sections"]["master_key"]
    assert section["status"] == "differ"


def test_a_minion_that_verifies_signatures_moves_to_the_master_with_another_key(
    apart: Lab,
) -> None:
    m1, m2 = masters(apart)
    mover = apart.minions["mover"]
    m2.stop()
    configure(m2, master_sign_pubkey=True)
    m2.start()
    shutil.copy(m1.pki_dir / "master_sign.pub", mover.pki_dir / "master_sign.pub")
    m1.plant("minions", mover.name, mover.pub)
    wait_for(lambda: files_of(m2, "mover"), SOON, "m2 has the minion's key")

    def pings(master: Master) -> bool:
        answer = master.salt("mover", "test.ping").data
        return bool(answer and answer.get("mover") is True)

    mover.start(wait_accepted=True)
    # A master that dies while a minion starts is waited for in ways that are not tested here.
    wait_for(lambda: pings(m1), SOON, "the minion works for m1")
    assert mover.bound_to() == ["m1"]
    first = (mover.pki_dir / "minion_master.pub").read_text()
    m1.kill()
    wait_for(lambda: mover.bound_to() == ["m2"], SOON, "the minion moves over")
    wait_for(lambda: pings(m2), SOON, "the minion works for m2")
    assert (mover.pki_dir / "minion_master.pub").read_text() != first
    m1.start()


def test_a_signing_pair_that_is_in_the_way_is_replaced_only_when_forced(apart: Lab) -> None:
    m1, m2 = masters(apart)
    m1.start()
    other = apart.key_pair()
    mine = (m2.pki_dir / "master_sign.pub").read_text()
    for name, text in (("master_sign.pem", other[0]), ("master_sign.pub", other[1])):
        (m2.pki_dir / name).unlink()
        (m2.pki_dir / name).write_text(text)
    token = m1.invite(share_signing_key=True)
    plan = m2.join(token, test=True)
    assert "another sign key is here" in str(plan.data["key_problems"])
    refused = m2.join(token)
    assert refused.returncode == 1
    assert (m2.pki_dir / "master_sign.pub").read_text() == other[1]
    m2.join(token, force=True).check()
    assert (m2.pki_dir / "master_sign.pub").read_text() == mine
    kept = [path.read_text() for path in m2.pki_dir.glob("master_sign.p*.before-*")]
    assert sorted(kept) == sorted(other)
    # Who has none has nothing to hand over, and says so before anybody joins.
    for name in ("master_sign.pem", "master_sign.pub"):
        (m2.pki_dir / name).unlink()
    none = m2.salt_run("ha.invite", share_signing_key=True)
    assert none.returncode == 2
    assert "master_sign_pubkey: True" in none.data["error"]
