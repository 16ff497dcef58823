"""Rounds of anti-entropy with one peer, while others repair too, and pushes are on their way."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import AsyncGenerator, Iterable
from typing import Any

from saltext_ha.common.batches import batches
from saltext_ha.common.counters import Counters
from saltext_ha.common.errors import PeerRefused
from saltext_ha.common.prefetch import ahead
from saltext_ha.reconciler.core import Core
from saltext_ha.sync import antientropy, messages
from saltext_ha.sync.answers import RECORDS
from saltext_ha.sync.antientropy import Answer, Comparison, Exchanged
from saltext_ha.sync.contact import Contact
from saltext_ha.sync.repair_leases import MANY, SHARED, RepairLeases
from saltext_ha.sync.sending import Sender
from saltext_ha.sync.vouching import Vouching

# Branches, of 256, that one peer repairs in one go, while others may repair the rest.
BRANCHES = 128
# While hundreds of records are being pushed, repairs wait for so many seconds at most.
PUT_OFF = 30.0


class Rounds:
    """
    The rounds with one peer, one at a time.

    :param vouching: shared by all links of this master. :param leases: shared, too.
    :param counters: shared, too; counts exchanged bytes.
    """

    def __init__(
        self,
        contact: Contact,
        sender: Sender,
        core: Core,
        vouching: Vouching,
        leases: RepairLeases,
        counters: Counters,
    ) -> None:
        self._contact, self._sender, self._core = contact, sender, core
        self._vouching, self._leases, self._counters = vouching, leases, counters
        self._name = contact.peer.name
        self._put_off_until = float("-inf")

    async def begin(self, vouched: Any) -> None:
        """Take in what the peer vouches for, as it says when it is met; rounds follow."""
        await self._vouching.meet(self._core, self._name, vouched)

    async def make(self, shared: bool) -> Exchanged:
        """
        Make one round.

        :param shared: as in :class:`.Exchanged`.
        :raises PeerError: the peer cannot be asked; or, unless *shared*, refuses a part.
        :raises InvalidRecord: it answers nonsense.
        """
        client = self._contact.client
        sent, received = client.bytes_sent, client.bytes_received
        done = Exchanged(shared)
        try:
            await self._compare(done)
        finally:
            self._counters.exchanged(
                self._name, client.bytes_sent - sent, client.bytes_received - received
            )
        self._sender.end_round()
        return done

    async def _compare(self, done: Exchanged) -> None:
        self._sender.put_again()
        tree = self._core.replica.records
        theirs = await antientropy.differing_branches(tree, RECORDS, self._contact)
        if done.shared and theirs and self._is_on_its_way():
            done.left = True
            return
        self._put_off_until = time.monotonic() + PUT_OFF
        if theirs and not done.shared:
            await self._repair(list(theirs), done)
            return
        # A master that lacks much asks all its peers at once, and they all ask it: with a random
        # order they do not begin with the same branches.
        order = list(theirs)
        random.shuffle(order)
        for branches in batches(order, BRANCHES):
            differing = [branch for branch in branches if tree.short(branch) != theirs[branch]]
            claimed = self._leases.take(differing, self._name, time.monotonic())
            done.left |= len(claimed) < len(differing)
            try:
                if claimed:
                    await self._repair(claimed, done)
            except PeerRefused as exc:
                # The peer refused these branches, and is up: go on with the rest.
                self._sender.note_refusal(str(exc))
            finally:
                self._leases.free(claimed, self._name)

    def _is_on_its_way(self) -> bool:
        """Whether pushes, from here or to here, bring many of the differing records."""
        now = time.monotonic()
        pushed = len(self._sender.outbox) >= MANY or self._leases.expects_more(now)
        return pushed and now < self._put_off_until

    async def _repair(self, branches: list[int], done: Exchanged) -> None:
        core, contact = self._core, self._contact
        buckets = await antientropy.differing_below(
            core.replica.records, RECORDS, branches, contact, done
        )
        groups = await core.run(antientropy.portions, buckets, core.replica)
        random.shuffle(groups)
        comparison = Comparison(core.replica, core.run, contact, more={SHARED: done.shared})
        # While we record one answer, and write its key files, the peer makes the next one.
        coming = ahead(self._answers(comparison, groups, done))
        async with contextlib.aclosing(coming) as answers:
            async for answer in answers:
                try:
                    await self._take(answer, done)
                except PeerRefused as exc:
                    self._refused(exc, done)

    async def _answers(
        self, comparison: Comparison, groups: Iterable[list[int]], done: Exchanged
    ) -> AsyncGenerator[Answer, None]:
        """
        The peer's answers about *groups* of buckets; in a shared round, without refused groups.

        :raises PeerRefused: the peer refuses a group, and the round is not shared.
        """
        for group in groups:
            try:
                async for answer in comparison.answers(group):
                    yield antientropy.read_answer(answer)
            except PeerRefused as exc:
                self._refused(exc, done)

    def _refused(self, exc: PeerRefused, done: Exchanged) -> None:
        """The peer refused a part of a round; the caller of a whole round must be told."""
        if not done.shared:
            raise exc
        self._sender.note_refusal(str(exc))

    async def _take(self, answer: Answer, done: Exchanged) -> None:
        """Take in the peer's answer, and send the records that the peer wants."""
        core = self._core
        records, reasons, vouched, want = answer
        if records:
            merged = await self._vouching.learn(core, self._name, vouched, records, reasons)
            reasons += merged.refused
            done.learned += merged.learned
            if merged.dropped:
                rows = messages.rows_of_dropped(merged.dropped)
                await self._contact.call("dropped", {"dropped": rows})
        else:
            self._vouching.note(self._name, reasons)
        mine = [] if want == [] else await core.run(antientropy.wanted, core.replica, want)
        await self._sender.send(mine)
        done.received += len(records)
        done.sent += len(mine)
        done.refused += len(reasons)
        if self._sender.outbox:
            await self._sender.flush()  # a revocation must not wait for a long first exchange
