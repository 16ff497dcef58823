"""The held changes: the table ``held`` of replica.db."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable

from saltext_ha.replica.history import sqlite_glob


class HeldIds:
    """The table in *db*, an open replica.db; methods that write are called inside a transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.count = 0
        """How many ids are held; may be read from any thread."""
        self._changed = True
        self.committed()

    def __contains__(self, minion_id: str) -> bool:
        if not self.count and not self._changed:  # mostly
            return False
        row = self._db.execute("SELECT 1 FROM held WHERE id = ?", (minion_id,)).fetchone()
        return row is not None

    def all(self, glob: str = "*") -> dict[str, float]:
        """Held ids that match *glob* → since when (Unix seconds)."""
        if glob == "*":
            # Called for each change, and SQLite plans a query with a bound pattern anew each time.
            return dict(self._db.execute("SELECT id, since FROM held ORDER BY id"))
        rows = self._db.execute(
            "SELECT id, since FROM held WHERE id GLOB ? ORDER BY id", (sqlite_glob(glob),)
        )
        return dict(rows)

    def by_state(self) -> Counter[str]:
        """Number of held ids by the state of their slot, as it was last recorded."""
        if not self.count and not self._changed:  # mostly
            return Counter()
        # Without CROSS JOIN, SQLite would read the whole table for each held id.
        rows = self._db.execute(
            "SELECT state, count(*) FROM stored CROSS JOIN held USING (id) GROUP BY state"
        )
        return Counter({state: number for state, number in rows if state})

    def add(self, ids: Iterable[str], since: float) -> None:
        """Remember held changes."""
        self._changed = True
        self._db.executemany("INSERT OR IGNORE INTO held VALUES (?, ?)", [(i, since) for i in ids])

    def discard(self, ids: Iterable[str]) -> None:
        """Forget held changes."""
        self._changed = True
        self._db.executemany("DELETE FROM held WHERE id = ?", [(i,) for i in ids])

    def committed(self) -> None:
        """Called when the transaction is durable."""
        if self._changed:
            self.count = int(self._db.execute("SELECT count(*) FROM held").fetchone()[0])
            self._changed = False
