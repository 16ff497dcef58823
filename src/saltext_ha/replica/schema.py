"""
The tables of replica.db, and a list of migrations.

A new release may append migrations, and never changes a released one, nor the tables. An older file
gets the migrations that it lacks, a new file the tables and all migrations.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from saltext_ha.common.fail_points import point

FIRST = 10
"""
The schema of :data:`TABLES`. Files with a lower number were written before 28 November 2026, and
are refused: commit c4f90a34 upgrades them.
"""

TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE record (
    bucket INTEGER NOT NULL, id TEXT NOT NULL, key BLOB NOT NULL, pub TEXT NOT NULL,
    state TEXT, body BLOB NOT NULL, digest BLOB NOT NULL,
    PRIMARY KEY (bucket, id, key)
) WITHOUT ROWID;
CREATE INDEX record_deleted ON record (id) WHERE state = 'deleted';
CREATE TABLE stored (
    bucket INTEGER NOT NULL, id TEXT NOT NULL, state TEXT, body BLOB NOT NULL,
    digest BLOB NOT NULL, denied INTEGER NOT NULL, dirty INTEGER NOT NULL, doing BLOB,
    mark INTEGER NOT NULL,
    PRIMARY KEY (bucket, id)
) WITHOUT ROWID;
CREATE INDEX stored_dirty ON stored (id) WHERE dirty;
CREATE INDEX stored_state ON stored (state);
CREATE INDEX stored_denied ON stored (id) WHERE denied;
CREATE TABLE node (node TEXT PRIMARY KEY, counter INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE held (id TEXT PRIMARY KEY, since REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE horizon (node TEXT PRIMARY KEY, counter INTEGER NOT NULL) WITHOUT ROWID;

-- When a line came, by this master's clock, and from whom. Lines of an upgraded file may have no
-- sender; they came when they were written.
CREATE TABLE history (
    node TEXT NOT NULL, counter INTEGER NOT NULL, id TEXT NOT NULL, key BLOB NOT NULL,
    state TEXT NOT NULL, at REAL NOT NULL, by_whom TEXT NOT NULL, on_master TEXT NOT NULL,
    received REAL NOT NULL DEFAULT 0, sender INTEGER,
    PRIMARY KEY (node, counter)
) WITHOUT ROWID;
CREATE INDEX history_received ON history (received);
CREATE TABLE sender (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);

-- Decisions that met, and which one holds; the name is a hash, the same whenever the same is seen.
CREATE TABLE account (
    name BLOB PRIMARY KEY, id TEXT NOT NULL, key BLOB NOT NULL, at REAL NOT NULL,
    body BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX account_id ON account (id);
CREATE INDEX account_at ON account (at);

-- How far masters say that their nodes have written; see replication/vouching.py.
CREATE TABLE vouched (
    node TEXT PRIMARY KEY, owner BLOB NOT NULL, nonce BLOB NOT NULL, high INTEGER NOT NULL,
    proof BLOB NOT NULL
) WITHOUT ROWID;

-- Which version of each tree is current; see replication/deployment.py.
CREATE TABLE tree (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;

-- Who made a version current, and when: deployments that this master ever heard of.
CREATE TABLE deployment (
    tree TEXT NOT NULL, number INTEGER NOT NULL, at REAL NOT NULL, by_whom TEXT NOT NULL,
    on_master TEXT NOT NULL, source TEXT NOT NULL, message TEXT NOT NULL, received REAL NOT NULL,
    sender TEXT NOT NULL,
    PRIMARY KEY (tree, number, at, on_master)
) WITHOUT ROWID;

-- The last runs under each name; see replication/runs.py.
CREATE TABLE run (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
"""
"""What a new file gets, before the migrations."""

MIGRATIONS: Sequence[str] = ()
"""The migration from schema FIRST + n to the next one, by n."""

INDEXES = """
CREATE INDEX IF NOT EXISTS record_accepted ON record (id, state) WHERE state = 'accepted';
CREATE INDEX IF NOT EXISTS history_id ON history (id);
"""
"""
Left out while a replica is first filled.

These indexes are sorted by id, but keys come by bucket: each of their pages would be written again
and again, a fifth of the work with 100 000 keys. Made at the end, they take 0.2 s.
"""


def latest() -> int:
    """The number of the schema that this release writes."""
    return FIRST + len(MIGRATIONS)


def migrate(db: sqlite3.Connection, version: int, node: str) -> None:
    """
    Upgrade a file from *version* (0: an empty file), completely or not at all.

    :param node: the node name for an empty file: a crash must not leave a replica without a name.
    """
    steps = [*MIGRATIONS[max(0, version - FIRST) :]]
    if version == 0:
        names = f"INSERT INTO meta VALUES ('node', '{node}'), ('blank', '1');"  # nosec B608
        steps = [TABLES, *steps, names]
    steps.append(f"PRAGMA user_version = {latest()};")
    try:
        db.executescript(f"BEGIN IMMEDIATE; {' '.join(steps)} COMMIT;")
        point("replica.created")
    except sqlite3.Error:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
