"""Sends records to a peer, in messages that it takes, and notes what it refuses."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from saltext_ha.common.errors import MessageTooLarge, PeerRefused
from saltext_ha.reconciler.core import Core
from saltext_ha.replication.record import Record
from saltext_ha.sync import messages
from saltext_ha.sync.codec import to_wire
from saltext_ha.sync.messages import Limit
from saltext_ha.sync.vouching import Vouching, nodes_of

log = logging.getLogger(__name__)

# Refused parts of one message: enough to find one refused record among thousands.
MAX_REFUSALS = 32


class Sender:
    """
    The way of records to one peer.

    :param name: the peer's.
    :param ask: asks the peer, and waits long enough for a large message.
    """

    def __init__(
        self,
        name: str,
        core: Core,
        vouching: Vouching,
        ask: Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]],
    ) -> None:
        self._name, self._core, self._vouching, self._ask = name, core, vouching, ask
        self.limit = Limit()
        self.trouble = ""
        """Why the peer refuses something, though it is up; empty if it takes everything."""
        self._refusals: list[str] = []
        """Refusals in this round, and of pushes since the last round."""

    def begin_anew(self) -> None:
        """The peer may be of another release now, and take larger messages."""
        self.limit = Limit()

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
            some = next(messages.packed(group, self.limit.most))
            if rest := group[len(some) :]:
                left.append(rest)
            try:
                await self._push(some)
            except PeerRefused as exc:
                half = len(some) // 2
                if half and isinstance(exc, MessageTooLarge) and self.limit.halve():
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
        answer = await self._ask("push", {"records": message, "vouched": vouched})
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
