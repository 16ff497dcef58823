"""What is still to be pushed to one peer: who is revoked goes first, who knocked goes last."""

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
    """A record, and when it was put here."""

    record: Record
    since: float


class Outbox:
    """
    The records, by their pair: a newer one takes the place of an older one.

    What was sent stays until it is known to have arrived (:meth:`arrived`). Strangers may put any
    number of knocks before a deletion: it goes before them, and they go in small messages, so that
    it does not wait for a large one either.
    """

    def __init__(self) -> None:
        self._lines: tuple[dict[Pair, Waiting], ...] = ({}, {}, {})

    def __len__(self) -> int:
        return sum(map(len, self._lines))

    def put(self, records: Iterable[Record], now: float) -> None:
        """*records* changed; *now* in seconds of any one clock."""
        for record in records:
            pair = _pair(record)
            urgency, since = URGENCY.get(record.state or "", KNOCK), now
            for before, line in enumerate(self._lines):
                if pair in line:
                    since = line.pop(pair).since
                    # Who was deleted and has knocked since is still to be told of as deleted.
                    urgency = min(urgency, before)
            self._lines[urgency][pair] = Waiting(record, since)

    def first(self) -> list[Waiting]:
        """What is to be sent next: all that was revoked; else all decisions; else some knocks."""
        for line in self._lines[:KNOCK]:
            if line:
                return list(line.values())
        return list(islice(self._lines[KNOCK].values(), BATCH))

    def has_decisions(self) -> bool:
        """Whether more than knocks waits."""
        return any(self._lines[:KNOCK])

    def arrived(self, records: Iterable[Record]) -> None:
        """The peer has these; what has changed since they were sent stays."""
        for record in records:
            pair = _pair(record)
            for line in self._lines:
                if pair in line and line[pair].record is record:
                    del line[pair]

    def forget_knocks(self) -> None:
        """Anti-entropy finds them."""
        self._lines[KNOCK].clear()

    def trim(self, most: int) -> None:
        """
        Of more than twice as many keep *most*, the most urgent and of these the oldest;
        anti-entropy finds the rest.
        """
        if len(self) > 2 * most:
            for surplus in list(islice(chain.from_iterable(self._lines), most, None)):
                for line in self._lines:
                    line.pop(surplus, None)


def _pair(record: Record) -> Pair:
    return record.minion_id, record.fingerprint
