"""Key folders whose file system becomes read-only under a running engine, and is mended."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.key_folders import public_keys
from lab.wait import wait_for
from tests.functional.reconciler.test_disk import may_mount, mount, unmount
from tests.processes import ACCEPTED, REJECTED, SOON, Group, Master

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not may_mount(), reason="takes root, who may mount"
)

KEYS = dict(zip(("web0", "web1", "web2"), public_keys(3), strict=False))


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    """Two that run; m2's key folders lie on a file system of their own, its state on another."""
    group = Group(tmp_path, "m1", "m2")
    _, m2 = group.masters
    # Where a file is open for writing, as replica.db is, the kernel refuses it.
    for folder in (m2.pki_dir, m2.place.config.state_dir):
        saved = tmp_path / "saved"
        subprocess.run(["cp", "-a", folder, saved], check=True)
        assert mount(folder)
        subprocess.run(["cp", "-a", f"{saved}/.", folder], check=True)
        subprocess.run(["rm", "-r", saved], check=True)
    try:
        for master in group.masters:
            master.knock(KEYS)
            master.accept(*KEYS)
        group.start()
        group.comes_to({(ACCEPTED, name): text for name, text in KEYS.items()})
        yield group
    finally:
        group.kill()
        unmount(m2.place.config.state_dir)
        unmount(m2.pki_dir)


def remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", folder], check=True)


def test_it_is_said_before_anything_is_to_be_written_and_mends_itself(group: Group) -> None:
    m1, m2 = group.masters
    remount(m2.pki_dir, "ro")

    def says_so(master: Master) -> bool:
        m2.ask("sync")  # looks at the store, as is done every minute
        return not master.is_fine()

    for master in group.masters:
        wait_for(lambda m=master: says_so(m), SOON, f"{master.name} says so", poll=0.5)
    assert "cannot be written" in m2.note()
    m1.reject("web0")
    m1.delete("web1")
    wait_for(
        lambda: "not yet written to its key store" in m2.note(), SOON, "m2 has heard", poll=0.1
    )
    assert (ACCEPTED, "web0") in m2.shown()
    # Nothing is lost by a restart meanwhile, and none is needed.
    m2.engine.kill()
    m2.engine.start()
    remount(m2.pki_dir, "rw")
    group.comes_to({(ACCEPTED, "web2"): KEYS["web2"], (REJECTED, "web0"): KEYS["web0"]})
