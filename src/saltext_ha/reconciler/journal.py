"""
What the store may show by our own doing: written down before it does, and until it is done.

The record of it is :class:`.Applied` in replica.db: what the store showed before, what it may show
meanwhile, and what an operator could know. What is in it after a crash may have been begun.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from saltext_ha.common.errors import ReplicaError
from saltext_ha.reconciler.writer import Writer
from saltext_ha.replica.replica import Records, Replica
from saltext_ha.replica.serializers import Applied, Known
from saltext_ha.replication import plan
from saltext_ha.replication.placement import place


class Journal:
    """
    The moves that are to be made or under way, of one replica.

    :param one_denied: as :attr:`.KeyStore.one_denied`.
    """

    def __init__(self, replica: Replica, writer: Writer, one_denied: bool) -> None:
        self._replica = replica
        self._writer = writer
        self._one_denied = one_denied
        self._begun = set(replica.dirty())
        """
        Ids of which an apply may have put something into the store that is not written down as
        done: it failed half way, or a process that was killed was at it. Of all others, the store
        shows nothing by our doing, whatever an apply was to aim at.
        """

    def applied(self, minion_id: str) -> Applied:
        """What was last applied to an id, and what may have been since."""
        applied = self._replica.applied(minion_id)
        if applied.aims and minion_id not in self._begun:
            return applied._replace(aims=frozenset())
        return applied

    def mark(
        self,
        minion_id: str,
        before: Records,
        records: Records,
        *,
        unsettled: bool = False,
        at_once: bool = False,
    ) -> bool:
        """
        Note that the store is to be changed, if it is; inside a transaction only.

        :param before: the records that it agreed with. :param records: those of now.
        :param unsettled: somebody did something to the id that is not recorded yet, and could not
            know what came since *before*.
        :param at_once: nothing stands in the way of changing it now.
        :return: whether it is to be changed now; what it may show then is written down.
        """
        applied = self.applied(minion_id)
        self._writer.explain(minion_id, before, records)
        known = contexts(before) if applied.known is None else applied.known
        waiting = applied._replace(dirty=True, known=known)
        desired = place(records.values(), applied.stored)
        todo = plan.steps(applied.stored, desired, frozenset(records), self._one_denied)
        if not (todo or applied.dirty or unsettled):
            return False
        # What has no record may be no key at all.
        known_slot = not applied.stored.slot or applied.stored.key in records
        at_once = at_once and known_slot and not (unsettled or applied.dirty)
        if at_once:
            waiting = waiting._replace(aims=waiting.aims | plan.aims(desired))
        self._replica.set_applied(minion_id, waiting)
        return at_once

    def begin(self, moves: Mapping[str, Applied]) -> None:
        """*moves* are made now: for each id, what it may show meanwhile."""
        # For what a peer decided that was written down when it was merged.
        unwritten = {i: doing for i, doing in moves.items() if self._replica.applied(i) != doing}
        if unwritten:
            with self._replica.transaction():
                for minion_id, doing in unwritten.items():
                    self._replica.set_applied(minion_id, doing)
        self.began(moves)

    def began(self, ids: Iterable[str]) -> None:
        """The store may show something of *ids* by our doing."""
        self._begun.update(ids)

    def done(self, ids: Iterable[str]) -> None:
        """What the store shows of *ids* is written down."""
        self._begun.difference_update(ids)

    def withdraw(self, undone: Mapping[str, Applied]) -> None:
        """Of what was to be done to these, nothing was: what they show next is by somebody else."""
        # What was aimed at before may be there since then.
        self._begun.difference_update(i for i, waiting in undone.items() if not waiting.aims)
        written = [i for i, waiting in undone.items() if self._replica.applied(i) != waiting]
        if not written:  # mostly
            return
        # Where this fails, it holds until the engine starts again.
        with contextlib.suppress(ReplicaError), self._replica.transaction():
            for minion_id in written:
                self._replica.set_applied(minion_id, undone[minion_id])


def contexts(records: Records) -> Known:
    """The causal contexts of an id's records."""
    return {key: dict(record.context) for key, record in records.items()}
