"""Removes claims of a master's nodes beyond what it vouches for from the records."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from saltext_ha.reconciler.reconcile import Reconciler
from saltext_ha.reconciler.work_queue import Task
from saltext_ha.reconciler.writer import Writer
from saltext_ha.replica.history import Receipt
from saltext_ha.replica.replica import Records, Replica
from saltext_ha.replication.record import DELETED, decide
from saltext_ha.replication.vouching import MAX_COUNTER, Vouch, sift


class Claims:
    """The claims in the records of one replica; see ``replication/vouching.py``."""

    name_of: Callable[[bytes], str] = staticmethod(lambda owner: "")
    """The name of the peer with a certificate, by its fingerprint; empty: it is no peer's."""

    def __init__(self, replica: Replica, writer: Writer, reconciler: Reconciler) -> None:
        self._replica = replica
        self._writer = writer
        self._reconciler = reconciler

    def meet(self, vouched: Iterable[Vouch], sender: str = "") -> dict[str, list[str]]:
        """
        Take in what a master that was met vouches for, before any of its records is merged.

        :param sender: its name.
        :return: by name of a master, what is wrong with earlier records: another one wrote in its
            name. What it did not write is removed from them.
        """
        disowned = self.believe(vouched, sender)
        with self._replica.transaction():
            pass  # writes the vouches down even if nothing was removed
        return disowned

    def believe(self, vouched: Iterable[Vouch], sender: str) -> dict[str, list[str]]:
        """Take vouches that came with any message; returns the same as :meth:`meet`."""
        vouches = list(vouched)
        self._replica.vouched.take(vouches)
        highs = self._replica.vouched.highs
        false: dict[str, set[str]] = {}
        for vouch in vouches:
            if vouch.node == self._replica.node:
                # This machine was restored to an earlier state under its running engine: those dots
                # are used up.
                self._replica.counter = max(self._replica.counter, vouch.high)
            if self._replica.nodes.seen_of(vouch.node) > highs.get(vouch.node, MAX_COUNTER):
                false.setdefault(self.name_of(vouch.owner) or sender, set()).add(vouch.node)
        return {name: self._take_out(nodes, name) for name, nodes in false.items()}

    def _take_out(self, false: set[str], owner: str) -> list[str]:
        """
        Remove claims of these nodes beyond what their master vouches for.

        What is written instead is noted as sent by that master, *owner*, which may have made the
        claim itself: it must not look like a decision made here, or by a peer that passed it on.
        """
        highs, owners = self._replica.vouched.highs, self._replica.vouched.owners
        reasons = []

        def sifted(minion_id: str, before: Records) -> Records:
            after: Records = {}
            for key, record in before.items():
                if all(counter <= highs.get(n, counter) for n, counter in record.context):
                    continue
                sound, reason = sift(record, None, highs, owners)
                if sound is None:  # its state stays, in this master's name
                    bare = record._replace(values=(), context=())
                    sound = decide(bare, {}, self._writer.value(record.state or DELETED))
                after[key] = sound
                self._replica.put(sound)
                reasons.append(f"record of {minion_id!a}: {reason}")
            return after

        receipt = Receipt(owner, self._writer.clock())
        ids = list(self._replica.ids())
        self._reconciler.reconcile(Task(ids, blind=True, revise=sifted, receipt=receipt))
        with self._replica.transaction():
            self._replica.nodes.unsee({node: highs[node] for node in false if node in highs})
        return reasons
