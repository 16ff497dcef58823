"""
The commits of the git repositories that a master serves states and pillar from.

Their files are read as data. Git is never run: with pygit2 it need not be installed, and it would
execute what a repository's configuration names (hooks, fsmonitor, filters) as the user of the
master. Only URLs and texts that look like the id of a commit are taken from the files.
"""

from __future__ import annotations

import base64
import configparser
import hashlib
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
#: Seconds that fetching may take; and how long it is waited for at most.
FETCHING, LONGEST = 30.0, 900.0
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
    leaves: dict[str, Any] = {}
    remotes = opts.get("gitfs_remotes")
    for text, settings in _entries(remotes):
        _note("gitfs", _url(text), _fetched("gitfs", text, settings, opts), leaves)
    if leaves:
        leaves[REMOTES] = plain(_arrangement(remotes), How.EXACT, nonce)
    return leaves


def fetched_within(opts: Mapping[str, Any]) -> float:
    """Seconds within which this master fetches what another one has fetched."""

    def seconds(option: str) -> float:
        value = opts.get(option)
        return float(value) if isinstance(value, (int, float)) else 60.0

    # git_pillar waits for the next round of salt-master's maintenance besides.
    pillar = seconds("git_pillar_update_interval") + seconds("loop_interval")
    return min(max(seconds("gitfs_update_interval"), pillar) + FETCHING, LONGEST)


def without_access(ext_pillar: Any) -> Any:
    """The option ``ext_pillar`` without how to access its remotes of git_pillar."""
    if not isinstance(ext_pillar, list):
        return ext_pillar
    return [
        {**source, "git": _arrangement(source["git"])}
        if isinstance(source, Mapping) and isinstance(source.get("git"), list)
        else source
        for source in ext_pillar
    ]


def _arrangement(remotes: Any) -> list[Any]:
    """
    The remotes in their order (the first that has a file serves it), each with what it serves
    (``root``, ``mountpoint``, ``saltenv``, …), without access settings.
    """
    found: list[Any] = []
    for text, settings in _entries(remotes):
        *branch, url = text.split(None, 1) or [""]
        served = {key: value for key, value in settings.items() if key not in ACCESS}
        name = " ".join([*branch, _url(url)])
        found.append({name: served} if served else name)
    return found


def pillars(opts: Mapping[str, Any]) -> dict[str, str]:
    """Like :func:`states`, for git_pillar and the branches that its remotes name."""
    leaves: dict[str, str] = {}
    for source in opts.get("ext_pillar") or ():
        remotes = source.get("git") if isinstance(source, Mapping) else None
        for text, settings in _entries([remotes] if isinstance(remotes, str) else remotes):
            words = text.split(None, 1)
            default = str(opts.get("git_pillar_branch") or "master")
            branch, url = words if len(words) == 2 else (default, text)
            refs = _fetched("git_pillar", text, settings, opts)
            if refs is not None and branch != "__env__":
                refs = {name: commit for name, commit in refs.items() if name == branch}
            _note("git_pillar", _url(url), refs, leaves)
    return leaves


def backends(opts: Mapping[str, Any]) -> list[str]:
    """The fileserver's backends."""
    found = opts.get("fileserver_backend") or ["roots"]
    return [found] if isinstance(found, str) else [str(name) for name in found]


def _note(kind: str, url: str, refs: Mapping[str, str] | None, leaves: dict[str, Any]) -> None:
    """Add the leaves of one of the remotes with this *url*; *refs* as of :func:`_fetched`."""
    path = f"{kind}:{url}"
    if refs is None or leaves.get(path) == NOT_FETCHED:
        leaves[path] = NOT_FETCHED
    else:
        leaves[path] = FETCHED
    leaves.update((f"{path}:{name}", commit) for name, commit in (refs or {}).items())


def _fetched(
    kind: str, text: str, settings: Mapping[str, Any], opts: Mapping[str, Any]
) -> dict[str, str] | None:
    """
    Branch or tag → commit, of the repository that Salt keeps for the remote *text*; None: it was
    not fetched yet. Beside it may be others with the same URL, which are not used any more.
    """
    place = Path(str(opts.get("cachedir") or "")) / kind
    for name in _names(text, settings, str(opts.get("hash_type") or "sha256")):
        found = [path for path in _repositories(place / name) if _remote_of(path)]
        if found:
            # With the branch __env__ there is one for each environment: the latest counts.
            each = map(_refs, sorted(found, key=_when_fetched))
            return {name: commit for refs in each for name, commit in refs.items()}
    return None


def _names(text: str, settings: Mapping[str, Any], hash_type: str) -> tuple[str, ...]:
    """The names that Salt may give the folder of a remote: ``GitProvider.__init__``."""
    if "name" in settings:
        return (str(settings["name"]),)
    hashed = hashlib.new(hash_type, text.encode())
    # The second is that of 3006.0 and 3006.1.
    return base64.b64encode(hashed.digest()).decode().replace("/", "_"), hashed.hexdigest()


def _when_fetched(repository: Path) -> float:
    try:
        return (repository / "FETCH_HEAD").stat().st_mtime
    except OSError:
        return 0.0


def _entries(remotes: Any) -> list[tuple[str, dict[str, Any]]]:
    """The remotes, each a text or a mapping of one text to its settings."""
    found = []
    for entry in remotes or ():
        text, given = (
            next(iter(entry.items())) if isinstance(entry, Mapping) and entry else (entry, ())
        )
        settings: dict[str, Any] = {}
        for part in given if isinstance(given, list) else [given]:
            if isinstance(part, Mapping):
                settings.update({str(key): value for key, value in part.items()})
        found.append((str(text), settings))
    return found


def _url(url: str) -> str:
    """*url* without user and password."""
    parts = urlsplit(url)
    if not parts.scheme or "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _repositories(folder: Path) -> Iterator[Path]:
    """The git folders of a remote: Salt has one, or with ``__env__`` one per environment."""
    for path in (folder, *sorted(folder.glob("*")), *sorted(folder.glob("*/.git"))):
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
