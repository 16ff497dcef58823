"""
The keeper: holds together what this master's key store shows and what its replica knows.

``observe`` turns what changed in the store into records, ``merge`` takes records of peers in, and
``apply`` brings the store to what the records say. Everything is written to the replica first; a
crash between any two lines is finished by the next ``apply``. One thread only; no network here.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from saltext_ha import minion_key
from saltext_ha.errors import InvalidRecord
from saltext_ha.keystore.base import Change, Content, KeyStore
from saltext_ha.replica import NEVER, Applied, Known, Replica
from saltext_ha.replication import change, plan
from saltext_ha.replication.guard import RevocationGuard
from saltext_ha.replication.placement import ABSENT, Stored, accepted_keys, place
from saltext_ha.replication.record import (
    ACCEPTED,
    DECISIONS,
    DELETED,
    OBSERVATIONS,
    PENDING,
    REJECTED,
    Record,
    Value,
    decide,
    join,
    merge,
    observe,
)

log = logging.getLogger(__name__)

BATCH = 500
# A minion that knocks with ever new keys must not fill the replicas of all masters.
MAX_UNDECIDED = 4
# Under such a name Salt 3008 writes a key (tempfile.mkstemp in salt/cache/localfs_key.py), in the
# key folder, and renames it then. Who really has such an id is recorded a moment later.
TEMPORARY = re.compile(r"tmp[a-z0-9_]{8}")

T = TypeVar("T")
Announce = Callable[[str, dict[str, Any]], None]


class Seen(NamedTuple):
    """What :meth:`Keeper.observe` found."""

    records: list[Record]
    """Records that changed: to be pushed to the peers."""
    unsettled: list[str]
    """Ids to look at again shortly: a key is being written, or has just gone."""


class Keeper:
    """
    Keeps one key store and one replica together.

    :param name: this master's name, written into values for people to read.
    :param guard: says which mass disappearances to hold back.
    :param revoke: rotates the AES key and cleans caches; called once a batch.
    :param enforce: whether the store is ever written.
    :param announce: told, by tag and data, what reactors may want to know.
    :param adopting: the replica was lost: nothing is recorded or applied before :meth:`adopt`.
    """

    def __init__(
        self,
        store: KeyStore,
        replica: Replica,
        *,
        name: str,
        guard: RevocationGuard,
        revoke: Callable[[], None],
        enforce: bool = True,
        adopting: bool = False,
        clock: Callable[[], float] = time.time,
        announce: Announce = lambda tag, data: None,
    ) -> None:
        self.store = store
        self.replica = replica
        self.enforce = enforce
        self.adopting = adopting
        self.refused: dict[str, str] = {}
        self._name = name
        self._guard = guard
        self._revoke = revoke
        self._clock = clock
        self._announce = announce

    # -- from the store to the replica

    def scan(self) -> Seen:
        """Look at every id whose entry in the store may have changed."""
        return self.observe(self.store.changed())

    def observe(
        self,
        ids: Iterable[str],
        *,
        by: str = "",
        certain: bool = False,
        deleted: bool = False,
        released: bool = False,
    ) -> Seen:
        """
        Record what changed in the store for *ids*; nothing before :meth:`adopt` when it is due.

        :param by: who changed it, as far as known; for people.
        :param certain: believe that an absent key is gone. Otherwise it is only unsettled: Salt
            3008 removes a key for an instant before it writes the new state.
        :param deleted: Salt said that these ids were deleted. A key that is pending as before then
            has knocked again since.
        :param released: an operator confirmed the disappearance of these ids.
        """
        seen = Seen([], [])
        if self.adopting:
            return seen
        ids = list(ids)
        certain = certain or deleted
        if not released:
            self._hold_back(ids, certain)
        for batch in _batches(ids, BATCH):
            self._observe_batch(batch, seen, by, certain, deleted, released)
        return seen

    def adopt(self) -> Seen:
        """
        Take the store's content in after the replica was lost and a peer's knowledge was pulled.

        Where the peers know a decision about a key, it holds, whatever the store shows; the rest
        is recorded as if it had happened now.
        """
        seen = Seen([], [])
        for batch in _batches(self.store.changed(), BATCH):
            self._observe_batch(batch, seen, "", True, False, False)
        self.adopting = False
        return seen

    def _observe_batch(
        self,
        ids: Sequence[str],
        seen: Seen,
        by: str,
        certain: bool,
        deleted: bool,
        released: bool,
    ) -> None:
        found: list[tuple[str, Content, Applied]] = []
        back: list[str] = []
        held = self.replica.held()
        for minion_id in ids:
            content = self.store.read(minion_id)
            if content is None:
                if certain:
                    self._refuse(minion_id, "its key file is no public key in PEM")
                else:
                    seen.unsettled.append(minion_id)
                continue
            applied = self.replica.applied(minion_id)
            if not certain and applied == NEVER and TEMPORARY.fullmatch(minion_id):
                seen.unsettled.append(minion_id)
                continue
            if minion_id in held:
                # A minion that knocks at an emptied store brings nothing back.
                if not released and content.stored.state not in (ACCEPTED, REJECTED):
                    continue
                back.append(minion_id)
            if content.stored == applied.stored and not (deleted and _is_pending(applied)):
                continue
            if not certain and not released and self._vanished(minion_id, content, applied):
                seen.unsettled.append(minion_id)
                continue
            found.append((minion_id, content, applied))
        if not found and not back:
            return
        with self.replica.transaction():
            self.replica.unhold(back)
            for minion_id, content, applied in found:
                seen.records.extend(self._record(minion_id, content, applied, by))

    def _vanished(self, minion_id: str, content: Content, applied: Applied) -> bool:
        """Whether the id's key is gone, and not by our own hand."""
        if not applied.stored.slot or content.stored.slot:
            return False
        return not applied.dirty or self._wanted(minion_id, applied).slot is not None

    def _hold_back(self, ids: Sequence[str], certain: bool) -> None:
        """Hold back accepted keys that went away, when they are too many to be believed."""
        if not self.replica.any_accepted():
            return
        held = self.replica.held()
        gone = []
        for minion_id in ids:
            applied = self.replica.applied(minion_id)
            if applied.stored.state != ACCEPTED or minion_id in held:
                continue
            content = self.store.read(minion_id)
            if content is None or (content.stored.slot is None and not certain):
                continue
            ours = applied.dirty and self._wanted(minion_id, applied).state != ACCEPTED
            if content.stored.state not in (ACCEPTED, REJECTED) and not ours:
                gone.append(minion_id)
        if not gone:
            return
        accepted = self.replica.counts().get(ACCEPTED, 0) - len(held)
        if self._guard.allows(len(gone), accepted, time.monotonic()):
            return
        log.error(
            "ha held: %d accepted keys are gone from the key store of %s; nothing was recorded. "
            "Bring the folder back, or confirm with: salt-run ha.release",
            len(held) + len(gone),
            self._name,
        )
        with self.replica.transaction():
            self.replica.hold(gone, self._clock())
        self._announce("held", {"master": self._name, "ids": sorted(gone)})

    def _wanted(self, minion_id: str, applied: Applied) -> Stored:
        return place(self.replica.get(minion_id).values(), applied.stored)

    def _record(self, minion_id: str, content: Content, applied: Applied, by: str) -> list[Record]:
        """Write down one id's change; inside a transaction."""
        records = self.replica.get(minion_id)
        now = content.stored
        if applied.dirty and plan.is_between(now, applied.stored, applied.aims):
            return []  # our own apply, interrupted; the next one finishes it
        states = {key: record.state for key, record in records.items()}
        known = dict(_contexts(records) if applied.known is None else applied.known)
        changed: dict[bytes, Record] = {}
        if now == applied.stored:
            writes = change.knocked_again(now)
        else:
            writes = change.interpret(applied.stored, now, states)
        for key, state in writes:
            record = changed.get(key) or records.get(key)
            if record is None:
                record = self._new_record(minion_id, key, content, state, records)
                if record is None:
                    continue
            if self.adopting and any(value.state in DECISIONS for value in record.values):
                continue
            value = Value(self.replica.next_dot(), state, self._clock(), by, self._name)
            write = observe if state in OBSERVATIONS else decide
            changed[key] = write(record, known.get(key, {}), value)
            known[key] = join(known.get(key, {}), {value.dot.node: value.dot.counter})
        for record in changed.values():
            self.replica.put(record)
        records.update(changed)
        if applied.dirty and plan.revokes(applied.stored, now):
            self.replica.revocation_due = True  # our own removal, finished before a crash
        # What was refused is looked at again after a restart, to be reported again.
        mark = content.mark if not now.slot or now.key in records else 0
        self._settle(minion_id, now, records, known, applied.aims, mark)
        return list(changed.values())

    def _new_record(
        self,
        minion_id: str,
        key: bytes,
        content: Content,
        state: str,
        records: dict[bytes, Record],
    ) -> Record | None:
        undecided = sum(record.state in OBSERVATIONS for record in records.values())
        if state in OBSERVATIONS and undecided >= MAX_UNDECIDED:
            self._refuse(minion_id, f"more than {MAX_UNDECIDED} undecided keys")
            return None
        text = content.keys[key]
        try:
            minion_key.check_id(minion_id)
            minion_key.check(text)
        except InvalidRecord as exc:
            self._refuse(minion_id, str(exc))
            return None
        self.refused.pop(minion_id, None)
        return Record(minion_id, key, text)

    def _refuse(self, minion_id: str, reason: str) -> None:
        if self.refused.get(minion_id) != reason:
            log.warning("ha refused: id=%s reason=%s", ascii(minion_id), reason)
            self.refused[minion_id] = reason

    def _settle(
        self,
        minion_id: str,
        now: Stored,
        records: dict[bytes, Record],
        known: Known,
        aims: frozenset[tuple[str, bytes]],
        mark: int,
    ) -> None:
        """Note what the store shows, and whether it is still to be changed."""
        shown = Stored(now.state, now.key, now.denied)
        desired = place(records.values(), shown)
        todo = plan.steps(now, desired, frozenset(records), self.store.one_denied)
        if todo:
            aims = aims | plan.aims(desired) | now.extra
            self.replica.set_applied(minion_id, Applied(shown, True, known, aims), mark)
        else:
            settled = NEVER if shown == ABSENT else Applied(shown)
            self.replica.set_applied(minion_id, settled, mark)

    # -- from the peers to the replica

    def merge(self, records: Iterable[Record]) -> tuple[int, Seen]:
        """
        Take *records* of a peer in, and write down what is to be applied.

        Local changes are looked for first, so that an operator's decision is recorded with what
        that operator could know.

        :return: how many records taught us something, and local changes found on the way.
        """
        learned = 0
        seen = Seen([], [])
        for batch in _batches(records, BATCH):
            ids = list(dict.fromkeys(record.minion_id for record in batch))
            found = self.observe(ids)
            seen.records.extend(found.records)
            seen.unsettled.extend(found.unsettled)
            with self.replica.transaction():
                learned += self._merge_batch(batch)
        return learned, seen

    def _merge_batch(self, batch: Sequence[Record]) -> int:
        learned = 0
        before: dict[str, dict[bytes, Record]] = {}
        for theirs in batch:
            ours = self.replica.get(theirs.minion_id)
            known = ours.get(theirs.fingerprint)
            merged = merge(known, theirs) if known else theirs
            if merged == known:
                continue
            before.setdefault(theirs.minion_id, ours)
            self.replica.put(merged)
            learned += 1
        for minion_id, ours in before.items():
            self._mark(minion_id, ours)
        return learned

    def _mark(self, minion_id: str, before: dict[bytes, Record]) -> None:
        """Note that the store is to be changed, if it is; *before*: the records it agreed with."""
        applied = self.replica.applied(minion_id)
        records = self.replica.get(minion_id)
        accepted = accepted_keys(records.values())
        if len(accepted) > 1 and len(accepted_keys(before.values())) < 2:
            shown = [minion_key.show(key, short=False) for key in accepted]
            self._announce("conflict", {"id": minion_id, "fingerprints": shown})
        desired = place(records.values(), applied.stored)
        todo = plan.steps(applied.stored, desired, frozenset(records), self.store.one_denied)
        if not todo and not applied.dirty:
            return
        known = _contexts(before) if applied.known is None else applied.known
        aims = applied.aims | plan.aims(desired)
        self.replica.set_applied(minion_id, Applied(applied.stored, True, known, aims))

    # -- from an operator to the replica

    def decide(self, minion_id: str, states: Mapping[bytes, str], by: str) -> list[Record]:
        """
        Record an operator's decisions about keys of one id, made knowing all that is known here.

        :param states: fingerprint → accepted, rejected or deleted; of recorded keys.
        :param by: the operator, for people.
        :return: the changed records, to be pushed.
        """
        before = self.replica.get(minion_id)
        changed = []
        with self.replica.transaction():
            for key, state in sorted(states.items()):
                record = before[key]
                value = Value(self.replica.next_dot(), state, self._clock(), by, self._name)
                record = decide(record, dict(record.context), value)
                self.replica.put(record)
                changed.append(record)
            self._mark(minion_id, before)
        return changed

    # -- from the replica to the store

    def apply(self) -> Seen:
        """
        Bring the store to what the records say, wherever that was written down to be done.

        :return: local changes found on the way, as :meth:`observe` does.
        :raises StoreError: when the store cannot be written; what is left is done another time.
        """
        seen = Seen([], [])
        if not self.enforce or self.adopting or self.replica.paused:
            return seen
        for batch in _batches(self.replica.dirty(), BATCH):
            self._apply_batch(batch, seen)
        if self.replica.revocation_due:
            self._revoke()
            with self.replica.transaction():
                self.replica.revocation_due = False
        return seen

    def _apply_batch(self, ids: Sequence[str], seen: Seen) -> None:
        changes: list[Change] = []
        before: dict[str, Stored] = {}
        after: dict[str, Stored] = {}
        held = self.replica.held()
        for minion_id in ids:
            content = self.store.read(minion_id)
            applied = self.replica.applied(minion_id)
            if content is None or not applied.dirty:
                continue
            records = self.replica.get(minion_id)
            now, desired = content.stored, place(records.values(), applied.stored)
            ours = plan.is_between(now, applied.stored, applied.aims)
            lost = minion_id in held and now.slot is None
            if now != applied.stored and not ours and not lost:
                # Somebody acted between two lines of ours: first record that, then come back.
                seen.unsettled.append(minion_id)
                continue
            todo = plan.steps(now, desired, frozenset(records), self.store.one_denied)
            keys = {key: record.public_key for key, record in records.items()}
            changes.append(Change(minion_id, todo, keys))
            before[minion_id] = applied.stored
            after[minion_id] = plan.outcome(now, desired, todo, self.store.one_denied)
        missing = self.store.apply(changes) if changes else set()
        with self.replica.transaction():
            for minion_id, expected in after.items():
                if minion_id in missing:
                    seen.records.extend(self._record_removed(minion_id))
                    seen.unsettled.append(minion_id)
                    continue
                content = self.store.read(minion_id)
                mark = content.mark if content else 0
                if content is None or content.stored != expected:
                    seen.unsettled.append(minion_id)
                    mark = 0
                if plan.revokes(before[minion_id], expected):
                    self.replica.revocation_due = True
                if minion_id in held:
                    self.replica.unhold([minion_id])
                done = NEVER if expected == ABSENT else Applied(expected)
                self.replica.set_applied(minion_id, done, mark)
        for minion_id, expected in after.items():
            if minion_id not in missing and expected.slot != before[minion_id].slot:
                self._announce_key(minion_id, before[minion_id], expected)

    def _announce_key(self, minion_id: str, before: Stored, after: Stored) -> None:
        state, key = after.slot or (DELETED, before.key)
        data = {
            "id": minion_id,
            "act": state,
            "before": before.state,
            "fingerprint": minion_key.show(key, short=False) if key else None,
            "master": self._name,
        }
        self._announce(f"key/{state}", data)

    def _record_removed(self, minion_id: str) -> list[Record]:
        """Somebody deleted the key that we were moving: a decision made without knowing ours."""
        applied = self.replica.applied(minion_id)
        record = self.replica.get(minion_id).get(applied.stored.key or b"")
        if record is None:
            return []
        known = (applied.known or {}).get(record.fingerprint, {})
        value = Value(self.replica.next_dot(), DELETED, self._clock(), "", self._name)
        record = decide(record, known, value)
        self.replica.put(record)
        return [record]


def _is_pending(applied: Applied) -> bool:
    return applied.stored.state == PENDING and not applied.dirty


def _contexts(records: dict[bytes, Record]) -> Known:
    return {key: dict(record.context) for key, record in records.items()}


def _batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
