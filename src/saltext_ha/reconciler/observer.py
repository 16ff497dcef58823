"""
The observer: looks at ids in the key store, and records local changes.

Salt fires few events about keys, and people copy files. So only the store itself counts, compared
with what was last seen or applied; ``replication/interpretation.py`` says what a difference means.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from saltext_ha.keystore.base import TEMPORARY, Content, KeyStore
from saltext_ha.reconciler.holds import Holds
from saltext_ha.reconciler.newcomers import Newcomers
from saltext_ha.reconciler.own_writes import MINION, OPERATOR, Writer
from saltext_ha.reconciler.races import Races
from saltext_ha.reconciler.refused import NO_KEY, RefusedIds
from saltext_ha.reconciler.revocations import Revocations
from saltext_ha.reconciler.task import Task
from saltext_ha.reconciler.wheel_calls import ONE_CALL, WheelCalls
from saltext_ha.reconciler.work_queue import WorkQueue
from saltext_ha.replica.replica import Records, Replica
from saltext_ha.replica.serializers import NEVER, Applied, Known
from saltext_ha.replication import interpretation, plan
from saltext_ha.replication.placement import ABSENT, Stored
from saltext_ha.replication.record import (
    ACCEPTED,
    DECISIONS,
    DELETED,
    OBSERVATIONS,
    PENDING,
    Context,
    decide,
    join,
    observe,
)


class Sighting(NamedTuple):
    """What the store shows for one id, if it can be believed."""

    content: Content
    applied: Applied
    """What ``content`` is compared with."""
    news: bool = False
    """Whether the two differ, or the id was deleted in between."""
    held: bool = False
    """Whether the id is held, and its slot is empty."""
    raced: bool = False
    """Whether the id was deleted in a race; ``applied`` has what the operator could know then."""


class LocalChange(NamedTuple):
    """A local change of one id, recorded in the replica."""

    changed: Records
    known: Known
    """What an operator who looks at the store now can know of the id's keys."""


