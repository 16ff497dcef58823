"""
Events for the reactor of the leader: each master hands over events it hears; each counts once.

A master whose reactor does not react keeps the events that a reactor is configured for, in order,
until the leader has taken them. The leader fires them on its own bus, where its reactor is, unless
it has heard the same event itself or from another master (:mod:`.same_event`). A fired event bears
a mark, and is never handed over again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from saltext_ha.common.errors import HaError, PeerError, UnknownMethod, reason_of
from saltext_ha.once.leader import Leader
from saltext_ha.once.same_event import KEPT, Occurrence, Occurrences, key_of
from saltext_ha.salt_bus import reactor as events
from saltext_ha.salt_bus.intake import HEARD
from saltext_ha.salt_bus.proof import Proofs
from saltext_ha.sync.contact import Contact
from saltext_ha.transport import wire
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.peer import Peer

log = logging.getLogger(__name__)

MOST = 10_000
MOST_BYTES = 32 * 1024 * 1024
LARGEST = 1024 * 1024
BATCH = 200
BATCH_BYTES = 4 * 1024 * 1024  # with one more event it still fits into a message
ANSWER_WITHIN = 10.0  # for the leader's answer
TURN = 0.2
GRACE = 2.0
"""Seconds for which the leader waits for its own copy of an event, if it hears the minion too."""
QUIET = 15.0  # seconds that an event may wait until a note says so
TOLD = 600.0  # seconds for which a note says that events were dropped
NONE_TAKEN = (
    "{0} leads, and takes none: write  ha: once: {{reactor: true}}  and the same  reactor:  there, "
    "and restart it"
)
COUNTED = ("handed", "taken", "same", "dropped", "twice")


@dataclass
class _Waiting:
    number: int
    tag: str
    packed: bytes
    at: float
    genuine: bool
    event: Occurrence


class Reactions:
    """
    The events that one master hears and hands over, or takes as the leader.

    :param contacts: to the peers, by name.
    :param fire: puts an event on this master's bus, by tag and data.
    :param proofs: recognise events of this master's engine; the leader's proofs mark them anew.
    :param hears: whether this master hears the minion of an id.
    """

    def __init__(
        self,
        name: str,
        contacts: Mapping[str, Contact],
        leader: Leader,
        switch: events.Reactor,
        fire: Callable[[str, Mapping[str, Any]], None],
        proofs: Proofs,
        hears: Callable[[str], bool],
    ) -> None:
        self._name, self._contacts, self._leader = name, contacts, leader
        self._switch, self._fire, self._proofs, self._hears = switch, fire, proofs, hears
        self._loop = asyncio.get_running_loop()
        self._start = secrets.token_hex(8)
        self._number = 0
        self._known = Occurrences()
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._lock = threading.Lock()
        self._coming = self._coming_bytes = 0
        """Number and size of events on their way into the event loop; the lock guards them."""
        self._news, self._own = asyncio.Event(), asyncio.Event()
        self._taken: dict[str, tuple[str, int]] = {}
        """Peer → its start, and the number of the last event taken from it."""
        self._locks: dict[str, asyncio.Lock] = {}
        self._why = ""
        """Why no master takes the events that wait."""
        self._dropped_at = float("-inf")
        self._counts: Counter[str] = Counter()

    # -- what is heard here

    def heard(self, tag: str, data: Mapping[str, Any], at: float, reacted: bool) -> None:
        """
        Take an event that a reactor is configured for; from any thread.

        That thread reads it, so that a minion with large events does not hold up the event loop.
        """
        try:
            key = key_of(tag, data)
            packed = b"" if reacted else events.pack(data)
        except (TypeError, ValueError, OverflowError, RecursionError) as exc:
            return self._soon(0, self._drop, f"tag={tag!a:.200} cannot be kept: {exc!a:.100}")
        if len(packed) > LARGEST:
            why = f"tag={tag!a:.200} is larger than {LARGEST >> 20} MB"
            return self._soon(0, self._drop, why)
        genuine = not reacted and self._proofs.is_ours(tag, data)
        self._soon(len(packed), self._add, tag, packed, key, at, reacted, genuine)

    def _soon(self, size: int, do: Callable[..., None], *values: Any) -> None:
        """Call *do* in the event loop; if too much waits for it already, count it as dropped."""
        with self._lock:
            if self._coming >= MOST or self._coming_bytes + size > MOST_BYTES:
                self._counts["dropped"] += 1
                return
            self._coming += 1
            self._coming_bytes += size
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._arrived, size, do, values)

    def _arrived(self, size: int, do: Callable[..., None], values: tuple[Any, ...]) -> None:
        with self._lock:
            self._coming -= 1
            self._coming_bytes -= size
        do(*values)

    def _add(
        self, tag: str, packed: bytes, key: bytes, at: float, reacted: bool, genuine: bool
    ) -> None:
        event = self._known.note(key, self._name, at, time.monotonic())
        if reacted:
            self._counts["twice"] += event.done
            event.done = True
            self._own.set()
            return
        if event.done:
            return
        self._number += 1
        self._waiting.append(_Waiting(self._number, tag, packed, at, genuine, event))
        self._bytes += len(packed)
        while len(self._waiting) > MOST or self._bytes > MOST_BYTES:
            self._pop()
            self._drop("too many wait for a leader; the oldest goes first")
        self._news.set()

    def _pop(self) -> None:
        self._bytes -= len(self._waiting.popleft().packed)

    def _drop(self, why: str) -> None:
        if time.monotonic() - self._dropped_at > TOLD:
            log.warning("ha reactor: an event is dropped: %s", why)
        self._counts["dropped"] += 1
        self._dropped_at = time.monotonic()

    # -- what is shown

    def told(self) -> dict[str, Any]:
        """Plain data, for ``ha.leader``."""
        return {
            "configured": self._switch.configured,
            "reacts": self._switch.reacts,
            "waiting": len(self._waiting),
            **{each: self._counts[each] for each in COUNTED},
        }

    def notes(self) -> Iterator[str]:
        now = time.monotonic()
        if self._waiting and now - self._waiting[0].at > QUIET:
            yield f"reactor: {len(self._waiting)} events wait for a leader: {self._why}"
        if now - self._dropped_at < TOLD:
            yield f"reactor: {self._counts['dropped']} events were dropped: nobody reacts to them"

    # -- handing over

    async def run(self) -> None:
        """Switch the reactor and hand events over, while the engine runs."""
        await asyncio.gather(self._switch.run(), self._hand_all_over())

    async def _hand_all_over(self) -> None:
        while self._switch.configured:
            standing = self._leader.standing
            self._switch.wanted = standing.leads
            now = time.monotonic()
            while self._waiting and now - self._waiting[0].at > KEPT:
                self._pop()
                self._drop(f"it waited for more than {KEPT:g} s")
            if standing.leads:
                if self._switch.reacts:
                    self._react()
                else:
                    self._why = "this reactor is told to react"
            elif self._waiting and standing.leader in self._contacts:
                if await self._hand_over(standing.leader):
                    continue
            elif self._waiting:
                self._why = standing.why or f"{standing.leader} leads, and is not known here"
            self._news.clear()
            if self._why:  # try again a turn after a failure, however many events come meanwhile
                await asyncio.sleep(TURN)
                continue
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._news.wait(), TURN)

    def _react(self) -> None:
        """React to events that this master heard before it began to lead."""
        self._why = ""
        while self._waiting:
            first = self._waiting[0]
            if not first.event.done:
                first.event.done = True
                self._again(first.tag, events.unpack(first.packed), self._name)
            self._pop()

    async def _hand_over(self, leader: str) -> bool:
        """Hand a batch of events over to the leader; returns whether it has taken them."""
        batch: list[_Waiting] = []
        size = 0
        for each in self._waiting:
            if len(batch) >= BATCH or size > BATCH_BYTES:
                break
            batch.append(each)
            size += len(each.packed)
        now = time.monotonic()
        rows = [[each.number, each.tag, each.packed, now - each.at, each.genuine] for each in batch]
        call = self._contacts[leader].client.call
        calling = asyncio.ensure_future(
            call("react", {"start": self._start, "events": rows}, ANSWER_WITHIN)
        )
        try:
            # One that hangs is followed by another, perhaps by this master: do not wait for it.
            while self._leader.standing.leader == leader and not calling.done():
                await asyncio.wait([calling], timeout=TURN)
            if not calling.done():
                self._why = f"{leader} does not answer, and leads no more"
                return False
            calling.result()
        except UnknownMethod:
            self._why = NONE_TAKEN.format(leader)
            return False
        except PeerError as exc:
            self._why = reason_of(exc)
            return False
        finally:
            calling.add_done_callback(_unheeded)
            calling.cancel()
        self._why = ""
        for each in batch:
            each.event.done = True
            if self._waiting and self._waiting[0] is each:  # otherwise dropped meanwhile
                self._pop()
        self._counts["handed"] += len(batch)
        return True

    # -- taking over

    def for_peers(self) -> dict[str, Handler]:
        return {"react": self._take} if self._switch.configured else {}

    async def _take(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        """Take events that *peer* heard; when this has answered, all of them are taken."""
        start = wire.field(payload, "start", str)
        rows = wire.rows(payload.get("events"), "events", int, str, bytes, float, bool)
        until = time.monotonic() + GRACE
        async with self._locks.setdefault(peer.name, asyncio.Lock()):
            for number, tag, packed, age, genuine in rows[: 2 * BATCH]:
                self._check()
                taken, last = self._taken.get(peer.name, ("", 0))
                if taken == start and number <= last:
                    continue
                if self._switch.matches(tag):
                    await self._take_one(peer.name, tag, packed, max(0.0, age), genuine, until)
                else:  # fire no other events for peers
                    self._drop(f"{peer.name} hands over tag={tag!a:.200}: no reactor here has it")
                self._taken[peer.name] = (start, number)
        return {}

    def _check(self) -> None:
        if not (self._leader.standing.leads and self._switch.reacts):
            raise HaError("its reactor does not react now")

    async def _take_one(
        self, peer: str, tag: str, packed: bytes, age: float, genuine: bool, until: float
    ) -> None:
        try:
            data = events.unpack(packed)
            key = key_of(tag, data)
            if genuine:
                data = self._proofs.mark(tag, data)
        except (TypeError, ValueError, RecursionError) as exc:  # must not hold up the next events
            self._drop(f"{peer} hands over tag={tag!a:.200}, which is unreadable: {exc!a:.100}")
            return
        now = time.monotonic()
        event = self._known.note(key, peer, now - age, now)
        if not event.done and self._hears(str(data.get("id", ""))):
            await self._own_copy(event, until)
        if event.done:
            self._counts["same"] += 1
            return
        self._check()  # again: meanwhile another master may lead
        event.done = True
        self._counts["taken"] += 1
        self._again(tag, data, peer)

    async def _own_copy(self, event: Occurrence, until: float) -> None:
        """Wait until this master has heard the event, too, or until the time *until*."""
        while not event.done and (left := until - time.monotonic()) > 0:
            self._own.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._own.wait(), left)

    def _again(self, tag: str, data: dict[str, Any], by: str) -> None:
        self._fire(tag, {**data, HEARD: {"by": by, "at": data.get("_stamp")}})


def _unheeded(call: asyncio.Future[Any]) -> None:
    """Take note of how a *call* that was given up ended: otherwise asyncio logs it as an error."""
    if not call.cancelled():
        call.exception()
