"""Masters that are killed, frozen, or lose what they knew."""

from __future__ import annotations

import contextlib
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import Lab, Master, wait_for
from lab.network import is_free
from tests.integration.conftest import MakeLab
from tests.integration.group import (
    SOON,
    files_of,
    group,
    level,
    log_lines,
    peers,
    plant,
    replica_files,
    row,
    settled,
    shown,
    well,
)


@pytest.fixture(scope="module")
def lab(make_lab: MakeLab) -> Iterator[Lab]:
    with group(make_lab, "m1", "m2") as lab:
        yield lab


@pytest.fixture
def masters(lab: Lab) -> tuple[Master, Master]:
    m1, m2 = lab.masters.values()
    for master in (m1, m2):
        master.start()
    wait_for(lambda: level(m1) and level(m2), SOON, "both masters are well")
    return m1, m2


@pytest.mark.core
def test_what_happened_while_a_master_was_dead_reaches_it(
    lab: Lab, masters: tuple[Master, Master]
) -> None:
    m1, m2 = masters
    deleted = plant(lab, "minions", "dead-deleted", m1, m2)
    plant(lab, "minions_pre", "dead-rejected", m1, m2)
    m2.kill()

    m1.salt_key("-d", "dead-deleted", "-y").check()
    m1.salt_key("-r", "dead-rejected", "-y").check()
    plant(lab, "minions", "dead-accepted", m1)
    assert files_of(m2, "dead-deleted") == {"minions": deleted}

    m2.start()
    shown("dead-deleted", {}, m1, m2)
    for minion_id in ("dead-rejected", "dead-accepted"):
        shown(minion_id, files_of(m1, minion_id), m1, m2)
    settled(lab, m1, m2)
    shown("dead-deleted", {}, m1, m2, timeout=0)


def test_what_was_decided_on_the_survivor_holds(lab: Lab, masters: tuple[Master, Master]) -> None:
    m1, m2 = masters
    key = plant(lab, "minions_pre", "survivor", m1, m2)
    m1.kill()
    m2.salt_key("-a", "survivor", "-y").check()
    shown("survivor", {"minions": key}, m2)
    m1.start()
    shown("survivor", {"minions": key}, m1, m2)


def test_a_master_killed_in_the_middle_of_many_changes_has_them_all_afterwards(
    lab: Lab, masters: tuple[Master, Master]
) -> None:
    m1, m2 = masters
    keys = {f"many{number}": lab.key_pair()[1] for number in range(60)}
    for minion_id, key in keys.items():
        m1.plant("minions", minion_id, key)
    wait_for(lambda: m2.keys()["minions"].keys() & keys.keys(), SOON, "the first of them on m2")
    m2.kill()
    m2.start()
    for minion_id, key in keys.items():
        shown(minion_id, {"minions": key}, m1, m2)


def test_different_keys_accepted_while_apart_are_a_conflict(
    lab: Lab, masters: tuple[Master, Master]
) -> None:
    m1, m2 = masters
    m1.stop()
    first, second = lab.key_pair()[1], plant(lab, "minions", "apart", m2)
    # Each finds its own before it hears of the other.
    wait_for(lambda: m2.control("keys", {"glob": "apart"})["keys"], SOON, "m2 recorded its key")
    m1.plant("minions", "apart", first)
    m1.start()
    wait_for(lambda: m1.control("status")["conflicts"], SOON, "a conflict on m1")
    wait_for(lambda: m2.control("status")["conflicts"], SOON, "a conflict on m2")
    assert files_of(m1, "apart") == {"minions": first.strip()}
    assert files_of(m2, "apart") == {"minions": second}
    m2.salt_key("-d", "apart", "-y").check()
    shown("apart", {}, m1, m2)


@pytest.mark.parametrize("damage", ["lost", "junk"])
def test_a_replica_that_is_gone_or_damaged_brings_no_deleted_key_back(
    lab: Lab, masters: tuple[Master, Master], damage: str
) -> None:
    m1, m2 = masters
    deleted, kept_id, new_id = (f"{damage}-{what}" for what in ("deleted", "kept", "new"))
    plant(lab, "minions", deleted, m1, m2)
    kept = plant(lab, "minions", kept_id, m1, m2)
    m2.stop()
    for path in replica_files(m2):
        path.unlink()
    if damage == "junk":
        (m2.pki_dir / "ha" / "replica.db").write_bytes(b"no database at all" * 1000)
    m1.salt_key("-d", deleted, "-y").check()
    _, new = lab.key_pair()
    m2.plant("minions", new_id, new)
    assert deleted in m2.keys()["minions"]

    m2.start()
    shown(deleted, {}, m1, m2)
    shown(kept_id, {"minions": kept}, m1, m2)
    shown(new_id, {"minions": new}, m1, m2)
    settled(lab, m1, m2)
    shown(deleted, {}, m1, m2, timeout=0)
    if damage == "junk":
        assert list((m2.pki_dir / "ha").glob("replica.db.damaged-*"))
        wait_for(lambda: "damaged" in row(m1, m2)["note"], SOON, "m1 says so")
        m2.stop()
        m2.start()
    well(m2)


