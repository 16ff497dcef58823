"""
The commits of the git repositories that a master serves states and pillar from.

Their files are read as data. Git is never run: with pygit2 it need not be installed, and it would
execute what a repository's configuration names (hooks, fsmonitor, filters) as the user of the
master. Only URLs and texts that look like the id of a commit are taken from the files.
"""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from saltext_ha.consistency.rules import How
from saltext_ha.consistency.values import plain

_COMMIT = re.compile(r"^[0-9a-f]{40,64}$")
_KINDS = ("refs/remotes/origin/", "refs/tags/")
FETCHED, NOT_FETCHED = "configured", "not fetched yet"
#: The leaf with what each remote serves, and in which order.
REMOTES = "gitfs_remotes"
# Settings of a remote for access and storage, which do not change what it serves.
ACCESS = (
    "user", "password", "privkey", "pubkey", "passphrase", "insecure_auth", "ssl_verify", "proxy",
    "depth", "name",
)  # fmt: skip


def states(opts: Mapping[str, Any], nonce: bytes) -> dict[str, Any]:
    """
    ``gitfs:URL`` → ``configured`` or ``not fetched yet``, and ``gitfs:URL:BRANCH`` → commit, for
    every branch and tag of all remotes; and :data:`REMOTES`.
    """
    if not any(str(name).split("|")[0] in ("git", "gitfs") for name in backends(opts)):
        return {}
    remotes = opts.get("gitfs_remotes")
    wanted = {_url(entry): None for entry in _entries(remotes)}
    leaves: dict[str, Any] = {**_commits("gitfs", wanted, _folder(opts, "gitfs"))}
    if wanted:
        leaves[REMOTES] = plain(_arrangement(remotes), How.EXACT, nonce)
    return leaves


def _arrangement(remotes: Any) -> list[Any]:
    """
    The remotes in their order (the first that has a file serves it), each with what it serves
    (``root``, ``mountpoint``, ``saltenv``, …), without access settings.
    """
    found: list[Any] = []
    for entry in remotes or ():
        settings = next(iter(entry.values())) if isinstance(entry, Mapping) and entry else None
        url, served = _url(_entries([entry])[0]), _served(settings)
        found.append({url: served} if served else url)
    return found


def _served(settings: Any) -> dict[str, Any]:
    each = settings if isinstance(settings, list) else [settings]
    merged: dict[str, Any] = {}
    for part in each:
        if isinstance(part, Mapping):
            merged.update({str(k): v for k, v in part.items() if str(k) not in ACCESS})
    return merged


def pillars(opts: Mapping[str, Any]) -> dict[str, str]:
    """Like :func:`states`, for git_pillar and the branches that its remotes name."""
    wanted: dict[str, set[str] | None] = {}
    for source in opts.get("ext_pillar") or ():
        remotes = source.get("git") if isinstance(source, Mapping) else None
        if isinstance(remotes, str):
            remotes = [remotes]
        for entry in _entries(remotes):
            branch, _, url = entry.partition(" ")
            url = _url(url.strip())
            branches = wanted.setdefault(url, set())
            if branch == "__env__":
                wanted[url] = None
            elif branches is not None:
                branches.add(branch)
    return _commits("git_pillar", wanted, _folder(opts, "git_pillar"))


def backends(opts: Mapping[str, Any]) -> list[str]:
    """The fileserver's backends."""
    found = opts.get("fileserver_backend") or ["roots"]
    return [found] if isinstance(found, str) else [str(name) for name in found]


def _commits(kind: str, wanted: Mapping[str, set[str] | None], folder: Path) -> dict[str, str]:
    leaves: dict[str, str] = {}
    if not wanted:
        return leaves
    fetched: dict[str, dict[str, str]] = {}
    for repository in _repositories(folder):
        url = _remote_of(repository)
        if url:
            fetched.setdefault(_url(url), {}).update(_refs(repository))
    for url, branches in wanted.items():
        leaves[f"{kind}:{url}"] = FETCHED if url in fetched else NOT_FETCHED
        for name, commit in fetched.get(url, {}).items():
            if branches is None or name in branches:
                leaves[f"{kind}:{url}:{name}"] = commit
    return leaves


def _folder(opts: Mapping[str, Any], kind: str) -> Path:
    return Path(str(opts.get("cachedir") or "")) / kind


def _entries(remotes: Any) -> list[str]:
    """The remotes, each a text or a mapping of one text to its settings."""
    return [
        str(next(iter(entry)) if isinstance(entry, Mapping) and entry else entry)
        for entry in remotes or ()
    ]


def _url(url: str) -> str:
    """*url* without user and password."""
    parts = urlsplit(url)
    if not parts.scheme or "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _repositories(folder: Path) -> Iterator[Path]:
    """The git folders below *folder*: Salt has one per remote, or one per remote and branch."""
    for depth in ("*/*/.git", "*/.git", "*/*", "*"):
        for path in sorted(folder.glob(depth)):
            if (path / "HEAD").is_file():
                yield path


def _remote_of(repository: Path) -> str:
    parser = configparser.ConfigParser(strict=False, interpolation=None, allow_no_value=True)
    try:
        # Git indents its settings, which means a continued line to Python.
        text = (repository / "config").read_text(errors="replace")
        parser.read_string("\n".join(line.strip() for line in text.splitlines()))
        return str(parser.get('remote "origin"', "url", fallback=""))
    except (OSError, configparser.Error):
        return ""


def _refs(repository: Path) -> dict[str, str]:
    """Branch or tag → commit, as last fetched."""
    found: dict[str, str] = {}
    for name, commit in (*_packed(repository), *_loose(repository)):
        for kind in _KINDS:
            short = name.removeprefix(kind)
            # origin/HEAD names another branch, and is no commit.
            if name.startswith(kind) and _COMMIT.match(commit):
                found[short] = commit
    return found


def _packed(repository: Path) -> Iterable[tuple[str, str]]:
    try:
        lines = (repository / "packed-refs").read_text(errors="replace").splitlines()
    except OSError:
        return []
    # :func:`_refs` skips its header, and the lines with the commits that annotated tags lead to.
    rows = (line.partition(" ") for line in lines)
    return [(name.strip(), commit) for commit, _, name in rows]


def _loose(repository: Path) -> Iterator[tuple[str, str]]:
    for kind in _KINDS:
        for folder, _, files in os.walk(repository / kind):
            for name in files:
                path = Path(folder, name)
                try:
                    commit = path.read_text(errors="replace").strip()
                except OSError:
                    continue
                yield path.relative_to(repository).as_posix(), commit
