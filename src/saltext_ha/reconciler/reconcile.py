"""
The one path by which the store and the records change.

:meth:`Reconciler.reconcile` looks at ids. One transaction records what changed here and what
arrived, and writes the moves that follow into the journal; then the applier makes the moves. The
cause (an event, a pass, a peer, an operator or a retry) makes no difference: only the present state
counts. Nothing else changes the store; only the dropping of tombstones also changes records. One
thread only; no network here.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from saltext_ha.common.batches import batches
from saltext_ha.common.errors import HaError, StoreError
from saltext_ha.common.fail_points import point
from saltext_ha.keystore.base import Change, KeyStore
from saltext_ha.reconciler.applier import Applier, Move
from saltext_ha.reconciler.first_looks import FirstLooks
from saltext_ha.reconciler.holds import Holds
from saltext_ha.reconciler.newcomers import Newcomers
from saltext_ha.reconciler.observer import Observer, Sighting, contexts
from saltext_ha.reconciler.own_writes import Writer
from saltext_ha.reconciler.provenance import MISSING, NEWER, OLDER, OURS
from saltext_ha.reconciler.races import Races
from saltext_ha.reconciler.revocations import Revocations
from saltext_ha.reconciler.task import Task
from saltext_ha.reconciler.work_queue import WorkQueue
from saltext_ha.reconciler.write_mode import WriteMode
from saltext_ha.replica.replica import Records, Replica
from saltext_ha.replica.serializers import NEVER, Applied
from saltext_ha.replication import plan
from saltext_ha.replication.digest import in_order
from saltext_ha.replication.placement import ABSENT, Stored, place
from saltext_ha.replication.record import DECISIONS, Record

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Reconciler:
    """Reconciles one key store with one replica."""

    store: KeyStore
    replica: Replica
    mode: WriteMode
    work: WorkQueue
    holds: Holds
    newcomers: Newcomers
    races: Races
    revocations: Revocations
    first: FirstLooks
    observer: Observer
    applier: Applier
    writer: Writer

    def weigh(self, ids: Iterable[str]) -> list[list[str]]:
        """
        Hold the changes of *ids* if they are too many at once, before any of them is believed.

        :return: *ids*, and others that wait, in batches to reconcile one after the other; the work
            queue has them, too.
        """
        ids = in_order({*ids, *self.work.ids(), *self.newcomers.due()})
        self.work.begin(ids)
        if not self.mode.adopting and self.holds.is_ours():
            self.holds.hold_back(Task.look(ids))
        return list(batches(ids))

    def reconcile(self, task: Task, *, strict: bool = False) -> list[Record]:
        """
        Do all that is due for the ids of *task*.

        :param strict: if the store cannot be written, raise; otherwise only try again later.
        :return: the records that this master changed, to be pushed; not what the peers sent.
        :raises HaError: the replica cannot be written, or the store cannot be read.
        """
        try:
            changed = [] if task.blind else self._check_store()
        except HaError:
            self.work.begin(task.ids, task.by, task.deleted)
            raise
        blind = task.blind or not self.mode.believes
        if blind and not task.revise:
            return changed
        ids = in_order(task.ids)
        task = task._replace(ids=ids, blind=blind, certain=task.certain or task.deleted)
        if not blind:
            self.work.begin(ids, task.by, task.deleted)
            if not task.released:
                self.holds.hold_back(task)
        return changed + self._in_batches(task, strict)

    def adopt(self) -> list[Record]:
        """
        Record the store's content as nobody's decision: when the replica was lost and the peers'
        records were pulled, or when the store is an older copy of itself.

        A known decision about a key holds, even if the store shows something else. The rest is
        recorded as if it had happened now. But if the group has dropped records since the store was
        signed, an unknown accepted key may have been deleted, so it becomes pending.
        """
        point("adopt.begin")
        outdated = self.holds.provenance.predates_dropping()
        ids = in_order({*self.replica.ids(), *self.store.changed(), *self.work.ids()})
        self.work.begin(ids)
        changed = self._in_batches(Task.adopt(ids, outdated=outdated))
        self.holds.provenance.forget()
        self.mode.doubt = ""
        point("adopt.done")
        return changed

    def adopt_undecided(self) -> list[Record]:
        """
        :meth:`adopt` before the peers' records are pulled, if no decision could be overruled: the
        replica and the store are new, and the store shows no accepted, rejected or unreadable key.
        Otherwise do nothing, and also where others write the store.

        :raises HaError: as :meth:`reconcile`.
        """
        if not self.mode.adopting or self.mode.never or self.holds.provenance.had:
            return []
        for minion_id in {*self.store.changed(), *self.work.ids()}:
            content = self.store.peek(minion_id)
            if content is None or any(state in DECISIONS for state, _ in content.stored.entries):
                return []
        changed = self.adopt()
        self._remember(lost=True, adopted=True)
        return changed

    def rebuilt(self, *, told_all: bool = True) -> list[Record]:
        """
        All that the peers know was pulled: adopt the store, if not done early, and count the
        replica as whole.

        If the replica is not gone but older than the store, what the store shows of ids of which no
        peer had news was decided here since.

        :param told_all: a peer told all that the group knows. If none did, the same is true of all
            ids.
        :return: as :meth:`adopt`.
        :raises StoreError: the signature of the store is gone; then nothing is adopted.
        """
        provenance, changed = self.holds.provenance, []
        found = provenance.look() if self.mode.adopting else OURS
        if found == MISSING:
            raise StoreError(
                "the signature of the key store is gone: wiped, or not mounted? Bring it back; or, "
                "if it is gone for good, stop salt-master, remove replica.db, start salt-master"
            )
        if found == NEWER and not (told_all and provenance.predates_dropping()):
            heard = self.replica.dirty() if told_all else ()
            changed = self._in_batches(Task.adopt(heard))
            self._remember(lost=False)
            provenance.forget()
            return changed + self.reconcile(Task.look(self.work.ids()))
        if self.mode.adopting:
            changed = self.adopt()
        self._remember(lost=False)
        return changed

    def _remember(self, *, lost: bool, adopted: bool = False) -> None:
        """Note whether the replica is lost, and the store adopted all the same; durable."""
        with self.replica.transaction():
            self.replica.meta.blank, self.replica.meta.adopted = lost, adopted
        self.mode.lost, self.mode.adopted = lost, adopted

    def apply(self, ids: Collection[str] | None = None) -> list[Record]:
        """
        Bring the store in line with the records, where it still differs.

        :param ids: only these; None: all.
        :return: as :meth:`reconcile`.
        :raises StoreError: the store cannot be written; the rest is done later.
        """
        changed: list[Record] = []
        if self.mode.able:
            ids = self.replica.dirty() if ids is None else ids
            changed = self.reconcile(Task.look(ids), strict=True)
        self.revocations.follow_up()
        if self.mode.writes:
            if self.holds.provenance.signing_due():
                self.holds.provenance.sign()
            self.store.check_writable()
        return changed

    def unfinished(self) -> bool:
        """Whether moves are still due after :meth:`apply`, for instance of an unwritable entry."""
        return self.mode.able and bool(self.replica.dirty())

    def _check_store(self) -> list[Record]:
        """Check whether the store can be believed; adopt it if it is an older copy, all of it."""
        if self.mode.adopting:
            return []
        found = self.holds.look()
        if found == OLDER and not self.mode.lost:
            return [] if self.mode.doubt else self.adopt()
        if found == NEWER:
            log.warning(
                "ha replica: replica.db is older than the key store's signature, so an old copy; "
                "asking the peers first"
            )
        if found in (OLDER, NEWER):
            # An out-of-date replica counts as lost. If the replica is lost, an older store can be
            # adopted only after the peers' records are pulled.
            self._remember(lost=True)
        return []

    def _in_batches(self, task: Task, strict: bool = False) -> list[Record]:
        self.applier.recover()
        changed: list[Record] = []
        moved = False
        try:
            for ids in batches(task.ids):
                found, moves = self._batch(ids, task)
                changed += found
                if not moves:
                    continue
                moved = True
                try:
                    self.applier.carry_out(moves)
                except HaError:  # the moves stay in the journal
                    if strict:
                        raise
        finally:
            if moved:  # now: the master may be paused before apply runs
                with contextlib.suppress(HaError):
                    self.revocations.follow_up()
        return changed

    def _batch(self, ids: Sequence[str], task: Task) -> tuple[list[Record], list[Move]]:
        """
        Record what *ids* show, what arrived about them, and the moves that follow.

        :return: the local changes, and the moves.
        """
        writes = self.mode.writes and not task.adopted
        self.replica.bring(ids)
        self.newcomers.measure(at_once=task.adopted)
        first = self.first.see(ids, task)
        others = [i for i in ids if i not in first]
        seen, again = self._see(others, task, writes)
        changed: list[Record] = []
        moves: list[Move] = []
        may_matter = first or task.revise or self.replica.held.count
        if may_matter or any(each.news or each.applied.dirty for each in seen.values()):
            if not (task.blind or task.adopted or self.holds.is_ours()):
                # The store vanished or was replaced while it was being read.
                first, seen, again = {}, {}, dict.fromkeys(ids, True)
            point("reconcile.begin")
            with self.replica.transaction():
                changed = self.first.record(first, task)
                found, moves = self._record(others, seen, again, task, writes)
                changed += found
                point("adopt.record" if task.adopted else "reconcile.record")
            point("reconcile.done")
        for minion_id, each in seen.items():
            if each.raced:
                self.races.forget(minion_id)
        if not task.blind:
            for minion_id, believe in again.items():
                self.work.look_again(minion_id, believe)
            self.work.done((i for i in ids if i not in again), task.deleted)
        return changed, moves

    def _see(
        self, ids: Sequence[str], task: Task, writes: bool
    ) -> tuple[dict[str, Sighting], dict[str, bool]]:
        """As :meth:`.Observer.see`; a blind task sees nothing, and ids that wait go on waiting."""
        if task.blind:
            return {}, {i: True for i in ids if self.mode.adopting or i in self.work}
        if writes:
            for minion_id in ids:
                self.applier.clear_the_way(minion_id)
        return self.observer.see(ids, task)

    def _record(
        self,
        ids: Sequence[str],
        seen: Mapping[str, Sighting],
        again: Container[str],
        task: Task,
        writes: bool,
    ) -> tuple[list[Record], list[Move]]:
        """:meth:`_batch` inside its transaction; *again*: ids that are looked at once more."""
        if self.replica.held.count:
            freed = (i for i, each in seen.items() if not each.held)
            self.replica.held.discard(ids if task.adopted else freed)
        changed: list[Record] = []
        moves: list[Move] = []
        for minion_id in ids:
            shown = seen.get(minion_id)
            found, move = self._record_one(minion_id, shown, task, minion_id not in again, writes)
            changed += found.values()
            moves += [move] if move else []
        return changed, moves

    def _record_one(
        self, minion_id: str, seen: Sighting | None, task: Task, settled: bool, writes: bool
    ) -> tuple[Records, Move | None]:
        """
        :meth:`_record` for one id.

        :param seen: None if the id was not looked at, or is not believed.
        :param settled: whether all local changes of the id are recorded.
        """
        was = self.replica.applied(minion_id)
        row = seen.applied if seen else was
        before = records = self.replica.get(minion_id)
        now = seen.content.stored if seen else was.stored
        local = self.observer.record(minion_id, seen, records, task) if seen and seen.news else None
        if local:
            records = records | local.changed
            # Further entries beside the one that counts are removed, even if we did not leave them.
            aims = now.extra | (frozenset() if task.adopted else was.aims)
            there = now._replace(extra=frozenset())
            # If the store shows what the records say, an operator who acts on it knows them all.
            agrees = now == place(records.values(), there)
            row = Applied(there, contexts(records) if agrees else local.known, aims)
        heard: Records = {}
        if task.revise:
            for record in task.revise(minion_id, records):
                self.replica.put(record, task.receipt)
                heard[record.fingerprint] = record
            records = records | heard
        if not (local or heard or was.dirty or row != was):
            return {}, None
        self.writer.explain(minion_id, before, records)
        if row.known is None:
            row = row._replace(known=contexts(before))
        move = None
        desired = place(records.values(), row.stored)
        steps = plan.steps(now, desired, frozenset(records), self.store.one_denied)
        if not steps and (local or not was.dirty) and (settled or not heard):
            row = NEVER if row.stored == ABSENT else Applied(row.stored)
        elif seen and writes and (_all_known(now, records) or (was.dirty and not local)):
            keys = {key: record.public_key for key, record in records.items()}
            after = plan.outcome(now, desired, steps, self.store.one_denied)
            move = Move(Change(minion_id, steps, keys, now), row, after)
            if steps:
                row = row._replace(aims=row.aims | plan.aims(desired))
        if seen and local:
            # A refused id is looked at again after a restart, and reported again.
            whole = (now.key is None or now.key in records) and not seen.content.junk
            self.replica.set_applied(minion_id, row, seen.content.mark if whole else 0)
        elif row != was:
            self.replica.set_applied(minion_id, row)
        ours = {} if task.receipt else heard
        return (local.changed | ours if local else ours), move


def _all_known(now: Stored, records: Records) -> bool:
    """Whether all entries have records; one without may be junk, which must be removed first."""
    return all(key in records for _, key in now.entries)
