"""
What replica.db tells of the past: who wrote what about which key, and why it went as it did.

For people only; nothing is decided by it, and the clocks in it order nothing but the listing.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable
from fnmatch import fnmatchcase
from itertools import islice
from typing import NamedTuple

import msgpack

from saltext_ha.errors import InvalidRecord
from saltext_ha.replication.account import Account, Decided
from saltext_ha.replication.digest import bucket_of
from saltext_ha.replication.record import Record

VIA = " via "
"""Between a name and the command that was used: ``root via ha.resolve``."""
BATCH = 500
MAX_GLOB, MAX_STARS = 256, 4

Place = tuple[float, str, int]
"""Where pruning has got to: time, node and counter of the last line that was looked at."""
BEGINNING: Place = (float("-inf"), "", 0)
AccountPlace = tuple[float, bytes]
BEGINNING_OF_ACCOUNTS: AccountPlace = (float("-inf"), b"")


class Line(NamedTuple):
    """
    One line of the history: a write (``state``, ``by``, ``on``), or an ``account`` of what met
    here, seen at ``at`` by the clock of this master.
    """

    minion_id: str
    key: bytes
    at: float
    state: str = ""
    by: str = ""
    on: str = ""
    account: Account | None = None


class History:
    """
    The history in *db*, an open replica.db; everything that writes is called inside a transaction.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def wrote(self, records: Iterable[Record]) -> None:
        """Remember who wrote the values of *records*, as far as that is not known yet."""
        self._db.executemany(
            "INSERT OR IGNORE INTO history VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (*v.dot, record.minion_id, record.fingerprint, v.state, v.at, v.by, v.on)
                for record in records
                for v in record.values
            ],
        )

    def explain(self, minion_id: str, account: Account, at: float) -> None:
        """Remember what was seen to happen to *minion_id*, once."""
        body = msgpack.packb(account)
        name = hashlib.blake2b(minion_id.encode() + b"\n" + body, digest_size=16).digest()
        self._db.execute(
            "INSERT OR IGNORE INTO account VALUES (?, ?, ?, ?, ?)",
            (name, minion_id, account.key, at, body),
        )

    # -- looking

    def lines(
        self, glob: str = "*", limit: int = 100, since: float | None = None, by: str = "*"
    ) -> list[Line]:
        """
        The last *limit* lines about ids that match *glob*, newest first as their writers' clocks
        have it. Writes of other masters are here as far as this one ever held them.

        :param since: nothing older than this, in Unix seconds.
        :param by: a glob over the names of those who decided; their commands are no part of them.
        """
        chosen = (sqlite_glob(glob), float("-inf") if since is None else since)
        name = sqlite_glob(by)
        writes = self._db.execute(
            "SELECT id, key, at, state, by_whom, on_master FROM history WHERE id GLOB ? AND at >= ?"
            " AND (by_whom GLOB ? OR by_whom GLOB ?) ORDER BY at DESC, counter DESC LIMIT ?",
            (*chosen, name, f"{name}{VIA}*", limit),
        )
        lines = [Line(*row) for row in writes]
        accounts = self._db.execute(
            "SELECT id, key, at, body FROM account WHERE id GLOB ? AND at >= ? ORDER BY at DESC",
            chosen,
        )
        told = (
            Line(minion_id, key, at, account=_account(body))
            for minion_id, key, at, body in accounts
        )
        lines += islice((line for line in told if _names(line, by)), limit)
        # What met is told after the decisions that did.
        lines.sort(key=lambda line: (line.at, line.account is not None), reverse=True)
        return lines[:limit]

    # -- pruning

    def prune(self, before: float, place: Place) -> Place | None:
        """
        Drop lines older than *before* (Unix seconds) from *place* on, a limited number of them.

        A line stays, however old, while the record of its key does, when it is the last one about
        that key or tells of a value that still stands.

        :return: where to go on, or None at the end.
        """
        rows = self._db.execute(
            "SELECT at, node, counter, id, key, EXISTS ("
            "  SELECT 1 FROM history AS later WHERE later.id = line.id AND later.key = line.key"
            "  AND (later.at, later.counter, later.node) > (line.at, line.counter, line.node))"
            " FROM history AS line WHERE at < ? AND (at, node, counter) > (?, ?, ?)"
            " ORDER BY at, node, counter LIMIT ?",
            (before, *place, BATCH),
        ).fetchall()
        gone = [
            (node, counter)
            for _, node, counter, minion_id, key, is_old in rows
            if not self._stands(minion_id, key, (node, counter) if is_old else None)
        ]
        self._db.executemany("DELETE FROM history WHERE node = ? AND counter = ?", gone)
        if len(rows) < BATCH:
            return None
        at, node, counter = rows[-1][:3]
        return at, node, counter

    def prune_accounts(self, before: float, place: AccountPlace) -> AccountPlace | None:
        """The same for what met: the last account of a key, or of several keys of an id, stays."""
        rows = self._db.execute(
            "SELECT at, name, id, key, EXISTS ("
            "  SELECT 1 FROM account AS later WHERE later.id = told.id AND later.key = told.key"
            "  AND (later.at, later.name) > (told.at, told.name))"
            " FROM account AS told WHERE at < ? AND (at, name) > (?, ?)"
            " ORDER BY at, name LIMIT ?",
            (before, *place, BATCH),
        ).fetchall()
        gone = [
            (name,)
            for _, name, minion_id, key, is_old in rows
            if is_old or not self._stands(minion_id, key)
        ]
        self._db.executemany("DELETE FROM account WHERE name = ?", gone)
        return None if len(rows) < BATCH else (rows[-1][0], rows[-1][1])

    def _stands(self, minion_id: str, key: bytes, dot: tuple[str, int] | None = None) -> bool:
        """Whether *key* (empty: any key) has a record, with the value *dot* if one is named."""
        row = self._db.execute(
            "SELECT body FROM record WHERE bucket = ? AND id = ? AND ? IN (key, x'') LIMIT 1",
            (bucket_of(minion_id), minion_id, key),
        ).fetchone()
        if row is None or dot is None:
            return row is not None
        values, _ = msgpack.unpackb(row[0])
        return any(tuple(value[0]) == dot for value in values)


def sqlite_glob(glob: str) -> str:
    """
    A shell's glob as SQLite writes it: a shell negates a set by "!", SQLite by "^".

    :raises InvalidRecord: matching it could take SQLite for ever; every star multiplies.
    """
    if len(glob) > MAX_GLOB or glob.count("*") > MAX_STARS:
        raise InvalidRecord(f"takes a glob of at most {MAX_GLOB} characters and {MAX_STARS} stars")
    return glob.replace("[!", "[^")


def _names(line: Line, by: str) -> bool:
    decisions = line.account.decisions if line.account else ()
    return any(fnmatchcase(decided.by.partition(VIA)[0], by) for decided in decisions)


def _account(body: bytes) -> Account:
    kind, key, outcome, decisions = msgpack.unpackb(body)
    return Account(kind, key, outcome, tuple(Decided(*decided) for decided in decisions))
