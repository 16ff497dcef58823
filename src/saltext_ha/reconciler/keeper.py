"""
The keeper: all that is done with this master's key store and its replica.

What peers send (``learn``), what operators decide (``decide``) and what the store shows
(``observe``) all go through :meth:`.Reconciler.reconcile`. One thread only; no network.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from saltext_ha.common.batches import BATCH
from saltext_ha.common.errors import HaError, StoreError
from saltext_ha.common.fail_points import point
from saltext_ha.keystore.base import KeyStore
from saltext_ha.reconciler.applier import Applier
from saltext_ha.reconciler.claims import Claims
from saltext_ha.reconciler.dropping import Tombstones
from saltext_ha.reconciler.first_looks import FirstLooks
from saltext_ha.reconciler.holds import Holds
from saltext_ha.reconciler.merging import Merged, Merger
from saltext_ha.reconciler.newcomers import Newcomers
from saltext_ha.reconciler.observer import Observer
from saltext_ha.reconciler.own_writes import Announce, Writer
from saltext_ha.reconciler.races import Races
from saltext_ha.reconciler.reconcile import Reconciler
from saltext_ha.reconciler.refused import RefusedIds
from saltext_ha.reconciler.revocations import Revocations, Revoke
from saltext_ha.reconciler.task import Task
from saltext_ha.reconciler.wheel_calls import WheelCalls
from saltext_ha.reconciler.work_queue import WorkQueue
from saltext_ha.reconciler.write_mode import WriteMode
from saltext_ha.replica.history import Receipt
from saltext_ha.replica.replica import Records, Replica
from saltext_ha.replication.guard import RevocationGuard
from saltext_ha.replication.placement import ABSENT, Stored
from saltext_ha.replication.poisoned import is_poisoned, rewritten
from saltext_ha.replication.record import (
    DELETED,
    OBSERVATIONS,
    PENDING,
    Record,
    decide,
    observe,
)
from saltext_ha.replication.vouching import MOST_WRITES, Vouch

# After so many failures the store itself seems unreadable, and each failure may take a minute.
MOST_FAILURES = 10


class Decision(NamedTuple):
    """What an operator decides about keys of one id."""

    states: Mapping[bytes, str]
    """
    Fingerprint of a recorded key → accepted, rejected, deleted or pending. Pending: the key was
    deleted and has knocked since; an acceptance that is heard of later does not undo that.
    """
    shown: Mapping[bytes, Record]
    """The records that the operator was shown; later ones were not known."""


class Keeper:
    """
    One key store and one replica, and the parts that reconcile them.

    :param name: this master's name, written into values for people to read.
    :param guard: says which mass disappearances to hold back.
    :param revoke: see :class:`.Revocations`.
    :param mode: whether the store is written; default: it is.
    :param announce: called with tag and data of events for reactors.
    :param newcomers: limits how many undecided new ids are recorded; None: no limit.
    :param calls: see :class:`.Observer`. :param deleted_by_salt: see there.
    :param name_of: see :class:`.Claims`.
    :ivar reconciler: does what follows when the store or the records change.
    :ivar claims: takes in the vouches of peers. :ivar tombstones: drops old ones.
    """

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
        calls: WheelCalls | None = None,
        deleted_by_salt: bool = False,
        newcomers: Newcomers | None = None,
        name_of: Callable[[bytes], str] = lambda owner: "",
    ) -> None:
        self.store = store
        self.replica = replica
        self.mode = mode = mode or WriteMode()
        self.work = work = WorkQueue()
        self.refused = refused = RefusedIds()
        self.newcomers = newcomers = newcomers or Newcomers(lambda: 0, 10**9, 10**9)
        self._writer = writer = Writer(replica, name, clock, announce)
        self.holds = holds = Holds(store, replica, guard=guard, writer=writer, work=work, mode=mode)
        races = Races()
        revocations = Revocations(store, replica, mode, revoke)
        observer = Observer(
            store=store,
            replica=replica,
            work=work,
            holds=holds,
            refused=refused,
            newcomers=newcomers,
            races=races,
            revocations=revocations,
            writer=writer,
            calls=calls or WheelCalls(),
            deleted_by_salt=deleted_by_salt,
        )
        first = FirstLooks(
            store=store,
            replica=replica,
            refused=refused,
            newcomers=newcomers,
            observer=observer,
            writer=writer,
        )
        applier = Applier(
            store=store,
            replica=replica,
            work=work,
            refused=refused,
            races=races,
            revocations=revocations,
            writer=writer,
        )
        self.reconciler = Reconciler(
            store=store,
            replica=replica,
            mode=mode,
            work=work,
            holds=holds,
            newcomers=newcomers,
            races=races,
            revocations=revocations,
            first=first,
            observer=observer,
            applier=applier,
            writer=writer,
        )
        self.claims = Claims(replica, writer, self.reconciler, name_of)
        self.tombstones = Tombstones(replica, writer, self.reconciler)

    # -- from the store

    def observe(self, ids: Collection[str], by: str = "", *, certain: bool = False) -> list[Record]:
        """
        Record what changed in the store for *ids*, and do what follows; nothing while the store is
        to be adopted (:meth:`.Reconciler.adopt`). For the other arguments see :class:`.Task`.

        :return: the records that changed, to be pushed to the peers.
        """
        return self.reconciler.reconcile(Task.look(ids, by, certain=certain))

    def reconcile_all(self, tasks: Iterable[Task]) -> list[Record]:
        """
        Reconcile each of *tasks*; one that fails holds up no other. Ids of an unreadable batch are
        tried one by one. After many failures the remaining tasks wait in the work queue.

        :raises HaError: one of them failed.
        """
        changed: list[Record] = []
        problem: HaError | None = None
        left = deque(tasks)
        failures = 0
        while left:
            task = left.popleft()
            if failures > MOST_FAILURES:
                self.work.begin(task.ids, task.by, task.deleted)
                continue
            try:
                changed += self.reconciler.reconcile(task)
            except HaError as exc:
                problem = exc
                if isinstance(exc, StoreError):
                    failures += 1
                    if 1 < len(task.ids) <= BATCH:
                        left.extendleft(task._replace(ids=[each]) for each in task.ids)
        if problem:
            raise problem
        return changed

    def release(self, by: str = "", ids: Iterable[str] | None = None) -> list[Record]:
        """
        Believe what the store shows, and held changes, on the word of the operator *by*.

        :param ids: the held ids that were confirmed; None: all.
        """
        held = sorted(self.replica.held.all() if ids is None else ids)
        self.holds.provenance.forget()
        changed = self.reconciler.reconcile(Task.release(held, by))
        return changed + self.observe(list(self.store.changed()), by=by)

    def shown(self, glob: str = "*") -> Iterator[tuple[str, Stored]]:
        """(id, what the store shows) for every id that matches *glob*; see :meth:`shown_of`."""
        held = self.replica.held.all(glob)
        yield from ((i, stored) for i, stored in self.replica.placed(glob) if i not in held)
        yield from ((i, self._shown_now(i)) for i in held)

    def shown_of(self, ids: Iterable[str]) -> Iterator[tuple[str, Stored]]:
        """
        (id, what the store shows) for *ids*: as recorded; for held ids, whose changes are not
        recorded, as read now.

        :raises StoreError: the store cannot be read.
        """
        held = self.replica.held.all() if self.replica.held.count else {}
        for i in self.replica.brought(ids):
            yield i, self._shown_now(i) if i in held else self.replica.applied(i).stored

    def _shown_now(self, minion_id: str) -> Stored:
        content = self.store.peek(minion_id)
        return content.stored if content else ABSENT

    # -- from the peers

    def learn(
        self, records: Iterable[Record], sender: str = "", *, vouched: Iterable[Vouch] = ()
    ) -> Merged:
        """
        Merge *records* of the peer *sender*, and bring the store in line with them. Ids that are
        not settled there wait for :meth:`.Reconciler.apply`.

        :param vouched: vouches of the records' writers, already checked.
        :raises HaError: the replica cannot be written, or the store cannot be read.
        """
        merged = Merged(disowned=self.claims.believe(vouched, sender))
        theirs: dict[str, list[Record]] = {}
        for record in records:
            theirs.setdefault(record.minion_id, []).append(record)
        merger = Merger(self.replica, self._writer, self.replica.dropped.horizon(), merged)

        def merge(minion_id: str, ours: Records) -> Iterator[Record]:
            return merger.merge(ours, theirs[minion_id])

        task = Task.merge(theirs, merge, Receipt(sender, self._writer.clock()))
        merged.records += self.reconciler.reconcile(task)
        return merged

    # -- from an operator

    def pause(self, since: str) -> list[Record]:
        """Stop writing the store, also after a restart; *since* when and by whom, in words."""
        with self.replica.transaction():
            self.replica.meta.paused = True
            self.replica.meta.paused_by = since
        self.mode.pause(since)
        return []

    def resume(self) -> list[Record]:
        """Write the store again, also after a restart."""
        with self.replica.transaction():
            self.replica.meta.paused = False
            self.replica.meta.paused_by = ""
        self.mode.resume()
        return []

    def decide(self, decisions: Mapping[str, Decision], by: str) -> list[Record]:
        """
        Record an operator's decisions about keys of some ids.

        :param decisions: by id.
        :param by: the operator, for people.
        :return: the changed records, to be pushed.
        """

        def decided(minion_id: str, before: Records) -> Iterator[Record]:
            states, shown = decisions[minion_id]
            for key, state in sorted(states.items()):
                said = DELETED if state == PENDING else state
                value = self._writer.value(said, by)
                # All masters may have dropped the record since.
                record = before.get(key, shown[key])
                record = decide(record, dict(shown[key].context), value)
                if state == PENDING:
                    knock = value._replace(dot=self.replica.next_dot(), state=PENDING)
                    record = observe(record, dict(shown[key].context), knock)
                yield record

        changed = self.reconciler.reconcile(Task.rewrite(decisions, decided))
        point("decide.done")
        return changed

    # -- records that claim too much

    def shown_anew(self, minion_id: str) -> dict[bytes, str]:
        """
        Fingerprint → the state that each poisoned record of an id should have, by what this
        master's store shows. A key that the store lacks was deleted; if it only knocked, its state
        stays, as a store shows one of several such keys. Empty if the store cannot be read, or does
        not show yet what the records say.
        """
        poisoned = [r for r in self.replica.get(minion_id).values() if is_poisoned(r)]
        if not poisoned:
            return {}
        content = self.store.peek(minion_id, certain=True)
        if content is None or self.replica.applied(minion_id).dirty:
            return {}
        return {
            record.fingerprint: content.stored.state_of(record.fingerprint)
            or (record.state if record.state in OBSERVATIONS and record.state else DELETED)
            for record in poisoned
        }

    def rewrite(self, minion_id: str, by: str) -> list[Record]:
        """
        Replace the poisoned records of an id, with the states of :meth:`shown_anew`, under a node
        that they cannot have named (:meth:`.Replica.take_node`).

        :return: the new records, to be pushed; masters take them in place of the poisoned ones.
        """
        states = self.shown_anew(minion_id)

        def anew(minion_id: str, before: Records) -> Iterator[Record]:
            for key, state in sorted(states.items()):
                value = self._writer.value(state, by)
                past = self.replica.history.decisions(minion_id, key)
                self.replica.nodes.forget(before[key].context, MOST_WRITES, self.replica.node)
                yield rewritten(before[key], [dot for dot, _ in past], value)

        return self.reconciler.reconcile(Task.rewrite([minion_id], anew))
