"""The records that wait to be pushed to one peer: revocations first, knocks last."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice
from typing import NamedTuple

from saltext_ha.common.batches import BATCH
from saltext_ha.replication.record import ACCEPTED, DELETED, REJECTED, Record

URGENCY = {DELETED: 0, REJECTED: 0, ACCEPTED: 1}
KNOCK = 2

Pair = tuple[str, bytes]


class Waiting(NamedTuple):
    """A record, and when it was added."""

    record: Record
    since: float


class Outbox:
    """
    The records by (id, fingerprint): a newer one replaces an older one.

    A sent record stays until :meth:`arrived` says that the peer has it. Strangers may send any
    number of knocks before a deletion: the deletion goes first, and knocks go in small messages, so
    that it does not wait for a large message.
    """

    def __init__(self) -> None:
        self._queues: tuple[dict[Pair, Waiting], ...] = ({}, {}, {})

    def __len__(self) -> int:
        return sum(map(len, self._queues))

    def put(self, records: Iterable[Record], now: float) -> None:
        """Add *records*, which changed; *now* in seconds of any one clock."""
        for record in records:
            pair = _pair(record)
            urgency, since = URGENCY.get(record.state or "", KNOCK), now
            for before, queue in enumerate(self._queues):
                if pair in queue:
                    since = queue.pop(pair).since
                    # A key that was deleted and has knocked since is still as urgent as a deletion.
                    urgency = min(urgency, before)
            self._queues[urgency][pair] = Waiting(record, since)

    def first(self) -> list[Waiting]:
        """The next records to send: all revocations; or all decisions; or some knocks."""
        for queue in self._queues[:KNOCK]:
            if queue:
                return list(queue.values())
        return list(islice(self._queues[KNOCK].values(), BATCH))

    def has_decisions(self) -> bool:
        """Whether anything but knocks waits."""
        return any(self._queues[:KNOCK])

    def arrived(self, records: Iterable[Record]) -> None:
        """The peer has *records*: forget those that have not changed since they were sent."""
        for record in records:
            pair = _pair(record)
            for queue in self._queues:
                if pair in queue and queue[pair].record is record:
                    del queue[pair]

    def forget_knocks(self) -> None:
        """Drop all knocks: anti-entropy finds them."""
        self._queues[KNOCK].clear()

    def trim(self, most: int) -> None:
        """
        If there are more than twice *most*, keep *most*: the most urgent, the oldest first.
        Anti-entropy finds the rest.
        """
        if len(self) > 2 * most:
            for surplus in list(islice(chain.from_iterable(self._queues), most, None)):
                for queue in self._queues:
                    queue.pop(surplus, None)


def _pair(record: Record) -> Pair:
    return record.minion_id, record.fingerprint
