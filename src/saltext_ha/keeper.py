"""
The keeper: holds together what this master's key store shows and what its replica knows.

``observe`` (``observer.py``) turns what changed in the store into records, ``learn`` takes records
of peers in, ``decide`` an operator's, and ``apply`` (``applier.py``) brings the store to what the
records say. Everything is written to the replica first. One thread only; no network here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from saltext_ha.applier import Applier, Move
from saltext_ha.batches import batches
from saltext_ha.errors import ReplicaError, StoreError
from saltext_ha.faults import point
from saltext_ha.observer import Seen, contexts
from saltext_ha.replica import Records
from saltext_ha.replication.record import (
    DELETED,
    Record,
    Value,
    decide,
    join,
    merge,
    record_digest,
    within,
    without_dropped,
)


@dataclass
class Merged:
    """What :meth:`Keeper.learn` did."""

    learned: int = 0
    """How many records taught us something."""
    seen: Seen = field(default_factory=Seen)
    """Local changes that were found on the way."""
    dropped: list[Record] = field(default_factory=list)
    """Records that all masters dropped, and of which the peer is to be told so."""


class Dropping(NamedTuple):
    """Which tombstones a group drops: (id, fingerprint) each, and what all masters have had."""

    keys: Sequence[tuple[str, bytes]]
    horizon: Mapping[str, int]
    epoch: int


class Keeper(Applier):
    """
    An applier that also takes in what peers and operators decided.

    It is made as :class:`Applier` is.
    """

    # -- from the peers to the replica

    def learn(self, records: Iterable[Record]) -> Merged:
        """
        Take *records* of a peer in, write down what is to be applied, and do it where nothing
        stands in the way; :meth:`apply` does the rest.

        Local changes are looked for first, so that an operator's decision is recorded with what
        that operator could know.
        """
        merged = Merged()
        by_id: dict[str, list[Record]] = {}
        for record in records:
            by_id.setdefault(record.minion_id, []).append(record)
        moved = False
        try:
            for batch in batches(by_id.items()):
                moved |= self._learn_batch(dict(batch), merged)
        finally:
            if moved:  # at once: when it is the turn of apply, the master may be paused
                with contextlib.suppress(ReplicaError, StoreError):
                    self._revoke_if_due()
        return merged

    def _learn_batch(self, theirs: Mapping[str, Sequence[Record]], merged: Merged) -> bool:
        """:meth:`learn` for a part of it; whether the store was to be changed."""
        found = self.observe(theirs)
        merged.seen.extend(found)
        horizon = self.replica.dropped.horizon()
        self.replica.bring(theirs)
        at_once = self.is_active() and self.holds.is_ours()
        unsettled = set(found.unsettled)
        learned = 0
        moves: list[Move] = []
        point("merge.begin")
        with self.replica.transaction():
            for minion_id, records in theirs.items():
                before = self.replica.get(minion_id)
                after = self._merge(before, records, horizon, merged.dropped)
                if not after:
                    continue
                learned += len(after)
                move = self._mark(
                    minion_id,
                    before,
                    before | after,
                    unsettled=minion_id in unsettled,
                    at_once=at_once,
                )
                if move:
                    moves.append(move)
            point("merge.record")
        point("merge.done")
        merged.learned += learned
        with contextlib.suppress(ReplicaError, StoreError):  # apply comes to it, and says so
            self._carry_out(self._undisturbed(moves, merged.seen), merged.seen)
        return bool(moves)

    def _merge(
        self,
        ours: Records,
        theirs: Iterable[Record],
        horizon: Mapping[str, int],
        dropped: list[Record],
    ) -> Records:
        """
        Write *theirs*, of one id, to the replica.

        :param dropped: there come those that all masters dropped.
        :return: those that taught something, merged with *ours*.
        """
        changed: Records = {}
        for record in theirs:
            known = changed.get(record.fingerprint) or ours.get(record.fingerprint)
            rest = without_dropped(record, known, horizon) if horizon else record
            if known is None and not rest.values:
                dropped.append(record)
                continue
            merged = merge(known, rest) if known else rest
            if merged != known:
                changed[record.fingerprint] = merged
                self.replica.put(merged)
        return changed

    def _mark(
        self,
        minion_id: str,
        before: Records,
        records: Records,
        *,
        unsettled: bool = False,
        at_once: bool = False,
    ) -> Move | None:
        """
        Note that the store is to be changed, if it is.

        :param before: the records that it agreed with. :param records: those of now.
        :param unsettled: somebody did something to the id that is not recorded yet, and could not
            know what came since *before*.
        :param at_once: nothing stands in the way of changing it now.
        :return: the move that is to be made now, if any is.
        """
        applied = self._applied(minion_id)
        self._explain(minion_id, before, records)
        known = contexts(before) if applied.known is None else applied.known
        waiting = applied._replace(dirty=True, known=known)
        move = self._move(minion_id, applied.stored, waiting, records)
        if not (move.change.steps or applied.dirty or unsettled):
            return None
        # What has no record may be no key at all.
        known_slot = not applied.stored.slot or applied.stored.key in records
        if not at_once or unsettled or applied.dirty or not known_slot:
            self.replica.set_applied(minion_id, waiting)
            return None
        self.replica.set_applied(minion_id, move.doing)
        return move

    # -- dropping tombstones

    def drop(self, root: bytes, dropping: Dropping) -> bool:
        """
        Drop tombstones that every master has, when the records here still have the digest *root*.

        The horizon says what every master has had by now, so that an old copy of a replica which
        offers one of them again is told from somebody who knows something new. That holds for a
        replica only that equals the others at this moment; otherwise nothing is done.
        """
        if self.replica.records.root != root:
            return False
        with self.replica.transaction():
            # A replica that was rebuilt has not seen whose writes came before; this one may have.
            had = join(dropping.horizon, self.replica.seen())
            self.replica.dropped.raise_horizon(had, dropping.epoch)
            for minion_id, key in dropping.keys:
                record = self.replica.get(minion_id).get(key)
                if record and within(record, dropping.horizon) and self._is_done(record):
                    self.replica.drop(record)
        return True

    def _is_done(self, record: Record) -> bool:
        """Whether the key was deleted, and is out of the store."""
        applied = self.replica.applied(record.minion_id)
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
        changed = []
        for batch in batches(told.items()):
            self.replica.bring([minion_id for (minion_id, _), _ in batch])
            with self.replica.transaction():
                for (minion_id, key), digest in batch:
                    record = self.replica.get(minion_id).get(key)
                    if record is None or record_digest(record) != digest:
                        continue
                    if self._is_done(record):
                        self.replica.drop(record)
                    elif record.state != DELETED:
                        changed.append(self._delete(record))
        return changed

    def _delete(self, record: Record) -> Record:
        before = self.replica.get(record.minion_id)
        value = Value(self.replica.next_dot(), DELETED, self._clock(), "", self._name)
        changed = decide(record, dict(record.context), value)
        self.replica.put(changed)
        self._mark(record.minion_id, before, {**before, record.fingerprint: changed})
        return changed

    # -- from an operator to the replica

    def decide(
        self, minion_id: str, states: Mapping[bytes, str], by: str, shown: Mapping[bytes, Record]
    ) -> list[Record]:
        """
        Record an operator's decisions about keys of one id.

        :param states: fingerprint → accepted, rejected or deleted; of recorded keys.
        :param by: the operator, for people.
        :param shown: the records that they were made by: what has come since was not known.
        :return: the changed records, to be pushed.
        """
        before = self.replica.get(minion_id)
        changed = []
        with self.replica.transaction():
            for key, state in sorted(states.items()):
                value = Value(self.replica.next_dot(), state, self._clock(), by, self._name)
                # All masters may have dropped it in between.
                record = before.get(key, shown[key])
                record = decide(record, dict(shown[key].context), value)
                self.replica.put(record)
                changed.append(record)
            self._mark(minion_id, before, before | {new.fingerprint: new for new in changed})
        point("decide.done")
        return changed
