"""
The keeper: holds together what this master's key store shows and what its replica knows.

``observe`` turns what changed in the store into records, ``merge`` takes records of peers in, and
``apply`` brings the store to what the records say. Everything is written to the replica first; a
crash between any two lines is finished by the next ``apply``. One thread only; no network here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from saltext_ha import minion_key
from saltext_ha.faults import point
from saltext_ha.keystore.base import Change, KeyStore
from saltext_ha.observer import EVENT_DELAY, Observer, Raced, Seen, batches, contexts
from saltext_ha.replica import NEVER, Applied, Replica
from saltext_ha.replication import plan
from saltext_ha.replication.placement import ABSENT, Stored, accepted_keys, place
from saltext_ha.replication.record import (
    DELETED,
    Record,
    Value,
    decide,
    merge,
)


class Keeper(Observer):
    """
    An observer that also takes in what others decided, and brings the store to it.

    :param revoke: rotates the AES key and cleans caches; called once a batch.
    :param enforce: whether the store is ever written.
    :param parts: as :class:`Observer` takes them.
    """

    def __init__(
        self,
        store: KeyStore,
        replica: Replica,
        *,
        revoke: Callable[[], None],
        enforce: bool = True,
        **parts: Any,
    ) -> None:
        super().__init__(store, replica, **parts)
        self.enforce = enforce
        self._revoke = revoke

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
        for batch in batches(records):
            ids = list(dict.fromkeys(record.minion_id for record in batch))
            found = self.observe(ids)
            seen.records.extend(found.records)
            seen.unsettled.extend(found.unsettled)
            point("merge.begin")
            with self.replica.transaction():
                learned += self._merge_batch(batch)
                point("merge.record")
            point("merge.done")
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
        known = contexts(before) if applied.known is None else applied.known
        self.replica.set_applied(minion_id, Applied(applied.stored, True, known, applied.aims))

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
        point("decide.done")
        return changed

    # -- from the replica to the store

    def unfinished(self) -> bool:
        """Whether an apply left something, for instance an entry that cannot be written."""
        active = self.enforce and not self.adopting and not self.replica.paused
        return active and bool(self.replica.dirty() or self.replica.revocation_due)

    def apply(self) -> Seen:
        """
        Bring the store to what the records say, wherever that was written down to be done.

        :return: local changes found on the way, as :meth:`observe` does.
        :raises StoreError: when the store cannot be written; what is left is done another time.
        """
        seen = Seen([], [])
        if not self.enforce or self.adopting or self.replica.paused:
            return seen
        for batch in batches(self.replica.dirty()):
            self._apply_batch(batch, seen)
        if self.replica.revocation_due:
            point("revoke.begin")
            self._revoke()
            point("revoke.done")
            with self.replica.transaction():
                self.replica.revocation_due = False
            point("revoke.marked")
        return seen

    def _apply_batch(self, ids: Sequence[str], seen: Seen) -> None:
        changes: list[Change] = []
        before: dict[str, Applied] = {}
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
            before[minion_id] = applied._replace(aims=applied.aims | plan.aims(desired))
            after[minion_id] = plan.outcome(now, desired, todo, self.store.one_denied)
        if not changes:
            return
        point("apply.begin")
        # What the store may show by our own doing is written down before it does.
        with self.replica.transaction():
            for change in changes:
                if change.steps:
                    self.replica.set_applied(change.minion_id, before[change.minion_id])
        point("apply.aims")
        missing, failed = self.store.apply(changes)
        point("apply.store")
        for minion_id, reason in failed.items():
            self._refuse(minion_id, reason)
            del after[minion_id]
        with self.replica.transaction():
            for minion_id, expected in after.items():
                self.refused.pop(minion_id, None)
                content = self.store.read(minion_id)
                mark = content.mark if content else 0
                if content is None or content.stored != expected:
                    seen.unsettled.append(minion_id)
                    mark = 0
                if plan.revokes(before[minion_id].stored, expected):
                    self.replica.revocation_due = True
                if minion_id in held:
                    self.replica.unhold([minion_id])
                done = NEVER if expected == ABSENT else Applied(expected)
                self.replica.set_applied(minion_id, done, mark)
        point("apply.done")
        for minion_id in missing & after.keys():
            stored, _, known, _ = before[minion_id]
            if stored.key:
                until = time.monotonic() + EVENT_DELAY
                self._raced[minion_id] = Raced(stored.key, (known or {}).get(stored.key, {}), until)
        for minion_id, expected in after.items():
            if expected.slot != before[minion_id].stored.slot:
                self._announce_key(minion_id, before[minion_id].stored, expected)

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