@dataclass(kw_only=True)
class Observer:
    """
    Looks at one key store, and records local changes in one replica.

    :param calls: they say who is bringing an id into a state; asked where no event names one.
    :param deleted_by_salt: this master is in a cluster of Salt's own. If a key is deleted on
        another member, Salt deletes it here too, but does not rotate this master's AES key.
    """

    store: KeyStore
    replica: Replica
    work: WorkQueue
    holds: Holds
    refused: RefusedIds
    newcomers: Newcomers
    races: Races
    revocations: Revocations
    writer: Writer
    calls: WheelCalls
    deleted_by_salt: bool

    def see(self, ids: Sequence[str], task: Task) -> tuple[dict[str, Sighting], dict[str, bool]]:
        """
        Look at *ids*, a batch of *task*.

        :return: the believed sightings by id; and the ids to look at again in a moment, each with
            whether to believe them then: not those whose keys may be copied now. The others are
            held, refused or waiting: record nothing of them.
        """
        seen: dict[str, Sighting] = {}
        again: dict[str, bool] = {}
        held = self.replica.held
        for minion_id in ids:
            found = self._find(minion_id, task.certain)
            if found is None:
                if not task.certain:
                    again[minion_id] = True
                continue
            if task.adopted:
                found = found._replace(news=True)
            else:
                if minion_id in held and not task.released:
                    if self.holds.is_held(minion_id, found.content, found.applied, task.by):
                        # Its key can be put back without overwriting anything.
                        if found.applied.dirty and found.content.stored.slot is None:
                            seen[minion_id] = found._replace(held=True)
                        continue
                    found = _without_held(found, self.replica.get(minion_id))
                found = self._compared(minion_id, found, task)
            gone = interpretation.is_gone(found.applied.stored, found.content.stored)
            unsure = gone and not (task.certain or task.released)
            if found.news and (unsure or self._may_be_an_operators(minion_id, found, task)):
                again[minion_id] = True
            elif found.news and self._may_be_copied(minion_id, found, task):
                again[minion_id] = False
            elif not self._must_wait(minion_id, found):
                seen[minion_id] = found
        return seen, again

    def record(
        self, minion_id: str, seen: Sighting, records: Records, task: Task
    ) -> LocalChange | None:
        """
        Record the change of one id, whose records are *records*; inside a transaction.

        :return: None if nobody changed the id: our own move was interrupted, and must be finished.
        """
        content, applied = seen.content, seen.applied
        now, by = content.stored, ""
        if task.adopted:
            known = contexts(records)
            writes = _adopted(now, records, task.outdated)
        elif _is_interrupted_move(seen):
            return None
        else:
            known = contexts(records) if applied.known is None else applied.known
            writes = _done_here(seen, known, records, task.released)
            by = self._author(minion_id, seen, task)
            if plan.revokes(applied.stored, now) and (applied.dirty or self.deleted_by_salt):
                # A crash came after our own removal; or Salt's cluster did not rotate the AES key.
                self.replica.meta.revocation_due = True
            if now == ABSENT:
                self.revocations.is_gone(minion_id)
        return self._write(minion_id, content, records, writes, dict(known), by)

    def _author(self, minion_id: str, seen: Sighting, task: Task) -> str:
        """Who made the change, as far as known: a name, :data:`MINION` or :data:`OPERATOR`."""
        state = seen.content.stored.state
        by = self.by(task.by, minion_id, state if state in DECISIONS else DELETED)
        if by:
            return by
        if self.work.signed_in(minion_id) and state == ACCEPTED:
            return MINION
        # Of a new id the key may have come with the folder.
        return "" if seen.applied == NEVER else OPERATOR

    def _may_be_an_operators(self, minion_id: str, seen: Sighting, task: Task) -> bool:
        """
        Whether a key that waited is accepted, and so far only its minion says so. Salt tells who
        accepted a key after it has done so, and the minion may sign in before that.
        """
        states = seen.applied.stored.state, seen.content.stored.state
        if task.by not in ("", MINION) or states != (PENDING, ACCEPTED):
            return False
        if task.by == MINION:
            self.work.sign_in(minion_id)
        return self.work.signed_in(minion_id) and not task.certain

    def by(self, said: str, minion_id: str, state: str) -> str:
        """Who did it. Salt may report a wheel call after the changes that the call made."""
        if said == OPERATOR:
            return self.calls.who(minion_id, state, ONE_CALL) or said
        return said or self.calls.who(minion_id, state)

    def _write(
        self,
        minion_id: str,
        content: Content,
        records: Records,
        writes: Iterable[interpretation.StateWrite],
        known: dict[bytes, Context],
        by: str,
    ) -> LocalChange:
        changed: Records = {}
        for key, state in writes:
            record = changed.get(key) or records.get(key)
            if record is None:
                if key not in content.keys:
                    continue  # it was refused, so nobody ever heard of it, and is gone
                text, others = content.keys[key], (records | changed).values()
                record = self.refused.new_record(minion_id, key, text, state, others)
                if record is None:
                    continue
            write, name = (observe, MINION) if state in OBSERVATIONS else (decide, by)
            value = self.writer.value(state, name)
            changed[key] = write(record, known.get(key, {}), value)
            self.replica.put(changed[key])
            known[key] = join(known.get(key, {}), {value.dot.node: value.dot.counter})
        return LocalChange(changed, known)

    def _find(self, minion_id: str, certain: bool) -> Sighting | None:
        """
        What the store shows for one id. None if its entry is no key: if *certain*, the id is
        refused; otherwise the key may be half written.
        """
        applied = self.replica.applied(minion_id)
        content = self.store.read(minion_id, certain)
        if content is None:
            if certain:
                self.refused.add(minion_id, NO_KEY)
            return None
        if content.junk:
            self.refused.add(minion_id, NO_KEY)
        elif content.stored == ABSENT or self.refused.reasons.get(minion_id) == NO_KEY:
            self.refused.discard(minion_id)
        # Perhaps Salt's temporary file. A minion that really has such an id is recorded later.
        if not certain and applied == NEVER and TEMPORARY.fullmatch(minion_id):
            return None
        return Sighting(content, applied)

    def _compared(self, minion_id: str, seen: Sighting, task: Task) -> Sighting:
        """*seen*, with ``news`` and ``raced`` set."""
        content, applied = seen.content, seen.applied
        if task.deleted:
            at = time.monotonic()
            known = self.races.known_then(minion_id, content, applied.stored, at)
            if known is not None:
                return seen._replace(news=True, raced=True, applied=applied._replace(known=known))
        if content.stored != applied.stored:
            return seen._replace(news=True)
        # Salt reports a deletion, and the key is pending as before. If the minion has knocked
        # since, the entry is a new one. If not, nobody deleted the key: minions can make Salt fire
        # such events.
        pending = applied.stored.state == PENDING and not applied.dirty
        again = task.deleted and pending and content.mark != self.replica.mark(minion_id)
        return seen._replace(news=again)

    def _may_be_copied(self, minion_id: str, seen: Sighting, task: Task) -> bool:
        """See :meth:`.Holds.may_be_copied`; what an operator confirmed is not."""
        if task.adopted or task.released or seen.applied.dirty:
            return False
        return self.holds.may_be_copied(minion_id, seen.content.stored, task.by)

    def _must_wait(self, minion_id: str, seen: Sighting) -> bool:
        """
        Whether an id is new, and too many others are; an operator's decision always has room.
        """
        now = seen.content.stored
        known = not seen.news or self.replica.is_known(minion_id)
        if known or now == ABSENT or now.state in DECISIONS:
            self.newcomers.discard(minion_id)
            return False
        return not self.newcomers.admit(minion_id)


