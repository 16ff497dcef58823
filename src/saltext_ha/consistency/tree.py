"""
The files that a master serves from its roots, or loads modules from.

It gives the same answer as Salt, without :data:`OWN` and :data:`OF_WINREPO`: ``_file_lists`` and
``find_file`` of ``salt/fileserver/roots.py`` for states, ``PillarClient.file_list`` of
``salt/fileclient.py`` for pillar.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from saltext_ha.common.errors import reason_of

#: In a path: the name of the environment that is asked for.
ANY = "__env__"
#: Where Python keeps what it compiles, with the time of the source, of files that Salt renders.
COMPILED = "__pycache__"
#: Left out, though Salt would serve it: what each master makes for itself beside the files, as git
#: does in a checkout; and a folder of file systems that only root may list.
OWN = frozenset({".git", ".hg", ".svn", COMPILED, "lost+found"})
#: Left out, too: what Salt writes beside the repositories of winrepo, by default in file_roots. The
#: map has the time in it; it tells such a folder. The others have Salt's release, and locks.
MAP = "remote_map.txt"
OF_WINREPO = frozenset({MAP, "cache_version", "work"})
# Beside modules: hidden files, such as those of git; compiled code; copies of an editor.
_MADE = re.compile(r"(^|/)(\.|__pycache__/)|\.py[co]$|~$")


# What has one of these errors is not there, or cannot be: Salt does not serve it either.
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)


class Seen(NamedTuple):
    """A served file: its path, and the result of ``stat``; None: it cannot be read, and why."""

    path: str
    stat: os.stat_result | None
    why: str = ""


@dataclass(frozen=True)
class Walk:
    """
    How one kind of roots is walked; by default all is shown.

    :param follow: whether to follow links to folders, and links to files outside of the root.
    :param links: whether links to files are shown.
    :param ignored: takes a relative and a full path; whether that file is not shown.
    :param closed: takes the relative path of a folder; whether it is not looked into.
    """

    follow: bool = True
    links: bool = True
    ignored: Callable[[str, str], bool] = lambda relative, full: False
    closed: Callable[[str], bool] = lambda relative: False


def for_states(opts: Mapping[str, Any]) -> Walk:
    """How the backend ``roots`` of the fileserver walks."""
    ignored = ignoring(opts)
    return Walk(
        follow=bool(opts.get("fileserver_followsymlinks", True)),
        links=not opts.get("fileserver_ignoresymlinks", False),
        # Salt checks the one path when it lists, the other one when it serves.
        ignored=lambda relative, full: ignored(relative) or ignored(full),
    )


def for_pillar() -> Walk:
    """
    How the master walks when it renders pillar: it follows links and ignores nothing. (Salt tries
    to leave out folders that ``file_ignore_glob`` names, but changes only a copy of their list.)
    """
    return Walk()


def for_modules() -> Walk:
    """Files from which Salt may load modules: without hidden ones and what Python makes of them."""
    return Walk(
        ignored=lambda relative, full: _MADE.search(relative) is not None,
        # Those of another user, such as .git, often cannot be listed.
        closed=lambda relative: _MADE.search(f"{relative}/") is not None,
    )


def ignoring(opts: Mapping[str, Any]) -> Callable[[str], bool]:
    """``salt.fileserver.is_file_ignored`` of these options, with its patterns compiled once."""
    searched = [re.compile(regex) for regex in opts.get("file_ignore_regex") or ()]
    matched = [re.compile(fnmatch.translate(glob)) for glob in opts.get("file_ignore_glob") or ()]
    if not searched and not matched:
        return lambda name: False
    return lambda name: (
        any(regex.search(name) for regex in searched) or any(glob.match(name) for glob in matched)
    )


def environments(roots: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """
    The folders of each environment. ``__env__`` is expanded to the environments on this disk: every
    folder in the place of ``__env__`` in a path.
    """
    found = {str(env): [str(path) for path in paths] for env, paths in roots.items() if env != ANY}
    patterns = [str(path) for path in roots.get(ANY) or ()]
    for env in sorted({name for pattern in patterns for name in _named(pattern)} - found.keys()):
        found[env] = [pattern.replace(ANY, env) for pattern in patterns]
    return found


def files(folders: Sequence[str], walk: Walk) -> dict[str, Seen]:
    """
    Relative path → file, for one environment; the first folder that has it wins. ``.`` is one of
    *folders* that cannot be read.
    """
    served: dict[str, Seen] = {}
    for top in folders:
        try:
            status = Path(top).stat()
        except OSError as exc:
            if exc.errno not in _GONE:  # Salt's own default folders often do not exist
                served.setdefault(".", _unreadable(top, exc))
            continue
        for relative, seen in _below(top, top, "", walk, ((status.st_dev, status.st_ino),)):
            served.setdefault(relative, seen)
    return served


def _below(
    top: str, folder: str, relative: str, walk: Walk, above: tuple[tuple[int, int], ...]
) -> Iterator[tuple[str, Seen]]:
    try:
        with os.scandir(folder) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
    except OSError as exc:
        if exc.errno not in _GONE:
            yield (relative or ".", _unreadable(folder, exc))
        return
    left_out = OWN | OF_WINREPO if any(entry.name == MAP for entry in listed) else OWN
    for entry in listed:
        if entry.name in left_out:
            continue
        name = f"{relative}/{entry.name}" if relative else entry.name
        link = entry.is_symlink()
        try:
            if entry.is_dir():
                if (link and not walk.follow) or walk.closed(name):
                    continue
                status = entry.stat()
                here = (status.st_dev, status.st_ino)
                # A link to a parent folder: Salt follows it until the path is too long.
                if here not in above:
                    yield from _below(top, entry.path, name, walk, (*above, here))
                continue
            if (link and not walk.links) or walk.ignored(name, entry.path):
                continue
            if link and not walk.follow and not _inside(top, entry.path):
                continue
            status = entry.stat()
        except OSError as exc:
            if exc.errno not in _GONE:  # gone meanwhile, or a dangling link
                yield name, _unreadable(entry.path, exc)
            continue
        if stat.S_ISREG(status.st_mode):
            yield name, Seen(entry.path, status)


def _unreadable(path: str, exc: OSError) -> Seen:
    return Seen(path, None, f"{path}: {reason_of(exc).lower()}")


def _inside(top: str, path: str) -> bool:
    real, root = os.path.realpath(path), os.path.realpath(top)
    return real.startswith(root.rstrip(os.sep) + os.sep)


def _named(pattern: str) -> list[str]:
    """The names that ``__env__`` may stand for in *pattern*."""
    before, marker, after = pattern.partition(ANY)
    if not marker:
        return []
    folder, start = os.path.split(before)
    end = after.split(os.sep, 1)[0].replace(ANY, "")
    try:
        entries = sorted(path.name for path in Path(folder or os.sep).iterdir())
    except OSError:
        return []
    names = (
        entry[len(start) : len(entry) - len(end)]
        for entry in entries
        if entry.startswith(start) and entry.endswith(end) and len(entry) > len(start) + len(end)
    )
    return [name for name in names if Path(pattern.replace(ANY, name)).is_dir()]