def test_a_restored_old_replica_brings_no_deleted_key_back(
    lab: Lab, masters: tuple[Master, Master], tmp_path: Path
) -> None:
    m1, m2 = masters
    plant(lab, "minions", "old-deleted", m1, m2)
    m2.stop()
    backup = [shutil.copy2(path, tmp_path) for path in replica_files(m2)]
    m2.start()
    # Writes of m2 that the copy does not know of: their names must not be used again.
    later = plant(lab, "minions", "old-later", m2, m1)
    m2.salt_key("-d", "old-deleted", "-y").check()
    shown("old-deleted", {}, m1, m2)
    m2.stop()
    for path in replica_files(m2):
        path.unlink()
    for copy in backup:
        shutil.copy2(copy, m2.pki_dir / "ha")

    m2.start()
    new = plant(lab, "minions", "old-new", m2, m1)
    settled(lab, m1, m2)
    shown("old-deleted", {}, m1, m2, timeout=0)
    shown("old-later", {"minions": later}, m1, m2, timeout=0)
    shown("old-new", {"minions": new}, m1, m2, timeout=0)


def test_a_frozen_master_is_unknown_and_hinders_nobody(
    lab: Lab, masters: tuple[Master, Master]
) -> None:
    m1, m2 = masters
    key = plant(lab, "minions_pre", "frozen", m1, m2)
    m2.suspend()
    try:
        status = m1.salt_run("ha.status", timeout=SOON / 2)
        assert status.returncode == 2
        assert status.data["state"] == "degraded"
        assert status.data["tolerates"] == 0
        (peer,) = [entry for entry in status.data["masters"] if entry["name"] == "m2"]
        assert peer["state"] == "unknown"
        assert "timed out" in peer["note"]
        m1.salt_key("-a", "frozen", "-y", timeout=SOON / 2).check()
        shown("frozen", {"minions": key}, m1)
        check = m1.salt_run("ha.check_consistency", timeout=SOON / 2)
        assert check.returncode == 2
        assert "timed out" in check.data["unknown"]["m2"]
        sync = m1.salt_run("ha.sync", timeout=SOON / 2)
        assert sync.returncode == 2
        assert "timed out" in sync.data["unreachable"]["m2"]
        keys = m1.salt_run("ha.keys", "frozen", timeout=SOON / 2)
        assert keys.returncode == 2
        assert keys.data["keys"][0]["states"] == {"m1": "accepted", "m2": "unknown"}
    finally:
        m2.resume()
    shown("frozen", {"minions": key}, m1, m2)
    wait_for(lambda: level(m1) and level(m2), SOON, "both are well")


def test_a_dead_peer_is_logged_once(lab: Lab, masters: tuple[Master, Master]) -> None:
    m1, m2 = masters
    peers(m1)  # it has said that m2 is up, after the test before this one
    before, ups = len(log_lines(m1, "ha peer down")), len(log_lines(m1, "ha peer up"))
    told = len(changes(m1))
    m2.kill()
    # A connection that breaks off at that instant has a reason of its own, and a line.
    wait_for(lambda: "refused" in row(m1, m2)["note"], SOON, "m1 notices")
    downs = len(log_lines(m1, "ha peer down"))
    assert before < downs <= before + 2
    for _ in range(20):  # each of them asks m2 again
        m1.control("status")
    assert m1.salt_run("ha.peers").returncode == 2
    assert len(log_lines(m1, "ha peer down")) == downs
    m2.start()
    wait_for(lambda: row(m1, m2)["state"] == "running", SOON, "m1 sees m2 again")
    wait_for(lambda: len(log_lines(m1, "ha peer up")) > ups, SOON, "and says so")
    # On a busy machine it may be down again for a moment; each change is logged once.
    ways = ["ha peer up: " in line for line in changes(m1)[told:]]
    assert ways == [bool(number % 2) for number in range(len(ways))]


def changes(master: Master) -> list[str]:
    """The lines by which it told that a peer came up or went down."""
    return [
        line
        for line in log_lines(master, "ha peer ")
        if "ha peer up: " in line or "ha peer down: " in line
    ]


def test_something_else_at_the_address_of_a_peer(lab: Lab, masters: tuple[Master, Master]) -> None:
    m1, m2 = masters
    m2.kill()
    # The engine of a master that was killed is gone within a second.
    wait_for(lambda: is_free(m2.address, m2.peer_port), SOON, "the port is free")
    with babbler(m2.address, m2.peer_port):
        wait_for(lambda: "TLS" in row(m1, m2)["note"], SOON, "m1 says what is wrong")
        assert m1.salt_run("ha.status").returncode == 2
    m2.start()
    wait_for(lambda: row(m1, m2)["state"] == "running", SOON, "m2 is taken back")


@contextlib.contextmanager
def babbler(host: str, port: int) -> Iterator[None]:
    """A TCP server that says the same nonsense to everybody."""
    with socket.create_server((host, port)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = server.accept()
                    with client:
                        client.sendall(b"220 smtp.example.com ESMTP ready\r\n" * 4)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(5)
