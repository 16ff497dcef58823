"""
What is at the live path of a tree: a link to a version, exchanged by one rename. Of a secret tree
it leads to a second link in the closed folder, as everybody may read where the first one leads.
"""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

from saltext_ha.common.errors import HaError
from saltext_ha.common.fail_points import point
from saltext_ha.common.files import sync_dir
from saltext_ha.config.trees import Tree
from saltext_ha.trees.manifest import digest_named
from saltext_ha.trees.obstacles import obstacle

VERSIONS, SERVED, NEXT = "versions", "served", "next"
LINKED, FREE, FOREIGN = "linked", "free", "foreign"

# fcntl.h and linux/fs.h
_HERE, _RENAME_EXCHANGE = -100, 2


class LivePath:
    """The path from which Salt reads *tree*."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def look(self) -> tuple[str, bytes | None]:
        """
        What is at the live path: ``linked`` and the version (None: its folder is gone), ``free``
        (nothing, or an empty folder), or ``foreign``: a folder or a link of somebody else.
        """
        try:
            target = str(self._tree.live.readlink())
        except FileNotFoundError:
            return FREE, None
        except OSError:
            return FREE if _is_empty(self._tree.live) else FOREIGN, None
        if target == f"{self._tree.folder.name}/{SERVED}":
            try:
                target = f"{self._tree.folder.name}/{(self._tree.folder / SERVED).readlink()}"
            except OSError:
                return LINKED, None
        folder, name = os.path.split(target)
        version = digest_named(name)
        if version is None or folder != f"{self._tree.folder.name}/{VERSIONS}":
            return FOREIGN, None
        return LINKED, version if (self._tree.folder / VERSIONS / name).is_dir() else None

    def switch(self, version: bytes, adopt: bool = False) -> Path | None:
        """
        Serve *version*, from one instant to the next.

        :param adopt: whether to move away a foreign folder or link at the live path.
        :return: where that is now, if there was one.
        :raises HaError: nothing can be put there, or something foreign is there, and *adopt* is not
            set.
        """
        self.check()
        live = self.look()[0]
        if live == FOREIGN and not adopt:
            raise HaError(self.foreign())
        new = self._tree.folder / NEXT
        if new.is_symlink():
            new.unlink()
        elif new.exists():  # a crash came after the exchange, before the old folder got its name
            new.rename(self._kept_name())
        target = f"{VERSIONS}/{version.hex()}"
        if self._tree.secret:
            new.symlink_to(target)
            new.replace(self._tree.folder / SERVED)
            sync_dir(self._tree.folder)
            target = SERVED
        new.symlink_to(f"{self._tree.folder.name}/{target}")
        point("tree.switch")
        kept = None
        if live != LINKED and os.path.lexists(self._tree.live):
            exchange(new, self._tree.live)
            if live == FREE:
                new.rmdir()
            else:
                kept = self._kept_name()
                new.rename(kept)
        else:
            new.replace(self._tree.live)
        sync_dir(self._tree.live.parent)
        point("tree.switched")
        return kept

    def check(self) -> None:
        """:raises HaError: no version can be served at the live path; says why, and what to do."""
        if why := obstacle(self._tree):
            raise HaError(why)

    def _kept_name(self) -> Path:
        return self._tree.folder / f"before-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}"

    def foreign(self) -> str:
        """What to do about something foreign at the live path."""
        return (
            f"{self._tree.live} is a folder or a link that was there before; ha.deploy and "
            f"ha.rollback with adopt=True keep it as {self._tree.folder}/before-…"
        )


def exchange(one: Path, other: Path) -> None:
    """
    Let two paths change places. It is atomic where the system can do that (renameat2(2), Linux 3.15
    and most file systems); otherwise nothing is at *other* for an instant.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        done = libc.renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _RENAME_EXCHANGE)
    except AttributeError:  # a C library without it
        done = -1
    if done != 0:
        aside = one.with_name(f"{one.name}.aside")
        other.rename(aside)
        one.rename(other)
        aside.rename(one)


def _is_empty(path: Path) -> bool:
    """Whether *path* is a folder without anything in it."""
    try:
        return not any(path.iterdir())
    except OSError:
        return False
