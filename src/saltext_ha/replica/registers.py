"""Registers that masters write together: a table of replica.db for each kind."""

from __future__ import annotations

import sqlite3
from typing import Literal


class Registers:
    """
    One table of *db*, an open replica.db: ``tree`` has the current version of each tree, ``run``
    the last runs under each name. ``trees/register_rows.py`` and ``once/run_rows.py`` read the
    bodies.
    """

    def __init__(self, db: sqlite3.Connection, table: Literal["tree", "run"]) -> None:
        self._db, self._table = db, table

    def all(self) -> dict[str, bytes]:
        """Name → body."""
        return dict(self._db.execute(f"SELECT name, body FROM {self._table}"))  # nosec B608

    def put(self, name: str, body: bytes) -> None:
        """Write a register; inside a transaction only."""
        self._db.execute(
            f"REPLACE INTO {self._table} VALUES (?, ?)",  # nosec B608
            (name, body),
        )

    def drop(self, name: str) -> None:
        """Forget a register; inside a transaction only."""
        self._db.execute(f"DELETE FROM {self._table} WHERE name = ?", (name,))  # nosec B608
