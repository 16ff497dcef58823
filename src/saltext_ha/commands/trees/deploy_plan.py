"""Rows for people: what a deployment would change."""

from __future__ import annotations

import difflib
import itertools
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from saltext_ha.commands.trees.tree_states import States, edits
from saltext_ha.config.trees import Tree
from saltext_ha.replication.deployment import Entry, Register
from saltext_ha.trees import manifest as manifests
from saltext_ha.trees.live_path import FOREIGN
from saltext_ha.trees.manifest import FILE, Changes, Manifest
from saltext_ha.trees.registers import conflict
from saltext_ha.trees.source import Source
from saltext_ha.trees.store import TreeStore
from saltext_ha.trees.tree_state import TreeState

LISTED = 1000
DIFF_LINES = 500
DIFF_SIZE = 64 * 1024
DIFF_WIDTH = 1000


class Planned(NamedTuple):
    """One tree, and the version of it that is to be current."""

    tree: Tree
    version: bytes
    manifest: Manifest
    words: str
    """Where the version is from, for people."""
    source: Source | None
    """The folder that it is read from; None: it was deployed before."""


def plan_row(
    each: Planned,
    there: Planned | None,
    store: TreeStore,
    register: Register,
    states: States,
    own: str,
) -> dict[str, Any]:
    """
    What *each* would change on this master.

    :param there: the live folder, if no deployment made it.
    :param own: the name of this master.
    """
    name = each.tree.name
    live, served = store.live()
    before = (store.versions.manifest(served) if served else None) or {}
    old = store.versions.path_of(served) if served else None
    if there is not None and there.source is not None:
        before, old = there.manifest, there.source.folder
    found = manifests.changes(before, each.manifest)
    new = each.source.folder if each.source else store.versions.path_of(each.version)
    return {
        "tree": name,
        "secret": each.tree.secret,
        "source": each.words,
        "owners": each.source.owners if each.source else [],
        "version": each.tree.shown(each.version),
        "number": None,
        "current": register.current.entry.number if register.current else None,
        "same": not register.conflict
        and register.current is not None
        and register.current.version == each.version,
        "files": manifests.files(each.manifest),
        "size": manifests.size(each.manifest),
        "counts": {kind: len(paths) for kind, paths in found._asdict().items()},
        **{
            kind: [_file_row(path, each.manifest, before) for path in paths[:LISTED]]
            for kind, paths in found._asdict().items()
        },
        "diff": [] if each.tree.secret else _diff(found, before, each.manifest, old, new),
        "replaces": _replaced(each, register, own),
        "conflict": conflict(name, register),
        "edits": edits(states, name),
        "opens": live == FOREIGN and not each.tree.secret and _is_closed(each.tree.live),
    }


def _is_closed(folder: Path) -> bool:
    """Whether other users have no access to what is in *folder*."""
    try:
        return not folder.stat().st_mode & stat.S_IRWXO
    except OSError:  # a link to nothing
        return False


def _replaced(each: Planned, register: Register, own: str) -> str:
    """
    The current deployment in words, if it was made on another master and this source replaces it:
    the source here may be older. Otherwise empty.
    """
    current = register.current
    if not each.source or current is None or current.version == each.version:
        return ""
    entry = current.entry
    if entry.on == own:
        return ""
    said = ": ".join(filter(None, (entry.source, entry.message)))
    return f"deployment {entry.number}, made on {entry.on} by {entry.by} from {said}"


def entry_row(
    tree: Tree, entry: Entry, where: Mapping[str, int | str], states: Mapping[str, TreeState]
) -> dict[str, Any]:
    """:param where: master → the number that it serves. :param states: master → its state."""
    # Two sides of a conflict may have one number; a version that came back has several.
    return {
        **entry._asdict(),
        "version": tree.shown(entry.version),
        "live_on": [
            name
            for name, serves in where.items()
            if serves == entry.number and states[name].version == entry.version
        ],
    }


def _file_row(path: str, after: Manifest, before: Manifest) -> dict[str, Any]:
    """``mode`` says how the permissions change, if they do: no diff shows that."""
    old, new = before.get(path), after.get(path)
    node = new or before[path]
    row = {"path": path, "kind": node.kind, "size": node.size}
    if old and new and old.kind == new.kind and old.mode != new.mode:
        row["mode"] = f"{old.mode:03o} → {new.mode:03o}"
    return row


def _diff(
    found: Changes, before: Manifest, after: Manifest, old: Path | None, new: Path
) -> list[str]:
    """The differences of small text files, as ``diff -u`` writes them."""
    lines: list[str] = []
    for path in sorted([*found.added, *found.changed, *found.removed]):
        left = _text(old, path, before)
        right = _text(new, path, after)
        if left is None or right is None:
            continue
        some = difflib.unified_diff(left, right, f"a/{path}", f"b/{path}", lineterm="")
        lines += map(_cut, itertools.islice(some, DIFF_LINES + 1 - len(lines)))
        if len(lines) > DIFF_LINES:
            return [*lines[:DIFF_LINES], "… more"]
    return lines


def _cut(line: str) -> str:
    """*line*; of one as of minified files its beginning."""
    more = len(line) - DIFF_WIDTH
    return f"{line[:DIFF_WIDTH]} … {more} more characters" if more > 0 else line


def _text(folder: Path | None, path: str, manifest: Manifest) -> list[str] | None:
    """The lines of a file; empty if there is none, None if it is too large or not text."""
    node = manifest.get(path)
    if node is None or folder is None:
        return []
    if node.kind != FILE or node.size > DIFF_SIZE:
        return None
    try:
        return (folder / path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
