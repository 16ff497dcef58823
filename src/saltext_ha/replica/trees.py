"""What is current of each tree, in replica.db: the table ``tree``."""

from __future__ import annotations

import sqlite3


class Trees:
    """Of *db*, an open replica.db. What a body says is for ``trees/register_rows.py``."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def all(self) -> dict[str, bytes]:
        """Name → body."""
        return dict(self._db.execute("SELECT name, body FROM tree"))

    def put(self, name: str, body: bytes) -> None:
        """Write one; inside a transaction only."""
        self._db.execute("REPLACE INTO tree VALUES (?, ?)", (name, body))
