"""
Puts a version together, beside the versions that are whole.

Files of other versions are linked, not copied. Each new file gets a modification time of its own:
Salt's fileserver tells by that time alone whether the hash that it keeps still holds
(``file_hash`` in ``salt/fileserver/roots.py``, 3006 to 3008).
"""

from __future__ import annotations

import os
import posixpath
import shutil
import stat
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from saltext_ha.common.errors import HaError
from saltext_ha.common.files import open_itself, sync_dir, sync_file_system
from saltext_ha.trees.entries import (
    BLOCK,
    Entries,
    Mark,
    Marks,
    digest_of,
    entries,
    is_as_put,
    mark_of,
)
from saltext_ha.trees.manifest import FILE, FOLDER, LINK, Manifest, Node

# For more files and folders than this, one sync of the file system is cheaper than one of each.
FEW = 64

Find = Callable[[str, Node], "tuple[str, Mark] | None"]
"""Path and node → a verified file with the node's content and mode, and its mark; or None."""

_last_time = 0


class Parts:
    """Contents on their way here: *folder* has a file for each, named by its SHA-256."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, digest: bytes) -> Path:
        return self.folder / digest.hex()

    def length(self, digest: bytes) -> int:
        """How many bytes of a content were fetched already."""
        try:
            return self.path(digest).stat().st_size
        except FileNotFoundError:
            return 0

    def append(self, digest: bytes, offset: int, data: bytes) -> None:
        """Add fetched bytes. :raises HaError: *offset* is not where the file ends."""
        if self.length(digest) != offset:
            raise HaError("a part of a file came out of order")
        with self.path(digest).open("ab") as file:
            file.write(data)

    def forget(self, digest: bytes) -> None:
        self.path(digest).unlink(missing_ok=True)


class Staging:
    """
    One version.

    :param folder: the version is put together there; entries that lie there are used, or removed.
    :param stop: raises to end the work.
    :ivar missing: SHA-256 → the paths that need that content and do not have it yet.
    :ivar marks: the marks of the files that are there.
    """

    def __init__(
        self, folder: Path, manifest: Manifest, parts: Parts, stop: Callable[[], None]
    ) -> None:
        self.folder, self.manifest, self.parts = folder, manifest, parts
        self.missing: dict[bytes, list[str]] = {}
        self.marks: Marks = {}
        self._stop = stop
        self._top = str(folder)
        self._new: list[str] = []
        self._touched: set[str] = set()
        """Folders whose entries are not durable yet."""

    def fill(self, before: Manifest, marks: Marks, find: Find) -> None:
        """
        Make the folders, the links, and all files whose content is on this disk.

        :param before: the manifest that was put into the folder. :param marks: of its files.
        """
        there = entries(self.folder)
        kept = self._keep(there, before, marks)
        for path in sorted(self.manifest.keys() - kept):
            node, full = self.manifest[path], f"{self._top}/{path}"
            self._touched.add(posixpath.dirname(path))
            if node.kind == FOLDER:
                os.mkdir(full, 0o700)
                self._touched.add(path)
            elif node.kind == LINK:
                os.symlink(node.what.decode(), full)
            elif (has := find(path, node)) and self._linked(*has, path):
                self.marks[path] = has[1]
            else:
                self.missing.setdefault(node.what, []).append(path)
            self._stop()

    def _linked(self, has: str, mark: Mark, path: str) -> bool:
        """Link *has* to *path*; returns whether it is there now, unchanged since verified."""
        there = f"{self._top}/{path}"
        try:
            os.link(has, there, follow_symlinks=False)
        except OSError:
            return False  # the file is gone, or has as many links as there can be
        if is_as_put(self.manifest[path], os.lstat(there), mark, self.folder, path):
            return True
        os.unlink(there)
        return False

    def _keep(self, there: Entries, before: Manifest, marks: Marks) -> set[str]:
        """Remove entries that must not be there; returns the paths of the rest."""
        kept = set()
        for path in reversed(there):
            node, mark, status = self.manifest.get(path), marks.get(path), there[path]
            known = node is not None and (node.kind != FILE or before.get(path) == node)
            if node is not None and known and is_as_put(node, status, mark, self.folder, path):
                kept.add(path)
                if mark is not None:
                    self.marks[path] = mark
                continue
            full = f"{self._top}/{path}"
            os.rmdir(full) if stat.S_ISDIR(status.st_mode) else os.unlink(full)
            self._touched.add(posixpath.dirname(path))
            self._stop()
        return kept

    def size(self, digest: bytes) -> int:
        """Bytes of a content that is missing."""
        return self.manifest[self.missing[digest][0]].size

    def needed(self) -> int:
        """Bytes that the missing contents will still take on this disk."""
        return sum(
            self.size(digest) * len(paths) - self.parts.length(digest)
            for digest, paths in self.missing.items()
        )

    def copy(self, digest: bytes, source: Path) -> None:
        """Take a content from a file of this machine; :meth:`settle` verifies it."""
        self.parts.forget(digest)
        with open_itself(source) as file, self.parts.path(digest).open("wb") as part:
            while block := file.read(BLOCK):
                part.write(block)
                self._stop()

    def settle(self, digest: bytes) -> bool:
        """
        Put a content that has come whole at all its paths. If it has another digest, throw it away,
        and return False.
        """
        part, paths = self.parts.path(digest), self.missing[digest]
        if self.size(digest) == 0 and not part.exists():
            part.touch(mode=0o600)
        if part.stat().st_size != self.size(digest) or self._digest(part) != digest:
            part.unlink()
            return False
        for path in paths[1:]:
            shutil.copyfile(part, self.folder / path)
        part.replace(self.folder / paths[0])
        for path in paths:
            self._place(path)
        return True

    def _digest(self, path: Path) -> bytes:
        with path.open("rb") as file:
            return digest_of(file, self._stop)

    def _place(self, path: str) -> None:
        global _last_time
        # Whole microseconds: a float cannot hold a present time more exactly.
        _last_time = max(_last_time + 1, time.time_ns() // 1000)
        full = f"{self._top}/{path}"
        os.chmod(full, self.manifest[path].mode)
        os.utime(full, ns=(_last_time * 1000,) * 2)
        self.marks[path] = mark_of(os.lstat(full))
        self._new.append(path)

    def make_durable(self, mode: int, beside: Iterable[Path] = ()) -> None:
        """
        Finish a whole version: give the folders their modes, and make everything durable.

        :param mode: of the folder itself. :param beside: files to make durable, too.
        """
        folders = [path for path, node in self.manifest.items() if node.kind == FOLDER]
        wanted = {path: self.manifest[path].mode | 0o700 for path in folders} | {"": mode}
        for path, bits in wanted.items():
            full = f"{self._top}/{path}"
            if stat.S_IMODE(os.lstat(full).st_mode) != bits:
                os.chmod(full, bits)
                self._touched.add(path)
            self._stop()
        touched = self._touched & wanted.keys()
        if len(self._new) + len(touched) > FEW:
            sync_file_system(self.folder)
            return
        for file in (*beside, *(self.folder / path for path in self._new)):
            _sync_file(file)
            self._stop()
        for path in touched:
            sync_dir(self.folder / path)
            self._stop()


def _sync_file(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
