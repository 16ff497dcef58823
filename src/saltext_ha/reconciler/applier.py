"""
The applier: brings this master's key store to what its records say.

What is to be done is written down in the replica before it is done, and what the store may show
meanwhile, so that a crash between any two lines is finished by the next :meth:`Applier.apply`.
One thread only; no network here.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from saltext_ha.common.batches import batches
from saltext_ha.common.errors import StoreError
from saltext_ha.common.fail_points import point
from saltext_ha.keystore.base import Change, Content, KeyStore
from saltext_ha.reconciler.holds import Holds
from saltext_ha.reconciler.journal import Journal
from saltext_ha.reconciler.races import Races
from saltext_ha.reconciler.refused import RefusedIds
from saltext_ha.reconciler.revocations import Revocations
from saltext_ha.reconciler.work_queue import WorkQueue
from saltext_ha.reconciler.write_mode import WriteMode
from saltext_ha.reconciler.writer import Writer
from saltext_ha.replica.replica import Records, Replica
from saltext_ha.replica.serializers import NEVER, Applied
from saltext_ha.replication import plan
from saltext_ha.replication.digest import in_order
from saltext_ha.replication.placement import ABSENT, Stored, place
from saltext_ha.replication.record import ACCEPTED, PENDING

log = logging.getLogger(__name__)


class Move(NamedTuple):
    """What is to become of one id in the store."""

    change: Change
    waiting: Applied
    """What is written down of it as long as the store shows nothing by this move."""
    doing: Applied
    """What is written down once it may."""
    after: Stored


@dataclass
class Applier:
    """
    Writes to one key store what one replica says.

    :param mode: whether the store is written.
    """

    store: KeyStore
    replica: Replica
    mode: WriteMode
    work: WorkQueue
    holds: Holds
    refused: RefusedIds
    races: Races
    journal: Journal
    revocations: Revocations
    writer: Writer

    def unfinished(self) -> bool:
        """Whether an apply left something, for instance an entry that cannot be written."""
        return self.is_active() and bool(self.replica.dirty() or self.revocations.due)

    def is_active(self) -> bool:
        """Whether the store is to be written at all at present; it may be in doubt nevertheless."""
        return not (self.mode.never or self.mode.adopting or self.replica.meta.paused)

    def apply(self) -> None:
        """
        Bring the store to what the records say, wherever that was written down to be done.

        :raises StoreError: when the store cannot be written; what is left is done another time.
        """
        if self.mode.never:
            self.revocations.leave_to_others()
        if not self.is_active() or not self.holds.is_ours():
            return
        for batch in batches(in_order(self.replica.dirty())):
            self.bring(batch)
        self.revocations.follow_up()
        if self.holds.provenance.signing_due():
            self.holds.provenance.sign()
        self.store.check_writable()

    def bring(self, ids: Iterable[str]) -> None:
        """Bring *ids* to what the records say, where that is written down to be done."""
        moves: list[Move] = []
        undone: dict[str, Applied] = {}
        held = self.replica.held()
        for minion_id in self.replica.brought(ids):
            applied = undone[minion_id] = self.journal.applied(minion_id)
            if not applied.dirty:
                continue
            records = self.replica.get(minion_id)
            try:
                applied, content = self._content(minion_id, applied, records)
            except StoreError:
                self.journal.withdraw(
                    undone | {move.change.minion_id: move.waiting for move in moves}
                )
                raise
            if content is None:
                continue
            now = content.stored
            ours = plan.is_between(now, applied.stored, applied.aims)
            lost = minion_id in held and now.slot is None
            if now != applied.stored and not ours and not lost:
                # Somebody acted between two lines of ours: first record that, then come back. What
                # is held is not recorded: it waits until that is over.
                if minion_id not in held:
                    self.work.settle(minion_id)
                continue
            del undone[minion_id]
            moves.append(self._move(minion_id, now, applied, records))
        self.journal.withdraw(undone)
        if moves:
            self._carry_out(moves)

    def _content(
        self, minion_id: str, applied: Applied, records: Records
    ) -> tuple[Applied, Content | None]:
        """What was applied to an id, and what it shows; without junk, where that is in the way."""
        content = self.store.read(minion_id)
        shown = content.stored if content else None
        if shown is None or (shown.slot and shown.key not in records):
            applied = self._without_junk(minion_id, applied, frozenset(records))
            content = self.store.read(minion_id)
        return applied, content

    def _move(self, minion_id: str, now: Stored, waiting: Applied, records: Records) -> Move:
        """The move of an id from *now* to where its *records* have it."""
        desired = place(records.values(), waiting.stored)
        todo = plan.steps(now, desired, frozenset(records), self.store.one_denied)
        keys = {key: record.public_key for key, record in records.items()}
        return Move(
            Change(minion_id, todo, keys, now),
            waiting,
            waiting._replace(aims=waiting.aims | plan.aims(desired)) if todo else waiting,
            plan.outcome(now, desired, todo, self.store.one_denied),
        )

    def _carry_out(self, moves: Sequence[Move]) -> None:
        """Make *moves*."""
        point("apply.begin")
        self.journal.begin({move.change.minion_id: move.doing for move in moves})
        point("apply.aims")
        try:
            missing, failed, taken = self.store.apply([move.change for move in moves])
        except StoreError:
            self._withdraw_untouched(moves)
            raise
        point("apply.store")
        for minion_id, reason in failed.items():
            self.refused.add(minion_id, reason)
        self._withdraw_untouched([move for move in moves if move.change.minion_id in failed])
        for minion_id in taken:
            self.work.settle(minion_id)
        self.journal.withdraw(
            {m.change.minion_id: m.waiting for m in moves if m.change.minion_id in taken}
        )
        unmade = taken.union(failed)
        self._write_down([m for m in moves if m.change.minion_id not in unmade], missing)

    def _write_down(self, made: Sequence[Move], missing: Container[str]) -> None:
        """
        The store was brought to what *made* are for: write down what it shows now, and tell of it.

        :param missing: ids of which somebody had taken away what was to be removed or replaced.
        """
        at = time.monotonic()
        self.races.expire(at)
        settled: list[str] = []
        with self.replica.transaction():
            self.replica.unhold(move.change.minion_id for move in made)
            for (minion_id, _, keys, shown), waiting, _, after in made:
                self.refused.discard(minion_id)
                content = self.store.read(minion_id)
                there = content.stored if content else None
                if there != after:
                    self.work.settle(minion_id)
                as_meant = there is not None and there.slot == after.slot
                gone = there is None or waiting.stored.slot not in there.entries
                if plan.revokes(waiting.stored, after) and (as_meant or gone):
                    self.revocations.due = True
                if after == ABSENT:
                    self.revocations.is_gone(minion_id)
                if there and there.slot in shown.extra and there.key not in keys:
                    # It stood beside what counted, and no record knows it: it is news now.
                    after = Stored(denied=there.denied)
                elif not as_meant:
                    # Somebody acted while we did, on what stood there before: it is compared with
                    # that, and written down as made without knowing our move.
                    continue
                done = NEVER if after == ABSENT else Applied(after)
                mark = content.mark if content and there == after else 0
                self.replica.set_applied(minion_id, done, mark)
                settled.append(minion_id)
                if content and minion_id in missing:
                    self.races.add(minion_id, waiting.known or {}, content.slot_mark, at)
        point("apply.done")
        self.journal.done(settled)
        for (minion_id, *_), waiting, _, after in made:
            if after.slot != waiting.stored.slot:
                self.writer.announce_key(minion_id, waiting.stored, after)

    def _withdraw_untouched(self, moves: Iterable[Move]) -> None:
        """*moves* failed: of those that changed nothing, nothing was done."""
        untouched = {}
        for move in moves:
            with contextlib.suppress(StoreError):  # the next apply comes to it
                content = self.store.read(move.change.minion_id)
                if content is not None and content.stored == move.change.shown:
                    untouched[move.change.minion_id] = move.waiting
        self.journal.withdraw(untouched)

    def _without_junk(self, minion_id: str, applied: Applied, known: frozenset[bytes]) -> Applied:
        """
        Remove what is no key. On 3006 and 3007 whoever reaches the master can leave it under any
        id, where it is accepted with the others (``salt-key -A``), and it must not keep a decision
        about that id out.

        :return: what was applied, without that.
        """
        junk = self.store.junk(minion_id)
        if not junk:
            return applied
        was_due = self.revocations.due
        state, key = applied.stored.slot or (None, None)
        # A pending key was deleted before something else could knock.
        spoilt = state in junk and state != PENDING
        log.warning("ha: what was there was no key, and is removed: id=%s", ascii(minion_id))
        with self.replica.transaction():
            if state and (spoilt or key not in known):
                # First: that it is gone must not be taken for an operator who deleted the id.
                applied = applied._replace(stored=Stored(denied=applied.stored.denied))
                self.replica.set_applied(minion_id, applied)
            if ACCEPTED in junk:
                # Salt takes more for a key than we do: text around it, for instance.
                self.revocations.due = True
        point("apply.junk")
        self.store.discard_junk(minion_id)
        left = self.store.junk(minion_id)
        if ACCEPTED in left and not was_due:
            with self.replica.transaction():
                self.revocations.due = False
        if not left:
            self.refused.discard(minion_id)
        return applied
