"""
The versions of one tree on this disk, beside the folder that is served::

    /srv/salt -> .salt.ha/versions/<id>     what is served: a link, exchanged by one rename
    /srv/.salt.ha/versions/<id>/            a version, whole and verified
    /srv/.salt.ha/versions/<id>.manifest    what is in it
    /srv/.salt.ha/versions/<id>.marks       inode, time and size that its files had when verified
    /srv/.salt.ha/staging/<id>/             one that is being put together
    /srv/.salt.ha/staging/parts/<sha256>    a file that is being fetched
    /srv/.salt.ha/before-<time>             what was served before the first deployment

Files that did not change are hard links between versions. Each new file gets a modification time
of its own: Salt's fileserver knows by that alone whether the hash that it keeps still holds
(``file_hash`` in ``salt/fileserver/roots.py``, 3006 to 3008).
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack

from saltext_ha.common.errors import HaError, InvalidRecord
from saltext_ha.common.fail_points import point
from saltext_ha.common.files import sync_dir, write_whole
from saltext_ha.config.trees import Tree
from saltext_ha.trees import manifest as manifests
from saltext_ha.trees.manifest import FILE, FOLDER, LINK, Changes, Manifest

BLOCK = 1 << 20
NEXT = "next"
ENDS = (".manifest", ".marks")
# With more new files than these, one sync of the file system is cheaper than one of each.
FEW = 32
LINKED, FREE, FOREIGN = "linked", "free", "foreign"

# fcntl.h and linux/fs.h
_HERE, _RENAME_EXCHANGE = -100, 2
_HEX = re.compile("[0-9a-f]{64}")

Marks = dict[str, tuple[int, int, int]]


class Staging:
    """
    A version that is being put together.

    :ivar missing: SHA-256 → the paths that need that content and do not have it yet.
    :ivar marks: of the files that are there.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self.missing: dict[bytes, list[str]] = {}
        self.marks: Marks = {}
        self.new = 0

    def size(self, digest: bytes) -> int:
        """Bytes of a content that is missing."""
        return self.manifest[self.missing[digest][0]].size


