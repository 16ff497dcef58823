"""
The applier: makes the moves that bring this master's key store in line with its records.

Each move is in the journal, the table ``stored``, before it is made; see :class:`.Applied`. It
stays there until what the store then shows is recorded. So after a crash at any point the next look
at the id finishes the move. One thread only; no network here.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from saltext_ha.common.errors import ReplicaError, StoreError
from saltext_ha.common.fail_points import point
from saltext_ha.keystore.base import Change, KeyStore
from saltext_ha.reconciler.own_writes import Writer
from saltext_ha.reconciler.races import Races
from saltext_ha.reconciler.refused import RefusedIds
from saltext_ha.reconciler.revocations import Revocations
from saltext_ha.reconciler.work_queue import WorkQueue
from saltext_ha.replica.replica import Replica
from saltext_ha.replica.serializers import NEVER, Applied, Known
from saltext_ha.replication import plan
from saltext_ha.replication.placement import ABSENT, Stored
from saltext_ha.replication.record import ACCEPTED, PENDING

log = logging.getLogger(__name__)


class Move(NamedTuple):
    """The planned change of one id in the store."""

    change: Change
    waiting: Applied
    """The journal entry of the id until the result is recorded."""
    after: Stored

    @property
    def minion_id(self) -> str:
        return self.change.minion_id


@dataclass(kw_only=True)
class Applier:
    """Brings one key store in line with one replica."""

    store: KeyStore
    replica: Replica
    work: WorkQueue
    refused: RefusedIds
    races: Races
    revocations: Revocations
    writer: Writer
    _withdrawn: dict[str, Applied] = field(default_factory=dict)
    """Moves that changed nothing, and are still in the journal because the disk is full."""

    def carry_out(self, moves: Sequence[Move]) -> None:
        """
        Make *moves*, each only if the store still shows what it starts from, and record the result.

        :raises StoreError: the store cannot be written. :raises ReplicaError: the replica cannot be
            written. The rest is done when the ids are looked at next.
        """
        point("apply.begin")
        try:
            acted = [move for move in moves if not self._is_as_planned(move)]
        except StoreError:
            self._withdraw(moves)
            raise
        self._give_way(acted)
        faster = {move.minion_id for move in acted}
        moves = [move for move in moves if move.minion_id not in faster]
        try:
            missing, failed, taken = self.store.apply([move.change for move in moves])
        except StoreError:
            self._withdraw_untouched(moves)
            raise
        point("apply.store")
        for minion_id, reason in failed.items():
            self.refused.add(minion_id, reason)
        self._withdraw_untouched(move for move in moves if move.minion_id in failed)
        self._give_way([move for move in moves if move.minion_id in taken])
        unmade = taken.union(failed)
        self._write_down([move for move in moves if move.minion_id not in unmade], missing)

    def recover(self) -> None:
        """
        Take moves that changed nothing out of the journal: what the store shows next is not their
        result. Call this before anything is observed.

        :raises ReplicaError: the journal cannot be written.
        """
        if not self._withdrawn:  # the usual case
            return
        with self.replica.transaction():
            for minion_id, waiting in self._withdrawn.items():
                now = self.replica.applied(minion_id)
                self.replica.set_applied(minion_id, now._replace(aims=waiting.aims))
        self._withdrawn.clear()

    def clear_the_way(self, minion_id: str) -> None:
        """
        Remove junk, entries that hold no key, from an id that is to be changed. On 3006 and 3007
        any host that reaches the master can send junk for any id, and ``salt-key -A`` accepts it
        with the others. It must not block a decision about that id.
        """
        applied = self.replica.applied(minion_id)
        if not applied.dirty:
            return
        content, known = self.store.read(minion_id), self.replica.get(minion_id)
        if content and content.stored.key in (None, *known):
            return
        junk = self.store.junk(minion_id)
        if not junk:
            return
        was_due = self.replica.meta.revocation_due
        state, key = applied.stored.slot or (None, None)
        # Junk in its own file spoilt the key; but a pending key was deleted before.
        spoilt = state in junk and state != PENDING
        log.warning("ha store: an entry that is not a key is removed: id=%s", ascii(minion_id))
        with self.replica.transaction():
            if state and (spoilt or key not in known):
                # Record this first: the removal must not look like an operator's deletion.
                stored = Stored(denied=applied.stored.denied)
                self.replica.set_applied(minion_id, applied._replace(stored=stored))
            if ACCEPTED in junk:
                # It may be a key to Salt, which accepts more than we do: text around it, say.
                self.replica.meta.revocation_due = True
        point("apply.junk")
        self.store.discard_junk(minion_id)
        if not was_due and ACCEPTED in self.store.junk(minion_id):
            with self.replica.transaction():
                self.replica.meta.revocation_due = False

    def _is_as_planned(self, move: Move) -> bool:
        content = self.store.read(move.minion_id)
        return content is not None and content.stored == move.change.shown

    def _write_down(self, made: Sequence[Move], missing: Container[str]) -> None:
        """
        Record what the store shows after the moves *made*, and announce these.

        :param missing: ids whose entry was already gone when it was to be removed or replaced.
        """
        at = time.monotonic()
        self.races.expire(at)
        with self.replica.transaction():
            if self.replica.held.count:
                self.replica.held.discard(move.minion_id for move in made)
            for move in made:
                minion_id, waiting, after = move.minion_id, move.waiting, move.after
                self.refused.discard(minion_id)
                content = self.store.read(minion_id)
                there = content.stored if content else None
                if there != after:
                    self.work.look_again(minion_id)
                as_meant = there is not None and there.slot == after.slot
                gone = there is None or waiting.stored.slot not in there.entries
                if plan.revokes(waiting.stored, after) and (as_meant or gone):
                    self.replica.meta.revocation_due = True
                if after == ABSENT:
                    self.revocations.is_gone(minion_id)
                shown, keys = move.change.shown, move.change.keys
                if there and there.slot in shown.extra and there.key not in keys:
                    # It stood beside the entry that counted, and no record knows it: it is news.
                    after = Stored(denied=there.denied)
                elif not as_meant and not _was_taken_back(there, waiting.stored, after):
                    # An operator acted at the same time: the move stays in the journal, so the next
                    # look records that act as made without knowing our move.
                    continue
                done = NEVER if after == ABSENT else Applied(after)
                mark = content.mark if content and there == after else 0
                self.replica.set_applied(minion_id, done, mark)
                if content and minion_id in missing:
                    # An entry without a record was seen, too.
                    unknown: Known = {key: {} for key in waiting.stored.keys}
                    known = {**unknown, **(waiting.known or {})}
                    self.races.add(minion_id, known, content.slot_mark, at)
        point("apply.done")
        for move in made:
            if move.after.slot != move.waiting.stored.slot:
                self.writer.announce_key(move.minion_id, move.waiting.stored, move.after)

    def _give_way(self, moves: Sequence[Move]) -> None:
        """Somebody acted before *moves*, which changed nothing: record that first."""
        self._withdraw(moves)
        for move in moves:
            self.work.look_again(move.minion_id)

    def _withdraw_untouched(self, moves: Iterable[Move]) -> None:
        """*moves* failed: withdraw those that changed nothing."""
        untouched = []
        for move in moves:
            with contextlib.suppress(StoreError):  # the move may have begun
                if self._is_as_planned(move):
                    untouched.append(move)
        self._withdraw(untouched)

    def _withdraw(self, moves: Iterable[Move]) -> None:
        """Take *moves*, which changed nothing, out of the journal."""
        self._withdrawn.update((move.minion_id, move.waiting) for move in moves)
        with contextlib.suppress(ReplicaError):
            self.recover()


def _was_taken_back(there: Stored | None, before: Stored, after: Stored) -> bool:
    """
    Whether an operator undid a move from *before* to *after* once it was made: the store shows
    *there*, without the entry that we had put there. This is no interrupted move, to be finished.
    """
    if not (there and before.slot and after.slot):
        return False
    return there.slot == before.slot and after.slot not in there.entries
