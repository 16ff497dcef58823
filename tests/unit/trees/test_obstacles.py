"""What keeps a version from being served is seen before anything changes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from saltext_ha.config.trees import Tree
from saltext_ha.trees import obstacles
from saltext_ha.trees.obstacles import obstacle

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="mounts, and becomes another user")
SHOW = """
import sys
from pathlib import Path
from saltext_ha.config.trees import Tree
from saltext_ha.trees.obstacles import obstacle
print(obstacle(Tree("states", Path(sys.argv[1]))))
"""


def test_a_folder_and_nothing_and_a_link_can_be_exchanged(tmp_path: Path) -> None:
    tree = Tree("states", tmp_path / "live")
    assert obstacle(tree) == ""
    tree.live.mkdir()
    assert obstacle(tree) == ""
    tree.live.rmdir()
    tree.live.symlink_to("/proc")  # a mount point, but the link is none
    assert obstacle(tree) == ""


def test_mount_points_are_found_by_their_real_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tmp_path / "with a space"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    tree = Tree("states", tmp_path / "link" / "live")
    for name in ("live", ".live.ha"):
        listed = tmp_path / "mountinfo"
        listed.write_text(f"1 2 0:3 / {tmp_path}/with\\040a\\040space/{name} rw - tmpfs none rw\n")
        monkeypatch.setattr(obstacles, "MOUNTS", listed)
        assert f"{tmp_path}/link/{name} is a mount point" in obstacle(tree)
    monkeypatch.setattr(obstacles, "MOUNTS", tmp_path / "nothing")
    assert obstacle(tree) == ""


@root_only
@pytest.mark.parametrize("mount", ["mount -t tmpfs none $0", "mount --bind $0 $0"])
def test_a_real_mount_point(tmp_path: Path, mount: str) -> None:
    (tmp_path / "live").mkdir()
    said = where_mounted(tmp_path / "live", mount, tmp_path / "live")
    assert f"{tmp_path / 'live'} is a mount point" in said


def where_mounted(folder: Path, mount: str, live: Path) -> str:
    """The obstacle at *live* where *folder* is mounted by the command *mount*, as its ``$0``."""
    command = ["unshare", "-m", "sh", "-ec", f'{mount}; exec "$@"', str(folder)]
    made = subprocess.run([*command, "true"], check=False, capture_output=True)
    if made.returncode:
        pytest.skip("this root may not mount")
    asked = [*command, sys.executable, "-c", SHOW, str(live)]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout


@root_only
def test_a_file_system_that_is_mounted_read_only(tmp_path: Path) -> None:
    """Linux does that by itself, when a disk fails: no owner of a folder mends it."""
    said = where_mounted(tmp_path, "mount -t tmpfs -o ro none $0", tmp_path / "live")
    assert said.startswith(f"{tmp_path}: is on a file system that is mounted read-only")


@root_only
def test_folders_that_the_user_may_not_change() -> None:
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        top.chmod(0o755)
        (top / "live").mkdir()
        tree = Tree("states", top / "live")
        tree.folder.mkdir()  # as after  chown -R root .live.ha
        places = (top, top / "live", tree.folder, None)
        for owned, refused in zip((None, *places), places, strict=False):
            if owned:
                os.chown(owned, 65534, 65534)
            os.seteuid(65534)
            try:
                assert obstacle(tree).partition(":")[0] == str(refused or "")
            finally:
                os.seteuid(0)
