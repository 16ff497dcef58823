"""
The replica of one master, in memory: the keys that all have in common, and where this one differs.

It stands in for :class:`saltext_ha.replica.replica.Replica` in anti-entropy. Fifty SQLite files of
a million records each would be 40 GB; the difference between two masters is small.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

from proving.simulation.keys import Keys
from saltext_ha.replication.digest import DigestTree, bucket_of
from saltext_ha.replication.record import Record, record_digest

Entry = tuple[bytes, Record]


class Pool:
    """Records that were written since the start: masters with the same record share one object."""

    def __init__(self) -> None:
        self._entries: dict[bytes, Entry] = {}

    def entry(self, digest: bytes, record: Record) -> Entry:
        """The digest and the record, or the equal record that was there before."""
        return self._entries.setdefault(digest, (digest, record))


class MemoryReplica:
    """
    :param keys: the keys that are known at the start.
    :param empty: none of them is known yet.
    """

    placements = DigestTree()

    def __init__(self, keys: Keys, pool: Pool, empty: bool = False) -> None:
        self.records = DigestTree() if empty else copy.deepcopy(keys.tree)
        self.looks = 0
        """How often it was searched, which takes time in a real replica."""
        self._keys = keys
        self._pool = pool
        self._lacks = bytearray(b"\1") * keys.count if empty else None
        self._changed: dict[str, tuple[Entry, ...]] = {}
        self._buckets: dict[int, list[str]] = {}

    def get(self, minion_id: str) -> dict[bytes, Record]:
        """Like :meth:`Replica.get`."""
        self.looks += 1
        changed = self._changed.get(minion_id, ())
        found = {record.fingerprint: record for _, record in changed}
        index = self._keys.index(minion_id)
        if index is not None and self._has(index):
            found.setdefault(self._keys.fingerprint(index), self._keys.record(index))
        return found

    def digests_in(self, bucket: int) -> dict[tuple[str, bytes], bytes]:
        """Like :meth:`Replica.digests_in`."""
        self.looks += 1
        keys = self._keys
        found = {
            (keys.minion_id(index), keys.fingerprint(index)): keys.digest(index)
            for index in keys.in_bucket(bucket)
            if self._has(index)
        }
        for minion_id in self._buckets.get(bucket, ()):
            for digest, record in self._changed[minion_id]:
                found[minion_id, record.fingerprint] = digest
        return found

    def in_bucket(self, bucket: int, after: tuple[str, bytes] = ("", b"")) -> Iterator[Record]:
        """Like :meth:`Replica.in_bucket`."""
        for minion_id in sorted({minion_id for minion_id, _ in self.digests_in(bucket)}):
            for key, record in sorted(self.get(minion_id).items()):
                if (minion_id, key) > after:
                    yield record

    def put(self, record: Record) -> None:
        """Like :meth:`Replica.put`, without a transaction."""
        minion_id, key = record.minion_id, record.fingerprint
        bucket = bucket_of(minion_id)
        digest = record_digest(record)
        old = self._digest(minion_id, key)
        if old:
            self.records.toggle(bucket, old)
        self.records.toggle(bucket, digest)
        index = self._keys.index(minion_id)
        if index is not None and self._lacks and digest == self._keys.digest(index):
            self._lacks[index] = 0
            return
        digest, record = self._pool.entry(digest, record)
        others = self._changed.get(minion_id)
        if others is None:
            minion_id = record.minion_id  # the object that all share
            self._buckets.setdefault(bucket, []).append(minion_id)
        kept = tuple(entry for entry in others or () if entry[1].fingerprint != key)
        self._changed[minion_id] = (*kept, (digest, record))

    def _has(self, index: int) -> bool:
        return self._lacks is None or not self._lacks[index]

    def _digest(self, minion_id: str, key: bytes) -> bytes | None:
        for digest, record in self._changed.get(minion_id, ()):
            if record.fingerprint == key:
                return digest
        index = self._keys.index(minion_id)
        if index is None or not self._has(index) or self._keys.fingerprint(index) != key:
            return None
        return self._keys.digest(index)
