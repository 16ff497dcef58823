"""
What replica.db remembers of tombstones that the group has dropped (``sync/retention.py``).

It does not remember the tombstones, but up to which writes and how often the group dropped some.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from saltext_ha.replica.meta import Meta


class Dropped:
    """The horizon and the epoch in *db*, an open replica.db; *meta* is its table ``meta``."""

    def __init__(self, db: sqlite3.Connection, meta: Meta) -> None:
        self._db = db
        self._meta = meta

    def horizon(self) -> dict[str, int]:
        """
        The writes that all masters have had: if the record of such a write is not here, it was
        dropped.
        """
        return dict(self._db.execute("SELECT node, counter FROM horizon"))

    @property
    def epoch(self) -> int:
        """How often the group has dropped records."""
        return self._meta.read("epoch", lambda text: int(text or 0))

    def raise_horizon(self, horizon: Mapping[str, int], epoch: int) -> None:
        """All masters have had the writes in *horizon*; inside a transaction only."""
        self._db.executemany(
            "INSERT INTO horizon VALUES (?, ?) ON CONFLICT (node)"
            " DO UPDATE SET counter = max(counter, excluded.counter)",
            horizon.items(),
        )
        self._meta.set("epoch", str(max(epoch, self.epoch)))
