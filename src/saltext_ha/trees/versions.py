"""
Which versions of a tree are on this disk, and what is in them; ``store.py`` has them come and go.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgpack

from saltext_ha.common.errors import InvalidRecord
from saltext_ha.common.files import write_whole
from saltext_ha.trees import entries
from saltext_ha.trees import manifest as manifests
from saltext_ha.trees.entries import Marks
from saltext_ha.trees.manifest import FILE, Changes, Manifest, digest_named

MANIFEST, MARKS = ".manifest", ".marks"


class Versions:
    """The versions in *folder*. Several threads may read while one writes."""

    def __init__(self, folder: Path, stop: Callable[[], None]) -> None:
        self.folder = folder
        self._stop = stop
        # Data of versions that are here; forgotten when that version comes or goes.
        self._loaded: dict[bytes, Manifest] = {}
        self._marked: dict[bytes, Marks] = {}
        self._by_content: dict[bytes, dict[bytes, list[str]]] = {}

    def here(self) -> list[bytes]:
        """The versions that are here whole."""
        try:
            names = sorted(entry.name for entry in self.folder.iterdir() if entry.is_dir())
        except FileNotFoundError:
            return []
        found = [version for name in names if (version := digest_named(name))]
        return [v for v in found if (self.folder / f"{v.hex()}{MANIFEST}").exists()]

    def path_of(self, version: bytes) -> Path:
        """The folder of a version, here or not."""
        return self.folder / version.hex()

    def manifest(self, version: bytes) -> Manifest | None:
        """The manifest of a version; None: the version is not here, or the manifest is damaged."""
        if not self.path_of(version).is_dir():  # somebody may have deleted it by hand
            self.forget(version)
            return None
        found = self._loaded.get(version)
        if found is None:
            try:
                data = (self.folder / f"{version.hex()}{MANIFEST}").read_bytes()
                if hashlib.sha256(data).digest() != version:
                    return None
                found = self._loaded[version] = manifests.unpack(data)
            except (FileNotFoundError, InvalidRecord):
                return None
        return found

    def edits(self, version: bytes) -> Changes:
        """
        The changes by hand in a version since it was put there. Files with another mark are read:
        where they were restored, or moved to another disk, the content is the same.
        """
        manifest = self.manifest(version)
        if manifest is None:
            return Changes([], [], [])
        top, marks = self.path_of(version), self.marks(version)
        found = entries.edits(top, manifest, marks, self._stop)
        changed = []
        for path in found.changed:
            if mark := entries.verified(manifest[path], top / path, self._stop):
                marks[path] = mark  # kept at once: if this is given up, it goes on there next time
            else:
                changed.append(path)
        if len(changed) < len(found.changed):
            with contextlib.suppress(OSError):  # they are read again after the next start
                write_whole(self.folder / f"{version.hex()}{MARKS}", packed(marks))
        return found._replace(changed=changed)

    def holder(self, digest: bytes, order: list[bytes]) -> Path | None:
        """A file with that content, as it was put there, in the first of the versions *order*."""
        found = self.with_content(digest, order)
        return next((self.path_of(v) / path for v, path in found if self._is_put(v, path)), None)

    def with_content(self, digest: bytes, order: list[bytes]) -> Iterator[tuple[bytes, str]]:
        """(version, path) of the files that had that content when they were put there."""
        for version in order:
            for path in self._index(version).get(digest, ()):
                yield version, path

    def _index(self, version: bytes) -> dict[bytes, list[str]]:
        index = self._by_content.get(version)
        if index is None:
            index = {}
            for path, node in (self.manifest(version) or {}).items():
                if node.kind == FILE:
                    index.setdefault(node.what, []).append(path)
            self._by_content[version] = index
        return index

    def marks(self, version: bytes) -> Marks:
        """The marks that the files of a version had when verified; empty if they are lost."""
        found = self._marked.get(version)
        if found is None:
            try:
                data = (self.folder / f"{version.hex()}{MARKS}").read_bytes()
                rows = msgpack.unpackb(data)
                found = {path: (ino, at, size) for path, ino, at, size in rows}
            except (OSError, ValueError, TypeError, msgpack.UnpackException):
                found = {}  # all its files are read again, or fetched
            self._marked[version] = found
        return found

    def came(self, version: bytes, manifest: Manifest, marks: Marks) -> None:
        """A version was put here, perhaps in the place of an edited one."""
        self.forget(version)
        self._loaded[version], self._marked[version] = manifest, marks

    def forget(self, version: bytes) -> None:
        """A version goes."""
        for kept in (self._loaded, self._marked, self._by_content):
            kept.pop(version, None)

    def _is_put(self, version: bytes, path: str) -> bool:
        node, top = (self.manifest(version) or {}).get(path), self.path_of(version)
        try:
            status = (top / path).lstat()
        except OSError:
            return False
        mark = self.marks(version).get(path)
        return node is not None and entries.is_as_put(node, status, mark, top, path)


def packed(marks: Marks) -> bytes:
    """Marks as they lie beside a version."""
    found: bytes = msgpack.packb([(path, *mark) for path, mark in [*marks.items()]])
    return found
