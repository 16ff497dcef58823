"""What masters vouch for, in replica.db: the table ``vouched``. See ``replication/vouching.py``."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Iterable

from saltext_ha.replication.vouching import Vouch

MOST_NODES = 16_384
"""
Of one certificate: a start an hour for two years. More are not remembered, and count as nodes
without a vouch.
"""


class Vouched:
    """
    The table in *db*, an open replica.db. A vouch that is taken counts at once, and is written with
    the next transaction, the one of the records that came with it.

    ``highs`` and ``owners`` are what ``replication/vouching.py`` takes. Reading is for any thread.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._lock = threading.Lock()
        self._members: frozenset[bytes] = frozenset()
        self._unwritten: dict[str, Vouch] = {}
        self._own = ""
        rows = db.execute("SELECT node, owner, nonce, high, proof FROM vouched")
        self._known = {node: Vouch(*rest) for node, *rest in rows}
        self.highs: dict[str, int] = {}
        self.owners = {node: vouch.owner for node, vouch in self._known.items()}
        self._count = Counter(self.owners.values())

    def members(self, owners: frozenset[bytes]) -> None:
        """
        The certificates of all members, former certificates too: a claim of their nodes beyond
        their vouch does not count. For a master that was removed no vouch is needed.
        """
        with self._lock:
            self._members = owners
            highs = {n: v.high for n, v in self._known.items() if v.owner in owners}
            if self._own:  # only in the table once this replica takes another name
                highs[self._own] = self.highs[self._own]
            self.highs = highs

    def get(self, node: str) -> Vouch | None:
        """The furthest that a node's master has vouched for."""
        return self._known.get(node)

    def all_of(self, owners: frozenset[bytes]) -> list[Vouch]:
        """Those of the nodes of one master, by its certificates."""
        return [vouch for vouch in list(self._known.values()) if vouch.owner in owners]

    def take(self, vouches: Iterable[Vouch]) -> None:
        """Take *vouches*, whose proofs were checked."""
        with self._lock:
            for vouch in vouches:
                node, known = vouch.node, self._known.get(vouch.node)
                if known and known.high >= vouch.high:
                    continue
                if known is None:
                    if self._count[vouch.owner] >= MOST_NODES:
                        continue
                    self._count[vouch.owner] += 1
                self._known[node] = self._unwritten[node] = vouch
                self.owners[node] = vouch.owner
                if vouch.owner in self._members:
                    self.highs[node] = max(vouch.high, self.highs.get(node, 0))

    def wrote(self, node: str, high: int, owner: bytes = b"") -> None:
        """Note how far this replica has written under its present name, which may be a new one."""
        with self._lock:
            if node != self._own:
                if self._own not in self._known:
                    self.highs.pop(self._own, None)
                self._own = node
                self.owners[node] = owner
            self.highs[node] = high

    def flush(self) -> None:
        """Write what was taken; before the end of a transaction."""
        self._db.executemany(
            "REPLACE INTO vouched (node, owner, nonce, high, proof) VALUES (?, ?, ?, ?, ?)",
            [(node, *vouch) for node, vouch in self._unwritten.items()],
        )

    def flushed(self) -> None:
        """Called when the transaction is durable."""
        self._unwritten.clear()
