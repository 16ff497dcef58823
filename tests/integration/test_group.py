"""Making a group, who is let in, and what a master says that cannot take part."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lab import Lab, Master, wait_for
from saltext_ha.common.errors import PeerError
from saltext_ha.membership.token import decode
from saltext_ha.transport import client, identity
from saltext_ha.transport.peer import make_peer
from tests.integration.conftest import MakeLab
from tests.integration.group import SOON, group, log_lines, peers, row, shown


@pytest.fixture(scope="module")
def lab(make_lab: MakeLab) -> Iterator[Lab]:
    """m1 and m2 are not joined yet; the first test does that. The others never start."""
    with group(make_lab, "m1", "m2", joined=False) as lab:
        lab.add_master("stranger")
        lab.add_master("foreigner", ha={"group": "other"})
        yield lab


def test_joining_brings_the_keys_of_both_together(lab: Lab, m1: Master, m2: Master) -> None:
    _, of_m1 = lab.key_pair()
    _, of_m2 = lab.key_pair()
    m1.plant("minions", "from-m1", of_m1)
    m2.plant("minions_pre", "from-m2", of_m2)
    wait_for(lambda: m1.control("status")["state"] == "ok", SOON, "m1 is well, alone")
    assert m1.salt_run("ha.status").check().data["tolerates"] == 0

    invite = m1.salt_ha("invite").check().data
    assert invite["command"] == "salt-ha join --token-file -"
    assert invite["expires_in"] == 600
    joined = m2.join(invite["token"]).check().data
    assert joined["members"] == ["m1"]
    assert joined["notes"] == []

    shown("from-m1", {"minions": of_m1}, m1, m2)
    shown("from-m2", {"minions_pre": of_m2}, m1, m2)
    wait_for(lambda: m1.control("status")["state"] == "ok", SOON, "the group is well")
    wait_for(lambda: m1.control("status")["tolerates"] == 1, SOON, "both are ready")
    # The same master again with the same token: its first answer may have got lost.
    m2.join(invite["token"]).check()
    # The next one cannot use it.
    again = lab.masters["stranger"].join(invite["token"])
    assert again.returncode == 2
    assert "used" in again.data["error"]


def test_peers_know_each_other(m1: Master, m2: Master) -> None:
    ours, theirs = peers(m1), peers(m2)
    assert [(peer["name"], peer["state"]) for peer in ours["peers"]] == [("m2", "up")]
    assert ours["peers"][0]["fingerprint"] == theirs["self"]["fingerprint"]
    assert ours["self"]["fingerprint"] == theirs["peers"][0]["fingerprint"]


def test_joining_a_second_time_is_harmless(m1: Master, m2: Master) -> None:
    before = peers(m1)["peers"][0]["fingerprint"]
    m1.join(m2.invite()).check()
    after = peers(m1)["peers"]
    assert [peer["fingerprint"] for peer in after] == [before]
    wait_for(lambda: m1.control("status")["state"] == "ok", SOON, "the group is well")


def test_a_token_that_was_altered(lab: Lab, m1: Master) -> None:
    token = m1.invite()
    for position in (len(token) // 2, -8):
        other = "A" if token[position] != "A" else "B"
        forged = token[:position] + other + token[position:][1:]
        answer = lab.masters["stranger"].join(forged)
        assert answer.returncode == 2
        assert answer.data["error"]
        assert not list(peers_of(lab.masters["stranger"]))


def test_a_token_that_has_expired(lab: Lab, m1: Master) -> None:
    token = m1.invite(expires=1)
    # By the same clock. The token says when it ends; joining before that would use it.
    end = decode(token).expires
    wait_for(lambda: time.time() > end + 1, SOON, "the token's time is over")
    answer = lab.masters["stranger"].join(token)
    assert answer.returncode == 2
    assert "expired" in answer.data["error"]
    assert not list(peers_of(lab.masters["stranger"]))


def test_a_master_of_another_group(lab: Lab, m1: Master) -> None:
    answer = lab.masters["foreigner"].join(m1.invite())
    assert answer.returncode == 2
    assert "ha: group: default" in answer.data["error"]
    assert not list(peers_of(lab.masters["foreigner"]))


def test_a_stranger_is_turned_away_and_counted(lab: Lab, m1: Master, tmp_path: Path) -> None:
    stranger = identity.load_or_create(tmp_path, "stranger")
    certificate = identity.load_or_create(m1.pki_dir / "ha", "m1").certificate
    there = make_peer("m1", f"https://{m1.address}:{m1.peer_port}", certificate)
    before = sum(m1.control("status")["refused"].values())
    with pytest.raises(PeerError):
        asyncio.run(client.call_once(stranger, there, "digest", {"tree": "records", "root": b""}))
    wait_for(lambda: sum(m1.control("status")["refused"].values()) > before, SOON, "it was counted")


def test_a_stopped_master_says_so_whatever_it_is_asked(lab: Lab) -> None:
    stranger = lab.masters["stranger"]
    for function in ("status", "check_consistency", "sync"):
        answer = stranger.salt_run(f"ha.{function}")
        assert answer.returncode == 2, function
        assert "not running" in answer.data["error"]
    text = stranger.salt_run_text("ha.status")
    assert text.returncode == 2
    assert "not running" in text.stdout
    assert "Traceback" not in text.stdout + text.stderr


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"sync_intervall": 5}, ["unknown key 'sync_intervall'", "sync_interval"]),
        ({"mode": "sometimes"}, ["mode", "'sometimes'", "enforce, observe"]),
    ],
    ids=["unknown key", "bad value"],
)
def test_a_wrong_setting(lab: Lab, setting: dict[str, object], words: list[str]) -> None:
    name = f"wrong-{next(iter(setting)).replace('_', '-')}"
    wrong = lab.add_master(name, ha=setting)
    wrong.start(wait_engine=False)
    try:
        (line,) = wait_for(
            lambda: log_lines(wrong, "CRITICAL", "ha engine not started"), SOON, "the log says so"
        )
        for word in [str(wrong.config_file), *words]:
            assert word in line
        answer = wrong.salt_run("ha.status")
        assert answer.returncode == 2
        assert str(wrong.config_file) in answer.data["error"]
        # Salt itself goes on: it knows its keys, and its workers answer the command line.
        _, key = lab.key_pair()
        wrong.plant("minions_pre", "web1", key)
        wrong.salt_key("-a", "web1", "-y").check()
        assert "web1" in wrong.keys()["minions"]
        assert not wrong.control_socket.exists()
        assert len(log_lines(wrong, "ha engine not started")) == 1
    finally:
        wrong.kill()


def test_an_address_that_is_taken(lab: Lab, m1: Master) -> None:
    """The engine says which, and does not take the master along."""
    taken = lab.add_master("taken", ha={"listen_host": m1.address})
    assert yaml.safe_load(taken.config_file.read_text())["ha"]["port"] == m1.peer_port
    taken.start(wait_engine=False)
    try:
        line = wait_for(lambda: log_lines(taken, "ha engine not started"), SOON, "the log says so")[
            0
        ]
        assert f"{m1.address}:{m1.peer_port}" in line
        assert taken.salt_run("ha.status").returncode == 2
        assert taken.running
    finally:
        taken.kill()
    wait_for(lambda: row(m1, lab.masters["m2"])["state"] == "running", SOON, "m2 goes on")


def peers_of(master: Master) -> Iterator[Path]:
    return (master.pki_dir / "ha" / "peers").glob("[!.]*")
