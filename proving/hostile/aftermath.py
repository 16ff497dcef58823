"""Looks from outside, after an attack, at folders, files, the log and the database."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator

from lab.engines import Place
from proving.hostile.target import CANARY, Target, was_read
from saltext_ha.common.errors import InvalidRecord
from saltext_ha.keystore import minion_key
from saltext_ha.transport.trust import Trust

TOKEN = re.compile(rb"ha1\.[\w-]{40,}")
KEY_FOLDERS = ("minions", "minions_pre", "minions_rejected", "minions_denied")
STATE_FILES = {
    "identity.key",
    "identity.crt",
    "replica.db",
    "replica.db-wal",
    "digests.db",
    "apis.json",
    "consistency.json",
    "events.key",
    "replica.db-shm",
    "peers",
    "restart",
    "removed",
    "invites",
    "tenant.json",
    "trees",
}


def troubles(target: Target, secrets: Iterable[bytes]) -> list[str]:
    """
    All that is wrong; empty when all is well.

    :param secrets: byte strings that must be in no log and not in the database.
    """
    place = target.place
    found = [*_keys(place), *_state(place), *_elsewhere(place), *said(target, secrets)]
    data = b"".join(p.read_bytes() for p in place.config.state_dir.glob("replica.db*"))
    for secret in secrets:
        if secret in data:
            found.append("a secret stands in replica.db")
    if CANARY.encode()[:20] in data:
        found.append("the canary was read")
    return found


def said(target: Target, secrets: Iterable[bytes]) -> Iterator[str]:
    """What is in the log of *target* and should not be."""
    log = target.log.read_bytes()
    name = target.log.name
    if any(secret in log for secret in secrets):
        yield f"{name}: a secret stands in it"
    if TOKEN.search(log):
        yield f"{name}: a join token stands in it"
    if CANARY.encode()[:20] in log:
        yield f"{name}: the canary was read"
    text = log.decode(errors="replace")
    if not all(sign.isprintable() or sign == "\n" for sign in text):
        yield f"{name}: what others sent stands in it as they sent it, control characters too"
    yield from (f"{name}: {line[:200]}" for line in _tracebacks(text))


def _keys(place: Place) -> Iterator[str]:
    for folder in KEY_FOLDERS:
        for path in (place.pki_dir / folder).iterdir():
            if path.name.startswith("."):
                # A signature is a link that leads nowhere.
                if path.is_dir() or path.lstat().st_size > 100:
                    yield f"{path}: not of this project"
                continue
            if path.is_symlink():
                if not path.name.startswith(("linked-", "master-")):
                    yield f"{path}: a link"
                continue
            try:
                minion_key.check_id(path.name)
                minion_key.check(path.read_text())
            except (InvalidRecord, UnicodeDecodeError, OSError) as exc:
                yield f"{str(path)!a}: {exc}"


def _state(place: Place) -> Iterator[str]:
    state = place.config.state_dir
    for path in state.iterdir():
        if path.name not in STATE_FILES:
            yield f"{path}: nothing that belongs here"
        if path.stat().st_mode & 0o077 and path.suffix != ".crt" and "replica" not in path.name:
            yield f"{path}: open to others"
    for path in (state / "removed").iterdir():
        if len(path.stem) != 64 or path.stat().st_size > 1024:
            yield f"{str(path)!a}: no note of a removal"
    trust = Trust(state)
    yield from (f"{file}: {why}" for file, why in trust.problems().items())
    with sqlite3.connect(f"file:{place.replica_file}?mode=ro", uri=True) as db:
        for (minion_id,) in db.execute("SELECT DISTINCT id FROM record"):
            try:
                minion_key.check_id(minion_id)
            except InvalidRecord as exc:
                yield f"replica.db: {exc}"
        if db.execute("PRAGMA integrity_check").fetchone() != ("ok",):
            yield "replica.db: damaged"


def _elsewhere(place: Place) -> Iterator[str]:
    """What was made outside of the folders, and whether the canary was so much as opened."""
    canary = place.root / "canary"
    if canary.read_text() != CANARY if not was_read(canary) else True:
        yield f"{canary}: was read or written"
    expected = {"canary", "secret", "token", "honest", "evil"}
    expected |= {name + end for name in (place.name, "guarded") for end in ("", ".log")}
    for path in place.root.iterdir():
        if path.name not in expected:
            yield f"{path}: was made"
    inside = {"pki", "run", "cache", "master", "trees"}
    for path in place.folder.iterdir():
        if path.name not in inside:
            yield f"{path}: was made"
    for path in (place.folder / "trees").glob("*"):
        if path.name not in ("source", ".live.ha"):
            yield f"{path}: was made, and nothing was deployed"
    pki = {*KEY_FOLDERS, "ha", "master.pem", "master.pub"}
    for path in place.pki_dir.iterdir():
        if path.name not in pki:
            yield f"{str(path)!a}: was made"


def _tracebacks(log: str) -> Iterator[str]:
    """The last line of each traceback."""
    inside = False
    for line in log.splitlines():
        if line.startswith("Traceback "):
            inside = True
        elif inside and line and not line.startswith((" ", "\t")):
            inside = False
            yield line