class TreeStore:
    """
    Of one *tree*. Several threads may read while one writes. What fails raises OSError or HaError.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._versions = tree.folder / "versions"
        self._staging = tree.folder / "staging"
        self._parts = self._staging / "parts"
        # Of versions that are here; forgotten when one comes or goes.
        self._loaded: dict[bytes, Manifest] = {}
        self._marked: dict[bytes, Marks] = {}
        self._by_content: dict[bytes, dict[bytes, str]] = {}
        self._last_time = 0

    # -- what there is

    def versions(self) -> list[bytes]:
        """The versions that are here whole."""
        try:
            names = sorted(entry.name for entry in self._versions.iterdir() if entry.is_dir())
        except FileNotFoundError:
            return []
        found = []
        for name in names:
            with contextlib.suppress(ValueError):
                if len(name) == 64 and (self._versions / f"{name}.manifest").exists():
                    found.append(bytes.fromhex(name))
        return found

    def path_of(self, version: bytes) -> Path:
        """Where a version is."""
        return self._versions / version.hex()

    def manifest(self, version: bytes) -> Manifest | None:
        """What is in a version; None: it is not here, or is damaged."""
        if not self.path_of(version).is_dir():  # somebody may have deleted it by hand
            self._forget(version)
            return None
        found = self._loaded.get(version)
        if found is None:
            try:
                data = (self._versions / f"{version.hex()}.manifest").read_bytes()
                if hashlib.sha256(data).digest() != version:
                    return None
                found = self._loaded[version] = manifests.unpack(data)
            except (FileNotFoundError, InvalidRecord):
                return None
        return found

    def live(self) -> tuple[str, bytes | None]:
        """
        What is at the live path: ``linked`` and which version (None: that folder is gone), ``free``
        (nothing, or an empty folder), or ``foreign``: a folder or a link that is none of ours.
        """
        try:
            target = str(self.tree.live.readlink())
        except FileNotFoundError:
            return FREE, None
        except OSError:
            return FREE if _is_empty(self.tree.live) else FOREIGN, None
        folder, name = os.path.split(target)
        if folder == f"{self.tree.folder.name}/versions":
            with contextlib.suppress(ValueError):
                version = bytes.fromhex(name)
                return LINKED, version if self.path_of(version).is_dir() else None
        return FOREIGN, None

    def edits(self, version: bytes) -> Changes:
        """What somebody has changed by hand in a version since it was put there."""
        manifest = self.manifest(version)
        if manifest is None:
            return Changes([], [], [])
        marks, top = self._marks(version), self.path_of(version)
        there = dict(_entries(top, ""))
        changed = [
            path
            for path, node in manifest.items()
            if path in there and not _is_as_marked(node, there[path], marks.get(path), top / path)
        ]
        added = [path for path in there if path not in manifest]
        return Changes(sorted(added), sorted(changed), sorted(manifest.keys() - there.keys()))

    def holder(self, digest: bytes) -> Path | None:
        """A file here with that content, as far as is known without reading it."""
        for version in reversed(self._in_order()):
            path = self._index(version).get(digest)
            if path is not None and self._is_verified(version, path):
                return self.path_of(version) / path
        return None

    def _index(self, version: bytes) -> dict[bytes, str]:
        if version not in self._by_content:
            entries = (self.manifest(version) or {}).items()
            self._by_content[version] = {n.what: path for path, n in entries if n.kind == FILE}
        return self._by_content[version]

    def _in_order(self) -> list[bytes]:
        """The versions that are here, that which is served last."""
        live = self.live()[1]
        return sorted(self.versions(), key=lambda version: version == live)

    def _forget(self, version: bytes) -> None:
        for kept in (self._loaded, self._marked, self._by_content):
            kept.pop(version, None)

    # -- a new version

    def begin(self, version: bytes, manifest: Manifest) -> Staging:
        """
        Put together what is here of a version: folders, links, and files that other versions have.

        What an earlier attempt has fetched is used; all else of it is removed.
        """
        self._make_folders()
        folder = self._staging / version.hex()
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(mode=0o700)
        staging = Staging(folder, manifest)
        known = self._known()
        top = str(folder)
        for path, node in sorted(manifest.items()):
            if node.kind == FOLDER:
                Path(top, path).mkdir(mode=0o700)
            elif node.kind == LINK:
                Path(top, path).symlink_to(node.what.decode())
            elif (has := known.get((node.what, node.mode))) and _link(has, f"{top}/{path}"):
                staging.marks[path] = has[1]
            else:
                staging.missing.setdefault(node.what, []).append(path)
        point("tree.linked")
        return staging

    def _known(self) -> dict[tuple[bytes, int], tuple[str, tuple[int, int, int]]]:
        """(SHA-256, mode) → a verified file with its mark, in any version; the live one counts."""
        known = {}
        for version in self._in_order():
            marks, top = self._marks(version), str(self.path_of(version))
            for path, node in (self.manifest(version) or {}).items():
                if node.kind == FILE and path in marks:
                    known[node.what, node.mode] = (f"{top}/{path}", marks[path])
        return known

    def part(self, digest: bytes) -> int:
        """How many bytes of a content were fetched already."""
        try:
            return (self._parts / digest.hex()).stat().st_size
        except FileNotFoundError:
            return 0

    def append(self, digest: bytes, offset: int, data: bytes) -> None:
        """Add what was fetched. :raises HaError: it does not follow what is there."""
        if self.part(digest) != offset:
            raise HaError("a part of a file came out of order")
        with (self._parts / digest.hex()).open("ab") as file:
            file.write(data)

    def forget(self, digest: bytes) -> None:
        """Begin anew with a content."""
        (self._parts / digest.hex()).unlink(missing_ok=True)

    def settle(self, staging: Staging, digest: bytes) -> bool:
        """
        Put a content that was fetched whole where it belongs.

        :return: whether it is what it should be; else it was thrown away.
        """
        part = self._parts / digest.hex()
        paths = staging.missing[digest]
        if staging.size(digest) == 0 and not part.exists():
            part.touch(mode=0o600)
        if part.stat().st_size != staging.size(digest) or _digest(part) != digest:
            part.unlink()
            return False
        sync = len(staging.missing) <= FEW
        for path in paths[1:]:
            self._place(Path(shutil.copyfile(part, staging.folder / path)), staging, path, sync)
        part.replace(staging.folder / paths[0])
        self._place(staging.folder / paths[0], staging, paths[0], sync)
        staging.new += len(paths)
        return True

    def _place(self, file: Path, staging: Staging, path: str, sync: bool) -> None:
        # Microseconds: what a float holds of a time today.
        self._last_time = max(self._last_time + 1, time.time_ns() // 1000)
        with file.open("rb") as opened:
            os.fchmod(opened.fileno(), staging.manifest[path].mode)
            os.utime(opened.fileno(), ns=(self._last_time * 1000,) * 2)
            staging.marks[path] = _mark(os.fstat(opened.fileno()))
            if sync:
                os.fsync(opened.fileno())

    def finish(self, version: bytes, staging: Staging) -> None:
        """It is whole: from here on it is among the versions."""
        folders = [path for path, node in staging.manifest.items() if node.kind == FOLDER]
        for path in sorted(folders, reverse=True):
            (staging.folder / path).chmod(staging.manifest[path].mode | 0o700)
        staging.folder.chmod(0o700 if self.tree.secret else 0o755)
        name = version.hex()
        packed = msgpack.packb([[path, *mark] for path, mark in staging.marks.items()])
        write_whole(self._versions / f"{name}.marks", packed)
        write_whole(self._versions / f"{name}.manifest", manifests.pack(staging.manifest))
        if staging.new > FEW:
            os.sync()
        else:
            for path in ("", *folders):
                sync_dir(staging.folder / path)
        point("tree.staged")
        there = self.path_of(version)
        if there.exists():  # damaged, or edited by hand: kept, and out of the way
            # Under its last name at once: a crash must not leave the edits where it is tidied.
            aside = self._versions / f"{name}.edited-{time.time_ns()}"
            staging.folder.rename(aside)
            exchange(aside, there)
        else:
            staging.folder.rename(there)
        sync_dir(self._versions)
        self._forget(version)

    # -- what is served

    def switch(self, version: bytes, adopt: bool = False) -> Path | None:
        """
        Serve *version*, from one instant to the next.

        :param adopt: whether something at the live path that is none of ours is moved away.
        :return: where that is now, if there was any.
        :raises HaError: something else is at the live path, and not to be adopted.
        """
        live = self.live()[0]
        if live == FOREIGN and not adopt:
            raise HaError(self.foreign())
        if self.manifest(version) is None:
            raise HaError(f"{self.path_of(version)}: is not there")
        new = self.tree.folder / NEXT
        if new.is_symlink():
            new.unlink()
        elif new.exists():  # a crash came after the exchange, and before it got its name
            new.rename(self._kept_name())
        new.symlink_to(f"{self.tree.folder.name}/versions/{version.hex()}")
        point("tree.switch")
        kept = None
        if live != LINKED and os.path.lexists(self.tree.live):
            exchange(new, self.tree.live)
            if live == FREE:
                new.rmdir()
            else:
                kept = self._kept_name()
                new.rename(kept)
        else:
            new.replace(self.tree.live)
        sync_dir(self.tree.live.parent)
        point("tree.switched")
        return kept

    def _kept_name(self) -> Path:
        return self.tree.folder / f"before-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}"

    def foreign(self) -> str:
        """What to do about something at the live path that is none of ours."""
        return (
            f"{self.tree.live} is a folder or a link that was there before; with adopt=True it is "
            f"kept as {self.tree.folder}/before-…"
        )

    def keep(self, versions: set[bytes]) -> list[str]:
        """
        Remove all versions but these, and what is served; those that somebody has edited stay.

        :return: the names of such.
        """
        stay = versions | {self.live()[1] or b""}
        edited = []
        for version in self.versions():
            if version in stay:
                continue
            if any(self.edits(version)):
                edited.append(version.hex()[:12])
                continue
            path = self.path_of(version)
            # The manifest first: without it, what is left of a version is none.
            for end in ENDS:
                path.with_name(f"{path.name}{end}").unlink(missing_ok=True)
            shutil.rmtree(path)
            self._forget(version)
        for left in self._left_over():
            shutil.rmtree(left) if _is_folder(left) else left.unlink(missing_ok=True)
        return edited

    def _left_over(self) -> list[Path]:
        """What was being put together, or removed, when that was cut."""
        left = [path for path in _in(self._staging) if path != self._parts] + _in(self._parts)
        for path in _in(self._versions):
            name, end = path.name[:64], path.name[64:]
            if not _HEX.fullmatch(name):
                continue
            whole = (self._versions / name).is_dir()
            manifest = (self._versions / f"{name}{ENDS[0]}").exists()
            if (end in ENDS and not whole) or (not end and not manifest):
                left.append(path)
        return left

    def close(self) -> None:
        """Close it to other users where it is secret, and only there; it may not be here yet."""
        for folder in (self.tree.folder, self._versions):
            with contextlib.suppress(FileNotFoundError):
                folder.chmod(0o700 if self.tree.secret else 0o755)

    # -- below

    def _make_folders(self) -> None:
        for folder in (self.tree.folder, self._versions):
            folder.mkdir(mode=0o755, exist_ok=True)
        self.close()
        for folder in (self._staging, self._parts):
            folder.mkdir(mode=0o700, exist_ok=True)

    def _marks(self, version: bytes) -> Marks:
        if version not in self._marked:
            try:
                data = (self._versions / f"{version.hex()}.marks").read_bytes()
                rows = msgpack.unpackb(data)
                self._marked[version] = {path: (ino, at, size) for path, ino, at, size in rows}
            except (OSError, ValueError, TypeError, msgpack.UnpackException):
                return {}  # all of it is fetched again
        return self._marked[version]

    def _is_verified(self, version: bytes, path: str) -> bool:
        try:
            status = (self.path_of(version) / path).lstat()
        except OSError:
            return False
        return stat.S_ISREG(status.st_mode) and _mark(status) == self._marks(version).get(path)


def exchange(one: Path, other: Path) -> None:
    """
    Let two paths change places, at once where the system can do that (renameat2(2), Linux 3.15 and
    most file systems); else there is nothing at *other* for an instant.
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
    """Whether it is a folder without anything in it."""
    try:
        return not any(path.iterdir())
    except OSError:
        return False


