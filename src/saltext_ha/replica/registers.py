"""Registers that masters write together: a table of replica.db for each kind."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import msgpack

from saltext_ha.common.errors import NO_SENSE, InvalidRecord
from saltext_ha.replica import serializers

T = TypeVar("T")


class Registers:
    """
    One table of *db*, an open replica.db: ``tree`` has the current version of each tree, ``run``
    the last runs under each name. ``trees/registers.py`` and ``once/runs.py`` make the rows.
    """

    def __init__(self, db: sqlite3.Connection, table: Literal["tree", "run"]) -> None:
        self._db, self._table = db, table

    def all(self, read: Callable[[Any], T]) -> dict[str, T]:
        """
        Name → what *read* makes of the rows.

        :raises ReplicaDamaged: they make no sense.
        """
        rows = self._db.execute(f"SELECT name, body FROM {self._table}")  # nosec B608
        try:
            return {name: read(msgpack.unpackb(body)) for name, body in rows}
        except (InvalidRecord, *NO_SENSE) as exc:
            raise serializers.damage(exc) from exc

    def put(self, name: str, rows: list[Any]) -> None:
        """Write a register; inside a transaction only."""
        self._db.execute(
            f"REPLACE INTO {self._table} VALUES (?, ?)",  # nosec B608
            (name, msgpack.packb(rows)),
        )

    def drop(self, name: str) -> None:
        """Forget a register; inside a transaction only."""
        self._db.execute(f"DELETE FROM {self._table} WHERE name = ?", (name,))  # nosec B608
