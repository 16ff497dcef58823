"""
The history in replica.db: who wrote what about which key, and which decisions met.

It is for people only: it decides nothing, and its times order only the listing.

A write says when, where and by whom it was made. This master adds two columns that no other master
can choose: when the write came here, by this master's clock, and the pinned peer that sent it.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from typing import NamedTuple

import msgpack

from saltext_ha.common.errors import NO_SENSE, InvalidRecord
from saltext_ha.replica import serializers
from saltext_ha.replication.account import Account, Decision
from saltext_ha.replication.digest import bucket_of
from saltext_ha.replication.record import ACCEPTED, DENIED, PENDING, Dot, Record

VIA = " via "
"""Separates a name from the command that was used: ``root via ha.resolve``."""
BATCH = 500
HERE = 0
"""Stands for this master among the senders; peers have numbers from 1 on."""
MAX_GLOB, MAX_STARS = 256, 4

Place = tuple[float, str, int]
"""A position in the history: when the last line that was looked at came, its node and counter."""
BEGINNING: Place = (float("-inf"), "", 0)
AccountPlace = tuple[float, bytes]
BEGINNING_OF_ACCOUNTS: AccountPlace = (float("-inf"), b"")


class Receipt(NamedTuple):
    """
    The pinned peer that sent records, and when they came, by this master's clock (Unix seconds).
    """

    sender: str
    at: float


class Write(NamedTuple):
    """
    A write in the history, with its dot. ``sender`` is the peer that sent it, None if unknown.
    """

    node: str
    counter: int
    minion_id: str
    key: bytes
    state: str
    at: float
    by: str
    on: str
    received: float
    sender: str | None


class Line(NamedTuple):
    """
    One line of the history: a write (``state``, ``by``, ``on``), or an ``account`` of decisions
    that met here, seen at ``at`` by the clock of this master.

    The writer chose ``at``, ``by`` and ``on``. ``received`` (Unix seconds) is when the line came,
    by this master's clock. ``sender`` is the peer that sent it, empty if it was made here, None if
    unknown because the line is older than that column.
    """

    minion_id: str
    key: bytes
    at: float
    state: str = ""
    by: str = ""
    on: str = ""
    account: Account | None = None
    received: float = 0.0
    sender: str | None = ""


class History:
    """
    The history in *db*, an open replica.db; methods that write are called inside a transaction.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def wrote(self, records: Iterable[Record], receipt: Receipt | None = None) -> None:
        """
        Remember who wrote the values of *records*, if that is not known yet.

        :param receipt: who sent the records, and when they came; None: they were made here.
        """
        number = self._number(receipt.sender) if receipt else HERE
        self._db.executemany(
            "INSERT OR IGNORE INTO history (node, counter, id, key, state, at, by_whom, on_master,"
            " received, sender) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    *v.dot,
                    record.minion_id,
                    record.fingerprint,
                    v.state,
                    v.at,
                    v.by,
                    v.on,
                    receipt.at if receipt else v.at,
                    number,
                )
                for record in records
                for v in record.values
            ],
        )

    def _number(self, sender: str) -> int | None:
        """The number of a peer; None if it has no name."""
        if not sender:
            return None
        self._db.execute("INSERT OR IGNORE INTO sender (name) VALUES (?)", (sender,))
        row = self._db.execute("SELECT number FROM sender WHERE name = ?", (sender,)).fetchone()
        return int(row[0])

    def explain(self, minion_id: str, account: Account, at: float) -> None:
        """Remember *account* of *minion_id*, only once."""
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
        The last *limit* lines about ids that match *glob*, the last received first. The history has
        those writes of other masters that this master ever held.

        :param since: leave out lines received before this time, in Unix seconds.
        :param by: a glob over the names of those who decided, without their commands.
        """
        chosen = (sqlite_glob(glob), float("-inf") if since is None else since)
        name = sqlite_glob(by)
        writes = self._db.execute(
            "SELECT history.id, key, at, state, by_whom, on_master, received,"
            " CASE sender WHEN 0 THEN '' ELSE name END"
            " FROM history LEFT JOIN sender ON sender.number = history.sender"
            " WHERE id GLOB ? AND received >= ? AND (by_whom GLOB ? OR by_whom GLOB ?)"
            " ORDER BY received DESC, at DESC, counter DESC LIMIT ?",
            (*chosen, name, f"{name}{VIA}*", limit),
        )
        lines = [
            Line(minion_id, key, at, state, by_whom, on, None, received, sender)
            for minion_id, key, at, state, by_whom, on, received, sender in writes
        ]
        accounts = self._db.execute(
            "SELECT id, key, at, body FROM account WHERE id GLOB ? AND at >= ? ORDER BY at DESC",
            chosen,
        )
        told = (
            Line(minion_id, key, at, account=_account(body), received=at)
            for minion_id, key, at, body in accounts
        )
        lines += islice((line for line in told if _names(line, by)), limit)
        # An account follows the decisions that it tells of.
        lines.sort(
            key=lambda line: (line.received, line.account is not None, line.at), reverse=True
        )
        return lines[:limit]

    # -- what one peer did

    def told_by(self, names: Sequence[str], since: float, after: Place, limit: int) -> list[Write]:
        """
        The next *limit* writes that a peer of *names* sent or, as they say, made, in the order of
        :data:`Place`; without those made here.

        :param since: leave out writes received before this time, in Unix seconds.
        :param after: where to continue; :data:`BEGINNING` at first.
        """
        marks = ", ".join("?" * len(names))
        # With a single bound, the index leads straight to the beginning of the page.
        start = max(after, (since, "", 0))
        return [
            Write(*row)
            for row in self._db.execute(
                "SELECT node, counter, id, key, state, at, by_whom, on_master, received, name"  # nosec B608
                " FROM history LEFT JOIN sender ON sender.number = history.sender"
                " WHERE (received, node, counter) > (?, ?, ?) AND sender IS NOT 0"
                f" AND (name IN ({marks}) OR on_master IN ({marks}))"
                " ORDER BY received, node, counter LIMIT ?",
                (*start, *names, *names, limit),
            )
        ]

    def made_here(self, writes: Iterable[tuple[str, int, str, bytes, str]]) -> list[int]:
        """Positions of those *writes* (node, counter, id, key, state) that were made here."""
        return [
            position
            for position, write in enumerate(writes)
            if self._db.execute(
                "SELECT 1 FROM history WHERE (node, counter, id, key, state) = (?, ?, ?, ?, ?)"
                " AND sender = 0",
                write,
            ).fetchone()
        ]

    def said(self, dot: Dot) -> tuple[str, bytes, str] | None:
        """The id, key and state of a write, or None if it is unknown."""
        row = self._db.execute(
            "SELECT id, key, state FROM history WHERE node = ? AND counter = ?", dot
        ).fetchone()
        return (row[0], row[1], row[2]) if row else None

    def decisions(self, minion_id: str, key: bytes) -> list[tuple[Dot, str]]:
        """The writes about a key, as (dot, state), the last received first."""
        return [
            (Dot(node, counter), state)
            for node, counter, state in self._db.execute(
                "SELECT node, counter, state FROM history WHERE id = ? AND key = ?"
                " ORDER BY received DESC, at DESC, counter DESC",
                (minion_id, key),
            )
        ]

    def was_accepted(self, minion_id: str, key: bytes) -> bool | None:
        """
        Whether a key was ever accepted; also if its first lines were dropped, and what is left was
        decided here. None: unknown, as all that is known came from a peer, which may know more.
        """
        lines = self._db.execute(
            "SELECT state, sender FROM history WHERE id = ? AND key = ?"
            " ORDER BY received, at, counter",
            (minion_id, key),
        ).fetchall()
        if any(state == ACCEPTED for state, _ in lines):
            return True
        first, sender = lines[0] if lines else ("", None)
        if first in (PENDING, DENIED):
            return False
        return True if sender == HERE else None

    # -- pruning

    def prune(self, before: float, place: Place) -> Place | None:
        """
        Drop a limited number of lines received before *before* (Unix seconds), from *place* on.

        While its key has a record, a line of any age stays if it is the last line about that key,
        or tells of a value that the record still has.

        :return: where to continue, or None at the end.
        """
        rows = self._db.execute(
            "SELECT received, node, counter, id, key, EXISTS ("
            "  SELECT 1 FROM history AS later WHERE later.id = line.id AND later.key = line.key"
            "  AND (later.received, later.at, later.counter, later.node)"
            "    > (line.received, line.at, line.counter, line.node))"
            " FROM history AS line WHERE received < ? AND (received, node, counter) > (?, ?, ?)"
            " ORDER BY received, node, counter LIMIT ?",
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
        received, node, counter = rows[-1][:3]
        return received, node, counter

    def prune_accounts(self, before: float, place: AccountPlace) -> AccountPlace | None:
        """The same for accounts: the last one about a key, or about several of an id, stays."""
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
        """Whether *key* (empty: any key) has a record; with *dot*: and still has that value."""
        row = self._db.execute(
            "SELECT body FROM record WHERE bucket = ? AND id = ? AND ? IN (key, x'') LIMIT 1",
            (bucket_of(minion_id), minion_id, key),
        ).fetchone()
        if row is None or dot is None:
            return row is not None
        record = serializers.record(minion_id, key, "", row[0])
        return any(value.dot == dot for value in record.values)


def sqlite_glob(glob: str) -> str:
    """
    A shell's glob as SQLite needs it: a shell negates a set by "!", SQLite by "^".

    :raises InvalidRecord: SQLite could match the glob for ever; every star multiplies the time.
    """
    if len(glob) > MAX_GLOB or glob.count("*") > MAX_STARS:
        raise InvalidRecord(f"takes a glob of at most {MAX_GLOB} characters and {MAX_STARS} stars")
    return glob.replace("[!", "[^")


def _names(line: Line, by: str) -> bool:
    decisions = line.account.decisions if line.account else ()
    return any(fnmatchcase(decided.by.partition(VIA)[0], by) for decided in decisions)


def _account(body: bytes) -> Account:
    try:
        kind, key, outcome, decisions = msgpack.unpackb(body)
        return Account(kind, key, outcome, tuple(Decision(*decided) for decided in decisions))
    except NO_SENSE as exc:
        raise serializers.damage(exc) from exc
