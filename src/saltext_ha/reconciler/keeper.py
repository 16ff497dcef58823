"""
The keeper: all that is done with this master's key store and its replica.

Whatever is heard (``learn`` takes records of peers in, ``decide`` an operator's) and whatever the
store shows (``observe``) goes one way: :meth:`.Reconciler.reconcile`. One thread only; no network.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from saltext_ha.common.batches import batches
from saltext_ha.common.errors import HaError
from saltext_ha.common.fail_points import point
from saltext_ha.keystore.base import Content, KeyStore
from saltext_ha.reconciler.applier import Applier
from saltext_ha.reconciler.holds import Announce, Holds
from saltext_ha.reconciler.merging import Merged, Merger
from saltext_ha.reconciler.newcomers import Newcomers
from saltext_ha.reconciler.observer import Observer
from saltext_ha.reconciler.races import Races
from saltext_ha.reconciler.reconcile import Reconciler, Revise
from saltext_ha.reconciler.refused import RefusedIds
from saltext_ha.reconciler.revocations import Revocations, Revoke
from saltext_ha.reconciler.work_queue import Task, WorkQueue
from saltext_ha.reconciler.write_mode import WriteMode
from saltext_ha.reconciler.writer import Writer
from saltext_ha.replica.history import Receipt
from saltext_ha.replica.replica import Records, Replica
from saltext_ha.replication.digest import in_order
from saltext_ha.replication.guard import RevocationGuard
from saltext_ha.replication.placement import ABSENT, Stored
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
        clock: Callable[[], float] = time.time,
        announce: Announce = lambda tag, data: None,
        who: Callable[[str, str], str] = lambda minion_id, state: "",
        deleted_by_salt: bool = False,
        newcomers: Newcomers | None = None,
    ) -> None:
        self.store = store
        self.replica = replica
        self.mode = mode = mode or WriteMode()
        self.work = work = WorkQueue()
        self.refused = refused = RefusedIds()
        self.newcomers = newcomers = newcomers or Newcomers(10**9, 10**9)
        self._clock = clock
        self._writer = writer = Writer(replica, name, clock, announce)
        self._merger = Merger(replica, writer)
        self.holds = holds = Holds(
            store, replica, guard, name=name, clock=clock, announce=announce, work=work, mode=mode
        )
        races = Races()
        revocations = Revocations(store, replica, work, revoke)
        self._observer = Observer(
            store,
            replica,
            holds=holds,
            refused=refused,
            newcomers=newcomers,
            races=races,
            revocations=revocations,
            writer=writer,
            who=who,
            deleted_by_salt=deleted_by_salt,
        )
        self._reconciler = reconciler = Reconciler(
            store,
            replica,
            mode=mode,
            work=work,
            holds=holds,
            races=races,
            revocations=revocations,
            observer=self._observer,
            applier=Applier(store, replica, work, refused, races, revocations, writer),
            writer=writer,
        )
        self.adopt = reconciler.adopt
        self.apply = reconciler.apply
        self.unfinished = reconciler.unfinished

    # -- from the store

    def weigh(self, ids: Iterable[str]) -> list[list[str]]:
        """
        What is too much at once among *ids* is held back, before any part of them is believed.

        :return: *ids* in portions to :meth:`observe` one after the other; none is forgotten when
            that is interrupted.
        """
        due = self.newcomers.due(self._observer.pending(), time.monotonic())
        ids = in_order({*ids, *self.work.ids(), *due})
        self.work.begin(ids)
        if not self.mode.adopting and self.holds.is_ours():
            self.holds.hold_back(ids)
        return list(batches(ids))

    def observe(self, ids: Collection[str], **how: Any) -> list[Record]:
        """
        Record what changed in the store for *ids*, and do what follows; nothing before
        :meth:`adopt` when it is due.

        :param how: as :class:`.Task` has it.
        :return: the records that changed, to be pushed to the peers.
        """
        return self._reconciler.reconcile(Task(ids, **how))

    def look(self, tasks: Iterable[Task]) -> list[Record]:
        """
        Reconcile each of *tasks*; one that fails does not hold up the others.

        :raises HaError: one of them failed.
        """
        changed: list[Record] = []
        problem: HaError | None = None
        for task in tasks:
            try:
                changed += self._reconciler.reconcile(task)
            except HaError as exc:
                problem = exc
        if problem:
            raise problem
        return changed

    def release(self, by: str = "", ids: Iterable[str] | None = None) -> list[Record]:
        """
        Believe what the store shows, and changes that were held back; says *by*.

        :param ids: those of them that were confirmed; None: all.
        """
        held = sorted(self.replica.held() if ids is None else ids)
        self.holds.provenance.forget()
        changed = self._reconciler.reconcile(Task(held, by, released=True))
        return changed + self.observe(list(self.store.changed()), by=by)

    def shown(self, glob: str = "*") -> Iterator[tuple[str, Stored]]:
        """(id, what the store shows) of every id that matches *glob*; see :meth:`shown_of`."""
        held = self.replica.held(glob)
        yield from ((i, stored) for i, stored in self.replica.placed(glob) if i not in held)
        yield from ((i, self._shown_now(i)) for i in held)

    def shown_of(self, ids: Iterable[str]) -> Iterator[tuple[str, Stored]]:
        """
        What the store shows for *ids*: what is recorded of it, and of those that are held, of which
        nothing is, what is there.

        :raises StoreError: the store cannot be read.
        """
        held = self.replica.held() if self.replica.held_count else {}
        for i in self.replica.brought(ids):
            yield i, self._shown_now(i) if i in held else self.replica.applied(i).stored

    def _shown_now(self, minion_id: str) -> Stored:
        content = self.peek(minion_id)
        return content.stored if content else ABSENT

    def peek(self, minion_id: str) -> Content | None:
        """
        What is in the store for an id, for somebody who only shows it; None: no key can be read.

        :raises StoreError: the store cannot be read.
        """
        self.work.add([minion_id])  # the store takes it for known when it was read
        return self.store.read(minion_id)

    def newcomers_are_due(self) -> bool:
        """Whether there is room for ids that wait."""
        return bool(self.newcomers.due(self._observer.pending(), time.monotonic()))

    # -- from the peers

    def learn(
        self, records: Iterable[Record], sender: str = "", *, vouched: Iterable[Vouch] = ()
    ) -> Merged:
        """
        Take *records* of the peer *sender* in, and bring the store to what follows; what is not
        settled there waits for :meth:`apply`.

        :param vouched: what their writers vouch for, checked.
        :raises HaError: they could not be written down, or the store not be read.
        """
        merged = Merged(disowned=self._believe(vouched, sender))
        theirs: dict[str, list[Record]] = {}
        for record in records:
            theirs.setdefault(record.minion_id, []).append(record)
        horizon = self.replica.dropped.horizon()

        def merge(minion_id: str, ours: Records) -> Records:
            changed = self._merger.merge(ours, theirs[minion_id], horizon, merged)
            merged.learned += len(changed)
            return changed

        receipt = Receipt(sender, self._clock())
        merged.records += self._reconciler.reconcile(Task(theirs), merge, receipt)
        return merged

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

        def sifted(minion_id: str, before: Records) -> Records:
            after: Records = {}
            for key, record in before.items():
                if all(counter <= highs.get(n, counter) for n, counter in record.context):
                    continue
                sound, reason = sift(record, None, highs, owners)
                if sound is None:  # what it showed stays, in the name of this master
                    bare = record._replace(values=(), context=())
                    sound = decide(bare, {}, self._writer.value(record.state or DELETED))
                after[key] = sound
                self.replica.put(sound)
                reasons.append(f"record of {minion_id!a}: {reason}")
            return after

        self._revise(self.replica.ids(), sifted, Receipt(owner, self._clock()))
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
                    self.replica.drop(record)
                elif record.state != DELETED:
                    value = self._writer.value(DELETED)
                    after[key] = decide(record, dict(record.context), value)
                    self.replica.put(after[key])
            changed.extend(after.values())
            return after

        self._revise(keys, deleted)
        return changed

    # -- from an operator

    def pause(self, since: str, note: str) -> list[Record]:
        """
        Stop writing the store, or go on with what was heard meanwhile; survives a restart.

        :param since: since when and by whom it is paused, in words; empty: it is not.
        :param note: the same as a sentence, to be shown.
        """
        with self.replica.transaction():
            self.replica.meta.paused = bool(since)
            self.replica.meta.paused_by = since
        self.mode.paused = note
        return []

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
        changed: Records = {}

        def decided(minion_id: str, before: Records) -> Records:
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
                changed[key] = record
            return changed

        self._revise([minion_id], decided)
        point("decide.done")
        return list(changed.values())

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
        states = self.shown_anew(minion_id)
        changed: Records = {}

        def anew(minion_id: str, before: Records) -> Records:
            for key, state in sorted(states.items()):
                value = self._writer.value(state, by)
                past = self.replica.history.decisions(minion_id, key)
                changed[key] = rewritten(before[key], [dot for dot, _ in past], value)
                self.replica.forget(before[key].context, MOST_WRITES)
                self.replica.put(changed[key])
            return changed

        self._revise([minion_id], anew)
        return list(changed.values())

    def _revise(self, ids: Iterable[str], revise: Revise, receipt: Receipt | None = None) -> None:
        """Write down what is heard of *ids*, without a look at the store."""
        self._reconciler.reconcile(Task(list(ids), blind=True), revise, receipt)
