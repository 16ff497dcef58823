"""
Manifests: the files, folders and links in a version of a tree, by path. Pure.

The name of a version is the SHA-256 of its manifest, and a manifest names each file by the SHA-256
of its content. So the name of a version is enough to check all of it.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgpack

from saltext_ha.common.errors import InvalidRecord

FILE, FOLDER, LINK = "file", "folder", "link"
MOST_ENTRIES = 200_000
LONGEST_PATH = 4096
LONGEST_NAME = 255
# As many as Linux follows in one path; more mostly lead in a circle.
MOST_LINKS = 40
_HEX = re.compile("[0-9a-f]{64}")


class Node(NamedTuple):
    """
    One entry: ``mode`` are its permission bits, ``size`` its bytes; ``what`` is the SHA-256 of a
    file, the target of a link, empty for a folder.
    """

    kind: str
    mode: int
    size: int
    what: bytes


Manifest = Mapping[str, Node]
"""Path below the tree, parts separated by ``/`` → the entry there."""


class Changes(NamedTuple):
    """The changes from one version to another: paths, sorted."""

    added: list[str]
    changed: list[str]
    removed: list[str]

    def __bool__(self) -> bool:
        return any(self)


def digest_named(name: str) -> bytes | None:
    """The SHA-256 after which a file or a folder has its *name*; None: it has another name."""
    return bytes.fromhex(name) if _HEX.fullmatch(name) else None


def version_of(manifest: Manifest) -> bytes:
    """The name of the version that *manifest* describes."""
    return hashlib.sha256(pack(manifest)).digest()


def pack(manifest: Manifest) -> bytes:
    """The bytes of *manifest*, the same for the same content."""
    rows = [(path, *node) for path, node in sorted(manifest.items())]
    packed: bytes = msgpack.packb(rows, use_bin_type=True)
    return packed


def unpack(data: bytes) -> dict[str, Node]:
    """:raises InvalidRecord: *data* is not what :func:`pack` makes."""
    try:
        rows = msgpack.unpackb(data, raw=False, max_array_len=MOST_ENTRIES)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as exc:
        raise InvalidRecord(f"damaged manifest: {type(exc).__name__}") from None
    return read(rows)


def read(rows: Any) -> dict[str, Node]:
    """The manifest in *rows*. :raises InvalidRecord: an entry lies or leads outside of its tree."""
    if not isinstance(rows, list):
        raise InvalidRecord("malformed manifest: no list")
    if len(rows) > MOST_ENTRIES:
        raise InvalidRecord(f"a tree has at most {MOST_ENTRIES} entries, not {len(rows)}")
    found = dict(map(read_row, rows))
    if len(found) != len(rows):
        raise InvalidRecord("malformed manifest: a path stands twice")
    check(found)
    return found


def check(manifest: Manifest) -> None:
    """Check folders and links. :raises InvalidRecord: one is in no folder, or leads outside."""
    for path, node in manifest.items():
        above = path.rpartition("/")[0]
        if above and (above not in manifest or manifest[above].kind != FOLDER):
            raise InvalidRecord(f"malformed manifest: {path!r} lies in no folder of it")
        if node.kind == LINK and not stays_inside(path, node.what.decode(), manifest):
            raise InvalidRecord(f"malformed manifest: the link {path!r} leads out of the tree")


def read_row(row: Any) -> tuple[str, Node]:
    """One of the rows that :func:`read` takes."""
    if not isinstance(row, (list, tuple)) or len(row) != 5:
        raise InvalidRecord("malformed manifest: an entry has five parts")
    path, kind, mode, size, what = row
    if type(path) is not str or not is_path(path):
        raise InvalidRecord(f"malformed manifest: {path!r:.100} is no path below a tree")
    sound = (
        kind in (FILE, FOLDER, LINK)
        and type(mode) is int
        and 0 <= mode <= 0o777
        and type(size) is int
        and 0 <= size < 2**53
        and type(what) is bytes
    )
    if not sound or (kind == FILE and len(what) != 32) or (kind == FOLDER and (what or size)):
        raise InvalidRecord(f"malformed manifest: {path!r} is no file, folder or link as sent")
    if kind == LINK:
        try:
            target = what.decode()
        except UnicodeDecodeError:
            target = ""
        if not target or "\0" in target or len(what) >= LONGEST_PATH or size:
            raise InvalidRecord(f"malformed manifest: the link {path!r} leads nowhere")
    return path, Node(kind, mode, size, what)


def is_path(path: str) -> bool:
    """Whether *path* names something below a tree, and only there."""
    try:
        length = len(path.encode())
        parts = [part.encode() for part in path.split("/")]
    except UnicodeEncodeError:
        return False
    return (
        0 < length < LONGEST_PATH
        and "\0" not in path
        and all(part not in (b"", b".", b"..") and len(part) <= LONGEST_NAME for part in parts)
    )


def stays_inside(path: str, target: str, entries: Mapping[str, Node]) -> bool:
    """Whether the link at *path* stays inside the tree of *entries*, through all other links."""
    at, todo, links = path.split("/")[:-1], target.split("/"), 0
    if target.startswith("/"):
        return False
    while todo:
        part = todo.pop(0)
        if part in ("", "."):
            continue
        if part == "..":
            if not at:
                return False
            at.pop()
            continue
        at.append(part)
        there = entries.get("/".join(at))
        if there is not None and there.kind == LINK:
            further = there.what.decode()
            links += 1
            if further.startswith("/") or links > MOST_LINKS:
                return False
            at.pop()
            todo = further.split("/") + todo
    return True


def changes(before: Manifest, after: Manifest) -> Changes:
    """The changes from *before* to *after*; without folders whose content is among the changes."""
    return Changes(
        sorted(_told(after.keys() - before.keys(), after)),
        sorted(path for path in after.keys() & before.keys() if after[path] != before[path]),
        sorted(_told(before.keys() - after.keys(), before)),
    )


def _told(paths: Iterable[str], manifest: Manifest) -> Iterator[str]:
    """*paths* without folders that hold other *paths*."""
    some = set(paths)
    above = {posixpath.dirname(path) for path in some}
    return (path for path in some if manifest[path].kind != FOLDER or path not in above)


def files(manifest: Manifest) -> int:
    return sum(node.kind == FILE for node in manifest.values())


def size(manifest: Manifest) -> int:
    return sum(node.size for node in manifest.values())
