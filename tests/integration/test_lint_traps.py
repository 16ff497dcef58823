"""Traps that ``ha.lint`` names, and a real minion in each of them; both masters are well."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from lab import Lab, Master, Minion, wait_for
from saltext_ha.lint import ask
from tests.integration.conftest import MakeLab
from tests.integration.group import PATIENT, SOON, answers, log_lines, logged

FAILOVER: dict[str, Any] = {
    "master_type": "failover",
    "master_alive_interval": 1,
    "retry_dns": 0,
    "tcp_keepalive_idle": 20,
    "tcp_keepalive_intvl": 5,
    "tcp_keepalive_cnt": 3,
}
# A master that is only slow is not to be given up for the next one.
PATIENTLY: dict[str, Any] = {**FAILOVER, "auth_timeout": 60}
MOVES = ("Trying to tune in to next master from master-list",)


@pytest.fixture(scope="module")
def lab(make_lab: MakeLab) -> Iterator[Lab]:
    """Two masters of one key; the second one signs it."""
    with make_lab() as lab:
        m1 = lab.add_master("m1", engine=False)
        signing = lab.add_master("signing", engine=False, config={"master_sign_pubkey": True})
        m1.share_master_key(signing)
        lab.start_all()
        yield lab


@contextlib.contextmanager
def trapped(lab: Lab, name: str, *codes: str, **config: Any) -> Iterator[Minion]:
    """
    A minion that all masters know, of which ``ha.lint`` says *codes*; running.

    :param config: beside what the lab writes; None takes that out.
    """
    m1 = lab.masters["m1"]
    minion = lab.add_minion(name, [m1], config={"master": m1.address, "auth_timeout": 2, **config})
    options = yaml.safe_load(minion.config_file.read_text())
    kept = {option: value for option, value in options.items() if value is not None}
    minion.config_file.write_text(yaml.safe_dump(kept))
    for master in lab.masters.values():
        master.plant("minions", name, minion.pub)
    assert said(minion) == set(codes)
    minion.start()
    try:
        yield minion
    finally:
        minion.kill()


def said(minion: Minion) -> set[str]:
    """What ``ha.lint`` finds in its files."""
    return {finding["code"] for finding in ask.minion(minion.opts)["findings"]}


def nobody(lab: Lab) -> str:
    """The address of a master that there is not."""
    return lab.new_address()


def test_ports_with_failback_move_a_minion_that_is_where_it_should_be(lab: Lab, m1: Master) -> None:
    port = m1.ret_port
    masters = [f"{m1.address}:{port}", f"{nobody(lab)}:{port}"]
    with trapped(
        lab, "failback", "HA102", "HA218", master=masters, master_failback=True, **FAILOVER
    ) as minion:
        logged(minion, *MOVES, times=3)


def test_bare_hosts_with_failback_stay(lab: Lab, m1: Master) -> None:
    """What the rule tells to write instead: the same minion, and it stays."""
    masters = [m1.address, nobody(lab)]
    with trapped(lab, "bare", "HA218", master=masters, master_failback=True, **PATIENTLY) as minion:
        minion.wait_ready()
        logged(minion, "Running scheduled job: __master_alive", times=4)
        assert log_lines(minion, *MOVES) == []


def scheduled(minion: Minion) -> list[str]:
    """The jobs that Salt itself schedules in the minion."""
    listed = minion.masters[0].salt(
        minion.name,
        "schedule.list",
        PATIENT,
        show_all=True,
        show_disabled=True,
        return_yaml=False,
    )
    return [name.rpartition("_")[0] for name in listed.check().data[minion.name]]


@pytest.mark.parametrize(("interval", "codes"), [(0, {"HA201"}), (1, set())])
def test_without_an_interval_nobody_looks_for_a_lost_master(
    lab: Lab, m1: Master, interval: int, codes: set[str]
) -> None:
    masters = [m1.address, nobody(lab)]
    config = {**PATIENTLY, "master": masters, "master_alive_interval": interval}
    with trapped(lab, f"blind{interval}", "HA218", *codes, **config) as minion:
        logged(minion, "Minion is ready to receive requests!")
        answers(m1, minion)
        assert ("__master_alive" in scheduled(minion)) is not bool(codes)


def test_a_master_that_hangs_is_never_left(lab: Lab, m1: Master) -> None:
    masters = [m1.address, nobody(lab)]
    with trapped(lab, "loyal", "HA218", master=masters, **PATIENTLY) as minion:
        minion.wait_ready()
        m1.suspend()
        try:
            # What Salt schedules, and what it goes by.
            assert minion.salt_call("status.master", m1.address, "--local").data is True
            assert minion.bound_to() == ["m1"]
        finally:
            m1.resume()


def test_the_alive_check_at_the_wrong_port_loses_a_healthy_master(lab: Lab, m1: Master) -> None:
    # Where its master publishes is known to the running minion only, so not to salt-call --local.
    masters = [m1.address, nobody(lab)]
    with trapped(lab, "flapping", "HA218", master=masters, publish_port=None, **FAILOVER) as minion:
        logged(minion, *MOVES, times=2)


def test_a_publish_port_that_is_not_the_masters_makes_it_deaf(lab: Lab, m1: Master) -> None:
    with trapped(lab, "deaf", publish_port=m1.publish_port + 7) as minion:
        wait_for(lambda: log_lines(m1, "Authentication accepted from deaf"), SOON, "it is let in")
        answered = m1.salt("deaf", "test.ping").data or {}
        assert not answered.get("deaf")
        assert log_lines(minion, "Executing command test.ping") == []


def test_one_master_under_two_names_takes_its_own_jobs_for_replayed(lab: Lab, m1: Master) -> None:
    with trapped(lab, "twice", "HA105", master=[m1.address, m1.address]) as minion:
        logged(minion, "Minion is ready to receive requests!", times=2)
        answers(m1, minion)
        m1.salt("twice", "test.echo", "once", PATIENT).check()
        logged(minion, "A message with an invalid serial was received")
        assert len(log_lines(minion, "Executing command test.echo")) == 1


def test_two_masters_at_one_address_both_get_every_return(lab: Lab, m1: Master) -> None:
    # Every port is right: the second one publishes on a port of its own.
    ports = {"publish_port": lab.ports.api, "ret_port": lab.ports.cluster}
    beside = lab.add_master("beside", engine=False, address=m1.address, config=ports)
    beside.publish_port, beside.ret_port = ports["publish_port"], ports["ret_port"]
    m1.share_master_key(beside)
    beside.start()
    masters = [f"{m1.address}:{m1.ret_port}", f"{m1.address}:{beside.ret_port}"]
    with trapped(lab, "both", "HA114", master=masters, publish_port=None) as minion:
        logged(minion, "Minion is ready to receive requests!", times=2)
        answers(m1, minion)
        came = "Got return from both for job"
        wait_for(lambda: log_lines(beside, came), SOON, "the answer comes to the other one, too")
    beside.stop()


def test_without_retries_a_name_that_nobody_knows_is_this_host(lab: Lab, m1: Master) -> None:
    masters = [m1.address, "no-such-master.invalid"]
    chatty = {"log_granular_levels": {"salt.minion": "debug"}}
    with trapped(lab, "local", "HA108", "HA113", master=masters, retry_dns=0, **chatty) as minion:
        logged(minion, f"Master URI: tcp://127.0.0.1:{m1.ret_port}")


def test_a_type_that_salt_does_not_know_ends_the_minion(lab: Lab) -> None:
    with trapped(lab, "typed", "HA216", master_type="hot-hot") as minion:
        logged(minion, "Invalid keyword 'hot-hot' for variable 'master_type'")
        assert minion.bound_to() == []


def test_a_fingerprint_of_another_key_ends_the_minion(lab: Lab) -> None:
    finger = ":".join(["aa"] * 32)
    with trapped(lab, "pinned", master_finger=finger) as minion:
        logged(minion, "Does not match the authenticating master's")
        assert minion.bound_to() == []
        # It has seen the master's key by now, and so has the rule.
        assert said(minion) == {"HA304"}


def test_who_verifies_without_the_key_takes_no_master(lab: Lab) -> None:
    signing = lab.masters["signing"].address
    with trapped(lab, "keyless", "HA301", master=signing, verify_master_pubkey_sign=True) as minion:
        logged(minion, "Verification public key master_sign.pub does not exist")
        assert minion.bound_to() == []


def test_who_does_not_verify_takes_no_master_that_signs(lab: Lab) -> None:
    signing = lab.masters["signing"]
    minion_pki = lab.root / "trusting"
    assert not minion_pki.exists()
    with trapped(lab, "trusting", master=signing.address) as minion:
        logged(minion, "signature verification is not enabled on the minion")
        assert minion.bound_to() == []


def test_rejected_and_retrying_it_never_tries_the_next_master(lab: Lab, m1: Master) -> None:
    signing = lab.masters["signing"]
    masters = [m1.address, signing.address]
    config = {"master": masters, "rejected_retry": True, **PATIENTLY}
    with trapped(lab, "rejected", "HA206", "HA218", **config) as minion:
        minion.kill()  # it may be let in by now
        (m1.pki_dir / "minions" / "rejected").unlink()
        m1.plant("minions_rejected", "rejected", minion.pub)
        minion.start()
        logged(minion, "The Salt Master has rejected this minion's public", times=3)
        assert log_lines(minion, f"tcp://{signing.address}:") == []
