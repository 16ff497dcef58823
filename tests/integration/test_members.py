"""Who is in the group, and undoing mistakes, with the commands that operators type."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import Lab, Master, wait_for
from saltext_ha.common.errors import PeerError
from saltext_ha.keystore import minion_key
from saltext_ha.replication.record import Dot, Record, Value
from saltext_ha.sync.codec import to_wire
from saltext_ha.transport import identity
from saltext_ha.transport.client import call_once
from saltext_ha.transport.peer import make_peer
from tests.integration.conftest import MakeLab
from tests.integration.group import (
    SOON,
    files_of,
    group,
    level,
    master_pub,
    plant,
    row,
    shown,
    well,
)


@pytest.fixture(scope="module")
def pair(make_lab: MakeLab) -> Iterator[Lab]:
    with group(make_lab, "m1", "m2") as lab:
        yield lab


def masters(lab: Lab) -> tuple[Master, Master]:
    return lab.masters["m1"], lab.masters["m2"]


def test_paused_master_is_shown_and_planned_for_and_catches_up(pair: Lab) -> None:
    m1, m2 = masters(pair)
    well(m1)  # and compared: what is not known yet has another exit status
    assert m1.salt_run("ha.pause", all=True).returncode == 0
    assert m2.control("status")["masters"][0]["note"].startswith("paused")
    key = pair.key_pair()[1].strip()
    m1.plant("minions", "paused1", key)
    wait_for(lambda: m1.control("status")["masters"][1]["behind"] == 1, SOON, "m2 lags")
    plan = m1.salt_run("ha.sync", test=True)
    assert [(c["master"], c["id"], c["from"]) for c in plan.data["changes"]] == [
        ("m2", "paused1", "absent")
    ]
    assert files_of(m2, "paused1") == {}
    status = m1.salt_run("ha.status")
    assert status.returncode == 1
    assert status.data["state"] == "degraded"
    assert m2.salt_run("ha.resume", all=True).returncode == 0
    shown("paused1", {"minions": key}, m2)
    well(m1)


def test_pause_outlives_a_restart(pair: Lab) -> None:
    m1, m2 = masters(pair)
    m2.salt_run("ha.pause").check()
    m2.stop()
    m2.start()
    key = pair.key_pair()[1].strip()
    m1.plant("minions", "paused2", key)
    wait_for(lambda: m2.control("status")["masters"][1]["behind"] == 1, SOON, "m2 lags")
    assert files_of(m2, "paused2") == {}
    m2.salt_run("ha.resume").check()
    shown("paused2", {"minions": key}, m2)


def test_restore_brings_a_deleted_key_back_everywhere_and_history_tells(pair: Lab) -> None:
    m1, m2 = masters(pair)
    key = plant(pair, "minions", "mistake1", m1, m2)
    m1.salt_key("-d", "mistake1", "-y").check()
    shown("mistake1", {}, m1, m2)
    test = m2.salt_run("ha.restore", "mistake1", test=True)
    assert test.returncode == 0
    assert files_of(m2, "mistake1") == {}
    done = m2.salt_run("ha.restore", "mistake1")
    assert done.returncode == 0, done
    shown("mistake1", {"minions": key}, m1, m2)
    writes = m1.salt_run("ha.history", "mistake1").data["writes"]
    assert [(w["state"], w["on"]) for w in writes] == [
        ("accepted", "m2"),
        ("deleted", "m1"),
        ("accepted", "m1"),
    ]
    assert writes[1]["by"] == "operator"
    assert "mistake1" in m1.salt_run_text("ha.history", "mistake*").stdout


def test_restore_refuses_what_was_never_revoked_and_what_is_ambiguous(pair: Lab) -> None:
    m1, m2 = masters(pair)
    nobody = m1.salt_run("ha.restore", "nobody")
    assert nobody.returncode == 2
    assert "nobody" in nobody.data["error"]
    first = plant(pair, "minions", "twice1", m1, m2)
    m1.salt_key("-d", "twice1", "-y").check()
    shown("twice1", {}, m1, m2)
    plant(pair, "minions", "twice1", m1, m2)
    taken = m1.salt_run("ha.restore", "twice1")
    assert taken.returncode == 2
    assert "another key" in taken.data["error"]
    m1.salt_key("-d", "twice1", "-y").check()
    shown("twice1", {}, m1, m2)
    ambiguous = m1.salt_run("ha.restore", "twice1")
    assert ambiguous.returncode == 2
    assert "name one" in ambiguous.data["error"]
    keys = m1.salt_run("ha.history", "twice1").data["writes"]
    oldest = keys[-1]["fingerprint"]
    m1.salt_run("ha.restore", "twice1", oldest[:11]).check()
    shown("twice1", {"minions": first}, m1, m2)


def test_resolve_keeps_the_named_key_on_all(pair: Lab) -> None:
    m1, m2 = masters(pair)
    ours, theirs = (pair.key_pair()[1].strip() for _ in range(2))
    m2.suspend()
    try:
        m1.plant("minions", "both1", ours)
        wait_for(lambda: m1.control("keys", {"glob": "both1"})["keys"], SOON, "m1 recorded its key")
    finally:
        # Its engine must not hear of ours before it saw theirs.
        m2.kill()
    m2.plant("minions", "both1", theirs)
    m2.start()
    wait_for(lambda: m1.control("status")["conflicts"], SOON, "the conflict is seen")
    assert files_of(m1, "both1") == {"minions": ours}
    assert files_of(m2, "both1") == {"minions": theirs}
    wrong = m1.salt_run("ha.resolve", "both1", "00:00:00:00:00")
    assert wrong.returncode == 2
    rows = m1.control("keys", {"glob": "both1"})["keys"]
    chosen = next(row["fingerprint"] for row in rows if row["states"]["m2"] == "accepted")
    m1.salt_run("ha.resolve", "both1", chosen).check()
    shown("both1", {"minions": theirs}, m1, m2)
    well(m2)
    again = m1.salt_run("ha.resolve", "both1", chosen)
    assert again.returncode == 2
    assert "not in conflict" in again.data["error"]


def test_renewed_certificates_and_a_new_address_lock_nobody_out(pair: Lab) -> None:
    m1, m2 = masters(pair)

    def certificate(master: Master) -> str:
        found: str = master.control("peers")["self"]["fingerprint"]
        return found

    before = certificate(m1), certificate(m2)
    m2.stop()
    alone = m1.salt_run("ha.renew").check()
    assert "m2 has not taken it over yet" in str(alone.data["notes"])
    m1.stop()
    # m2 comes back alone, at another port, and renews as well.
    config = yaml.safe_load(m2.config_file.read_text())
    config["ha"]["port"] = pair.ports.api
    m2.config_file.write_text(yaml.safe_dump(config))
    m2.start()
    m2.salt_run("ha.renew").check()
    m1.start()
    # m2 tries more and more seldom while m1 is down, at least every half minute.
    wait_for(lambda: level(m1) and level(m2), 2 * SOON, "they have met again")
    assert {certificate(m1), certificate(m2)} & set(before) == set()
    plant(pair, "minions", "renewed1", m1, m2)
    plant(pair, "minions", "renewed2", m2, m1)
    (peer,) = m1.control("peers")["peers"]
    assert peer["url"].endswith(f":{pair.ports.api}")
    wait_for(  # a busy m2 hears of it a little later, and the command does not wait for long
        lambda: "m2 knows it" in m1.salt_run_text("ha.renew").check().stdout, SOON, "m2 knows it"
    )
    wait_for(lambda: level(m1) and level(m2), SOON, "and again")


def test_removed_peer_is_trusted_by_nobody_and_its_past_stays(make_lab: MakeLab) -> None:
    with group(make_lab, "m1", "m2", "m3") as lab:
        m1, m2, m3 = lab.masters.values()
        key = plant(lab, "minions", "kept1", m3, m1, m2)
        unknown = m1.salt_run("ha.remove_peer", "m9")
        assert unknown.returncode == 2
        assert "m2, m3" in unknown.data["error"]
        gone = plant(lab, "minions", "gone1", m1, m2, m3)
        m3.salt_key("-d", "gone1", "-y").check()
        shown("gone1", {}, m1, m2)
        # Whatever certificates it had, they are barred.
        stolen = shutil.copytree(m3.pki_dir / "ha", lab.root / "stolen")
        m3.salt_run("ha.renew").check()
        new = m3.control("peers")["self"]["fingerprint"]
        wait_for(
            lambda: all(new in str(m.control("peers")["peers"]) for m in (m1, m2)),
            SOON,
            "all know the new certificate",
        )
        m1.salt_run("ha.remove_peer", "m3").check()
        wait_for(lambda: "m3" not in str(m2.control("peers")["peers"]), SOON, "m2 unpinned m3")
        m3.plant("minions", "late1", lab.key_pair()[1])
        wait_for(
            lambda: all(row["state"] == "unknown" for row in m3.control("status")["masters"][1:]),
            SOON,
            "m3 is refused",
        )
        wait_for(lambda: level(m1), SOON, "the others go on")
        for master in (m1, m2):
            assert files_of(master, "kept1") == {"minions": key}
            assert files_of(master, "late1") == {}
            assert files_of(master, "gone1") == {}
            for state in (stolen, m3.pki_dir / "ha"):
                with pytest.raises(PeerError):
                    push(state, master, "gone1", gone)
        # The same certificate is never let in again, with whatever token.
        token = m1.invite()
        assert m3.join(token).returncode == 2
        # After leaving it has a new one, and may.
        m3.salt_run("ha.leave")
        m3.stop()
        m3.start()
        token = m1.invite()
        m3.join(token).check()
        wait_for(lambda: "late1" in m2.keys()["minions"], SOON, "m3 is back with what it has")


def push(state: Path, master: Master, minion_id: str, key: str) -> dict[str, Any]:
    """Send *master* a record with the identity that lies in the folder *state*."""
    value = Value(Dot("0123456789abcdef", 1), "accepted", 0.0, "thief", "m3")
    print_ = minion_key.fingerprint(key)
    record = Record(minion_id, print_, key, (value,), (("0123456789abcdef", 1),))
    certificate = identity.load_or_create(master.pki_dir / "ha", master.name).certificate
    peer = make_peer(master.name, f"https://{master.address}:{master.peer_port}", certificate)
    ours = identity.load_or_create(state, "m3")
    return asyncio.run(call_once(ours, peer, "push", {"records": [to_wire(record)]}))


def test_master_key_is_handed_over_only_when_invited_to(make_lab: MakeLab) -> None:
    with make_lab() as lab:
        m1, m2 = lab.add_master("m1"), lab.add_master("m2")
        lab.start_all()

        before = master_pub(m2)
        assert before != master_pub(m1)
        m2.join(m1.invite()).check()
        assert master_pub(m2) == before
        token = m1.invite(share_master_key=True)
        refused = m2.join(token)
        assert refused.returncode == 1
        assert "force=True" in str(refused.data["notes"])
        assert master_pub(m2) == before
        m2.join(token, force=True).check()
        assert master_pub(m2) == master_pub(m1)
        kept = [path.read_text().strip() for path in Path(m2.pki_dir).glob("*.pub.before-*")]
        assert before in kept
        private = next(
            path
            for path in (Path(m2.pki_dir) / "m2.pem", Path(m2.pki_dir) / "master.pem")
            if path.exists()
        )
        assert private.stat().st_mode & 0o077 == 0
        wait_for(lambda: "older master key" in row(m1, m2)["note"], SOON, "m1 says so")
        m2.stop()
        m2.start()
        well(m1)
        assert row(m1, m2)["note"] == ""
        assert master_pub(m2) == master_pub(m1)
        check = m1.salt_run("ha.check_consistency")
        assert check.data["sections"]["master_key"]["status"] == "same", check
