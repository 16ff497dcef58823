"""Tombstones that a group drops, and what its members that missed that do; see design.md, §4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from saltext_ha.reconciler.reconcile import Reconciler
from saltext_ha.reconciler.work_queue import Task
from saltext_ha.reconciler.writer import Writer
from saltext_ha.replica.replica import Records, Replica
from saltext_ha.replication.record import DELETED, Record, decide, join, record_digest, within
from saltext_ha.replication.vouching import bounded


class Dropping(NamedTuple):
    """Which tombstones a group drops: (id, fingerprint) each, and what all masters have had."""

    keys: Sequence[tuple[str, bytes]]
    horizon: Mapping[str, int]
    epoch: int


class Tombstones:
    """Those in one replica."""

    def __init__(self, replica: Replica, writer: Writer, reconciler: Reconciler) -> None:
        self._replica = replica
        self._writer = writer
        self._reconciler = reconciler

    def drop(self, root: bytes, dropping: Dropping) -> bool:
        """
        Drop tombstones that every master has, when the records here still have the digest *root*.

        The horizon says what every master has had by now, so that an old copy of a replica which
        offers one of them again is told from somebody who knows something new. That holds for a
        replica only that equals the others at this moment; otherwise nothing is done.
        """
        if self._replica.records.root != root:
            return False
        with self._replica.transaction():
            # A replica that was rebuilt has not seen whose writes came before; this one may have.
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
        A peer dropped these records long ago: the key was deleted, and all masters knew.

        A tombstone is dropped here, too. Any other state is of an old copy of this master's
        replica, and the key is deleted here now.

        :param told: (id, fingerprint) → digest of the record as it was offered to the peer; one
            that has changed since says something new.
        :return: what is to be pushed.
        """
        changed: list[Record] = []
        keys: dict[str, list[bytes]] = {}
        for minion_id, key in told:
            keys.setdefault(minion_id, []).append(key)

        def deleted(minion_id: str, before: Records) -> Records:
            after: Records = {}
            for key in keys[minion_id]:
                record = before.get(key)
                if record is None or record_digest(record) != told[minion_id, key]:
                    continue
                if self._is_done(record):
                    self._replica.drop(record)
                elif record.state != DELETED:
                    value = self._writer.value(DELETED)
                    after[key] = decide(record, dict(record.context), value)
                    self._replica.put(after[key])
            changed.extend(after.values())
            return after

        self._reconciler.reconcile(Task(keys, blind=True, revise=deleted))
        return changed
