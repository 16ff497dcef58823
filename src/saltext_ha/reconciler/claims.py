"""What is claimed of a master's nodes beyond what it vouches for is taken out of the records."""

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
    """Those of the records of one replica; see ``replication/vouching.py``."""

    name_of: Callable[[bytes], str] = staticmethod(lambda owner: "")
    """The name of the peer with that certificate, by its fingerprint; empty: it is none."""

    def __init__(self, replica: Replica, writer: Writer, reconciler: Reconciler) -> None:
        self._replica = replica
        self._writer = writer
        self._reconciler = reconciler

    def meet(self, vouched: Iterable[Vouch], sender: str = "") -> dict[str, list[str]]:
        """
        Take in what a master vouches for that was met, before anything of it is merged.

        :param sender: its name.
        :return: by the names of masters, what is wrong with records of before: somebody wrote in
            the name of that master. What it did not write is taken out of them.
        """
        disowned = self.believe(vouched, sender)
        with self._replica.transaction():
            pass  # writes down what they vouch for, where nothing was to be taken out
        return disowned

    def believe(self, vouched: Iterable[Vouch], sender: str) -> dict[str, list[str]]:
        """Believe them, whatever they come with; :meth:`meet` says what is returned."""
        vouches = list(vouched)
        self._replica.vouched.take(vouches)
        highs = self._replica.vouched.highs
        false: dict[str, set[str]] = {}
        for vouch in vouches:
            if vouch.node == self._replica.node:
                # This machine was set back under its running engine: those dots are used up.
                self._replica.counter = max(self._replica.counter, vouch.high)
            if self._replica.nodes.seen_of(vouch.node) > highs.get(vouch.node, MAX_COUNTER):
                false.setdefault(self.name_of(vouch.owner) or sender, set()).add(vouch.node)
        return {name: self._take_out(nodes, name) for name, nodes in false.items()}

    def _take_out(self, false: set[str], owner: str) -> list[str]:
        """
        Take what was claimed of these nodes beyond what their master vouches for out again.

        What is written instead is noted as come from that master, *owner*, which may have claimed
        it itself: it must not look like a decision that was made here, or by who passed it on.
        """
        highs, owners = self._replica.vouched.highs, self._replica.vouched.owners
        reasons = []

        def sifted(minion_id: str, before: Records) -> Records:
            after: Records = {}
            for key, record in before.items():
                if all(counter <= highs.get(n, counter) for n, counter in record.context):
                    continue
                sound, reason = sift(record, None, highs, owners)
                if sound is None:  # what it showed stays, in the name of this master
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
