"""
The observer: turns what changed in this master's key store into records.

Salt tells little about its keys, and people copy files. So what counts is the store itself,
compared with what was last seen or applied; see ``replication/change.py`` for what it means.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from saltext_ha.common.batches import batches
from saltext_ha.common.errors import HaError, InvalidRecord
from saltext_ha.common.fail_points import point
from saltext_ha.keystore.base import TEMPORARY, Content, KeyStore
from saltext_ha.reconciler.holds import Holds, wanted
from saltext_ha.reconciler.journal import Journal, contexts
from saltext_ha.reconciler.newcomers import Newcomers
from saltext_ha.reconciler.provenance import NEWER, OLDER
from saltext_ha.reconciler.races import Races
from saltext_ha.reconciler.refused import NO_KEY, RefusedIds, new_record
from saltext_ha.reconciler.revocations import Revocations
from saltext_ha.reconciler.work_queue import Task, WorkQueue
from saltext_ha.reconciler.write_mode import WriteMode
from saltext_ha.reconciler.writer import Writer
from saltext_ha.replica.replica import Records, Replica
from saltext_ha.replica.serializers import NEVER, Applied, Known
from saltext_ha.replication import change, plan
from saltext_ha.replication.digest import in_order
from saltext_ha.replication.placement import ABSENT, Stored, place
from saltext_ha.replication.record import (
    DECISIONS,
    DELETED,
    OBSERVATIONS,
    PENDING,
    Record,
    decide,
    join,
    observe,
)

log = logging.getLogger(__name__)

# Names for people: of whoever knocks, and of whoever decides and is not told.
MINION = "minion"
OPERATOR = "operator"


class Look(NamedTuple):
    """How ids are looked at, as :meth:`Observer.observe` was asked to."""

    by: str
    certain: bool
    deleted: bool
    released: bool


class Found(NamedTuple):
    """What one id shows, and what is to be recorded of it."""

    minion_id: str
    content: Content
    applied: Applied
    """What it is compared with."""
    unseen: bytes | None = None
    """A key that is not meant by what was done to the id."""
    raced: Known | None = None
    """The id was deleted in a race, by somebody who knew this of its keys."""


@dataclass
class Observer:
    """
    Watches one key store, and writes what changed there to one replica.

    :param who: the name of whoever is bringing an id into a state, as far as Salt tells; asked when
        a change is found that nobody pointed to.
    :param deleted_by_salt: this is a member of Salt's own cluster, which deletes keys here that
        were deleted on another member, but leaves this master's AES key as it is.
    """

    store: KeyStore
    replica: Replica
    mode: WriteMode
    work: WorkQueue
    holds: Holds
    refused: RefusedIds
    newcomers: Newcomers
    races: Races
    journal: Journal
    revocations: Revocations
    writer: Writer
    who: Callable[[str, str], str]
    deleted_by_salt: bool

    # -- from the store to the replica

    def scan(self) -> list[Record]:
        """Look at every id whose entry in the store may have changed."""
        return self.observe({*self.store.changed(), *self.work.ids()})

    def weigh(self, ids: Iterable[str]) -> list[list[str]]:
        """
        What is too much at once among *ids* is held back, before any part of them is believed.

        :return: *ids* in portions to :meth:`observe` one after the other; none is forgotten when
            that is interrupted.
        """
        due = self.newcomers.due(self._pending(), time.monotonic())
        ids = in_order({*ids, *self.work.ids(), *due})
        self.work.begin(ids)
        if not self.mode.adopting and self.holds.is_ours():
            self.holds.hold_back(ids)
        return list(batches(ids))

    def observe(
        self,
        ids: Iterable[str],
        *,
        by: str = "",
        certain: bool = False,
        deleted: bool = False,
        released: bool = False,
    ) -> list[Record]:
        """
        Record what changed in the store for *ids*; nothing before :meth:`adopt` when it is due.

        :param by: who decided it, as far as known; for people.
        :param certain: believe that an absent key is gone. Otherwise it is only unsettled: Salt
            3008 removes a key for an instant before it writes the new state.
        :param deleted: Salt said that these ids were deleted. A key that is pending as before then
            has knocked again since.
        :param released: an operator confirmed the disappearance of these ids.
        :return: the records that changed, to be pushed to the peers.
        """
        if self.mode.adopting:
            return []
        if not released:
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
            if self.holds.doubt:
                return []
        changed: list[Record] = []
        ids = in_order(ids)
        look = Look(by, certain=certain or deleted, deleted=deleted, released=released)
        self.work.begin(ids, by, deleted)
        if not released:
            self.holds.hold_back(ids, look.certain, by, deleted)
        for batch in batches(ids):
            changed += self._observe_batch(batch, look)
        return changed

    def look(self, tasks: Iterable[Task]) -> list[Record]:
        """
        :meth:`observe` each of *tasks*; one that fails does not hold up the others.

        :raises HaError: one of them failed.
        """
        changed: list[Record] = []
        problem: HaError | None = None
        for task in tasks:
            try:
                changed += self.observe(
                    task.ids, by=task.by, certain=task.certain, deleted=task.deleted
                )
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
        changed = self.observe(held, by=by, released=True)
        return changed + self.observe(self.store.changed(), by=by)

    def adopt(self) -> list[Record]:
        """
        Take the store's content in as nobody's work: after the replica was lost and the
        knowledge of peers was pulled, or when the store is an older copy of itself.

        Where a decision about a key is known, it holds, whatever the store shows; the rest is
        recorded as if it had happened now. But once the group has dropped records since the store
        was signed, an unknown accepted key may be one that was deleted: it is pending then.
        """
        changed: list[Record] = []
        point("adopt.begin")
        outdated = self.holds.provenance.predates_dropping()
        for batch in batches(in_order({*self.replica.ids(), *self.store.changed()})):
            changed += self._adopt_batch(batch, outdated)
        with self.replica.transaction():
            self.replica.meta.blank = False
        self.holds.provenance.forget()
        self.mode.adopting = False
        self.holds.doubt = ""
        point("adopt.done")
        return changed

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
        return bool(self.newcomers.due(self._pending(), time.monotonic()))

    def _pending(self) -> int:
        """How many ids nobody has decided about."""
        return self.replica.counts().get(PENDING, 0)

    def _must_wait(self, minion_id: str, content: Content) -> bool:
        """Whether an id is new, and too many others are; for people who decide there is room."""
        if content.stored.state in DECISIONS or self.replica.applied(minion_id) != NEVER:
            known = True
        else:
            known = bool(self.replica.get(minion_id))
        if known or content.stored == ABSENT:
            self.newcomers.discard(minion_id)
            return False
        return not self.newcomers.admit(minion_id)

    def _adopt_batch(self, ids: Sequence[str], outdated: bool) -> list[Record]:
        changed: list[Record] = []
        self.newcomers.look(self._pending(), time.monotonic(), at_once=True)
        with self.replica.transaction():
            self.replica.unhold(ids)
            for minion_id in self.replica.brought(ids):
                content = self.store.read(minion_id, certain=True)
                if content is None:
                    self.refused.add(minion_id, NO_KEY)
                    continue
                if not self._must_wait(minion_id, content):
                    changed += self._adopt_one(minion_id, content, outdated)
            point("adopt.record")
        return changed

    def _adopt_one(self, minion_id: str, content: Content, outdated: bool) -> list[Record]:
        records = self.replica.get(minion_id)
        before = dict(records)
        changed = []
        for key, state in change.unversioned(content.stored, outdated):
            record = records.get(key)
            if record and (record.decided or state in OBSERVATIONS):
                continue
            record = record or self._new_record(minion_id, key, content, state, records)
            if record is None:
                continue
            write, name = (observe, MINION) if state in OBSERVATIONS else (decide, "")
            value = self.writer.value(state, name)
            records[key] = write(record, dict(record.context), value)
            self.replica.put(records[key])
            changed.append(records[key])
        self.writer.explain(minion_id, before, records)
        slot = content.stored.slot
        mark = content.mark if not slot or slot[1] in records else 0
        self._settle(minion_id, content.stored, records, contexts(records), frozenset(), mark)
        return changed

    def _observe_batch(self, ids: Sequence[str], look: Look) -> list[Record]:
        news: list[Found] = []
        back: list[str] = []
        unsettled: set[str] = set()
        held = self.replica.held()
        self.newcomers.look(self._pending(), time.monotonic())
        for minion_id in self.replica.brought(ids):
            found = self._find(minion_id, look.certain)
            if found is None:
                if not look.certain:
                    unsettled.add(minion_id)
                continue
            if minion_id in held:
                if not look.released:
                    if self.holds.is_held(minion_id, found.content, found.applied, look.by):
                        continue
                    found = _without_held(found)
                back.append(minion_id)
            if look.deleted:
                at = time.monotonic()
                before = found.applied.stored
                raced = self.races.known_then(minion_id, found.content, before, at)
                found = found._replace(raced=raced)
            if not self._is_news(found, look):
                self.newcomers.discard(minion_id)
                continue
            if not look.certain and not look.released and self._vanished(found):
                unsettled.add(minion_id)
                continue
            if not self._must_wait(minion_id, found.content):
                news.append(found)
        changed: list[Record] = []
        if news or back:
            if look.released or self.holds.is_ours():
                changed = self._record_all(news, back, look)
            else:
                # The folder was taken away, or another one put there, while it was being read.
                unsettled.update(ids)
        for minion_id in unsettled:
            self.work.settle(minion_id)
        self.work.done(unsettled.symmetric_difference(ids), look.deleted)
        return changed

    def _record_all(self, news: Iterable[Found], back: Iterable[str], look: Look) -> list[Record]:
        changed: list[Record] = []
        with self.replica.transaction():
            self.replica.unhold(back)
            for found in news:
                changed += self._record(found, look.by)
            point("observe.record")
        for found in news:
            if found.raced is not None:
                self.races.forget(found.minion_id)
        point("observe.done")
        return changed

    def _find(self, minion_id: str, certain: bool) -> Found | None:
        """
        What one id shows. None when that is no key, and it is noted as refused, or, where it is
        not *certain*, when it cannot be told yet.
        """
        content = self.store.read(minion_id, certain)
        if content is None:
            if certain:
                self.refused.add(minion_id, NO_KEY)
            return None
        if content.junk:
            self.refused.add(minion_id, NO_KEY)
        elif not content.stored.slot and not content.stored.denied:
            self.refused.discard(minion_id)
        applied = self.journal.applied(minion_id)
        # Who really has such an id is recorded a moment later.
        if not certain and applied == NEVER and TEMPORARY.fullmatch(minion_id):
            return None
        return Found(minion_id, content, applied)

    def _is_news(self, found: Found, look: Look) -> bool:
        """Whether an id shows something else than it is compared with, or was deleted meanwhile."""
        minion_id, content, applied, _, raced = found
        if content.stored != applied.stored or raced is not None:
            return True
        if not look.deleted or not _is_pending(applied):
            return False
        # Salt says that it was deleted, and it is pending as before. When it has knocked since, its
        # entry is another one; else nobody deleted it: minions can have Salt fire such events.
        return content.mark != self.replica.mark(minion_id)

    def _vanished(self, found: Found) -> bool:
        """Whether the id's key is gone, and not by our own hand."""
        minion_id, content, applied, *_ = found
        if not applied.stored.slot or content.stored.slot:
            return False
        return not applied.dirty or wanted(self.replica, minion_id, applied).slot is not None

    def _record(self, found: Found, by: str) -> list[Record]:
        """Write down one id's change; inside a transaction."""
        minion_id, content, applied, unseen, raced = found
        records = self.replica.get(minion_id)
        now = content.stored
        if raced is None and applied.dirty and plan.is_between(now, applied.stored, applied.aims):
            return []  # our own apply, interrupted; the next one finishes it
        states = {key: record.state for key, record in records.items() if key != unseen}
        known = dict(contexts(records) if applied.known is None else applied.known)
        changed: Records = {}
        if raced is not None:
            known = dict(raced)
            writes = change.deleted(applied.stored, now, states)
            writes += change.interpret(applied.stored, now, states)
        elif now != applied.stored:
            writes = change.interpret(_may_have_shown(applied, now), now, states)
        elif _is_pending(applied):
            writes = change.knocked_again(now)
        else:
            return []
        by = by or self.who(minion_id, now.state if now.state in DECISIONS else DELETED)
        if not by and applied != NEVER:
            by = OPERATOR  # what has never been seen here may have come with the folder
        before = dict(records)
        for key, state in writes:
            record = changed.get(key) or records.get(key)
            if record is None:
                record = self._new_record(minion_id, key, content, state, records)
                if record is None:
                    continue
            write, name = (observe, MINION) if state in OBSERVATIONS else (decide, by)
            value = self.writer.value(state, name)
            changed[key] = write(record, known.get(key, {}), value)
            known[key] = join(known.get(key, {}), {value.dot.node: value.dot.counter})
        for record in changed.values():
            self.replica.put(record)
        records.update(changed)
        self.writer.explain(minion_id, before, records)
        if plan.revokes(applied.stored, now) and (applied.dirty or self.deleted_by_salt):
            # Our own removal, finished before a crash; or one that Salt did by halves.
            self.revocations.due = True
        if now == ABSENT:
            self.revocations.is_gone(minion_id)
        # What was refused is looked at again after a restart, to be reported again.
        known_slot = not now.slot or now.key in records
        mark = content.mark if known_slot and not content.junk else 0
        self._settle(minion_id, now, records, known, applied.aims, mark)
        return list(changed.values())

    def _new_record(
        self,
        minion_id: str,
        key: bytes,
        content: Content,
        state: str,
        records: Records,
    ) -> Record | None:
        """The record of a key that has none yet; None, and the id is refused, when it gets none."""
        try:
            record = new_record(minion_id, key, content.keys[key], state, records.values())
        except InvalidRecord as exc:
            self.refused.add(minion_id, str(exc))
            return None
        self.refused.discard(minion_id)
        return record

    def _settle(
        self,
        minion_id: str,
        now: Stored,
        records: Records,
        known: Known,
        aims: frozenset[tuple[str, bytes]],
        mark: int,
    ) -> None:
        """Note what the store shows, and whether it is still to be changed."""
        shown = Stored(now.state, now.key, now.denied)
        desired = place(records.values(), shown)
        todo = plan.steps(now, desired, frozenset(records), self.store.one_denied)
        if todo:
            # What an apply that was interrupted left behind is still ours; what somebody else left
            # beside the entry that counts is tidied up in the same way.
            aims = aims | now.extra
            if now.extra:
                self.journal.began([minion_id])
            self.replica.set_applied(minion_id, Applied(shown, True, known, aims), mark)
        else:
            settled = NEVER if shown == ABSENT else Applied(shown)
            self.replica.set_applied(minion_id, settled, mark)


def _may_have_shown(applied: Applied, now: Stored) -> Stored:
    """
    What the store showed before *now*. An apply that was begun and not finished may have put a
    decided key there which is only pending now: then somebody deleted it in between. Whether it
    came to put it there is not known; a key that has to be accepted again does less harm than one
    that was deleted and is not.
    """
    decided = [aim for aim in applied.aims if aim[1] == now.key and aim[0] in DECISIONS]
    if applied.stored.slot or now.state != PENDING or not decided:
        return applied.stored
    return Stored(*min(decided), denied=applied.stored.denied)


def _without_held(found: Found) -> Found:
    """
    *found*, of an id whose key is held, as somebody sees it who acts on it: who decides about
    another key in an emptied store does not see the held one.
    """
    now, before = found.content.stored, found.applied.stored
    if not now.slot or now.key == before.key or change.still_accepted(before, now):
        return found
    return found._replace(unseen=before.key, applied=found.applied._replace(stored=ABSENT))


def _is_pending(applied: Applied) -> bool:
    return applied.stored.state == PENDING and not applied.dirty
