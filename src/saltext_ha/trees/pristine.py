"""
Copies of the contents of kept versions, which share no file with what is served.

Versions share unchanged files by hard links. So whoever edits a live file in its place, as many
editors do, changes it in all versions. They are put together again from these copies.

A copy is a clone where the file system has that (XFS, btrfs), and takes no space. Elsewhere copies
are made only while a tenth of the disk stays free. They are verified when they are used, and those
that a power cut has torn are made again; so they need not be durable.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from saltext_ha.common.files import open_itself
from saltext_ha.trees.entries import BLOCK, mark_of, verified
from saltext_ha.trees.manifest import FILE, Node, digest_named

# _IOW(0x94, 9, int) in linux/fs.h. Where it has another number, there are copies instead of clones.
_FICLONE = 0x40049409
FREE = 0.1
"""The part of a disk that copies leave free."""
_NEW = "new"


class Pristine:
    """The copies, in *folder*: a file for each content, named by its SHA-256."""

    def __init__(self, folder: Path, stop: Callable[[], None]) -> None:
        self.folder = folder
        self._stop = stop
        self._compared = False
        """Whether the sizes of the copies were looked at: those of an earlier run may be torn."""
        self._known: set[bytes] | None = None
        self._read: set[bytes] = set()
        """The contents whose copies were found whole."""

    def path(self, digest: bytes) -> Path:
        return self.folder / digest.hex()

    @property
    def digests(self) -> set[bytes]:
        """The contents that have a copy, unless somebody has removed it by hand just now."""
        known = self._known
        if known is None:
            known = self._known = self._listed()
        return known

    def _listed(self) -> set[bytes]:
        try:
            names = [path.name for path in self.folder.iterdir()]
        except FileNotFoundError:
            names = []
        return {digest for name in names if (digest := digest_named(name))}

    def whole(self, digest: bytes) -> Path | None:
        """The copy of that content, if there is one; it is read once, as it may be torn."""
        path = self.path(digest)
        if digest in self.digests and digest not in self._read:
            with contextlib.suppress(FileNotFoundError):
                status = path.lstat()
                node = Node(FILE, stat.S_IMODE(status.st_mode), status.st_size, digest)
                if verified(node, path, self._stop):
                    self._read.add(digest)
                else:
                    self.forget(digest)
        return path if digest in self._read and digest in self.digests else None

    def sizes(self) -> dict[bytes, int]:
        """The bytes of each copy that is there."""
        found = {}
        for digest in list(self.digests):  # a reader may forget one meanwhile
            with contextlib.suppress(FileNotFoundError):
                found[digest] = self.path(digest).stat().st_size
        return found

    def keep(self, sizes: Mapping[bytes, int]) -> None:
        """
        Remove all copies but those of *sizes* (content → bytes); the first time torn ones, too.
        """
        self._known = self._listed()  # somebody may have removed some by hand
        self._read &= self._known
        for digest in self.digests - sizes.keys():
            self.forget(digest)
        if not self._compared:
            there = self.sizes()
            for digest in [each for each in list(self.digests) if there.get(each) != sizes[each]]:
                self.forget(digest)
            self._compared = True

    def forget(self, digest: bytes) -> None:
        self.path(digest).unlink(missing_ok=True)
        self.digests.discard(digest)
        self._read.discard(digest)

    def add(self, digest: bytes, source: Path) -> bool:
        """
        Copy *source*, which has that content, unless it cannot be read or is changed meanwhile.

        :return: whether there is room for a copy.
        :raises OSError: it cannot be written.
        """
        try:
            opened = open_itself(source)
        except OSError:  # root has made it for itself alone, say, or it is gone
            return True
        with opened as file:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            new = self.folder / _NEW
            try:
                return self._copy(digest, file, new)
            finally:
                new.unlink(missing_ok=True)

    def _copy(self, digest: bytes, file: BinaryIO, new: Path) -> bool:
        before = mark_of(os.fstat(file.fileno()))
        with open(new, "wb", opener=_own) as copy:
            if not _cloned(file, copy):
                if not self._has_room(before[2]):
                    return False
                while block := file.read(BLOCK):
                    copy.write(block)
                    self._stop()
        if mark_of(os.fstat(file.fileno())) == before:
            new.replace(self.path(digest))
            self.digests.add(digest)
        return True

    def _has_room(self, size: int) -> bool:
        there = os.statvfs(self.folder)
        return there.f_bavail * there.f_frsize - size > FREE * there.f_blocks * there.f_frsize


def _cloned(file: BinaryIO, copy: BinaryIO) -> bool:
    try:
        fcntl.ioctl(copy.fileno(), _FICLONE, file.fileno())
    except OSError:
        return False  # whatever the reason is, a copy meets it as well
    return True


def _own(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
