"""
Disks that are full or cannot be written for a while, on real engines and real folders.

Nothing may be lost meanwhile: what a peer decided is done when there is room again, and what this
master's operator decided is in the key folder by then (a rename needs no room).
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.key_folders import public_keys
from lab.wait import wait_for
from saltext_ha.common.errors import HaError
from saltext_ha.keystore import minion_key
from tests.processes import ACCEPTED, PENDING, REJECTED, SOON, Group, Keys, Master

KEYS = dict(zip((f"web{number}" for number in range(6)), public_keys(7), strict=False))
ACCEPT, REJECT, DELETE, KEEP = ["web0", "web1"], ["web2"], ["web3"], ["web4"]
UNUSABLE = "cannot be written"


def mount(folder: Path) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder]
    with contextlib.suppress(FileNotFoundError):
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    return False


def unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", folder], check=True)


def may_mount() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        mounted = mount(Path(folder))
        if mounted:
            unmount(Path(folder))
    return mounted


class SmallDisk:
    """A file system of its own, filled up."""

    def __init__(self, master: Master) -> None:
        self._filler = master.place.root / "filler"

    def fill(self) -> None:
        with open(self._filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass

    def free(self) -> None:
        self._filler.unlink()


class LimitedFiles:
    """The kernel refuses to write any byte of any file, to this one process; needs no rights."""

    def __init__(self, master: Master) -> None:
        self._pid = master.engine.pid
        self._before = resource.prlimit(self._pid, resource.RLIMIT_FSIZE)

    def fill(self) -> None:
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, (0, self._before[1]))

    def free(self) -> None:
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, self._before)


# Only root may mount; the other disk is full for anybody.
DISKS = [LimitedFiles, SmallDisk] if os.geteuid() == 0 and may_mount() else [LimitedFiles]


@pytest.fixture
def group(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Group]:
    """Two that run, and show the same keys; m2 may have a file system of its own."""
    small = getattr(request, "param", None) is SmallDisk
    if small:
        (tmp_path / "m2").mkdir()
        assert mount(tmp_path / "m2")
    group = Group(tmp_path, "m1", "m2", roots={"m2": tmp_path / "m2"} if small else {})
    try:
        for master in group.masters:
            # Not as the engine would write them: it has to, and cannot do with a second name.
            master.knock({minion_id: text + "\n" for minion_id, text in KEYS.items()})
            master.accept(*REJECT, *DELETE, *KEEP)
        group.start()
        group.comes_to(keys(ACCEPTED, *REJECT, *DELETE, *KEEP) | keys(PENDING, *ACCEPT, "web5"))
        yield group
    finally:
        group.kill()
        if small:
            unmount(tmp_path / "m2")


def keys(folder: str, *ids: str) -> Keys:
    return {(folder, minion_id): KEYS[minion_id] for minion_id in ids}


def decide(master: Master) -> Keys:
    master.accept(*ACCEPT)
    master.reject(*REJECT)
    master.delete(*DELETE)
    return keys(ACCEPTED, *KEEP, *ACCEPT) | keys(PENDING, "web5") | keys(REJECTED, *REJECT)


def says(master: Master, about: Master, text: str) -> bool:
    rows = master.ask("status")["masters"]
    return any(row["name"] == about.name and text in row["note"] for row in rows)


@pytest.mark.parametrize(
    ("group", "disk"), [(d, d) for d in DISKS], ids=[d.__name__ for d in DISKS], indirect=["group"]
)
def test_a_full_disk_delays_and_loses_nothing(
    group: Group, disk: type[LimitedFiles] | type[SmallDisk]
) -> None:
    m1, m2 = group.masters
    full = disk(m2)
    full.fill()
    expected = decide(m1)
    m1.ask("sync")
    wait_for(lambda: says(m2, m2, UNUSABLE), SOON, "m2 says so")
    wait_for(lambda: says(m1, m2, UNUSABLE), SOON, "m1 shows what m2 says")
    # Its own operator goes on; Salt only renames and removes.
    m2.accept("web5")
    m2.ask("sync")
    assert says(m2, m2, UNUSABLE)
    assert ("minions", "web5") not in m1.shown()
    full.free()
    del expected[PENDING, "web5"]
    group.comes_to(expected | keys(ACCEPTED, "web5"))
    assert m2.rotation.exists()


def test_a_full_disk_is_said_until_something_could_be_written(group: Group) -> None:
    """Also where a later look finds nothing to write: it proves nothing about the disk."""
    m1, m2 = group.masters
    m1.engine.kill()
    full = LimitedFiles(m2)
    full.fill()
    m2.accept("web5")
    m2.ask("sync")
    for _ in range(10):
        m2.ask("sync")
        assert says(m2, m2, UNUSABLE)
    full.free()
    wait_for(lambda: not says(m2, m2, UNUSABLE), SOON, "it says that it can write again")
    wait_for(lambda: ("minions", "web5") in m2.shown(), SOON, "and has written it down")


@pytest.fixture
def torn(tmp_path: Path) -> Iterator[Group]:
    """Two masters with a conflict of ``db``, and a deleted ``web0``; m2 has lost many keys."""
    group = Group(tmp_path, "m1", "m2")
    many = dict(zip((f"app{number}" for number in range(12)), public_keys(1), strict=False))
    try:
        for master, text in zip(group.masters, public_keys(2), strict=False):
            master.knock({minion_id: key + "\n" for minion_id, key in (many | KEYS).items()})
            master.knock({"db": text + "\n"})
            master.accept(*many, "db", "web0")
        group.start()
        m1, m2 = group.masters
        for master in group.masters:
            wait_for(lambda m=master: conflicts(m) == ["db"], SOON, "all know of both keys")
        m1.delete("web0")
        m1.ask("sync")
        wait_for(lambda: (ACCEPTED, "web0") not in m2.shown(), SOON, "m2 follows")
        m2.delete(*many)
        wait_for(lambda: held(m2) == len(many), SOON, "m2 holds them back")
        yield group
    finally:
        group.kill()


def conflicts(master: Master) -> list[str]:
    return [conflict["id"] for conflict in master.ask("status").get("conflicts", ())]


def held(master: Master) -> int:
    return sum(row["keys"] for row in master.ask("status").get("held", ()))


def test_what_an_operator_orders_on_a_full_disk_is_refused(torn: Group) -> None:
    m1, m2 = torn.masters
    kept = minion_key.show(minion_key.fingerprint(m1.shown()[ACCEPTED, "db"]), short=False)
    orders: dict[str, dict[str, str]] = {
        "pause": {},
        "resolve": {"minion": "db", "fingerprint": kept},
        "restore": {"minion": "web0"},
        "release": {"deletes": 12},
        "refill": {},
    }
    disk = LimitedFiles(m2)
    disk.fill()
    for command, payload in orders.items():
        with pytest.raises(HaError, match=f"replica.db: {UNUSABLE}.* not done.* the command again"):
            m2.engine.control(command, payload)
    many = m2.engine.control("restore", {"minion": "web*", "since": "1h"})
    assert (many["changes"], many["retcode"]) == ([], 1)
    assert UNUSABLE in many["notes"][0]
    everywhere = m1.engine.control("pause", {"all": True})
    assert everywhere["retcode"] == 2
    assert "m2: not done: " in everywhere["notes"][-1]
    assert UNUSABLE in everywhere["notes"][-1]
    assert m1.engine.control("resume", {})["retcode"] == 0
    disk.free()
    wait_for(lambda: UNUSABLE not in m2.note(), SOON, "m2 can write")
    assert "paused" not in m2.note()
    assert conflicts(m2) == ["db"]
    assert held(m2) == 12
    for command in ("resolve", "restore", "release"):
        assert m2.engine.control(command, orders[command])["retcode"] == 0
    torn.comes_to(
        {(ACCEPTED, "db"): m1.shown()[ACCEPTED, "db"]}
        | keys(ACCEPTED, "web0")
        | keys(PENDING, *(KEYS.keys() - {"web0"}))
    )
    assert m2.engine.control("pause", {})["notes"]
    assert "paused" in m2.note()


@pytest.mark.parametrize("error", ["ENOSPC", "EROFS", "EIO"])
@pytest.mark.parametrize("point", ["store.write", "store.rename", "store.sync", "store.remove"])
def test_a_key_folder_that_cannot_be_written(group: Group, point: str, error: str) -> None:
    m1, m2 = group.masters
    with m2.failing(f"{error} {point}"):
        expected = decide(m1)
        m1.ask("sync")
        wait_for(lambda: m2.note(), SOON, "m2 says so")
        wait_for(lambda: m1.shown() == expected, SOON, "m1 is not held up")
    group.comes_to(expected)
    assert m2.rotation.exists()


def test_a_rotation_that_fails_is_made_up_for(group: Group) -> None:
    m1, m2 = group.masters
    with m2.failing("ENOSPC revoke.rotate"):
        expected = decide(m1)
        m1.ask("sync")
        wait_for(lambda: m2.shown() == expected, SOON, "m2 follows")
        wait_for(lambda: "a revoked minion may still hear jobs" in m2.note(), SOON, "m2 says so")
        assert not m2.rotation.exists()
    m2.ask("sync")
    wait_for(m2.rotation.exists, SOON, "m2 rotates its AES key")
    group.comes_to(expected)
