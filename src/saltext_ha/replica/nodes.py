"""
How far this replica has seen each node write: the table ``node`` of replica.db.

A node is a name under which one replica writes; its counter numbers the writes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping


class Nodes:
    """The table in *db*, an open replica.db; methods that write are called inside a transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def saw(self, counters: Mapping[str, int]) -> None:
        """Note how far nodes have written."""
        self._db.executemany(
            "INSERT INTO node VALUES (?, ?) ON CONFLICT (node)"
            " DO UPDATE SET counter = max(counter, excluded.counter)",
            counters.items(),
        )

    def seen(self) -> dict[str, int]:
        """Node → the highest counter seen."""
        return dict(self._db.execute("SELECT node, counter FROM node"))

    def seen_of(self, node: str) -> int:
        """The highest counter seen of one node; 0 if it was never seen."""
        row = self._db.execute("SELECT counter FROM node WHERE node = ?", (node,)).fetchone()
        return int(row[0]) if row else 0

    def unsee(self, highs: Mapping[str, int]) -> None:
        """Note that nodes have written no further than *highs*, though records claimed it."""
        for table in ("node", "horizon"):
            self._db.executemany(
                f"UPDATE {table} SET counter = min(counter, ?) WHERE node = ?",  # nosec B608
                [(high, node) for node, high in highs.items()],
            )

    def forget(self, context: Iterable[tuple[str, int]], most: int, own: str) -> None:
        """
        Forget the writes of a poisoned *context*, except those in the history and up to *most*.

        :param own: the node of this replica; its writes are not forgotten.
        """
        for node, _ in context:
            if node != own:
                self._db.execute(
                    "REPLACE INTO node SELECT node, max(counter) FROM history"
                    " WHERE node = ? AND counter <= ? GROUP BY node",
                    (node, most),
                )
                self._db.execute(
                    "DELETE FROM node WHERE node = ? AND (counter > ? OR NOT EXISTS"
                    " (SELECT 1 FROM history WHERE history.node = node.node))",
                    (node, most),
                )
