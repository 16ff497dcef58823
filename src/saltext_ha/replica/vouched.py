"""Masters' vouches: the table ``vouched`` of replica.db. See ``replication/vouching.py``."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Iterable

from saltext_ha.replication.vouching import Vouch

MOST_NODES = 16_384
"""
Most nodes of one certificate: a start an hour for two years. More are not remembered, and count as
nodes without a vouch.
"""


class Vouched:
    """
    The table in *db*, an open replica.db. A taken vouch counts at once; the next transaction, the
    one of the records that came with it, writes it.

    ``highs`` and ``owners`` are for ``replication/vouching.py``. Any thread may read.
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
        Set the certificates of all members, former certificates too: claims about their nodes
        beyond their vouches do not count. The nodes of a removed master need no vouch.
        """
        with self._lock:
            self._members = owners
            highs = {n: v.high for n, v in self._known.items() if v.owner in owners}
            if self._own:  # not in the table before this replica takes another name
                highs[self._own] = self.highs[self._own]
            self.highs = highs

    def get(self, node: str) -> Vouch | None:
        """The highest vouch for a node, or None."""
        return self._known.get(node)

    def all_of(self, owners: frozenset[bytes]) -> list[Vouch]:
        """The vouches for the nodes of one master, by its certificates."""
        return [vouch for vouch in list(self._known.values()) if vouch.owner in owners]

    def take(self, vouches: Iterable[Vouch]) -> None:
        """Take *vouches*, with checked proofs."""
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
        """Note how far this replica has written under its present node name, which may be new."""
        with self._lock:
            if node != self._own:
                if self._own not in self._known:
                    self.highs.pop(self._own, None)
                self._own = node
                self.owners[node] = owner
            self.highs[node] = high

    def flush(self) -> None:
        """Write the taken vouches; before the end of a transaction."""
        self._db.executemany(
            "REPLACE INTO vouched (node, owner, nonce, high, proof) VALUES (?, ?, ?, ?, ?)",
            [(node, *vouch) for node, vouch in self._unwritten.items()],
        )

    def flushed(self) -> None:
        """Called when the transaction is durable."""
        self._unwritten.clear()