def _in(folder: Path) -> list[Path]:
    return [*folder.iterdir()] if folder.is_dir() else []


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _mark(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_mtime_ns, status.st_size


def _link(has: tuple[str, tuple[int, int, int]], there: str) -> bool:
    """Whether *there* became a hard link to a file that is as it was when it was verified."""
    path, mark = has
    try:
        os.link(path, there, follow_symlinks=False)
    except OSError:
        return False  # gone, or it has as many links as there can be
    status = os.lstat(there)
    if stat.S_ISREG(status.st_mode) and _mark(status) == mark:
        return True
    Path(there).unlink()
    return False


def _is_as_marked(node: manifests.Node, status: os.stat_result, mark: Any, path: Path) -> bool:
    if node.kind == FILE:
        return stat.S_ISREG(status.st_mode) and _mark(status) == mark
    if node.kind == FOLDER:
        return stat.S_ISDIR(status.st_mode)
    return stat.S_ISLNK(status.st_mode) and os.fsencode(path.readlink()) == node.what


def _entries(top: Path, below: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(top / below) as entries:
        listed = list(entries)
    for entry in listed:
        path = f"{below}/{entry.name}" if below else entry.name
        yield path, entry.stat(follow_symlinks=False)
        if entry.is_dir(follow_symlinks=False):
            yield from _entries(top, path)


def _digest(path: Path) -> bytes:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            found.update(block)
    return found.digest()


def copy_part(store: TreeStore, digest: bytes, path: Path) -> None:
    """Take a content from a file of this machine, which :meth:`TreeStore.settle` verifies."""
    store.forget(digest)
    offset = 0
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        while block := file.read(BLOCK):
            store.append(digest, offset, block)
            offset += len(block)
