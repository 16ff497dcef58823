"""Removes claims about a master's nodes from the records, if they go beyond its vouches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from saltext_ha.reconciler.own_writes import Writer
from saltext_ha.reconciler.reconcile import Reconciler
from saltext_ha.reconciler.task import Task
from saltext_ha.replica.history import Receipt
from saltext_ha.replica.replica import Records, Replica
from saltext_ha.replication.record import DELETED, Record, decide
from saltext_ha.replication.vouching import MAX_COUNTER, Vouch, sift


class Claims:
    """
    The claims in the records of one replica; see ``replication/vouching.py``.

    :param name_of: fingerprint of a certificate → name of the peer that has it; empty if no peer
        does.
    """

    def __init__(
        self,
        replica: Replica,
        writer: Writer,
        reconciler: Reconciler,
        name_of: Callable[[bytes], str],
    ) -> None:
        self._replica = replica
        self._writer = writer
        self._reconciler = reconciler
        self._name_of = name_of

    def meet(self, vouched: Iterable[Vouch], sender: str) -> dict[str, list[str]]:
        """
        Take in the vouches of the master *sender* when it is met, before its records are merged.

        :return: name of a master → what was wrong with earlier records: others had written in its
            name. These claims are removed.
        """
        disowned = self.believe(vouched, sender)
        with self._replica.transaction():
            pass  # writes the vouches down even if nothing was removed
        return disowned

    def believe(self, vouched: Iterable[Vouch], sender: str) -> dict[str, list[str]]:
        """Take in vouches that came with any message; return the same as :meth:`meet`."""
        vouches = list(vouched)
        self._replica.vouched.take(vouches)
        highs = self._replica.vouched.highs
        false: dict[str, set[str]] = {}
        for vouch in vouches:
            if vouch.node == self._replica.node:
                # This machine was restored to an earlier state while its engine ran: these dots are
                # used up.
                self._replica.counter = max(self._replica.counter, vouch.high)
            if self._replica.nodes.seen_of(vouch.node) > highs.get(vouch.node, MAX_COUNTER):
                false.setdefault(self._name_of(vouch.owner) or sender, set()).add(vouch.node)
        return {name: self._take_out(nodes, name) for name, nodes in false.items()}

    def _take_out(self, false: set[str], owner: str) -> list[str]:
        """
        Remove claims about nodes beyond what their masters vouch for.

        The history names *owner*, the master of the *false* nodes, as the sender of the result. It
        may have made the claims: they must not look like decisions of this master, or of a peer
        that passed them on.
        """
        highs, owners = self._replica.vouched.highs, self._replica.vouched.owners
        reasons = []

        def sifted(minion_id: str, before: Records) -> Iterator[Record]:
            for record in before.values():
                if all(counter <= highs.get(n, counter) for n, counter in record.context):
                    continue
                sound, reason = sift(record, None, highs, owners)
                if sound is None:  # its state stays, in this master's name
                    bare = record._replace(values=(), context=())
                    sound = decide(bare, {}, self._writer.value(record.state or DELETED))
                reasons.append(f"record of {minion_id!a}: {reason}")
                yield sound

        receipt = Receipt(owner, self._writer.clock())
        ids = list(self._replica.ids())
        self._reconciler.reconcile(Task.rewrite(ids, sifted, receipt=receipt))
        with self._replica.transaction():
            self._replica.nodes.unsee({node: highs[node] for node in false if node in highs})
        return reasons
