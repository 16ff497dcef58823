"""
Minions that came lately and whose mine is older here than on the master that they left.

Minions that come are asked to refresh (:mod:`.arrivals`). Nearly all have done so when this module
looks at their mine, and then it asks no peer. About the others, each peer says how old its copy of
the mine is, not when it was written, because clocks differ. A copy that is newer than the minion's
arrival here does not count: that minion is connected to both masters, or has moved back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from saltext_ha.common.batches import BATCH, batches
from saltext_ha.common.beat import rest
from saltext_ha.common.boot_clock import FileClock
from saltext_ha.common.errors import HaError, InvalidRecord, PeerUnreachable, StoreError, reason_of
from saltext_ha.keystore.minion_key import is_id
from saltext_ha.minions.arrivals import AT_ONCE, MOST, NAMED, TOLD, TRIES, Written, arrived
from saltext_ha.sync.contact import Contact
from saltext_ha.transport import wire
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.peer import Peer

log = logging.getLogger(__name__)

ASK = "mine_ages"
EVERY = 10.0  # seconds between two comparisons
GRACE = 10.0
"""Seconds that a minion has to refresh after it came, or was asked to."""
LASTING = 2 * 3600.0
"""Most seconds for which a minion is named: by then ``mine_interval`` (an hour) is over."""
ANSWERING = 5.0  # seconds for a peer, or this master, to look at so many files
TOLERANCE = 5.0
"""Seconds; times of files are whole seconds, and an answer takes a while."""


@dataclass
class _Came:
    at: float
    busy: float = 0.0
    """When it was last found to be asked to refresh anyway."""
    looked: bool = False
    there: dict[str, float] = field(default_factory=dict)
    """Peer → when the mine there was written, by the clock of this master; 0: it has none."""
    tries: int = 0
    """How often it was asked to refresh after its mine was found older here."""

    def left(self, peers: Collection[str]) -> tuple[float, str]:
        """When one of *peers* last wrote the mine before the minion came here, and which peer."""
        found = [(at, name) for name, at in self.there.items() if name in peers]
        return max((each for each in found if each[0] <= self.at + TOLERANCE), default=(0.0, ""))


class _Older(NamedTuple):
    peer: str
    there: float
    here: float


class Mines:
    """
    Compares the mines in the cache of one master with those of its peers.

    :param contacts: to the peers, by name.
    :param written: id → when this master's cache of its mine was written (Unix time; 0: never);
        blocks.
    :param busy: whether a minion is being asked to refresh anyway.
    :param publish: asks these minions to refresh; raises HaError.
    """

    def __init__(
        self,
        contacts: Mapping[str, Contact],
        written: Written,
        *,
        busy: Callable[[str], bool],
        publish: Callable[[tuple[str, ...]], Awaitable[None]],
        clock: FileClock | None = None,
    ) -> None:
        self._contacts, self._written, self._clock = contacts, written, clock or FileClock()
        self._busy, self._publish = busy, publish
        self._loop = asyncio.get_running_loop()
        self._looking = asyncio.Lock()  # if the cache hangs, only one thread hangs with it
        self._came: dict[str, _Came] = {}
        """Minions whose mine may be older here than elsewhere."""
        self._older: dict[str, _Older] = {}
        self._refused: dict[str, float] = {}
        """Peers that refuse this question → since when."""

    def __call__(self, tag: str, data: Any) -> None:
        """Take in an event."""
        if minion_id := arrived(tag, data):
            self._loop.call_soon_threadsafe(self._add, minion_id)

    def _add(self, minion_id: str) -> None:
        if minion_id in self._came or len(self._came) < MOST:
            self._came[minion_id] = _Came(self._clock())
            self._older.pop(minion_id, None)

    # -- what is shown

    def told(self) -> dict[str, int]:
        """How many mines are older here, and of how many this is not known; plain data."""
        return {"older": len(self._older), "unknown": len(self._came.keys() - self._older.keys())}

    def notes(self) -> Iterator[str]:
        """What an operator should know."""
        if not self._older:
            return
        now = self._clock()
        named = [f"{name} ({_ages(each, now)})" for name, each in list(self._older.items())[:NAMED]]
        more = " …" if len(self._older) > NAMED else ""
        they = (
            f"{len(self._older)} minions came here and their mine is older here than on the master "
            "that they left"
            if len(self._older) > 1
            else "1 minion came here and its mine is older here than on the master that it left"
        )
        yield f"{they}: {', '.join(named)}{more}"

    # -- what peers ask

    def for_peers(self) -> dict[str, Handler]:
        """What peers may ask."""
        return {ASK: self._answer}

    async def _answer(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        """
        How old the mines of these minions are here; one without a mine is left out. ``unread``: why
        the cache cannot be read now.
        """
        ids = wire.texts(payload, "ids")
        if len(ids) > BATCH:
            raise InvalidRecord(f"takes at most {BATCH} ids")
        try:
            written = await self._written_at(minion_id for minion_id in ids if is_id(minion_id))
        except StoreError as exc:
            return {"ages": {}, "unread": str(exc)}
        now = self._clock()
        return {"ages": {name: max(0.0, now - at) for name, at in written.items() if at}}

    # -- comparing

    async def run(self) -> None:
        """Compare, for as long as the engine runs."""
        while True:
            if self._came:
                with contextlib.suppress(StoreError):  # it cannot be read: try again later
                    await self.step()
            await rest(EVERY)

    async def step(self) -> None:
        """See whose mine has come, and ask the peers about the others."""
        now, asked = self._clock(), self._asked()
        due: dict[str, _Came] = {}
        for minion_id, came in list(self._came.items()):
            older = minion_id in self._older
            if self._busy(minion_id):
                came.busy = now
            elif now - came.at > (LASTING if older else TOLD):
                del self._came[minion_id]
            elif now - max(came.at, came.busy) >= GRACE and (
                older or not came.looked or any(name not in came.there for name, _ in asked)
            ):
                came.looked = True
                due[minion_id] = came
        here = await self._written_at(due)
        for minion_id in [name for name, came in due.items() if here[name] >= int(came.at)]:
            self._settle(minion_id, due.pop(minion_id))
        await asyncio.gather(*(self._ask(name, contact, due) for name, contact in asked))
        self._compare(due, here)
        await self._ask_again()

    async def _written_at(self, ids: Iterable[str]) -> dict[str, float]:
        """
        When the mines of *ids* were written here, by this clock; 0: never, or nobody knows when.

        :raises StoreError: the cache does not answer, or cannot be read.
        """
        found: dict[str, float] = {}
        for batch in batches(ids):
            try:
                await asyncio.wait_for(self._looking.acquire(), ANSWERING)
            except asyncio.TimeoutError:
                raise StoreError("the cache of minions hangs") from None
            try:
                found |= await asyncio.to_thread(self._written, batch)
            finally:
                self._looking.release()
        return {minion_id: self._clock.dated(at) for minion_id, at in found.items()}

    def _settle(self, minion_id: str, came: _Came) -> None:
        """Forget a minion whose mine is as it should be, unless it came anew meanwhile."""
        if self._came.get(minion_id) is came:
            del self._came[minion_id]

    def _asked(self) -> list[tuple[str, Contact]]:
        """The peers that are asked now: those that are up, and do not refuse."""
        now = self._clock()
        up = {name: contact for name, contact in self._contacts.items() if contact.up}
        # One that was down may have been upgraded.
        self._refused = {
            name: at for name, at in self._refused.items() if name in up and now - at <= TOLD
        }
        return [(name, contact) for name, contact in up.items() if name not in self._refused]

    async def _ask(self, peer: str, contact: Contact, due: Mapping[str, _Came]) -> None:
        """Ask *peer* about minions that are new to it, and again about those with an older mine."""
        ids = [name for name, came in due.items() if peer not in came.there or name in self._older]
        for batch in batches(ids):
            now = self._clock()
            try:
                answer = await contact.client.call(ASK, {"ids": batch}, ANSWERING)
                if answer.get("unread"):
                    return  # ask it next time
                written = _read(answer, batch, now)
            except PeerUnreachable:
                return  # ask it next time
            except HaError as exc:
                self._refused[peer] = now
                log.info("ha mines: not compared with %s: %s", peer, reason_of(exc))
                return
            for minion_id, at in written.items():
                due[minion_id].there[peer] = at

    def _compare(self, due: Mapping[str, _Came], here: Mapping[str, float]) -> None:
        peers, older = set(self._contacts), {}
        for minion_id, came in due.items():
            at, peer = came.left(peers)
            if at > here[minion_id] + TOLERANCE:
                older[minion_id] = _Older(peer, at, here[minion_id])
            elif came.there.keys() >= peers:
                self._settle(minion_id, came)
        self._older = {
            name: each for name, each in older.items() if self._came.get(name) is due[name]
        }

    async def _ask_again(self) -> None:
        """Ask minions with an older mine to refresh: those with fresh grains were not asked yet."""
        names = (n for n in self._older if self._came[n].tries < TRIES and "," not in n)
        chosen = tuple(islice(names, AT_ONCE))
        if not chosen:
            return
        for minion_id in chosen:
            self._came[minion_id].tries += 1
        try:
            await self._publish(chosen)
        except HaError as exc:
            log.info("ha mines: could not ask %d minions to refresh: %s", len(chosen), exc)
        else:
            log.info("ha mines: asked=%d again to refresh", len(chosen))


def _read(answer: Mapping[str, Any], ids: Iterable[str], now: float) -> dict[str, float]:
    """When mines were written on a peer, by the clock here. :raises InvalidRecord: nonsense."""
    ages = wire.field(answer, "ages", dict)
    found = {}
    for minion_id in ids:
        age = ages.get(minion_id)
        if age is not None and not (type(age) is float and math.isfinite(age) and age >= 0):
            raise InvalidRecord("malformed ages: seconds were expected")
        found[minion_id] = 0.0 if age is None else now - age
    return found


def _ages(older: _Older, now: float) -> str:
    here = f"{max(0.0, now - older.here):.0f} s" if older.here else "none"
    return f"{older.peer}: {max(0.0, now - older.there):.0f} s old, here: {here}"
