"""Drops tombstones with the group, and on members that missed that; see design.md, §4."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from saltext_ha.reconciler.own_writes import Writer
from saltext_ha.reconciler.reconcile import Reconciler
from saltext_ha.reconciler.task import Task
from saltext_ha.replica.replica import Records, Replica
from saltext_ha.replication.record import DELETED, Record, decide, join, record_digest, within
from saltext_ha.replication.vouching import bounded


class Dropping(NamedTuple):
    """
    The tombstones that a group drops, as (id, fingerprint); the writes that all masters have had;
    the number of this dropping.
    """

    keys: Sequence[tuple[str, bytes]]
    horizon: Mapping[str, int]
    epoch: int


class Tombstones:
    """The tombstones in one replica."""

    def __init__(self, replica: Replica, writer: Writer, reconciler: Reconciler) -> None:
        self._replica = replica
        self._writer = writer
        self._reconciler = reconciler

    def drop(self, root: bytes, dropping: Dropping) -> bool:
        """
        Drop tombstones that every master has, if the records here still have the digest *root*.

        The horizon says which writes every master has had, and so exposes an old copy of a replica
        that offers one again. It is true only for a replica that equals the others at this moment;
        otherwise nothing is done.
        """
        if self._replica.records.root != root:
            return False
        with self._replica.transaction():
            # The horizon may come from a rebuilt replica, which lacks writes seen here.
            seen, highs = self._replica.nodes.seen(), self._replica.vouched.highs
            had = join(bounded(dropping.horizon, seen, highs), seen)
            self._replica.dropped.raise_horizon(had, dropping.epoch)
            for minion_id, key in dropping.keys:
                record = self._replica.get(minion_id).get(key)
                if record and within(record, dropping.horizon) and self._is_done(record):
                    self._replica.drop(record)
        return True

    def _is_done(self, record: Record) -> bool:
        """Whether the key was deleted, and is out of the store."""
        applied = self._replica.applied(record.minion_id)
        there = applied.stored.keys
        return record.state == DELETED and not applied.dirty and record.fingerprint not in there

    def dropped_elsewhere(self, told: Mapping[tuple[str, bytes], bytes]) -> list[Record]:
        """
        Drop records that a peer dropped earlier, when the keys were deleted and all masters knew.

        A tombstone is dropped here, too. A record in any other state comes from an old copy of this
        master's replica: its key is deleted now.

        :param told: (id, fingerprint) → digest of the record as it was offered to the peer; a
            record that has changed since is kept.
        :return: the records to push.
        """
        keys: dict[str, list[bytes]] = {}
        for minion_id, key in told:
            keys.setdefault(minion_id, []).append(key)

        def deleted(minion_id: str, before: Records) -> Iterator[Record]:
            for key in keys[minion_id]:
                record = before.get(key)
                if record is None or record_digest(record) != told[minion_id, key]:
                    continue
                if self._is_done(record):
                    self._replica.drop(record)
                elif record.state != DELETED:
                    yield decide(record, dict(record.context), self._writer.value(DELETED))

        return self._reconciler.reconcile(Task.rewrite(keys, deleted))
