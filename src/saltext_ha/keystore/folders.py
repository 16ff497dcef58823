"""Where Salt keeps key files: a folder for each state, and how files in them are written."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from saltext_ha.common.fail_points import point
from saltext_ha.common.files import sync_dir
from saltext_ha.replication.record import ACCEPTED, DENIED, PENDING, REJECTED

FOLDERS = {
    ACCEPTED: "minions",
    PENDING: "minions_pre",
    REJECTED: "minions_rejected",
    DENIED: "minions_denied",
}
# Errors of one file, which must not stop the others.
ONE_FILE = (
    errno.EACCES,
    errno.EPERM,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.EIO,
    errno.EBADMSG,
    errno.EUCLEAN,
)


class Folders(NamedTuple):
    """The key folders below *root*; files in them are written with *mode* and owner *uid*."""

    root: Path
    paths: dict[str, str]
    """State → folder."""
    mode: int
    uid: int
    """-1: the user of this process."""

    @classmethod
    def below(cls, root: Path, mode: int, uid: int) -> Folders:
        """The folders that Salt has below *root*."""
        paths = {state: f"{root}/{name}" for state, name in FOLDERS.items()}
        return cls(root, paths, mode, uid)

    def path(self, state: str, minion_id: str) -> str:
        """The key file of an id in the folder of *state*."""
        return f"{self.paths[state]}/{minion_id}"

    def make(self, state: str) -> None:
        """Make the folder of *state*, if it is missing."""
        mode = 0o750 if self.mode == 0o640 else 0o700
        os.makedirs(self.paths[state], mode=mode, exist_ok=True)

    def sync(self, states: Iterable[str]) -> None:
        """Make the entries of the folders of *states* durable."""
        for state in states:
            point("store.sync")
            sync_dir(self.paths[state])
