"""The link to one peer: pushes changes to it at once; anti-entropy finds the rest."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Any

from saltext_ha.common.ahead import ahead
from saltext_ha.common.batches import batches
from saltext_ha.common.counters import Counters
from saltext_ha.common.errors import (
    HaError,
    InvalidRecord,
    PeerMistrust,
    PeerRefused,
    PeerUnreachable,
    ReplicaError,
    StoreError,
    reason_of,
)
from saltext_ha.reconciler.core import Core
from saltext_ha.replication.record import DELETED, REJECTED, Record
from saltext_ha.sync import antientropy, messages
from saltext_ha.sync.answers import RECORDS
from saltext_ha.sync.antientropy import Answer, Comparison, Exchanged
from saltext_ha.sync.outbox import Outbox
from saltext_ha.sync.repair_leases import MANY, SHARED, RepairLeases
from saltext_ha.sync.sending import Sender
from saltext_ha.sync.vouching import Vouching
from saltext_ha.transport.client import PeerClient
from saltext_ha.transport.identity import Identity
from saltext_ha.transport.peer import Peer

log = logging.getLogger(__name__)

LARGE = 60.0  # seconds for a message of thousands of records
MAX_BACKOFF = 30.0
MAX_OUTBOX = 50_000
MAX_DOWN = 5_000  # decisions that are kept for a peer that is down
# Reasons that are logged while a peer is down.
MAX_REASONS = 5
# Branches, of 256, that one peer repairs in one go, while others may repair the rest.
BRANCHES = 128
AGAIN = 1.0  # seconds until the next round, if one left something to other peers or to pushes
# While hundreds of records are being pushed, repairs wait for so many seconds at most.
PUT_OFF = 30.0


class Link:
    """
    The connection to one peer.

    :param greeting: returns what to say in ``hello``; :attr:`info` keeps the answer.
    :param met: called after every ``hello``, before anything else is exchanged.
    :param announce: called when the peer comes up or goes down.
    :param mistrusted: called if one of the two masters does not know the other's certificate;
        returns whether both do now.
    :param leases: shared by all links of this master. :param vouching: shared, too.
    :param counters: shared, too; counts exchanged bytes.
    :param interval: seconds between two rounds of anti-entropy.
    """

    def __init__(
        self,
        peer: Peer,
        identity: Identity,
        core: Core,
        *,
        leases: RepairLeases,
        vouching: Vouching,
        counters: Counters,
        greeting: Callable[[], dict[str, Any]],
        met: Callable[[Link], Awaitable[None]],
        announce: Callable[[str, dict[str, Any]], None],
        mistrusted: Callable[[Peer], Awaitable[bool]],
        interval: float,
        timeout: float,
    ) -> None:
        self.peer = peer
        self.up: bool | None = None
        """None until the first round has ended, and during the first round after a failure."""
        self._told: bool | None = None
        self.error = "not asked yet"
        self._reasons: set[str] = set()
        """Reasons that were logged since the peer is down."""
        self.seen: float | None = None
        """When the peer last answered, in ``time.monotonic`` seconds."""
        self.since = time.monotonic()
        self.info: dict[str, Any] = {}
        self.identity = identity
        self.client = PeerClient(identity, peer, timeout)
        self._mistrusted = mistrusted
        self._core = core
        self._leases = leases
        self._vouching = vouching
        self._counters = counters
        self._greeting = greeting
        self._met = met
        self._announce = announce
        self._interval = interval
        self._backoff = interval
        self._outbox = Outbox()
        self._sender = Sender(peer.name, core, vouching, self._ask)
        self._again: list[Record] = []
        """Refused revocations, to be pushed again."""
        self._wake = asyncio.Event()
        self._heard = self._called = float("-inf")
        self._put_off_until = float("-inf")
        self._closing = False
        self._round = asyncio.Lock()

    @property
    def tried(self) -> bool:
        """Whether the peer has answered, or failed to answer, since this link was made."""
        return self._told is not None

    @property
    def trouble(self) -> str:
        """Why the peer refuses something, though it is up; empty if it takes everything."""
        return self._sender.trouble

    def push(self, records: Iterable[Record]) -> None:
        """
        Send *records* as soon as possible. For a peer that is down, decisions are kept and sent
        first when it is back; anti-entropy finds the rest.
        """
        self._outbox.put(records, time.monotonic())
        if self.up is False:
            self._outbox.forget_knocks()
            self._outbox.trim(MAX_DOWN)
        else:
            self._outbox.trim(MAX_OUTBOX)
            self._wake.set()

    def heard(self) -> None:
        """The peer called us: if it was down, try it once now."""
        now = time.monotonic()
        self._called = now
        if not self.up and now >= self._heard + self._interval:
            self._heard = now
            self._wake.set()

    def ago(self) -> float | None:
        """
        Seconds since the peer last answered or called; None if it does not answer and has not
        called lately.
        """
        now = time.monotonic()
        answered = self.seen if self.up and self.seen is not None else float("-inf")
        last = max(answered, self._called)
        return now - last if self.up or now - last <= 2 * self._interval else None

    async def run(self) -> None:
        """Run until :meth:`close` or cancellation."""
        due = 0.0
        # Cancelling alone is not enough: before Python 3.12 asyncio.wait_for loses a cancellation
        # that comes in the same turn as the answer it waits for (gh-96764 rewrote it).
        while not self._closing:
            self._wake.clear()
            try:
                if self._outbox and self.up:
                    await self._flush()
                if time.monotonic() >= due or not self.up:
                    done = await self.exchange(shared=True)
                    wait = min(self._interval, AGAIN) if done.left else self._interval
                    due = time.monotonic() + wait
            except (ReplicaError, StoreError) as exc:
                # Our own disk fails, not the peer: the status says so.
                log.debug("link to %s: %s", self.peer.name, exc)
                due = time.monotonic() + self._interval
            except PeerMistrust:
                if await self._mistrusted(self.peer):
                    self._wake.set()
            except PeerUnreachable:
                pass  # call() has noted it
            except HaError as exc:
                self._note(exc)
            except Exception as exc:
                log.exception("link to %s failed", self.peer.name)
                self._note(exc)
            if not (self._outbox and self.up):
                wait = max(0.0, due - time.monotonic()) if self.up else self._backoff
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), wait)

    async def close(self) -> None:
        """End :meth:`run` and close the connections."""
        self._closing = True
        self._wake.set()
        await self.client.close()

    async def call(
        self, method: str, payload: dict[str, Any], timeout: float | None = None
    ) -> dict[str, Any]:
        """Ask the peer, and note whether it is up. Raises as :meth:`PeerClient.call`."""
        try:
            answer = await self.client.call(method, payload, timeout)
        except PeerUnreachable as exc:
            self._note(exc)
            raise
        self.seen = time.monotonic()
        return answer

    async def exchange(self, shared: bool = False) -> Exchanged:
        """
        Make one round of anti-entropy now.

        :param shared: leave out branches that are being repaired with another peer.
        :raises PeerError: the peer cannot be asked. :raises InvalidRecord: it answers nonsense.
        """
        async with self._round:
            if not self.up:
                self.up = None  # from now on all changes are kept for the peer
                self.info = await self.call("hello", self._greeting())
                self._sender.begin_anew()
                vouched = self._vouching.read(self.info.pop("vouched", None))
                self._vouching.disowned(await self._core.meet(vouched, self.peer.name))
                await self._met(self)
                while self._outbox.has_decisions():
                    await self._flush()
            sent, received = self.client.bytes_sent, self.client.bytes_received
            try:
                done = await self._antientropy(shared)
            finally:
                self._counters.exchanged(
                    self.peer.name,
                    self.client.bytes_sent - sent,
                    self.client.bytes_received - received,
                )
            self._backoff = self._interval
            self.up, self.error = True, ""
            self._sender.end_round()
            self._tell(True)
            return done

    async def _antientropy(self, shared: bool) -> Exchanged:
        done = Exchanged()
        self._outbox.put(self._again, time.monotonic())
        self._again.clear()
        tree = self._core.replica.records
        theirs = await antientropy.differing_branches(tree, RECORDS, self.call)
        if shared and theirs and self._is_on_its_way():
            done.left = True
            return done
        self._put_off_until = time.monotonic() + PUT_OFF
        if not theirs:
            return done
        if not shared:
            await self._repair(list(theirs), shared, done)
            return done
        # A master that lacks much asks all its peers at once, and they all ask it: with a random
        # order they do not begin with the same branches.
        order = list(theirs)
        random.shuffle(order)
        for branches in batches(order, BRANCHES):
            differing = [branch for branch in branches if tree.short(branch) != theirs[branch]]
            claimed = self._leases.take(differing, self.peer.name, time.monotonic())
            done.left |= len(claimed) < len(differing)
            try:
                if claimed:
                    await self._repair(claimed, shared, done)
            except PeerRefused as exc:
                # The peer refused these branches, and is up: go on with the rest.
                self._sender.note_refusal(str(exc))
            finally:
                self._leases.free(claimed, self.peer.name)
        return done

    def _is_on_its_way(self) -> bool:
        """Whether pushes, from here or to here, bring many of the differing records."""
        now = time.monotonic()
        pushed = len(self._outbox) >= MANY or self._leases.expects_more(now)
        return pushed and now < self._put_off_until

    async def _repair(self, branches: list[int], shared: bool, done: Exchanged) -> None:
        core = self._core
        buckets = await antientropy.differing_below(
            core.replica.records, RECORDS, branches, self.call, done if shared else None
        )
        groups = await core.run(antientropy.portions, buckets, core.replica)
        random.shuffle(groups)
        comparison = Comparison(
            core.replica,
            core.run,
            self._ask,
            self._sender.limit,
            in_parts=self.info.get("parts") is True,
            more={SHARED: shared},
        )
        # While we record one answer, and write its key files, the peer makes the next one.
        coming = ahead(self._answers(comparison, groups, shared))
        async with contextlib.aclosing(coming) as answers:
            async for answer in answers:
                try:
                    await self._take(answer, done)
                except PeerRefused as exc:
                    self._refused(exc, shared)

    async def _answers(
        self, comparison: Comparison, groups: Iterable[list[int]], shared: bool
    ) -> AsyncGenerator[Answer, None]:
        """
        The peer's answers about *groups* of buckets; in a *shared* round, without refused groups.

        :raises PeerRefused: the peer refuses a group, unless *shared*.
        """
        for group in groups:
            try:
                async for answer in comparison.answers(group):
                    yield antientropy.read_answer(answer)
            except PeerRefused as exc:
                self._refused(exc, shared)

    def _refused(self, exc: PeerRefused, shared: bool) -> None:
        """The peer refused a part of a round; the caller of a whole round must be told."""
        if not shared:
            raise exc
        self._sender.note_refusal(str(exc))

    async def _ask(self, method: str, payload: dict[str, Any]) -> dict[str, Any]:
        return await self.call(method, payload, LARGE)

    async def _take(self, answer: Answer, done: Exchanged) -> None:
        """Take in the peer's answer, and send the records that the peer wants."""
        core = self._core
        records, reasons, vouched, want = answer
        if records:
            vouched = self._vouching.read(vouched, records)
            merged = await core.learn(records, self.peer.name, vouched=vouched)
            reasons += merged.refused
            self._vouching.disowned(merged.disowned)
            done.learned += merged.learned
            if merged.dropped:
                await self.call("dropped", {"dropped": messages.rows_of_dropped(merged.dropped)})
        self._vouching.note(self.peer.name, reasons)
        mine = await core.run(antientropy.wanted, core.replica, want)
        await self._sender.send(mine)
        done.received += len(records)
        done.sent += len(mine)
        done.refused += len(reasons)
        if self._outbox:
            await self._flush()  # a revocation must not wait for a long first exchange

    async def _flush(self) -> None:
        """Push the most urgent message of the outbox; records that do not arrive stay there."""
        waiting = self._outbox.first()
        most = self._sender.limit.most
        some = next(messages.packed((record for record, _ in waiting), most), [])
        refused = await self._sender.send(some)
        self._outbox.arrived(some)
        self._again += [record for record in refused if record.state in (DELETED, REJECTED)]
        if len(refused) < len(some):
            # The peer answers when its key store has the records.
            since = min(since for _, since in waiting[: len(some)])
            self._counters.arrived(self.peer.name, time.monotonic() - since)

    def _note(self, exc: Exception) -> None:
        """Note that a call failed; log it if that is news, and wait longer before the next try."""
        if isinstance(exc, InvalidRecord):
            reason = f"{self.peer.address} answers nonsense: {exc}"
        else:
            reason = reason_of(exc)
        self._tell(False, reason)
        if self.up is not False:  # several calls of one round may fail
            self._backoff = min(self._backoff * 2, MAX_BACKOFF)
        self.up, self.error = False, reason
        self._outbox.forget_knocks()  # decisions stay, and are sent first

    def _tell(self, up: bool, reason: str = "") -> None:
        """Log and announce that the peer comes up or goes down; log each new reason for down."""
        if up and self._told is not True:
            log.info("ha peer up: name=%s url=%s", self.peer.name, self.peer.url)
            self._announce("peer/up", {"name": self.peer.name, "url": self.peer.url})
        elif not up and self._told is not False:
            log.warning("ha peer down: name=%s reason=%s", self.peer.name, reason)
            self._announce("peer/down", {"name": self.peer.name, "reason": reason})
            self._reasons = {reason}
        elif not up and reason not in self._reasons and len(self._reasons) < MAX_REASONS:
            # Two of them may alternate for days, as a router does not always answer.
            log.warning("ha peer still down: name=%s reason=%s", self.peer.name, reason)
            self._reasons.add(reason)
        self._told = up
