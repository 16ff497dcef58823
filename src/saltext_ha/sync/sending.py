"""Sends records to a peer, the most urgent first, and notes what it refuses."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence

from saltext_ha.common.counters import Counters
from saltext_ha.common.errors import MessageTooLarge, PeerRefused
from saltext_ha.reconciler.core import Core
from saltext_ha.replication.record import DELETED, REJECTED, Record
from saltext_ha.sync import messages
from saltext_ha.sync.codec import to_wire
from saltext_ha.sync.contact import Asking
from saltext_ha.sync.outbox import Outbox
from saltext_ha.sync.vouching import Vouching, nodes_of

log = logging.getLogger(__name__)

MAX_OUTBOX = 50_000
MAX_DOWN = 5_000  # decisions that are kept for a peer that is down
# Refused parts of one message: enough to find one refused record among thousands.
MAX_REFUSALS = 32


class Sender:
    """
    The way of records to one peer.

    :param name: the peer's.
    :param vouching: shared by all links of this master. :param counters: shared, too.
    :ivar outbox: the records that wait for :meth:`flush`.
    """

    def __init__(
        self, peer: Asking, name: str, core: Core, vouching: Vouching, counters: Counters
    ) -> None:
        self._peer, self._name, self._core = peer, name, core
        self._vouching, self._counters = vouching, counters
        self.outbox = Outbox()
        self._again: list[Record] = []
        """Refused revocations, to be pushed again."""
        self.trouble = ""
        """Why the peer refuses something, though it is up; empty if it takes everything."""
        self._refusals: list[str] = []
        """Refusals in this round, and of pushes since the last round."""

    def put(self, records: Iterable[Record], down: bool) -> None:
        """
        Let *records*, which changed, wait for :meth:`flush`. If the peer is *down*, only decisions
        wait. Anti-entropy finds the rest.
        """
        self.outbox.put(records, time.monotonic())
        if down:
            self.outbox.forget_knocks()
        self.outbox.trim(MAX_DOWN if down else MAX_OUTBOX)

    def put_again(self) -> None:
        """Let revocations that the peer refused wait for :meth:`flush`, too."""
        self.outbox.put(self._again, time.monotonic())
        self._again.clear()

    async def flush(self) -> None:
        """Push the most urgent message of the outbox; records that do not arrive stay there."""
        waiting = self.outbox.first()
        most = self._peer.limit.most
        some = next(messages.packed((record for record, _ in waiting), most), [])
        refused = await self.send(some)
        self.outbox.arrived(some)
        self._again += [record for record in refused if record.state in (DELETED, REJECTED)]
        if len(refused) < len(some):
            # The peer answers when its key store has the records.
            since = min(since for _, since in waiting[: len(some)])
            self._counters.arrived(self._name, time.monotonic() - since)

    async def send(self, records: Sequence[Record]) -> list[Record]:
        """
        Push *records*, in as many messages as needed. A refused message is sent again in parts, so
        that one refused record does not hold up the others.

        :return: the refused records. :raises PeerUnreachable: the peer does not answer.
        """
        refused: list[Record] = []
        refusals = 0
        left = [list(records)] if records else []
        while left:
            group = left.pop()
            some = next(messages.packed(group, self._peer.limit.most))
            if rest := group[len(some) :]:
                left.append(rest)
            try:
                await self._push(some)
            except PeerRefused as exc:
                half = len(some) // 2
                if half and isinstance(exc, MessageTooLarge) and self._peer.limit.halve():
                    left.append(some)
                elif half and refusals < MAX_REFUSALS:
                    refusals += 1
                    left += [some[half:], some[:half]]
                else:
                    refused += some
                    named = ascii(some[0].minion_id)[1:-1]
                    more = f" and {len(some) - 1} more" if len(some) > 1 else ""
                    self.note_refusal(f"{exc} (the key of {named}{more})")
        return refused

    async def _push(self, records: Sequence[Record]) -> None:
        """:raises PeerError: the peer refuses the message, or does not answer."""
        message = [to_wire(record) for record in records]
        vouched = self._vouching.of(nodes_of(message))
        answer = await self._peer.call_large("push", {"records": message, "vouched": vouched})
        self._vouching.refused(self._name, answer.get("refused"))
        await self._core.dropped_elsewhere(messages.read_dropped(answer.get("dropped", [])))

    def note_refusal(self, reason: str) -> None:
        """The peer refused one message, though it is up: note that; log it if it is news."""
        if not self.trouble and not self._refusals:
            log.warning("ha peer refuses: name=%s reason=%s", self._name, reason)
        if len(self._refusals) < MAX_REFUSALS:
            self._refusals.append(reason)

    def end_round(self) -> None:
        """A round is over: :attr:`trouble` is what was refused since the last one."""
        self.trouble = self._refusals[0] if self._refusals else ""
        self._refusals.clear()
