"""
The keeper: holds together what this master's key store shows and what its replica knows.

``observe`` (``observer.py``) turns what changed in the store into records, ``learn`` takes records
of peers in, ``decide`` an operator's, and ``apply`` (``applier.py``) brings the store to what the
records say. Everything is written to the replica first. One thread only; no network here.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from saltext_ha.common.batches import batches
from saltext_ha.common.errors import ReplicaError, StoreError
from saltext_ha.common.fail_points import point
from saltext_ha.keystore.base import KeyStore
from saltext_ha.reconciler.applier import Applier
from saltext_ha.reconciler.holds import Announce, Holds
from saltext_ha.reconciler.journal import Journal
from saltext_ha.reconciler.merging import Merged, Merger
from saltext_ha.reconciler.newcomers import Newcomers
from saltext_ha.reconciler.observer import Observer
from saltext_ha.reconciler.races import Races
from saltext_ha.reconciler.refused import RefusedIds
from saltext_ha.reconciler.revocations import Revocations, Revoke
from saltext_ha.reconciler.work_queue import WorkQueue
from saltext_ha.reconciler.write_mode import WriteMode
from saltext_ha.reconciler.writer import Writer
from saltext_ha.replica.history import Receipt
from saltext_ha.replica.replica import Records, Replica
from saltext_ha.replication.guard import RevocationGuard
from saltext_ha.replication.poisoned import is_poisoned, rewritten
from saltext_ha.replication.record import (
    DELETED,
    OBSERVATIONS,
    PENDING,
    Record,
    decide,
    join,
    observe,
    record_digest,
    within,
)
from saltext_ha.replication.vouching import MAX_COUNTER, MOST_WRITES, Vouch, bounded, sift


class Dropping(NamedTuple):
    """Which tombstones a group drops: (id, fingerprint) each, and what all masters have had."""

    keys: Sequence[tuple[str, bytes]]
    horizon: Mapping[str, int]
    epoch: int


class Keeper:
    """
    One key store and one replica, and what brings them together.

    :param name: this master's name, written into values for people to read.
    :param guard: says which mass disappearances to hold back.
    :param revoke: as :class:`.Revocations` takes it.
    :param mode: whether the store is written; default: it is.
    :param announce: told, by tag and data, what reactors may want to know.
    :param newcomers: how many new ids may be recorded that nobody has decided about; None: all.
    :param adopting: the replica was lost: nothing is recorded or applied before ``adopt``.
    :param who: as :class:`.Observer` takes it. :param deleted_by_salt: likewise.
    """

    name_of: Callable[[bytes], str] = staticmethod(lambda owner: "")
    """The name of the peer with that certificate, by its fingerprint; empty: it is none."""

    def __init__(
        self,
        store: KeyStore,
        replica: Replica,
        *,
        name: str,
        guard: RevocationGuard,
        revoke: Revoke,
        mode: WriteMode | None = None,
        adopting: bool = False,
        clock: Callable[[], float] = time.time,
        announce: Announce = lambda tag, data: None,
        who: Callable[[str, str], str] = lambda minion_id, state: "",
        deleted_by_salt: bool = False,
        newcomers: Newcomers | None = None,
    ) -> None:
        self.store = store
        self.replica = replica
        self.mode = mode or WriteMode()
        self.mode.adopting = adopting
        self.work = work = WorkQueue()
        self.refused = RefusedIds()
        self.newcomers = newcomers or Newcomers(10**9, 10**9)
        self.holds = Holds(
            store, replica, guard, name=name, clock=clock, announce=announce, work=work
        )
        self._writer = Writer(replica, name, clock, announce)
        self._merger = Merger(replica, self._writer)
        self._journal = Journal(replica, self._writer, store.one_denied)
        self._revocations = Revocations(store, replica, work, revoke)
        races = Races()
        self._observer = observer = Observer(
            store,
            replica,
            mode=self.mode,
            work=work,
            holds=self.holds,
            refused=self.refused,
            newcomers=self.newcomers,
            races=races,
            journal=self._journal,
            revocations=self._revocations,
            writer=self._writer,
            who=who,
            deleted_by_salt=deleted_by_salt,
        )
        self._applier = applier = Applier(
            store,
            replica,
            mode=self.mode,
            work=work,
            holds=self.holds,
            refused=self.refused,
            races=races,
            journal=self._journal,
            revocations=self._revocations,
            writer=self._writer,
        )
        # What the store shows is told by the one, and what it should show done by the other.
        self.scan = observer.scan
        self.weigh = observer.weigh
        self.observe = observer.observe
        self.look = observer.look
        self.release = observer.release
        self.adopt = observer.adopt
        self.shown = observer.shown
        self.shown_of = observer.shown_of
        self.peek = observer.peek
        self.newcomers_are_due = observer.newcomers_are_due
        self.apply = applier.apply
        self.unfinished = applier.unfinished
        self.is_active = applier.is_active

    @property
    def adopting(self) -> bool:
        """Whether the replica was lost, and nothing is recorded or applied before ``adopt``."""
        return self.mode.adopting

    # -- from the peers to the replica

    def learn(
        self, records: Iterable[Record], sender: str = "", *, vouched: Iterable[Vouch] = ()
    ) -> Merged:
        """
        Take *records* of the peer *sender* in, write down what is to be applied, and do it where
        nothing stands in the way; :meth:`apply` does the rest.

        Local changes are looked for first, so that an operator's decision is recorded with what
        that operator could know.

        :param vouched: what their writers vouch for, checked.
        """
        merged = Merged(disowned=self._believe(vouched, sender))
        by_id: dict[str, list[Record]] = {}
        for record in records:
            by_id.setdefault(record.minion_id, []).append(record)
        moved = False
        try:
            for batch in batches(by_id.items()):
                moved |= self._learn_batch(dict(batch), merged, sender)
        finally:
            if moved:  # at once: when it is the turn of apply, the master may be paused
                with contextlib.suppress(ReplicaError, StoreError):
                    self._revocations.follow_up()
        return merged

    def _learn_batch(
        self, theirs: Mapping[str, Sequence[Record]], merged: Merged, sender: str
    ) -> bool:
        """:meth:`learn` for a part of it; whether the store was to be changed."""
        merged.records += self.observe(theirs)
        horizon = self.replica.dropped.horizon()
        self.replica.bring(theirs)
        at_once = self.is_active() and self.holds.is_ours()
        learned = 0
        moving: list[str] = []
        point("merge.begin")
        with self.replica.transaction():
            self.replica.received(Receipt(sender, self._writer.clock()))
            for minion_id, records in theirs.items():
                before = self.replica.get(minion_id)
                after = self._merger.merge(before, records, horizon, merged)
                if not after:
                    continue
                learned += len(after)
                if self._journal.mark(
                    minion_id,
                    before,
                    before | after,
                    unsettled=minion_id in self.work,
                    at_once=at_once,
                ):
                    moving.append(minion_id)
            point("merge.record")
        point("merge.done")
        merged.learned += learned
        with contextlib.suppress(ReplicaError, StoreError):  # apply comes to it, and says so
            self._applier.bring(moving)
        return bool(moving)

    # -- what writers vouch for

    def meet(self, vouched: Iterable[Vouch], sender: str = "") -> dict[str, list[str]]:
        """
        Take in what a master vouches for that was met, before anything of it is merged.

        :param sender: its name.
        :return: by the names of masters, what is wrong with records of before: somebody wrote in
            the name of that master. What it did not write is taken out of them.
        """
        disowned = self._believe(vouched, sender)
        with self.replica.transaction():
            pass  # writes down what they vouch for, where nothing was to be taken out
        return disowned

    def _believe(self, vouched: Iterable[Vouch], sender: str) -> dict[str, list[str]]:
        """Believe them, whatever they come with; :meth:`meet` says what is returned."""
        vouches = list(vouched)
        self.replica.vouched.take(vouches)
        highs = self.replica.vouched.highs
        false: dict[str, set[str]] = {}
        for vouch in vouches:
            if vouch.node == self.replica.node:
                # This machine was set back under its running engine: those dots are used up.
                self.replica.counter = max(self.replica.counter, vouch.high)
            if self.replica.seen_of(vouch.node) > highs.get(vouch.node, MAX_COUNTER):
                false.setdefault(self.name_of(vouch.owner) or sender, set()).add(vouch.node)
        return {name: self._take_out(nodes, name) for name, nodes in false.items()}

    def _take_out(self, false: set[str], owner: str) -> list[str]:
        """
        Take what was claimed of these nodes beyond what their master vouches for out again.

        What is written instead is noted as come from that master, *owner*, which may have claimed
        it itself: it must not look like a decision that was made here, or by who passed it on.
        """
        highs, owners = self.replica.vouched.highs, self.replica.vouched.owners
        reasons = []
        for batch in batches(self.replica.ids()):
            self.replica.bring(batch)
            with self.replica.transaction():
                self.replica.received(Receipt(owner, self._writer.clock()))
                for minion_id in batch:
                    before = self.replica.get(minion_id)
                    after: Records = {}
                    for key, record in before.items():
                        if all(counter <= highs.get(n, counter) for n, counter in record.context):
                            continue
                        sound, reason = sift(record, None, highs, owners)
                        if sound is None:  # what it showed stays, in the name of this master
                            state = record.state or DELETED
                            bare = record._replace(values=(), context=())
                            value = self._writer.value(state)
                            sound = decide(bare, {}, value)
                        after[key] = sound
                        self.replica.put(sound)
                        reasons.append(f"record of {minion_id!a}: {reason}")
                    if after:
                        self._journal.mark(minion_id, before, before | after)
        with self.replica.transaction():
            self.replica.unsee({node: highs[node] for node in false if node in highs})
        return reasons

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
            seen, highs = self.replica.seen(), self.replica.vouched.highs
            had = join(bounded(dropping.horizon, seen, highs), seen)
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
        value = self._writer.value(DELETED)
        changed = decide(record, dict(record.context), value)
        self.replica.put(changed)
        self._journal.mark(record.minion_id, before, {**before, record.fingerprint: changed})
        return changed

    # -- from an operator to the replica

    def decide(
        self, minion_id: str, states: Mapping[bytes, str], by: str, shown: Mapping[bytes, Record]
    ) -> list[Record]:
        """
        Record an operator's decisions about keys of one id.

        :param states: fingerprint → accepted, rejected or deleted, of recorded keys; pending: as if
            it had been deleted, and had knocked since. An acceptance that is heard of later does
            not undo that.
        :param by: the operator, for people.
        :param shown: the records that they were made by: what has come since was not known.
        :return: the changed records, to be pushed.
        """
        before = self.replica.get(minion_id)
        changed = []
        with self.replica.transaction():
            for key, state in sorted(states.items()):
                said = DELETED if state == PENDING else state
                value = self._writer.value(said, by)
                # All masters may have dropped it in between.
                record = before.get(key, shown[key])
                record = decide(record, dict(shown[key].context), value)
                if state == PENDING:
                    knock = value._replace(dot=self.replica.next_dot(), state=PENDING)
                    record = observe(record, dict(shown[key].context), knock)
                self.replica.put(record)
                changed.append(record)
            self._journal.mark(
                minion_id, before, before | {new.fingerprint: new for new in changed}
            )
        point("decide.done")
        return changed

    # -- records that claim too much

    def shown_anew(self, minion_id: str) -> dict[bytes, str]:
        """
        Fingerprint → state, of the poisoned records of an id: what they are to say, by what this
        master's store shows. A key that is not in it was deleted; one that only knocked may be one
        of several, of which a store shows one.
        """
        poisoned = [r for r in self.replica.get(minion_id).values() if is_poisoned(r)]
        content = self.store.read(minion_id, certain=True) if poisoned else None
        if content is None:
            return {}
        return {
            record.fingerprint: content.stored.state_of(record.fingerprint)
            or (record.state if record.state in OBSERVATIONS and record.state else DELETED)
            for record in poisoned
        }

    def rewrite(self, minion_id: str, by: str) -> list[Record]:
        """
        Write the poisoned records of an id anew, as :meth:`shown_anew` says; under a node that
        they cannot have named (:meth:`.Replica.take_node`).

        :return: the new ones, to be pushed: whoever has a poisoned one takes them in its place.
        """
        states, changed = self.shown_anew(minion_id), list[Record]()
        before = self.replica.get(minion_id)
        with self.replica.transaction():
            for key, state in sorted(states.items()):
                value = self._writer.value(state, by)
                past = self.replica.history.decisions(minion_id, key)
                record = rewritten(before[key], [dot for dot, _ in past], value)
                self.replica.forget(before[key].context, MOST_WRITES)
                self.replica.put(record)
                changed.append(record)
            after = {record.fingerprint: record for record in changed}
            self._journal.mark(minion_id, before, {**before, **after})
        return changed
