"""Two masters with one key store between them, and a third that has its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import salt.cache
import salt.config

from lab import Lab, Master, wait_for
from tests.integration.conftest import MakeLab
from tests.integration.group import (
    QUICK,
    SOON,
    Three,
    configure,
    files_of,
    level,
    log_lines,
    plant,
    shown,
)

pytestmark = pytest.mark.core
HAS_DRIVERS = "keys.cache_driver" in salt.config.DEFAULT_MASTER_OPTS
KEY_FOLDERS = ("minions", "minions_pre", "minions_rejected", "minions_denied")


@pytest.fixture(scope="module")
def lab(make_lab: MakeLab) -> Iterator[Lab]:
    """m1 and m2 keep their keys in one folder, as on a network file system; outside has its own."""
    ha = {**QUICK, "scan_interval": 3}  # so long an old signature may be seen
    with make_lab() as lab:
        m1, m2, outside = (lab.add_master(name, ha=ha) for name in ("m1", "m2", "outside"))
        shutil.rmtree(m2.pki_dir)
        m2.pki_dir.symlink_to(m1.pki_dir)
        m1.share_master_key(outside)
        yield lab


@pytest.fixture
def masters(lab: Lab) -> Three:
    m1, m2, outside = lab.masters.values()
    return m1, m2, outside


def url(master: Master) -> str:
    return f"https://{master.address}:{master.peer_port}"


def tree(folder: Path, *names: str) -> dict[str, tuple[int, int, bytes]]:
    """What is in the key folders, or *names*, with signatures, and when it was written."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_ino,
            path.lstat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for name in names or KEY_FOLDERS
        for path in sorted((folder / name).glob("*"))
    }


def test_one_state_folder_is_not_for_two(masters: Three) -> None:
    m1, m2, _ = masters
    m1.start()
    m2.start(wait_engine=False)
    (line,) = wait_for(lambda: log_lines(m2, "ha engine not started"), SOON, "m2's log says why")
    for words in (str(m2.pki_dir / "ha"), "another ha engine", "ha: state_dir"):
        assert words in line
    # And where an operator looks: on the one that is turned away, and on the other.
    status = m2.salt_run("ha.status")
    assert status.returncode == 2
    assert f"that of m1 ({url(m1)})" in status.data["error"]
    # Exit code 2 until its first round of questions about itself has ended.
    there = wait_for(
        lambda: (asked := m1.salt_run("ha.status")).returncode == 1 and asked,
        SOON,
        "m1 knows that it serves",
    )
    assert f"m2 ({url(m2)}) has the same state folder" in there.data["masters"][0]["note"]
    for master in (m1, m2):
        findings = master.salt_run("ha.lint", only="HA518").data["findings"]
        assert [finding["on"] for finding in findings] == [master.name]
    m2.stop()
    m1.stop()


def test_who_has_the_state_folder_of_another_founds_no_group(masters: Three) -> None:
    """As in containers with one volume for /etc/salt/pki: it would take all masters for itself."""
    m1, m2, _ = masters
    secret = m1.root / "secret"
    secret.write_text("0123456789abcdef" * 2)
    secret.chmod(0o600)
    before = [(master, master.config_file.read_text()) for master in (m1, m2)]
    for master, _ in before:
        configure(master, ha={"masters": [url(m1), url(m2)], "secret_file": str(secret)})
    try:
        m1.start()
        for options in ({"test": True}, {}):
            joined = m2.salt_ha("join", "wait=1", **options)
            assert joined.returncode == 2
            for words in ("another ha engine", f"that of m1 ({url(m1)})", "ha: state_dir"):
                assert words in joined.data["error"]
            notes = m1.control("status")["masters"][0]["note"]
            assert ("has the same state folder" in notes) is not options.get("test", False)
        m1.stop()
        m1.start()
        assert "state folder" not in m1.control("status")["masters"][0]["note"]
    finally:
        m1.stop()
        for master, text in before:
            master.config_file.write_text(text)


