"""Opens replica.db: creates it if it is missing, checks, upgrades and locks it."""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from saltext_ha.common.errors import ReplicaDamaged, ReplicaError
from saltext_ha.replica import schema

NO_TEXT = "Could not decode to UTF-8"
"""So begins Python's error where a text in the file is none; sqlite3 has no class for that."""


def database(path: Path | None) -> sqlite3.Connection:
    """
    Open or create the file *path*; None keeps everything in memory.

    :raises ReplicaDamaged: the file is no sound database.
    :raises ReplicaError: the file is too new or too old, locked, or cannot be created.
    """
    if path:
        # SQLite would create it with the umask; SQLite's journal gets the same mode. If the file
        # cannot be created, SQLite says why.
        with contextlib.suppress(OSError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with explained(path):
        db = sqlite3.connect(path or ":memory:", isolation_level=None, check_same_thread=False)
    with explained(path, db):
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        # Two processes on one replica would both use the same dots.
        db.execute("PRAGMA locking_mode=EXCLUSIVE")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        flaw = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if flaw != "ok":
            raise sqlite3.DatabaseError(flaw)
        if version > schema.latest():
            raise ReplicaError(
                f"{path}: written by a newer release (schema {version}, this one reads up to "
                f"{schema.latest()}); install that release or move the file aside"
            )
        if 0 < version < schema.FIRST:
            raise ReplicaError(
                f"{path}: written before 28 November 2026 (schema {version}, this release reads "
                f"from {schema.FIRST} on); start this master once with commit c4f90a34, which "
                "upgrades the file"
            )
        if version < schema.latest():
            schema.migrate(db, version, secrets.token_hex(8))
    return db


@contextlib.contextmanager
def explained(path: Path | None, db: sqlite3.Connection | None = None) -> Iterator[None]:
    """On an error, close replica.db and say why it cannot be opened."""
    try:
        yield
    except (sqlite3.Error, ReplicaError) as exc:
        if db:
            db.close()  # otherwise the next try finds it locked
        if isinstance(exc, ReplicaError):
            raise
        raise failure(path, "opened", exc) from exc


def is_damage(exc: Exception) -> bool:
    """Whether *exc* says that replica.db is no sound database any more."""
    # "database is locked", "disk is full" and the like are errors of a subclass. So is a text that
    # is no UTF-8, which nobody wrote: most of a row is text.
    return (
        isinstance(exc, ReplicaDamaged)
        or type(exc) is sqlite3.DatabaseError
        or (isinstance(exc, sqlite3.OperationalError) and str(exc).startswith(NO_TEXT))
    )


def failure(path: Path | None, what: str, exc: sqlite3.Error) -> ReplicaError:
    """The error that the file *path* cannot be opened or written (*what*), because of *exc*."""
    kind = ReplicaDamaged if is_damage(exc) else ReplicaError
    return kind(f"{path}: cannot be {what}: {_reason(path, exc)}")


def _reason(path: Path | None, exc: sqlite3.Error) -> str:
    """SQLite tells neither what to do about a lock, nor which file is closed to this user."""
    if _is_locked(exc):
        return (
            "another ha engine uses it, or a tool such as sqlite3: close that. Masters that share "
            "pki_dir need a state folder each: set  ha: state_dir"
        )
    for each in [path.parent, *files_of(path)] if path else ():
        if os.path.exists(each) and not os.access(each, os.W_OK):  # noqa: PTH110 - raises nothing
            return f"{each} is read-only, or belongs to another user"
    return str(exc)


def files_of(path: Path) -> list[Path]:
    """The file *path* of SQLite, and those that SQLite puts beside it."""
    return [path.with_name(path.name + end) for end in ("", "-wal", "-shm")]


def in_use(path: Path) -> bool:
    """Whether a process on any host has the replica at *path* open."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", timeout=0, uri=True)) as db:
            db.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as exc:
        return _is_locked(exc)
    except sqlite3.Error:
        pass
    return False


def _is_locked(exc: sqlite3.Error) -> bool:
    """By SQLite's text: Python 3.10 does not tell its code."""
    return "locked" in str(exc)
