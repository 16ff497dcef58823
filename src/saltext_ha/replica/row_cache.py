"""
A cache of rows of replica.db for the ids that are being worked on, read and written in bulk.

A batch of five hundred ids reads each row several times, and writes some twice in one transaction.
A statement for each would cost more than the rest of the work. No other process writes the file, so
the cache stays true until a transaction is undone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from saltext_ha.common.batches import batches
from saltext_ha.replica import serializers
from saltext_ha.replica.serializers import NEVER, Applied
from saltext_ha.replication.digest import bucket_of
from saltext_ha.replication.placement import Stored
from saltext_ha.replication.record import Record, record_digest

MAX_IDS = 2000
"""Ids that are kept between transactions: a few batches."""
PER_STATEMENT = 250
"""Ids in one SELECT; SQLite before 3.32 takes at most 999 parameters, an id needs two."""


class Kept(NamedTuple):
    """A row of the table ``record``."""

    record: Record
    digest: bytes


class Shown(NamedTuple):
    """A row of the table ``stored``; :data:`NOTHING` stands for none."""

    applied: Applied
    digest: bytes
    mark: int


NOTHING = Shown(NEVER, b"", 0)


class FirstLook(NamedTuple):
    """What is recorded of an id of which nothing was known."""

    record: Record
    stored: Stored
    mark: int


PUT = "REPLACE INTO record (bucket, id, key, pub, state, body, digest) VALUES (?, ?, ?, ?, ?, ?, ?)"
SHOW = (
    "REPLACE INTO stored (bucket, id, state, body, digest, denied, dirty, doing, mark)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class Rows:
    """The cache for *db*, an open replica.db."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._records: dict[str, dict[bytes, Kept]] = {}
        self._shown: dict[str, Shown] = {}
        self._to_write: dict[tuple[str, bytes], Kept | None] = {}
        self._to_show: dict[str, Shown] = {}

    # -- reading

    def bring(self, ids: Iterable[str]) -> None:
        """Read the rows of *ids* in one go."""
        self._make_room()
        ids = list(ids)
        self._bring_records([i for i in ids if i not in self._records])
        self._bring_shown([i for i in ids if i not in self._shown])

    def records(self, minion_id: str) -> dict[bytes, Kept]:
        """The records of an id by fingerprint; the caller must not change them."""
        if minion_id not in self._records:
            self._make_room()
            self._bring_records([minion_id])
        return self._records[minion_id]

    def shown(self, minion_id: str) -> Shown:
        """What the store shows for an id, as last recorded."""
        if minion_id not in self._shown:
            self._make_room()
            self._bring_shown([minion_id])
        return self._shown[minion_id]

    def is_known(self, minion_id: str) -> bool:
        """Whether an id has any row."""
        return bool(self.records(minion_id)) or self.shown(minion_id) is not NOTHING

    def at_stake(self, ids: Sequence[str]) -> set[str]:
        """See :meth:`.Replica.at_stake`; asks SQLite, because hardly any row is needed in full."""
        accepted = self._select("id", "stored", ids, "state = 'accepted'")
        revoked = self._select("id", "record", ids, "state IN ('deleted', 'rejected')")
        return {minion_id for (minion_id,) in chain(accepted, revoked)}

    # -- writing

    def put(self, record: Record) -> tuple[bytes, bytes]:
        """Have :meth:`flush` write *record*; return its digest before (empty: none) and now."""
        known = self.records(record.minion_id)
        old = known.get(record.fingerprint)
        new = known[record.fingerprint] = Kept(record, record_digest(record))
        self._to_write[record.minion_id, record.fingerprint] = new
        return old.digest if old else b"", new.digest

    def add(self, first: Iterable[FirstLook]) -> list[tuple[str, bytes, bytes]]:
        """
        Write the rows of ids without rows, now. They are not kept: hardly any is read soon, and to
        keep those of a first pass takes a sixth of its time.

        :return: for each the id, and the digests of both rows.
        """
        records, shown, digests = [], [], []
        for record, stored, mark in first:
            minion_id = record.minion_id
            self._records.pop(minion_id, None)
            self._shown.pop(minion_id, None)
            digest = record_digest(record)
            placed = serializers.placement_digest(minion_id, stored)
            records.append(_record_row(record, digest))
            shown.append(_shown_row(minion_id, Applied(stored), placed, mark))
            digests.append((minion_id, digest, placed))
        self._db.executemany(PUT, records)
        self._db.executemany(SHOW, shown)
        return digests

    def drop(self, record: Record) -> None:
        """Have :meth:`flush` delete *record*."""
        self.records(record.minion_id).pop(record.fingerprint, None)
        self._to_write[record.minion_id, record.fingerprint] = None

    def show(self, minion_id: str, shown: Shown) -> None:
        """Have :meth:`flush` write *shown*, or delete the id's row if nothing is applied."""
        row = NOTHING if shown.applied == NEVER else shown
        self._shown[minion_id] = self._to_show[minion_id] = row

    def flush(self) -> None:
        """Write all changes; before the end of a transaction."""
        self._db.executemany(
            "DELETE FROM record WHERE bucket = ? AND id = ? AND key = ?",
            [(bucket_of(i), i, key) for (i, key), kept in self._to_write.items() if kept is None],
        )
        self._db.executemany(
            PUT,
            [_record_row(*kept) for kept in self._to_write.values() if kept],
        )
        self._db.executemany(
            "DELETE FROM stored WHERE bucket = ? AND id = ?",
            [(bucket_of(i), i) for i, shown in self._to_show.items() if shown is NOTHING],
        )
        self._db.executemany(
            SHOW,
            [_shown_row(i, *row) for i, row in self._to_show.items() if row is not NOTHING],
        )
        self._to_write.clear()
        self._to_show.clear()

    def undo(self) -> None:
        """The transaction was undone: forget all rows."""
        for rows in (self._records, self._shown, self._to_write, self._to_show):
            rows.clear()

    # -- inside

    def _make_room(self) -> None:
        kept = max(len(self._records), len(self._shown))
        if kept > MAX_IDS and not self._to_write and not self._to_show:
            self._records.clear()
            self._shown.clear()

    def _bring_records(self, ids: list[str]) -> None:
        found: dict[str, dict[bytes, Kept]] = {minion_id: {} for minion_id in ids}
        for *row, digest in self._select("id, key, pub, body, digest", "record", ids):
            found[row[0]][row[1]] = Kept(serializers.record(*row), digest)
        # Last: if reading fails, these ids must not count as empty.
        self._records.update(found)

    def _bring_shown(self, ids: list[str]) -> None:
        found = dict.fromkeys(ids, NOTHING)
        for minion_id, body, doing, digest, mark in self._select(
            "id, body, doing, digest, mark", "stored", ids
        ):
            applied = Applied(serializers.stored(body), *serializers.doing(doing))
            found[minion_id] = Shown(applied, digest, mark)
        self._shown.update(found)

    def _select(
        self, names: str, table: str, ids: Sequence[str], condition: str = "1"
    ) -> Iterator[tuple[Any, ...]]:
        for some in batches(ids, PER_STATEMENT):
            marks = ", ".join(["(?, ?)"] * len(some))
            yield from self._db.execute(
                # With "(bucket, id) IN (VALUES ...)" SQLite would scan the whole table.
                f"WITH wanted (bucket, id) AS (VALUES {marks})"  # nosec B608 - no values in it
                f" SELECT {names} FROM wanted CROSS JOIN {table} USING (bucket, id)"
                f" WHERE {condition}",
                [part for minion_id in some for part in (bucket_of(minion_id), minion_id)],
            )


def _record_row(record: Record, digest: bytes) -> tuple[object, ...]:
    return (
        bucket_of(record.minion_id),
        record.minion_id,
        record.fingerprint,
        record.public_key,
        record.state,
        serializers.of_record(record),
        digest,
    )


def _shown_row(minion_id: str, applied: Applied, digest: bytes, mark: int) -> tuple[object, ...]:
    stored, known, aims = applied
    return (
        bucket_of(minion_id),
        minion_id,
        stored.state,
        serializers.of_stored(stored),
        digest,
        len(stored.denied),
        applied.dirty,
        serializers.of_doing(known, aims) if applied.dirty else None,
        mark,
    )
