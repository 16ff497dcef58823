"""
replica.db: what this master knows of the group's keys, and last applied to its own store.

SQLite with a write-ahead log and ``synchronous=FULL``: a committed transaction survives kill -9 and
power loss. The same transaction records what must follow a merge (apply, revoke), so that after a
crash the next start finishes that.
"""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from saltext_ha.common.batches import batches
from saltext_ha.common.fail_points import point
from saltext_ha.replica import opening, schema, serializers
from saltext_ha.replica.deployments import Deployments
from saltext_ha.replica.dropped import Dropped
from saltext_ha.replica.held import HeldIds
from saltext_ha.replica.history import History, Receipt, sqlite_glob
from saltext_ha.replica.key_counts import Tally
from saltext_ha.replica.meta import Meta
from saltext_ha.replica.nodes import Nodes
from saltext_ha.replica.registers import Registers
from saltext_ha.replica.row_cache import FirstLook, Rows, Shown
from saltext_ha.replica.serializers import Applied
from saltext_ha.replica.vouched import Vouched
from saltext_ha.replication.digest import DigestTree, bucket_of
from saltext_ha.replication.placement import ABSENT, Stored
from saltext_ha.replication.record import (
    ACCEPTED,
    REJECTED,
    Dot,
    Record,
    Value,
    record_digest,
)
from saltext_ha.replication.vouching import Vouch, node_of

REPLICA_FILE = "replica.db"

Records = dict[bytes, Record]
"""The records of one id, by fingerprint."""


@dataclass
class Done:
    """What a transaction changed; counts and digests are updated when it is committed."""

    digests: list[tuple[DigestTree, int, bytes]] = field(default_factory=list)
    nodes: dict[str, int] = field(default_factory=dict)
    written: dict[Receipt | None, list[Record]] = field(default_factory=dict)
    """By receipt; None: they were made here."""
    moved: list[tuple[Stored, Stored]] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)
    """Ids whose records changed."""
    said: dict[Dot, tuple[str, bytes, str]] = field(default_factory=dict)
    """What its writes say, as :meth:`.History.said` returns it."""


