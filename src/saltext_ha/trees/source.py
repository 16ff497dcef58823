"""Reads the folder that a deployment is taken from: its content, and its commit of git."""

from __future__ import annotations

import fnmatch
import os
import pwd
import re
import stat
import subprocess  # nosec B404
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from saltext_ha.common.errors import FolderChanged, HaError, reason_of
from saltext_ha.common.files import as_text
from saltext_ha.consistency.digests import Digests
from saltext_ha.consistency.tree import COMPILED, Seen
from saltext_ha.trees.entries import Entries, entries
from saltext_ha.trees.manifest import (
    FILE,
    FOLDER,
    LINK,
    LONGEST_NAME,
    MOST_ENTRIES,
    Node,
    is_path,
    stays_inside,
)

GIT = ".git"
GIT_TIMEOUT = 20.0
LISTED = 5
_NO_LIMIT = float("inf")
_CHANGED = "{}: changed while it was being read; deploy again"


class Source(NamedTuple):
    """
    The content of a source folder.

    :ivar words: name the source, for people.
    :ivar owners: other users than this process's that own entries there; they own nothing in the
        deployed version.
    """

    folder: Path
    manifest: dict[str, Node]
    words: str
    owners: list[str]


def take(
    folder: Path,
    ignore: Sequence[str],
    secret: bool,
    digests: Path,
    stop: Callable[[], None] = lambda: None,
) -> Source:
    """
    Read everything in *folder*.

    :param ignore: globs of entries to leave out, tried on the path below the folder and the name;
        with a slash before them, on the path alone; with one at the end, on folders only.
    :param secret: whether to take away permissions of group and others.
    :param digests: the folder that keeps digests of files that were read before.
    :param stop: raises to end the reading.
    :raises HaError: it cannot be read, or holds an entry that no tree may hold: a link that leads
        out of it, a device, a name that is no UTF-8.
    :raises FolderChanged: somebody wrote into it meanwhile.
    """
    if not _is_folder(folder):
        raise HaError(
            f"{folder}: there is no such folder here; ha.deploy reads the source of the master "
            "where you run it"
        )
    top = folder.resolve()
    there = _listed(top, folder, ignore, stop)
    files = {p: Seen(f"{top}/{p}", st) for p, st in there.items() if stat.S_ISREG(st.st_mode)}
    found, missed = Digests(digests, _NO_LIMIT, stop).of(files)
    wrong = [f"{as_text(path)}: {why}" for path, why in missed.items()]
    manifest: dict[str, Node] = {}
    # As rsync does for another user: the master that serves a file must be able to read it.
    mask, least = 0o700 if secret else 0o777, 0o400
    for path, status in there.items():
        mode = status.st_mode
        if not (len(path) <= LONGEST_NAME and path.isascii()) and not is_path(path):
            wrong.append(f"{path!r}: a name is UTF-8, of at most 255 bytes")
        elif path in files:
            digest = found.get(path, b"")
            manifest[path] = Node(FILE, mode & mask | least, status.st_size, digest)
        elif stat.S_ISDIR(mode):
            manifest[path] = Node(FOLDER, mode & mask, 0, b"")
        elif stat.S_ISLNK(mode):
            manifest[path] = Node(LINK, 0o777, 0, _target(f"{top}/{path}"))
        else:
            wrong.append(f"{path}: neither a file, a folder nor a link")
    for path, node in manifest.items():
        if node.kind == LINK and not _leads_inside(path, node, manifest):
            wrong.append(f"{path}: a link that leads out of the tree")
    # After all that was read: so the files are of one moment, and of the commit that is named.
    words = " ".join(filter(None, (str(folder), commit(top, manifest))))
    gone = files.keys() - found - missed.keys()
    if changed := gone | _changed(there, _listed(top, folder, ignore, stop)):
        first = as_text(f"{top}/{min(changed)}")
        raise FolderChanged(_CHANGED.format(first))
    if wrong:
        more = f", and {len(wrong) - LISTED} more" if len(wrong) > LISTED else ""
        raise HaError(
            f"{folder}: cannot be deployed: {'; '.join(sorted(wrong)[:LISTED])}{more}; mend it, or "
            "leave it out by ignore:"
        )
    owners = {status.st_uid for status in there.values()} - {os.geteuid()}
    return Source(top, manifest, words, sorted(map(_user, owners)))


