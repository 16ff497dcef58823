"""
Holds changes of the key store that are not believed: too many at once, or in a store not ours.

A held change is recorded nowhere, so no peer hears of it, until it is undone or an operator runs
``ha.release`` or ``ha.refill``.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence

from saltext_ha.common.fail_points import point
from saltext_ha.keystore.base import Content, KeyStore
from saltext_ha.reconciler import work_queue
from saltext_ha.reconciler.own_writes import MINION, Writer
from saltext_ha.reconciler.provenance import MISSING, OLDER, OURS, Provenance
from saltext_ha.reconciler.task import Task
from saltext_ha.reconciler.work_queue import WorkQueue
from saltext_ha.reconciler.write_mode import WriteMode
from saltext_ha.replica.replica import Replica
from saltext_ha.replica.serializers import Applied
from saltext_ha.replication.guard import RevocationGuard
from saltext_ha.replication.interpretation import is_gone, still_accepted
from saltext_ha.replication.placement import Stored, place
from saltext_ha.replication.record import ACCEPTED, DECISIONS, DELETED, REJECTED

log = logging.getLogger(__name__)

MAX_ANNOUNCED = 1000
# For how many seconds an older copy of the store is waited for, where keys are accepted all the
# time; to copy 100 000 keys over a network takes minutes.
LONGEST_COPY = 600.0
# After so many seconds without a question it is another copy.
AGAIN = 30.0

GONE = (
    "this is not the key store that was here before (its signature is gone): wiped, not mounted, "
    "or does a job copy that of another master over it (rsync)? Its content does not count, and "
    "nothing is written into it. Bring it back; or end that job, and fill it with what the group "
    "knows: salt-run ha.refill; or confirm its content: salt-run ha.release"
)
COPIED = (
    "an older copy of the key store is being put in its place; once no key has come or gone for "
    "two seconds, it is brought up to date"
)


class Holds:
    """
    Decides what to hold back, and remembers it in the replica.

    :param guard: how many accepted keys may go or come back at once.
    :param work: gets the held ids when their keys may be back and nothing else says so: at the
        start, and when a missing store is there again.
    """

    def __init__(
        self,
        store: KeyStore,
        replica: Replica,
        *,
        guard: RevocationGuard,
        writer: Writer,
        work: WorkQueue,
        mode: WriteMode,
    ) -> None:
        self._hold_all = False
        """Whether all decided keys must still be held, because the disk was full."""
        self._older = False
        """Whether the store was an older copy when last looked at."""
        self._copied_since, self._copy_seen = -math.inf, -math.inf
        """Since when a copy is waited for, and when that was last asked."""
        self.provenance = Provenance(store, replica, writer.name)
        self._store = store
        self._replica = replica
        self._guard = guard
        self._writer = writer
        self._work = work
        self._mode = mode
        work.add(replica.held.all())

    def look(self) -> str:
        """
        The answer of :meth:`.Provenance.look`. While the signature is missing, all decided keys
        are held, and the store is in doubt (:class:`.WriteMode`). It is also in doubt while an
        older copy is still being put in its place: a key file that comes after the signature would
        look like a decision of now.
        """
        found = self.provenance.look()
        if found == MISSING and not (self._mode.lost or self._replica.counts().keys() & DECISIONS):
            self.provenance.forget()  # there was nothing to lose
            found = OURS
        if found == OLDER and not self._older:
            log.warning("ha store: the key store of %s is an older copy", self._writer.name)
        self._older = found == OLDER
        if found == OLDER and self._is_copied_now():
            self._mode.doubt = COPIED
            self._work.wake(work_queue.SETTLE)
        elif found != MISSING:
            if self._mode.doubt:
                log.info("ha store: the key store of %s is back", self._writer.name)
                self._work.add(self._replica.held.all())
            self._mode.doubt = ""
            self._hold_all = False
        elif self._mode.doubt != GONE:
            self._mode.doubt = GONE
            log.error("ha held: %s", GONE)
            self._hold_all = True
        if self._hold_all:
            self._hold([i for i, stored in self._replica.placed() if stored.state in DECISIONS])
            self._hold_all = False
        return found

    def _is_copied_now(self) -> bool:
        """
        Whether an older copy of the store may be put in its place just now. Ask this only about a
        store that looks like it; what waits for the answer is looked at several times a second.
        """
        if self._store.at_rest():
            return False
        now = time.monotonic()
        if now > self._copy_seen + AGAIN:
            self._copied_since = now
        self._copy_seen = now
        return now < self._copied_since + LONGEST_COPY

    def is_ours(self) -> bool:
        """Whether the store is the one that was here before, so that it may be believed."""
        return self.look() == OURS

    def hold_back(self, task: Task) -> None:
        """
        Hold accepted and rejected keys that went away, and revoked ones that came back, if too many
        to be believed; in each state by itself, as each is a folder.

        What Salt reported as deleted is one decision, whatever its number: half of it believed and
        half held would be nobody's.
        """
        if not self._replica.any_accepted() and not self._replica.any_revoked():
            return
        held = self._replica.held
        suspects: dict[str, list[str]] = {}
        for minion_id in self._replica.at_stake(task.ids):
            if minion_id in held:
                continue
            applied = self._replica.applied(minion_id)
            content = self._store.read(minion_id, task.certain)
            if content is None:
                continue
            if not task.certain and is_gone(applied.stored, content.stored):
                continue
            if task.deleted and content.stored.state != ACCEPTED:
                continue  # even if the minion has knocked since
            state = REJECTED if applied.stored.state == REJECTED else ACCEPTED
            ours = applied.dirty and (
                place(self._replica.get(minion_id).values(), applied.stored).state != state
            )
            if not ours and self.is_held(minion_id, content, applied, task.by):
                suspects.setdefault(state, []).append(minion_id)
        if all(self._believes(state, ids) for state, ids in suspects.items()):
            return
        if self._hold([minion_id for ids in suspects.values() for minion_id in ids]):
            log.error(
                "ha held: %d keys vanished from the key store of %s, or revoked ones came back; "
                "nothing was recorded. Bring the folder back; or fill it with what the group "
                "knows: salt-run ha.refill; or confirm the change: salt-run ha.release",
                held.count,
                self._writer.name,
            )

    def _believes(self, state: str, ids: Sequence[str]) -> bool:
        """Whether it is believed that *ids*, which were in *state*, are gone, or are back."""
        there = self._replica.counts().get(state, 0) - self._replica.held.by_state()[state]
        gone = sum(self._replica.applied(i).stored.state == state for i in ids)
        observes = self._mode.paused and not self._mode.never
        if observes and not self.provenance.token and gone >= max(1, there):
            return False  # no signature tells whether the store is mounted
        return self._guard.allows(ids, there, time.monotonic())

    def _hold(self, ids: Sequence[str]) -> bool:
        """
        Hold *ids* too, and announce what is held.

        :return: whether it was announced. If keys go one by one, as with ``salt-key -D`` of 3008,
            the first held key is announced, and then each doubling of their number.
        """
        held = self._replica.held
        before = held.count
        with self._replica.transaction():
            held.add(ids, self._writer.clock())
        point("hold.done")
        if held.count.bit_length() == before.bit_length():
            return False
        some = sorted(held.all())[:MAX_ANNOUNCED]
        told = {"master": self._writer.name, "count": held.count, "ids": some}
        self._writer.announce("held", told)
        return True

    def is_held(self, minion_id: str, content: Content, applied: Applied, by: str) -> bool:
        """Whether a change is of a kind that is held if there are many."""
        now = content.stored
        if now.slot == applied.stored.slot or still_accepted(applied.stored, now):
            return False
        if applied.stored.state in DECISIONS and now.state not in DECISIONS:
            # A minion that knocks at an emptied store brings nothing back.
            return True
        if by == MINION and applied.stored.state == REJECTED:
            by = ""  # Salt lets in nobody whose rejection it sees, so somebody removed that before
        return not by and self._is_back(minion_id, now)

    def may_be_copied(self, minion_id: str, now: Stored, by: str) -> bool:
        """
        Whether a revoked key is back while an older copy of the store may be put in its place: the
        copy's signature may come after its keys. Call this only if the id is not dirty.
        """
        return not by and self._is_back(minion_id, now) and self._is_copied_now()

    def _is_back(self, minion_id: str, now: Stored) -> bool:
        """Whether a revoked key is accepted."""
        if now.state != ACCEPTED or not now.key:
            return False
        record = self._replica.get(minion_id).get(now.key)
        return record is not None and record.state in (DELETED, REJECTED)