def contexts(records: Records) -> Known:
    """The causal contexts of an id's records."""
    return {key: dict(record.context) for key, record in records.items()}


def _adopted(now: Stored, records: Records, outdated: bool) -> list[interpretation.StateWrite]:
    """
    What to write of a store whose content is nobody's decision. A known decision about a key holds,
    even if the store shows something else.
    """

    def counts(write: interpretation.StateWrite) -> bool:
        record = records.get(write.key)
        return not record or not (record.decided or write.state in OBSERVATIONS)

    return [write for write in interpretation.unversioned(now, outdated) if counts(write)]


def _is_interrupted_move(seen: Sighting) -> bool:
    """Whether the store shows what our own unfinished move may have left."""
    applied = seen.applied
    if seen.raced or not applied.dirty:
        return False
    return plan.is_between(seen.content.stored, applied.stored, applied.aims)


def _done_here(
    seen: Sighting, known: Known, records: Records, released: bool
) -> list[interpretation.StateWrite]:
    """What to write of a change that somebody made here, knowing the keys that *known* names."""
    applied, now = seen.applied, seen.content.stored
    meant = records.keys() if released else _meant(seen, known)
    states = {key: record.state for key, record in records.items() if key in meant}
    if seen.raced:
        writes = interpretation.deleted(applied.stored, now, states)
        return writes + interpretation.interpret(applied.stored, now, states)
    if now != applied.stored:
        return interpretation.interpret(_may_have_shown(applied, now), now, states)
    return interpretation.knocked_again(now)


def _meant(seen: Sighting, known: Known) -> set[bytes]:
    """
    The keys that an operator who acted on the id could mean: those that were known when the store
    was last looked at (*known*), that it showed then, or that our moves may have put there since;
    not those heard of meanwhile.
    """
    applied = seen.applied
    there = set() if seen.raced else applied.stored.keys  # that is our own move
    return known.keys() | there | {key for _, key in applied.aims}


def _may_have_shown(applied: Applied, now: Stored) -> Stored:
    """
    What the store showed before *now*. An unfinished move may have put a decided key there that is
    only pending now: then an operator deleted the key in between. Nobody knows whether the move got
    that far. Having to accept a key again does less harm than a deleted key that comes back.
    """
    decided = [aim for aim in applied.aims if aim[1] == now.key and aim[0] in DECISIONS]
    if applied.stored.slot or now.state != PENDING or not decided:
        return applied.stored
    return Stored(*min(decided), denied=applied.stored.denied)


def _without_held(seen: Sighting, records: Records) -> Sighting:
    """
    *seen*, for an id that is held no longer, as an operator in an emptied store sees it: a decision
    about another key does not mean the held key, and denied keys that went with it were deleted by
    nobody.
    """
    applied, now = seen.applied, seen.content.stored
    held = applied.stored.key
    if applied.stored.state in DECISIONS:  # otherwise none went: a revoked key came
        there = applied.stored._replace(denied=applied.stored.denied & now.denied)
        applied = applied._replace(stored=there)
    if not now.slot or now.key == held or interpretation.still_accepted(applied.stored, now):
        return seen._replace(applied=applied)
    known = contexts(records) if applied.known is None else applied.known
    shown = {key: context for key, context in known.items() if key != held}
    return seen._replace(applied=applied._replace(stored=ABSENT, known=shown))