def _is_folder(path: Path) -> bool:
    """Since Python 3.14, ``Path.is_dir`` says no of a folder that may not be looked at."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as exc:
        raise HaError(f"{path}: {reason_of(exc)}") from None


def _listed(top: Path, folder: Path, ignore: Sequence[str], stop: Callable[[], None]) -> Entries:
    """What lies in *top*, to which *folder* leads, without what is ignored."""
    try:
        return entries(top, _skipping(ignore, folder, stop))
    except FileNotFoundError as exc:
        raise FolderChanged(_CHANGED.format(as_text(exc.filename or str(folder)))) from None
    except OSError as exc:
        raise HaError(f"{as_text(exc.filename or str(folder))}: {exc.strerror or exc}") from None


def _target(link: str) -> bytes:
    try:
        return os.fsencode(os.readlink(link))
    except OSError:  # it is gone, or no link any more
        raise FolderChanged(_CHANGED.format(as_text(link))) from None


def _changed(before: Entries, after: Entries) -> set[str]:
    """The paths that came, went, or may be other ones by now."""
    paths = before.keys() | after.keys()
    return {path for path in paths if _mark(before.get(path)) != _mark(after.get(path))}


def _mark(status: os.stat_result | None) -> tuple[int, ...]:
    if status is None:
        return ()
    if stat.S_ISDIR(status.st_mode):  # its times change also with what is ignored in it
        return (status.st_mode,)
    # No inode: some file systems, such as sshfs, have another number for a file after a while.
    return status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _skipping(
    globs: Sequence[str], folder: Path, stop: Callable[[], None]
) -> Callable[[str, os.DirEntry[str]], bool]:
    """The ``skip`` of :func:`entries`. It raises HaError if there are too many entries."""
    for_all = _matches([glob for glob in globs if not glob.endswith("/")])
    for_folders = _matches([glob.rstrip("/") for glob in globs if glob.endswith("/")])
    left = MOST_ENTRIES

    def skip(path: str, entry: os.DirEntry[str]) -> bool:
        nonlocal left
        if entry.name in (GIT, COMPILED) or for_all(path, entry.name):
            return True
        if for_folders(path, entry.name) and entry.is_dir(follow_symlinks=False):
            return True
        left -= 1
        if left < 0:
            raise HaError(f"{folder}: has more than {MOST_ENTRIES} entries; see ignore:")
        stop()
        return False

    return skip


def _matches(globs: Sequence[str]) -> Callable[[str, str], bool]:
    """Takes path and name; tells whether one of *globs* matches. With ``/`` before it, the path."""
    by_path = _pattern(glob.lstrip("/") for glob in globs)
    by_name = _pattern(glob for glob in globs if not glob.startswith("/"))
    return lambda path, name: bool(by_path.match(path) or by_name.match(name))


def _pattern(globs: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(fnmatch.translate, globs)) or "(?!)")


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _leads_inside(path: str, node: Node, manifest: dict[str, Node]) -> bool:
    try:
        return stays_inside(path, node.what.decode(), manifest)
    except UnicodeDecodeError:
        return False


def commit(folder: Path, taken: Collection[str]) -> str:
    """
    Commit and branch of the git checkout that *folder* is, or lies in; empty when it is none.

    :param taken: the paths below it that are deployed: git may ignore some of them.
    """
    head = _git(folder, "rev-parse", "--short=12", "HEAD")
    if not head:
        return ""
    branch = _git(folder, "symbolic-ref", "--short", "-q", "HEAD") or "no branch"
    # In a submodule, git would go by the configuration of that.
    looked = ("status", "--porcelain", "--ignore-submodules=dirty", "--", ".")
    filters = _filters(folder)
    changed = None if filters is None else _git(folder, *looked, options=filters)
    more = ", uncommitted changes" if changed or changed is None else ""
    ignored = _git(folder, "ls-files", "--others", "--ignored", "--exclude-standard", "-z")
    # With a slash at its end: a checkout of its own, of which git names no more.
    if ignored is None or any(path.rstrip("/") in taken for path in ignored.split("\0")):
        more += ", files that git ignores"
    return f"(git {head} {branch}{more})"


def _filters(folder: Path) -> list[str] | None:
    """
    Options that turn off the programs that convert files on their way into git (gitattributes(5),
    ``filter``), except those of this user's and the system's configuration; None: it cannot be
    done. A user who writes the checkout's configuration at that very moment can still undo it.
    """

    def told(*where: str) -> set[str]:
        wanted = ("--includes", "--null", "--get-regexp", r"^filter\.")
        return {*(_git(folder, "config", *where, *wanted) or "").split("\0")} - {""}

    foreign = told() - told("--system") - told("--global")
    names = {each.partition("\n")[0].rpartition(".")[0] for each in foreign}
    # What follows "=" would be taken for the value; what is no UTF-8 is not shown as it is.
    if any({"=", "\ufffd"} & {*name} for name in names):
        return None
    off = ("clean=", "process=", "required=false")
    return [each for name in sorted(names) for end in off for each in ("-c", f"{name}.{end}")]


def _git(folder: Path, *arguments: str, options: Sequence[str] = ()) -> str | None:
    """
    The output of git; None: there is no git, or this is no checkout of this user's, nor one that
    this user has declared a ``safe.directory``.
    """
    # Git must run no program that the checkout's own configuration names.
    command = ("git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", *options)
    # What systemd starts as root has no HOME, and git would not read this user's configuration.
    home = os.path.expanduser("~")  # "~" itself for a user without an entry in passwd
    try:
        done = subprocess.run(  # nosec B603
            (*command, "-C", str(folder), *arguments),
            capture_output=True,
            timeout=GIT_TIMEOUT,
            check=False,
            # No protocol: what a partial clone lacks would be fetched, by a program it may name.
            env={
                **os.environ,
                **({"HOME": home} if os.path.isabs(home) else {}),
                "GIT_OPTIONAL_LOCKS": "0",
                "GIT_ALLOW_PROTOCOL": "",
                "LC_ALL": "C",
            },
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else None