class Replica:
    """
    One replica.db, used from one thread (:class:`.Core`). Other threads may read what is in memory:
    ``node``, the digest trees, ``held.count``, ``vouched`` and :meth:`own_vouch`.

    ``records`` and ``placements`` are digest trees over the records and over what the key store
    shows; they change when a transaction commits. ``history`` tells who wrote what, and why;
    ``meta`` what this master remembers of itself; ``dropped`` what it remembers of dropped
    tombstones; ``vouched`` how far masters say that their nodes have written; ``nodes`` how far
    they were seen to write; ``held`` the held changes; ``trees`` the current version of each tree,
    ``deployments`` their history; ``runs`` the last runs under each name.
    """

    def __init__(self, path: Path | None) -> None:
        """
        Open or create the file *path*; None keeps everything in memory.

        :raises ReplicaDamaged: the file is no sound database.
        :raises ReplicaError: the file is too new or too old, locked, or cannot be created.
        """
        self._path = path
        self.version = 0
        """Grows whenever anything may have changed; for caching answers."""
        self._db = opening.database(path)
        with opening.explained(path, self._db):
            self.meta = Meta(self._db)
            self.dropped = Dropped(self._db, self.meta)
            self.trees = Registers(self._db, "tree")
            self.deployments = Deployments(self._db)
            self.runs = Registers(self._db, "run")
            self.vouched = Vouched(self._db)
            self.history = History(self._db)
            self.nodes = Nodes(self._db)
            self._rows = Rows(self._db)
            self.node = self.meta.get("node")
            self.counter = self.nodes.seen().get(self.node, 0)
            self._named = (
                self.meta.read("owner", bytes.fromhex),
                self.meta.read("nonce", bytes.fromhex),
            )
            self.vouched.wrote(self.node, self.counter)
            if self._db.execute("SELECT 1 FROM record LIMIT 1").fetchone():
                self._db.executescript(schema.INDEXES)
            self._load()
        self._done = Done()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def index(self) -> None:
        """
        Make the indexes that are left out, for speed, while a replica is first filled, and let
        SQLite keep as much of the file in memory as the indexes take. A replica that had records
        when it was opened has them already.

        :raises ReplicaError: the file cannot be written; everything works without, but slower.
        """
        try:
            # KiB, for 100 000 keys. Before this, everything was read once and in order, and would
            # stay in memory for nothing.
            self._db.execute("PRAGMA cache_size=-8000")
            self._db.executescript(schema.INDEXES)
        except sqlite3.Error as exc:
            raise opening.failure(self._path, "written", exc) from exc

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """
        All that is written inside is durable on return; an exception undoes all of it.

        Inside, :meth:`get` and :meth:`applied` see what was put; the other methods see it
        afterwards.

        :raises ReplicaDamaged: the file is no sound database.
        :raises ReplicaError: the file cannot be written (disk full, read-only).
        """
        counter: int = self.counter
        self.version += 1
        done = self._done = Done()
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._rows.flush()
            self.vouched.flush()
            for receipt, records in done.written.items():
                self.history.wrote(records, receipt)
            self.nodes.saw(done.nodes)
            self._db.execute("COMMIT")
        except BaseException as exc:
            self.counter = counter
            self._rows.undo()
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            if isinstance(exc, sqlite3.Error):
                raise opening.failure(self._path, "written", exc) from exc
            raise
        # If peers send writes of this node that this file, an old copy, does not have, their dots
        # must not be used again.
        self.counter = max(self.counter, done.nodes.get(self.node, 0))
        self.vouched.flushed()
        self.vouched.wrote(self.node, self.counter)
        for tree, bucket, digest in done.digests:
            tree.toggle(bucket, digest)
        for before, after in done.moved:
            self._tally.moved(before, after)
        for minion_id in done.touched:
            self._tally.known(minion_id, self.get(minion_id).values())
        self.held.committed()

    def check_writable(self) -> None:
        """
        Write something that changes nothing.

        :raises ReplicaError: the file cannot be written.
        """
        with self.transaction():
            self.meta.set("node", self.node)

    # -- who writes here

    def next_dot(self) -> Dot:
        """Take the dot of this node's next write; inside a transaction only."""
        self.counter += 1
        self._done.nodes[self.node] = self.counter
        return Dot(self.node, self.counter)

    def take_node(self, owner: bytes = b"") -> None:
        """
        Write under a new node name from now on.

        One dot must never name two different writes, and this file may be an old copy. So every
        start takes a new name. Only contexts of writes under that name contain it.

        :param owner: the fingerprint of the certificate from which the name follows, so that this
            master can vouch for the node; empty: it cannot.
        """
        nonce = secrets.token_bytes(8)
        node = node_of(owner, nonce)
        with self.transaction():
            self.meta.set("node", node)
            self.meta.set("owner", owner.hex())
            self.meta.set("nonce", nonce.hex())
        self.node, self.counter, self._named = node, 0, (owner, nonce)
        self.vouched.wrote(node, 0, owner)
        point("replica.node")

    def own_vouch(self) -> Vouch | None:
        """
        How far this replica has durably written under its present node name, unsigned. None if the
        name follows from no certificate, or while another name is being taken. May be called from
        any thread.
        """
        owner, nonce = self._named
        high = self.vouched.highs.get(node_of(owner, nonce)) if owner else None
        return None if high is None else Vouch(owner, nonce, high)

    # -- records

    def bring(self, ids: Iterable[str]) -> None:
        """Read the rows of *ids* in one go, for :meth:`get` and :meth:`applied`."""
        self._rows.bring(ids)

    def brought(self, ids: Iterable[str]) -> Iterator[str]:
        """*ids*, any number of them, after :meth:`bring` of each batch."""
        for batch in batches(ids):
            self.bring(batch)
            yield from batch

    def get(self, minion_id: str) -> Records:
        """All records of an id by fingerprint."""
        return {key: kept.record for key, kept in self._rows.records(minion_id).items()}

    def records_of(self, ids: Iterable[str]) -> dict[str, Records]:
        """:meth:`get` for each of *ids*."""
        return {minion_id: self.get(minion_id) for minion_id in self.brought(ids)}

    def in_bucket(self, bucket: int, after: tuple[str, bytes] = ("", b"")) -> Iterator[Record]:
        """The records of *bucket* that follow *after* (id, fingerprint), in that order."""
        rows = self._db.execute(
            "SELECT id, key, pub, body FROM record WHERE bucket = ? AND (id, key) > (?, ?)"
            " ORDER BY id, key",
            (bucket, *after),
        )
        return (serializers.record(*row) for row in rows)

    def records_after(
        self, where: tuple[int, str, bytes], limit: int
    ) -> Iterator[tuple[int, Record]]:
        """
        (bucket, record) of at most *limit* records that follow *where* (bucket, id, fingerprint),
        in that order; without their public keys.
        """
        rows = self._db.execute(
            "SELECT bucket, id, key, '', body FROM record WHERE (bucket, id, key) > (?, ?, ?)"
            " ORDER BY bucket, id, key LIMIT ?",
            (*where, limit),
        )
        return ((bucket, serializers.record(*rest)) for bucket, *rest in rows)

    def digests_in(self, bucket: int) -> dict[tuple[str, bytes], bytes]:
        """Record digests of a bucket by (id, fingerprint)."""
        rows = self._db.execute("SELECT id, key, digest FROM record WHERE bucket = ?", (bucket,))
        return {(minion_id, key): digest for minion_id, key, digest in rows}

    def ids(self) -> Iterator[str]:
        """All ids that have a record or are in the store, sorted."""
        rows = self._db.execute("SELECT id FROM record UNION SELECT id FROM stored ORDER BY 1")
        return (row[0] for row in rows)

    def put(self, record: Record, receipt: Receipt | None = None) -> None:
        """Write a record, which came with *receipt* or was made here; inside a transaction only."""
        bucket = bucket_of(record.minion_id)
        self._done.digests += [(self.records, bucket, d) for d in self._rows.put(record) if d]
        nodes = self._done.nodes
        nodes.update((n, counter) for n, counter in record.context if counter > nodes.get(n, 0))
        self._done.written.setdefault(receipt, []).append(record)
        for value in record.values:
            said = record.minion_id, record.fingerprint, value.state
            self._done.said.setdefault(value.dot, said)
        self._done.touched.add(record.minion_id)

    def is_known(self, minion_id: str) -> bool:
        """Whether an id has a record, or was in the store when it was last recorded."""
        return self._rows.is_known(minion_id)

    def add(self, first: Collection[FirstLook]) -> None:
        """
        :meth:`put` this node's first writes about unknown ids, and :meth:`set_applied` what the
        store shows for them; inside a transaction only.

        One record is no conflict, :meth:`next_dot` has noted the node, and only received values are
        compared with the transaction's other writes.
        """
        done = self._done
        for minion_id, digest, placed in self._rows.add(first):
            bucket = bucket_of(minion_id)
            done.digests += ((self.records, bucket, digest), (self.placements, bucket, placed))
        done.written.setdefault(None, []).extend(each.record for each in first)
        done.moved.extend((ABSENT, each.stored) for each in first)

    def said_otherwise(self, record: Record, value: Value) -> bool:
        """Whether *value* of *record* has the dot of a known write that says something else."""
        said = self.history.said(value.dot) or self._done.said.get(value.dot)
        return said not in (None, (record.minion_id, record.fingerprint, value.state))

    def drop(self, record: Record) -> None:
        """Forget *record*, which must be exactly the one stored; inside a transaction only."""
        self._done.digests.append(
            (self.records, bucket_of(record.minion_id), record_digest(record))
        )
        self._rows.drop(record)
        self._done.touched.add(record.minion_id)

    def tombstones(self, after: str, limit: int) -> list[Record]:
        """The next *limit* records whose visible state is deleted, of ids greater than *after*."""
        rows = self._db.execute(
            "SELECT id, key, pub, body FROM record WHERE state = 'deleted' AND id > ?"
            " ORDER BY id LIMIT ?",
            (after, limit),
        )
        return [serializers.record(*row) for row in rows]

    def revoked(self, glob: str) -> list[Record]:
        """
        The records of all deleted and rejected keys of ids that match *glob*, also of those whose
        minion has knocked since.
        """
        rows = self._db.execute(
            "SELECT id, key, pub, body FROM record WHERE state != 'accepted' AND id GLOB ?"
            " ORDER BY id",
            (sqlite_glob(glob),),
        )
        return [record for row in rows if (record := serializers.record(*row)).revocations]

    # -- what the store shows

    def applied(self, minion_id: str) -> Applied:
        """What was last applied for an id."""
        return self._rows.shown(minion_id).applied

    def mark(self, minion_id: str) -> int:
        """The key store's mark for an id when it was last seen or applied; 0: look again."""
        return self._rows.shown(minion_id).mark

    def set_applied(self, minion_id: str, applied: Applied, mark: int | None = None) -> None:
        """
        Record what was applied, or what is still to be applied; inside a transaction only.

        :param mark: the key store's mark for what it shows; None keeps the present mark.
        """
        old = self._rows.shown(minion_id)
        digest = serializers.placement_digest(minion_id, applied.stored)
        bucket = bucket_of(minion_id)
        self._done.digests += [(self.placements, bucket, d) for d in (old.digest, digest) if d]
        self._done.moved.append((old.applied.stored, applied.stored))
        self._rows.show(minion_id, Shown(applied, digest, old.mark if mark is None else mark))

    def marks(self) -> Iterator[tuple[str, int]]:
        """(id, the key store's mark) for all ids that need no look."""
        return self._db.execute("SELECT id, mark FROM stored WHERE mark AND NOT dirty")

    def placed(self, glob: str = "*") -> Iterator[tuple[str, Stored]]:
        """(id, what the store shows) for every id that matches *glob* and is in the store."""
        rows = self._db.execute(
            "SELECT id, body FROM stored WHERE id GLOB ? ORDER BY id", (sqlite_glob(glob),)
        )
        return ((minion_id, serializers.stored(body)) for minion_id, body in rows)

    def accepted(self, glob: str = "*", after: str = "", most: int = -1) -> list[str]:
        """
        The ids that match *glob* and whose key is accepted in the store, in order: at most *most*
        ids after *after*; a negative *most* means all.
        """
        rows = self._db.execute(
            "SELECT id FROM stored WHERE state = 'accepted' AND id > ? AND id GLOB ?"
            " ORDER BY id LIMIT ?",
            (after, sqlite_glob(glob), most),
        )
        return [row[0] for row in rows]

    def placed_in(self, bucket: int) -> dict[str, Stored]:
        """What the store shows for the ids of *bucket*."""
        rows = self._db.execute("SELECT id, body FROM stored WHERE bucket = ?", (bucket,))
        return {minion_id: serializers.stored(body) for minion_id, body in rows}

    def dirty(self) -> list[str]:
        """Ids for which the store still differs from the records."""
        return [row[0] for row in self._db.execute("SELECT id FROM stored WHERE dirty")]

    def counts(self) -> dict[str, int]:
        """Number of ids by slot state (accepted, pending, rejected), and with denied keys."""
        return self._tally.counts()

    def any_accepted(self) -> bool:
        """Whether the store shows an accepted key at all."""
        return ACCEPTED in self._tally.counts()

    def any_revoked(self) -> bool:
        """Whether any key is known that was deleted or rejected."""
        row = self._db.execute(
            "SELECT 1 FROM record WHERE state = 'deleted'"
            " UNION ALL SELECT 1 FROM stored WHERE state = 'rejected' LIMIT 1"
        ).fetchone()
        return row is not None

    def at_stake(self, ids: Iterable[str]) -> Iterator[str]:
        """
        Those of *ids* that have an accepted key in the store, or any revoked key; outside a
        transaction only.
        """
        for batch in batches(ids):
            yield from self.brought(self._rows.at_stake(batch))

    def conflicts(self) -> list[str]:
        """Ids with two or more accepted keys."""
        return self._tally.conflicts()

    def shown_counts(self) -> dict[str, int | None]:
        """
        :meth:`counts` of the store as it really is: a held id's accepted key is not there, and a
        deleted one is back. None: not known, as a held key that was rejected may be gone or back.
        """
        counts = Counter(self.counts())
        unknown: dict[str, None] = {}
        if self.held.count:
            there = self.held.by_state()
            counts -= there
            counts[ACCEPTED] += self.held.count - there[ACCEPTED]
            if there[REJECTED]:
                unknown = {ACCEPTED: None, REJECTED: None}
        return {**+counts, **unknown}

    # -- inside

    def _load(self) -> None:
        self.records = DigestTree(self._db.execute("SELECT bucket, digest FROM record"))
        rows = self._db.execute("SELECT id, digest FROM stored")
        self.placements = DigestTree((bucket_of(i), d) for i, d in rows if d)
        self._tally = Tally(self._db)
        self.held = HeldIds(self._db)
