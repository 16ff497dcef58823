"""Looks for what would keep a version from being served, before any master decides to serve it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from saltext_ha.config.trees import Tree

# Mount points of this process; proc(5). A folder that was mounted from the same file system
# (mount --bind) has the device number of the folder above, so only this list has it.
MOUNTS = Path("/proc/self/mountinfo")
_POINT = 4
_ESCAPED = re.compile(rb"\\([0-7]{3})")


def obstacle(tree: Tree) -> str:
    """
    Why the link that is served cannot be put at the live path, and what to do; empty: it can.

    What rename(2) needs: no mount points, and a user who may write into the folders that change.
    """
    above = Path(os.path.realpath(tree.live.parent))
    mounted = mount_points()
    for path in (tree.live, tree.folder):
        if os.fsencode(above / path.name) in mounted:
            return (
                f"{path} is a mount point, and cannot be exchanged: unmount it, or set  ha: trees: "
                f"{tree.name}: live:  to a folder below a mount point"
            )
    for folder in (above, tree.live, tree.folder):
        real = folder.is_dir() and not folder.is_symlink()
        if real and not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
            if os.statvfs(folder).f_flag & os.ST_RDONLY:
                return f"{folder}: is on a file system that is mounted read-only"
            return f"{folder}: the user of salt-master may not write there, and so not exchange it"
    return ""


def mount_points() -> set[bytes]:
    """The paths where something is mounted."""
    try:
        rows = MOUNTS.read_bytes().splitlines()
    except OSError:
        return set()  # without /proc, the exchange itself says so
    return {_ESCAPED.sub(_plain, row.split()[_POINT]) for row in rows}


def _plain(found: re.Match[bytes]) -> bytes:
    return bytes([int(found[1], 8)])
