"""
One way from what the store shows and what is heard to what it should show.

:meth:`Reconciler.reconcile` looks at ids, and in one transaction writes down what changed here,
what arrived, and the moves that follow; the applier makes these. What causes it, an event, a pass,
a peer, an operator or a retry, makes no difference: it goes by what is there. Nothing else changes
the store, and nothing else of the records but the dropping of tombstones. One thread only; no
network here.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from saltext_ha.common.batches import batches
from saltext_ha.common.errors import HaError
from saltext_ha.common.fail_points import point
from saltext_ha.keystore.base import Change, KeyStore
from saltext_ha.reconciler.applier import Applier, Move
from saltext_ha.reconciler.holds import Holds
from saltext_ha.reconciler.observer import Observer, Sighting, contexts
from saltext_ha.reconciler.provenance import NEWER, OLDER
from saltext_ha.reconciler.races import Races
from saltext_ha.reconciler.revocations import Revocations
from saltext_ha.reconciler.work_queue import Task, WorkQueue
from saltext_ha.reconciler.write_mode import WriteMode
from saltext_ha.reconciler.writer import Writer
from saltext_ha.replica.history import Receipt
from saltext_ha.replica.replica import Records, Replica
from saltext_ha.replica.serializers import NEVER, Applied, Known
from saltext_ha.replication import plan
from saltext_ha.replication.digest import in_order
from saltext_ha.replication.placement import ABSENT, Stored, place
from saltext_ha.replication.record import Record

log = logging.getLogger(__name__)

Revise = Callable[[str, Records], Records]
"""Writes what is heard of an id, whose records are given; returns the records that changed."""


@dataclass
class Reconciler:
    """One key store and one replica."""

    store: KeyStore
    replica: Replica
    mode: WriteMode
    work: WorkQueue
    holds: Holds
    races: Races
    revocations: Revocations
    observer: Observer
    applier: Applier
    writer: Writer

    def reconcile(
        self,
        task: Task,
        revise: Revise | None = None,
        receipt: Receipt | None = None,
        *,
        strict: bool = False,
    ) -> list[Record]:
        """
        Do all that is to be done about the ids of *task*.

        :param revise: called for each of them, with the records as they are when what changed here
            is recorded: so that an operator's decision is recorded with what that operator could
            know. :param receipt: from whom that came.
        :param strict: a store that cannot be written is an error; otherwise it is tried again.
        :return: the records that changed here, by what the store shows; to be pushed to the peers.
        :raises HaError: it could not be written down, or the store not be read.
        """
        self.applier.recover()
        changed: list[Record] = []
        looks = not task.blind
        if looks:
            changed += self._ask_whose_it_is()
            looks = self.mode.believes
        certain = task.certain or task.deleted
        ids = in_order(task.ids)
        task = task._replace(ids=ids, certain=certain, blind=not looks)
        if looks:
            self.work.begin(ids, task.by, task.deleted)
            if not task.released:
                self.holds.hold_back(ids, certain, task.by, task.deleted)
        return changed + self._in_batches(task, revise, receipt, strict)

    def adopt(self) -> list[Record]:
        """
        Take the store's content in as nobody's work: after the replica was lost and the
        knowledge of peers was pulled, or when the store is an older copy of itself.

        Where a decision about a key is known, it holds, whatever the store shows; the rest is
        recorded as if it had happened now. But once the group has dropped records since the store
        was signed, an unknown accepted key may be one that was deleted: it is pending then.
        """
        point("adopt.begin")
        outdated = self.holds.provenance.predates_dropping()
        ids = in_order({*self.replica.ids(), *self.store.changed()})
        changed = self._in_batches(Task(ids, certain=True, adopted=True, outdated=outdated))
        with self.replica.transaction():
            self.replica.meta.blank = False
        self.holds.provenance.forget()
        self.mode.adopting = False
        self.mode.doubt = ""
        point("adopt.done")
        return changed

    def apply(self) -> list[Record]:
        """
        Bring the store to what the records say, wherever that is still to be done.

        :return: as :meth:`reconcile`.
        :raises StoreError: when the store cannot be written; what is left is done another time.
        """
        if self.mode.never:
            self.revocations.leave_to_others()
        if not self.mode.adopting and not self.mode.why_not:
            changed = self.reconcile(Task(self.replica.dirty()), strict=True)
            if self.mode.writes:
                self.revocations.follow_up()
                if self.holds.provenance.signing_due():
                    self.holds.provenance.sign()
                self.store.check_writable()
            return changed
        return []

    def unfinished(self) -> bool:
        """Whether an apply left something, for instance an entry that cannot be written."""
        able = not self.mode.adopting and not self.mode.why_not
        return able and bool(self.replica.dirty() or self.revocations.due)

    def _ask_whose_it_is(self) -> list[Record]:
        """See whether the store is to be believed; one that is an older copy is adopted."""
        if self.mode.adopting:
            return []
        found = self.holds.look()
        if found == OLDER:
            return self.adopt()
        if found == NEWER:
            # As good as lost: what it knows is out of date.
            log.warning("ha replica: replica.db is an old copy of itself; asking peers first")
            self.mode.adopting = True
            with self.replica.transaction():
                self.replica.meta.blank = True
        return []

    def _in_batches(
        self,
        task: Task,
        revise: Revise | None = None,
        receipt: Receipt | None = None,
        strict: bool = False,
    ) -> list[Record]:
        changed: list[Record] = []
        moved = False
        try:
            for ids in batches(task.ids):
                found, moves = self._write_down(ids, task, revise, receipt)
                changed += found
                if not moves:
                    continue
                moved = True
                try:
                    self.applier.carry_out(moves)
                except HaError:  # it stays in the journal
                    if strict:
                        raise
        finally:
            if moved:  # at once: the master may be paused when it is the turn of apply
                with contextlib.suppress(HaError):
                    self.revocations.follow_up()
        return changed

    def _write_down(
        self, ids: Sequence[str], task: Task, revise: Revise | None, receipt: Receipt | None
    ) -> tuple[list[Record], list[Move]]:
        """
        Write down what *ids* show, what is heard of them, and the moves that follow.

        :return: what changed here, and the moves.
        """
        self.replica.bring(ids)
        seen, unsettled = ({}, set[str]()) if task.blind else self._see(ids, task)
        may_matter = revise or self.replica.held_count
        changed: list[Record] = []
        moves: list[Move] = []
        if may_matter or any(each.news or each.applied.dirty for each in seen.values()):
            if not (task.blind or task.adopted or self.holds.is_ours()):
                # The folder was taken away, or another one put there, while it was being read.
                seen, unsettled = {}, set(ids)
            writes = self.mode.writes and not task.adopted
            point("reconcile.begin")
            with self.replica.transaction():
                if self.replica.held_count:
                    freed = (i for i, each in seen.items() if not each.held)
                    self.replica.unhold(ids if task.adopted else freed)
                for minion_id in ids:
                    one = self._begin(minion_id, seen.get(minion_id))
                    if one.seen and one.seen.news:
                        changed += self._record(one, one.seen, task)
                    if revise:
                        self._revise(one, revise, receipt)
                    one.waits = minion_id in (self.work if task.blind else unsettled)
                    if move := self._plan(one, writes):
                        moves.append(move)
                    elif one.waits and not task.blind:
                        unsettled.add(minion_id)
                point("adopt.record" if task.adopted else "reconcile.record")
            point("reconcile.done")
        for minion_id, each in seen.items():
            if each.raced is not None:
                self.races.forget(minion_id)
        if not (task.blind or task.adopted):
            for minion_id in unsettled:
                self.work.settle(minion_id)
            self.work.done(unsettled.symmetric_difference(ids), task.deleted)
        return changed, moves

    def _see(self, ids: Sequence[str], task: Task) -> tuple[dict[str, Sighting], set[str]]:
        """:meth:`.Observer.see`, without junk where that is in the way."""
        seen, unsettled = self.observer.see(ids, task)
        if self.mode.writes and not task.adopted:
            contents = {i: seen[i].content if i in seen else None for i in ids}
            if cleared := [i for i in ids if self.applier.clear_the_way(i, contents[i])]:
                again, unsettled_again = self.observer.see(cleared, task)
                seen |= again
                unsettled = unsettled.difference(cleared) | unsettled_again
        return seen, unsettled

    def _begin(self, minion_id: str, seen: Sighting | None) -> _Id:
        applied = seen.applied if seen else self.replica.applied(minion_id)
        now = seen.content.stored if seen else applied.stored
        before = self.replica.get(minion_id)
        known = contexts(before) if applied.known is None else applied.known
        return _Id(minion_id, seen, now, before, before, applied.stored, known, applied.aims)

    def _record(self, one: _Id, seen: Sighting, task: Task) -> list[Record]:
        """Write down what an id shows, where that is a local change."""
        local = self.observer.record(one.minion_id, seen, task)
        if local is None:
            return []
        one.is_new = True
        changed = list(local.changed.values())
        for record in changed:
            self.replica.put(record)
        one.records = one.records | local.changed
        one.shown = one.now._replace(extra=frozenset())
        one.known = local.known
        # What somebody else left beside the entry that counts is tidied up as what we left.
        one.aims = one.now.extra | (frozenset() if task.adopted else one.aims)
        return changed

    def _revise(self, one: _Id, revise: Revise, receipt: Receipt | None) -> None:
        """Write down what is heard of an id."""
        if one.is_new and not self._todo(one):
            # It is as the records say, so whoever acts on it next knows them all.
            one.known = contexts(one.records)
        self.replica.received(receipt)
        changed = revise(one.minion_id, one.records)
        self.replica.received(None)
        one.records = one.records | changed
        one.is_told = bool(changed)

    def _plan(self, one: _Id, writes: bool) -> Move | None:
        """Write down how an id stands, and what it is to become; the move that is made now."""
        if one.records is not one.before:
            self.writer.explain(one.minion_id, one.before, one.records)
        was = self.replica.applied(one.minion_id)
        if not (one.is_new or one.is_told or was.dirty):
            return None
        todo = self._todo(one)
        if not todo and (one.is_new or not was.dirty) and not (one.waits and one.is_told):
            if one.is_new:
                settled = NEVER if one.shown == ABSENT else Applied(one.shown)
                self.replica.set_applied(one.minion_id, settled, one.mark)
            return None
        waiting = Applied(one.shown, True, one.known, one.aims)
        # What has no record may be no key at all; and it is not overwritten when first seen.
        unknown = any(key not in one.records for _, key in one.now.entries)
        unknown = unknown and (one.is_new or not was.dirty)
        if one.seen is None or not writes or unknown:
            if waiting != was:
                self.replica.set_applied(one.minion_id, waiting, one.mark)
            one.waits = unknown
            return None
        desired = place(one.records.values(), one.shown)
        doing = waiting._replace(aims=waiting.aims | plan.aims(desired)) if todo else waiting
        if doing != was:
            self.replica.set_applied(one.minion_id, doing, one.mark)
        keys = {key: record.public_key for key, record in one.records.items()}
        after = plan.outcome(one.now, desired, todo, self.store.one_denied)
        return Move(Change(one.minion_id, todo, keys, one.now), waiting, after)

    def _todo(self, one: _Id) -> list[plan.Step]:
        """The steps from what an id shows to what its records say."""
        desired = place(one.records.values(), one.shown)
        known = frozenset(one.records)
        return plan.steps(one.now, desired, known, self.store.one_denied)


@dataclass
class _Id:
    """One id, in the middle of it."""

    minion_id: str
    seen: Sighting | None
    """None where it was not looked at, or cannot be believed."""
    now: Stored
    before: Records
    records: Records
    shown: Stored
    """What somebody who acts on the store is taken to have found there."""
    known: Known
    """The contexts of the records that they could know."""
    aims: frozenset[tuple[str, bytes]]
    """What else the store may show by our own doing."""
    is_new: bool = False
    """Whether what it shows was recorded just now."""
    is_told: bool = False
    """Whether anything that was heard of it is new."""
    waits: bool = False
    """Whether something was done to it that is not recorded yet."""

    @property
    def mark(self) -> int | None:
        """
        The store's mark of what it shows, where that is recorded. What was refused is looked at
        again after a restart, to be reported again.
        """
        if not self.is_new or self.seen is None:
            return None
        whole = not self.now.slot or self.now.key in self.records
        return self.seen.content.mark if whole and not self.seen.content.junk else 0
