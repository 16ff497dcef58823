"""Lists what lies in a folder now, and compares it with what was put there."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from saltext_ha.common.files import open_itself
from saltext_ha.consistency.tree import COMPILED
from saltext_ha.trees.manifest import FILE, FOLDER, Changes, Manifest, Node

BLOCK = 1 << 20
"""Bytes of a file that are read at a time."""
Mark = tuple[int, int, int]
"""Inode, modification time and size that a file had when its content was verified."""
Marks = dict[str, Mark]
Entries = dict[str, os.stat_result]
"""Path below a folder → its ``lstat``; a folder stands before its content."""


def entries(top: Path, skip: Callable[[str, os.DirEntry[str]], bool] | None = None) -> Entries:
    """
    All entries in and below the folder *top*.

    :param skip: takes path and entry; if true, the entry is left out, with everything below it.
    :raises OSError: a folder cannot be read.
    """
    found: Entries = {}
    todo = [""]
    while todo:
        below = todo.pop()
        with os.scandir(f"{top}/{below}") as listed:
            for entry in listed:
                path = below + entry.name
                if skip is not None and skip(path, entry):
                    continue
                found[path] = entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    todo.append(f"{path}/")
    return found


def mark_of(status: os.stat_result) -> Mark:
    return status.st_ino, status.st_mtime_ns, status.st_size


def is_as_put(node: Node, status: os.stat_result, mark: Mark | None, top: Path, path: str) -> bool:
    """Whether the entry at *path* below *top*, with this *status*, is the *node* put there."""
    if node.kind == FILE:
        if status.st_mode != stat.S_IFREG | node.mode or mark_of(status) != mark:
            return False
        # Of a file that was given to another user (chown), only the mark may be as it was.
        ours = status.st_uid == os.geteuid()
        return ours or os.access(top / path, os.R_OK, effective_ids=True)
    if node.kind == FOLDER:
        return stat.S_ISDIR(status.st_mode)
    return stat.S_ISLNK(status.st_mode) and os.fsencode(os.readlink(top / path)) == node.what


def verified(node: Node, full: Path, step: Callable[[], None]) -> Mark | None:
    """The mark of the file at *full* if it has content and mode of *node*, read anew; or None."""
    try:
        status = full.lstat()
        if (status.st_mode, status.st_size) != (stat.S_IFREG | node.mode, node.size):
            return None
        with open_itself(full) as file:
            same = digest_of(file, step) == node.what
            after = mark_of(os.fstat(file.fileno()))
    except OSError:
        return None
    return after if same and after == mark_of(status) else None


def digest_of(file: BinaryIO, step: Callable[[], None]) -> bytes:
    """The SHA-256 of what is in *file*. :param step: called after each block."""
    found = hashlib.sha256()
    while block := file.read(BLOCK):
        found.update(block)
        step()
    return found.digest()


def edits(
    top: Path,
    manifest: Manifest,
    marks: Mapping[str, Mark],
    step: Callable[[], None] = lambda: None,
) -> Changes:
    """
    The changes by hand in the folder *top*, where *manifest* was put; without what Python compiled.

    :param step: called for each entry.
    :raises OSError: the folder cannot be read.
    """

    def compiled(path: str, entry: os.DirEntry[str]) -> bool:
        step()
        # What another user's Python has left cannot be removed with the version: it is shown.
        ours = entry.name == COMPILED and path not in manifest
        return ours and os.access(f"{top}/{path}", os.W_OK | os.X_OK, effective_ids=True)

    there = entries(top, compiled)
    changed = [
        path
        for path, node in manifest.items()
        if path in there and not is_as_put(node, there[path], marks.get(path), top, path)
    ]
    return Changes(
        sorted(there.keys() - manifest.keys()),
        sorted(changed),
        sorted(manifest.keys() - there.keys()),
    )
