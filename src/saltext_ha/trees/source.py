"""The folder that a deployment is taken from: what is in it, and which commit of git that is."""

from __future__ import annotations

import fnmatch
import os
import re
import stat
import subprocess  # nosec B404
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from saltext_ha.common.errors import HaError
from saltext_ha.consistency.digests import Digests
from saltext_ha.consistency.tree import Seen
from saltext_ha.trees.manifest import FILE, FOLDER, LINK, MOST_ENTRIES, Node, is_path, stays_inside

GIT = ".git"
GIT_TIMEOUT = 20.0
LISTED = 5
_NO_LIMIT = float("inf")


class Source(NamedTuple):
    """What was found: ``words`` say where, for people."""

    folder: Path
    manifest: dict[str, Node]
    words: str


def take(folder: Path, ignore: Sequence[str], secret: bool, digests: Path) -> Source:
    """
    Read all that is in *folder*.

    :param ignore: globs of what stays out, tried on the path below the folder and on the name.
    :param secret: whether permissions of group and others are taken away.
    :param digests: a folder where it is remembered which files were read before.
    :raises HaError: it cannot be read, or holds what no tree may: a link that leads out of it, a
        device, a name that is no UTF-8.
    """
    if not folder.is_dir():
        raise HaError(f"{folder}: there is no such folder")
    top = folder.resolve()
    ignored = [re.compile(fnmatch.translate(glob)) for glob in ignore]
    manifest: dict[str, Node] = {}
    seen: dict[str, Seen] = {}
    wrong: list[str] = []
    mask = 0o700 if secret else 0o777
    try:
        for path, status in _walk(top, "", ignored):
            full = top / path
            if not is_path(path):
                wrong.append(f"{path!r}: a name is UTF-8, of at most 255 bytes")
            elif stat.S_ISDIR(status.st_mode):
                manifest[path] = Node(FOLDER, status.st_mode & mask, 0, b"")
            elif stat.S_ISREG(status.st_mode):
                manifest[path] = Node(FILE, status.st_mode & mask, status.st_size, b"")
                seen[path] = Seen(str(full), status)
            elif stat.S_ISLNK(status.st_mode):
                manifest[path] = Node(LINK, 0o777, 0, os.fsencode(full.readlink()))
            else:
                wrong.append(f"{path}: neither a file, a folder nor a link")
            if len(manifest) > MOST_ENTRIES:
                raise HaError(f"{folder}: has more than {MOST_ENTRIES} entries; see ignore:")
    except OSError as exc:
        raise HaError(f"{exc.filename or folder}: {exc.strerror or exc}") from None
    for path, node in manifest.items():
        if node.kind == LINK and not _leads_inside(path, node, manifest):
            wrong.append(f"{path}: a link that leads out of the tree")
    found, missed = Digests(digests, _NO_LIMIT).of(seen)
    wrong += [f"{path}: {why}" for path, why in missed.items()]
    wrong += [f"{path}: gone while it was read" for path in seen.keys() - found - missed.keys()]
    if wrong:
        more = f", and {len(wrong) - LISTED} more" if len(wrong) > LISTED else ""
        raise HaError(
            f"{folder}: cannot be deployed: {'; '.join(wrong[:LISTED])}{more}; mend it, or leave "
            "it out by ignore:"
        )
    for path, digest in found.items():
        manifest[path] = manifest[path]._replace(what=digest)
    return Source(top, manifest, " ".join(filter(None, (str(folder), commit(top)))))


def _walk(
    top: Path, below: str, ignored: Sequence[re.Pattern[str]]
) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(top / below) as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    for entry in listed:
        path = f"{below}/{entry.name}" if below else entry.name
        if entry.name == GIT or any(p.match(path) or p.match(entry.name) for p in ignored):
            continue
        yield path, entry.stat(follow_symlinks=False)
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(top, path, ignored)


def _leads_inside(path: str, node: Node, manifest: dict[str, Node]) -> bool:
    try:
        return stays_inside(path, node.what.decode(), manifest)
    except UnicodeDecodeError:
        return False


def commit(folder: Path) -> str:
    """Commit and branch of the git checkout that *folder* is, or lies in; empty when it is none."""
    head = _git(folder, "rev-parse", "--short=12", "HEAD")
    if not head:
        return ""
    branch = _git(folder, "symbolic-ref", "--short", "-q", "HEAD") or "no branch"
    changed = _git(folder, "status", "--porcelain", "--", ".")
    more = ", uncommitted changes" if changed or changed is None else ""
    return f"(git {head} {branch}{more})"


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says; None: it is not there, or this is no checkout of this user's."""
    # Nothing that the checkout's own configuration names is run.
    command = ("git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
    try:
        done = subprocess.run(  # nosec B603
            (*command, "-C", str(folder), *arguments),
            capture_output=True,
            timeout=GIT_TIMEOUT,
            check=False,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else None