def test_a_shared_folder_is_only_reported_on(lab: Lab, masters: Three) -> None:
    m1, m2, outside = masters
    for master in (m1, m2):
        configure(master, ha={"state_dir": str(master.root / "ha")})
    lab.start_all()
    lab.form_group([m1, m2])
    wait_for(
        lambda: {m.control("status")["mode"] for m in (m1, m2)} == {"observe"}, SOON, "told apart"
    )
    key = plant(lab, "minions_pre", "shared1", m1)
    m2.salt_key("-a", "shared1", "-y").check()
    lab.form_group([m1, outside])
    shown("shared1", {"minions": key}, outside)
    before = tree(m1.pki_dir)

    only = plant(lab, "minions", "outside1", outside)
    outside.salt_key("-d", "shared1", "-y").check()
    differ = {"shared1", "outside1"}
    for master in (m1, m2):
        wait_for(lambda m=master: pending(m) == differ, SOON, f"{master.name} knows")
    answer = m1.salt_run("ha.sync").data
    assert answer["changes"] == []
    assert [note.split(":")[0] for note in answer["notes"]] == ["m1", "m2"]
    status = m2.salt_run("ha.status")
    while status.returncode == 2:  # until all three were compared; the test has its time limit
        status = m2.salt_run("ha.status")
    assert (status.returncode, status.data["mode"]) == (1, "observe")
    assert "its key store is that of m1, too" in str(status.data["notes"])
    refused = m1.salt_run("ha.resume")
    assert (refused.returncode, "never written" in refused.data["error"]) == (2, True)
    check = outside.salt_run("ha.check_consistency").data["sections"]["keys"]
    assert {difference["path"] for difference in check["differences"]} == differ
    assert tree(m1.pki_dir) == before
    assert files_of(m1, "shared1") == {"minions": key}
    assert files_of(outside, "outside1") == {"minions": only}


def pending(master: Master) -> set[str]:
    """The ids that ``ha.sync test=True`` would change on *master*."""
    changes = master.control("sync", {"test": True})["changes"]
    return {change["id"] for change in changes if change["master"] == master.name}


def test_it_is_not_written_when_the_other_cannot_be_asked(lab: Lab, masters: Three) -> None:
    """m1 starts again while m2 is down: it knows from before whose folder it is."""
    m1, m2, outside = masters
    before = tree(m1.pki_dir)
    for master in (m2, m1):
        master.stop()
    m1.start()
    plant(lab, "minions", "outside2", outside)
    wait_for(lambda: "outside2" in pending(m1), SOON, "m1 has heard")
    m1.salt_run("ha.sync")
    assert m1.control("status")["mode"] == "observe"
    assert tree(m1.pki_dir) == before


def test_a_folder_of_its_own_is_written_again(lab: Lab, masters: Three) -> None:
    m1, m2, outside = masters
    m2.stop()
    former = tree(m1.pki_dir)
    m2.pki_dir.unlink()
    shutil.copytree(m1.pki_dir, m2.pki_dir, symlinks=True)
    m2.start()
    for master in (m1, m2):
        shown("outside2", files_of(outside, "outside2"), master)
        shown("shared1", {}, master)
    assert tree(m1.pki_dir) != former
    wait_for(lambda: all(map(level, masters)), SOON, "all are level")
    assert {master.control("status")["mode"] for master in masters} == {"enforce"}


@pytest.mark.skipif(not HAS_DRIVERS, reason="keys.cache_driver is new in 3008")
def test_a_shared_database_is_only_reported_on(make_lab: MakeLab) -> None:
    """The driver of Salt's that needs no server: with one cachedir for both, as on a network."""
    with make_lab() as lab:
        ha = {**QUICK, "scan_interval": 1}
        database = {"keys.cache_driver": "localfs"}
        m1, m2 = (lab.add_master(name, ha=ha, config=database) for name in ("m1", "m2"))
        outside = lab.add_master("outside", ha=QUICK)
        cachedir = Path(m1.opts["cachedir"])
        shutil.rmtree(m2.opts["cachedir"])
        Path(m2.opts["cachedir"]).symlink_to(cachedir)
        for master in (m1, m2, outside):
            master.start()  # one by one: they make their keys in that database, too
        lab.form_group([m1, m2])
        wait_for(
            lambda: {m.control("status")["mode"] for m in (m1, m2)} == {"observe"}, SOON, "told"
        )
        keys = salt.cache.Cache(dict(m1.opts), driver="localfs")
        text = lab.key_pair()[1].strip()
        # As a worker does: salt-key of 3008.3 cannot list what this driver holds.
        keys.store("keys", "db1", {"state": "accepted", "pub": text})
        lab.form_group([m1, outside])
        shown("db1", {"minions": text}, outside)
        before = tree(cachedir, "keys", "denied_keys")

        plant(lab, "minions", "outside1", outside)
        outside.salt_key("-d", "db1", "-y").check()
        for master in (m1, m2):
            wait_for(lambda m=master: pending(m) == {"db1", "outside1"}, SOON, "it is known")
        assert m1.salt_run("ha.sync").data["changes"] == []
        assert "its key store is that of m1, too" in str(m2.salt_run("ha.status").data["notes"])
        assert tree(cachedir, "keys", "denied_keys") == before
        assert keys.fetch("keys", "db1")["state"] == "accepted"
