"""
Keeps this master's cache of mines, and of the grains by which ``mine.get`` finds them, as new as
the newest copy in the group (``ha: share_mines``).

With failover minions, each master's cache has only what the minions that are connected to it have
sent. Every engine looks at its own cache and asks each peer what changed there. A peer tells the
age of a copy, not its time, because clocks differ. A copy that is newer there is fetched, and
written here as old as it is. So a copy never becomes newer on its way, and none goes in circles.
Pillar never travels.
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from saltext_ha.common.batches import batches
from saltext_ha.common.beat import rest
from saltext_ha.common.boot_clock import FileClock
from saltext_ha.common.disk_work import DiskWork, step
from saltext_ha.common.errors import (
    HaError,
    InvalidRecord,
    PeerRefused,
    PeerUnreachable,
    StoreError,
    UnknownMethod,
)
from saltext_ha.minions.mine_copies import (
    LARGEST,
    MOST_BYTES,
    PAGE,
    Copies,
    Offer,
    Sent,
    Taken,
    newer,
    read_changes,
    read_copies,
)
from saltext_ha.minions.minion_cache import GRAINS, MinionCache, Name, unpacked
from saltext_ha.sync.contact import Contact
from saltext_ha.transport import wire
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.peer import Peer

log = logging.getLogger(__name__)

CHANGES = "mine_changes"
COPIES = "mine_copies"
EVERY = 10.0  # seconds between two questions to a peer
SHARE = 0.001
"""Of a processor, for looking at this master's own cache."""
ANSWERING = 5.0  # seconds for a peer to say what changed
FETCHING = 30.0  # seconds for a peer to read what is fetched
HANGING = 20.0  # seconds without a step after which work on the cache is given up
AGAIN = 60.0
"""Seconds after which a peer that refused, or sent nothing in time, is asked again."""
TURN = 30.0
"""Seconds after which a peer that has more is asked for that in the next step, after the others."""
BETWEEN = 0.5  # seconds between two answers with contents
ASKED = 200  # copies that are asked for at a time
CHECKED = 5_000
"""Ids about whose keys is asked at a time."""
MOST = 200_000
"""Copies that one peer may offer: the mines and grains of 100 000 minions."""
NAMED = 3
OFF = "ha: share_mines is off"


@dataclass
class _Peer:
    epoch: str = ""
    n: int = 0
    offers: dict[Name, Offer] = field(default_factory=dict)
    """Copies that may be newer there, and are not taken yet."""


class SharedMines:
    """
    Shares the mines and grains of one master with its peers.

    :param contacts: to the peers, by name.
    :param cache: of this master.
    :param accepted: returns those of these ids that have an accepted key here.
    :param keys: changes when a key here does.
    :param off: why this master takes no part; empty: it does.
    """

    def __init__(
        self,
        contacts: Mapping[str, Contact],
        cache: MinionCache,
        *,
        accepted: Callable[[list[str]], Awaitable[Collection[str]]],
        keys: Callable[[], object],
        off: str = "",
        clock: FileClock | None = None,
    ) -> None:
        self._contacts, self._cache, self._off = contacts, cache, off
        self._accepted, self._keys = accepted, keys
        self._clock = clock or FileClock()
        self._disk = DiskWork("the cache of minions", HANGING)
        self._copies = Copies()
        self._peers: dict[str, _Peer] = {}
        self._refused: dict[str, tuple[float, str]] = {}
        """Peers that do not share → since when, and why."""
        self._told: dict[str, str] = {}
        """Peers that do not share → why, as last logged."""
        self._large: dict[Name, int] = {}
        """Copies that are too large → their marks."""
        self._unaccepted: set[str] = set()
        self._unaccepted_with: object = None
        self._checked = ""
        """The last id about whose key was asked."""
        self._problem = ""
        self._due = float("-inf")
        """When this master's own cache is looked at next."""

    # -- what others ask

    def notes(self) -> Iterator[str]:
        """What an operator should know."""
        if problem := self._off or self._problem:
            yield f"mines are not shared: {problem}"
        for peer, (_, why) in sorted(self._refused.items()):
            yield f"mines are not shared with {peer}: {why}"
        if self._large:
            named = [f"{kind} of {minion_id}" for kind, minion_id in list(self._large)[:NAMED]]
            more = " …" if len(self._large) > NAMED else ""
            yield (
                f"too large to be shared (more than {LARGEST // 1024} KB): {', '.join(named)}{more}"
            )

    def sent_by_peer(self, minion_id: str, written: float) -> bool:
        """Whether the grains that were *written* then came from a peer; any thread may ask."""
        taken = self._copies.taken((GRAINS, minion_id))
        return taken is not None and taken.here // 10**9 == int(written)

    def for_peers(self) -> dict[str, Handler]:
        """What peers may ask."""
        return {CHANGES: self._tell, COPIES: self._give}

    async def _tell(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        self._check()
        epoch, n = wire.field(payload, "epoch", str), wire.field(payload, "n", int)
        changed, upto, more = self._copies.since(epoch, n)
        now = self._clock()
        rows = [
            [*name, max(0.0, now - at), mark]
            for name, mark in changed
            if (at := self._clock.dated(mark / 1e9)) > 0
        ]
        return {"epoch": self._copies.epoch, "n": upto, "more": more, "changed": rows}

    async def _give(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        self._check()
        wanted = wire.rows(payload.get("wanted"), "wanted copies", str, str)
        if len(wanted) > ASKED:
            raise InvalidRecord(f"takes at most {ASKED} copies")
        names = [(kind, minion_id) for kind, minion_id in wanted]
        done, rows = await self._disk(self._read, names)
        return {"done": done, "copies": rows}

    def _check(self) -> None:
        if self._off:
            raise HaError(self._off)

    def _read(self, names: Iterable[Name]) -> tuple[int, list[list[Any]]]:
        """As many of these copies as one answer takes; those that cannot be told are left out."""
        done, size = 0, 0
        rows: list[list[Any]] = []
        for name in names:
            step()
            if self._copies.mark(name):  # so it is a name that was found here
                mark, packed = self._packed(name)
                at = self._clock.dated(mark / 1e9)
                if size + len(packed) > MOST_BYTES:
                    break
                if packed and at > 0:
                    rows.append([*name, max(0.0, self._clock() - at), mark, packed])
                    size += len(packed)
            done += 1
        return done, rows

    def _packed(self, name: Name) -> tuple[int, bytes]:
        """The mark of a copy and its content, packed; empty if it cannot be told."""
        try:
            # The mark first: a copy that is written between the two is fetched again.
            mark = self._cache.mark(name)
            if self._large.get(name) == mark:
                return mark, b""
            packed = self._cache.read(name)
        except StoreError as exc:
            log.debug("ha mines: %s of %s: %s", *name, exc)
            return 0, b""
        if len(packed) > LARGEST:
            self._large[name] = mark
            return mark, b""
        return mark, packed

    # -- sharing

    async def run(self) -> None:
        """Share, for as long as the engine runs."""
        while not self._off:
            try:
                await self.step()
            except HaError as exc:
                if str(exc) != self._problem:
                    log.warning("ha mines: not shared: %s", exc)
                self._problem = str(exc)
            else:
                self._problem = ""
            await rest(EVERY)

    async def step(self) -> None:
        """Take what is newer there. :raises HaError: the cache here hangs, or is not usable."""
        if time.monotonic() >= self._due:
            cost = await self._look()
            self._due = time.monotonic() + cost / SHARE
        for gone in self._peers.keys() - self._contacts.keys():
            del self._peers[gone]
        asked = self._asked()
        heard = await asyncio.gather(*(self._hear(name, contact) for name, contact in asked))
        there = [each for each, answered in zip(asked, heard, strict=True) if answered]
        newest = await self._newest([peer for peer, _ in there])
        for peer, contact in there:
            await self._fetch(peer, contact, [name for name, by in newest.items() if by == peer])

    async def _look(self) -> float:
        """Look at the cache of this master; returns the seconds of a processor that this took."""
        marks, cost = await self._disk(self._marks)
        begun = time.thread_time()
        self._copies.look(marks)
        # A list: the thread that reads for a peer may add one meanwhile.
        for name, mark in list(self._large.items()):
            if marks.get(name) != mark:
                del self._large[name]
        return cost + time.thread_time() - begun

    def _marks(self) -> tuple[dict[Name, int], float]:
        begun = time.thread_time()
        return self._cache.marks(), time.thread_time() - begun

    def _asked(self) -> list[tuple[str, Contact]]:
        """The peers that are asked now."""
        now = self._clock()
        self._refused = {
            name: (at, why)
            for name, (at, why) in self._refused.items()
            if name in self._contacts and self._contacts[name].up and now - at <= AGAIN
        }
        return [
            (name, contact)
            for name, contact in self._contacts.items()
            if contact.up and name not in self._refused
        ]

    async def _hear(self, peer: str, contact: Contact) -> bool:
        """Ask *peer* what changed there; returns whether it answered."""
        known = self._peers.setdefault(peer, _Peer())
        until = time.monotonic() + TURN
        for _ in range(MOST // PAGE + 1):
            now, asked = self._clock(), {"epoch": known.epoch, "n": known.n}
            try:
                answer = await contact.client.call(CHANGES, asked, ANSWERING)
                epoch, n = wire.field(answer, "epoch", str), wire.field(answer, "n", int)
                more = wire.field(answer, "more", bool)
                changed = read_changes(answer, now)
            except PeerUnreachable:
                return False  # ask it next time
            except (PeerRefused, InvalidRecord) as exc:
                self._refuses(peer, exc)
                return False
            if epoch != known.epoch:
                known.offers.clear()
            known.epoch, known.n = epoch, n
            self._told.pop(peer, None)
            for name, offer in changed.items():
                known.offers.pop(name, None)
                if len(known.offers) < MOST:
                    known.offers[name] = offer
            if not more or time.monotonic() >= until:
                break
        return True

    def _refuses(self, peer: str, exc: PeerRefused | InvalidRecord) -> None:
        if isinstance(exc, UnknownMethod):
            why = "it runs an older saltext-ha"
        else:
            why = exc.reason if isinstance(exc, PeerRefused) else f"it answers nonsense: {exc}"
        if self._told.get(peer) != why:
            self._told[peer] = why
            log.info("ha mines: not shared with %s: %s", peer, why)
        self._peers.pop(peer, None)
        self._pause(peer, why)

    def _pause(self, peer: str, why: str) -> None:
        self._refused[peer] = (self._clock(), why)

    async def _newest(self, peers: Iterable[str]) -> dict[Name, str]:
        """What is newer elsewhere, of minions that are accepted here → the peer with the newest."""
        best: dict[Name, tuple[float, str]] = {}
        for peer in peers:
            offers = self._peers[peer].offers
            for name, offer in list(offers.items()):
                if not self._newer(name, offer, peer):
                    del offers[name]
                elif name not in best or offer.at > best[name][0]:
                    best[name] = offer.at, peer
        # Most of these have been deleted: ask about them again when a key has changed.
        if (keys := self._keys()) != self._unaccepted_with:
            self._unaccepted, self._unaccepted_with = set(), keys
        ids = sorted({minion_id for _, minion_id in best} - self._unaccepted)
        # Each gets its turn, whatever becomes of those before it.
        first = bisect_right(ids, self._checked)
        ids = (ids[first:] + ids[:first])[:CHECKED]
        self._checked = ids[-1] if ids else ""
        accepted: set[str] = set()
        for batch in batches(ids):
            accepted.update(await self._accepted(batch))
        # Only of those that are offered: a peer may offer new ones without end.
        self._unaccepted.intersection_update(minion_id for _, minion_id in best)
        self._unaccepted.update(set(ids) - accepted)
        return {name: peer for name, (_, peer) in best.items() if name[1] in accepted}

    def _newer(self, name: Name, offer: Offer, peer: str) -> bool:
        mark = self._copies.mark(name)
        at = self._clock.dated(mark / 1e9)
        return newer(offer, peer, mark, at, self._copies.taken(name))

    async def _fetch(self, peer: str, contact: Contact, names: list[Name]) -> None:
        """Fetch these copies of *peer*, and write them."""
        offers, until = self._peers[peer].offers, time.monotonic() + TURN
        while names:
            wanted, now = names[:ASKED], self._clock()
            try:
                answer = await contact.client.call(
                    COPIES, {"wanted": [list(name) for name in wanted]}, FETCHING
                )
                done = wire.field(answer, "done", int)
                if not 0 < done <= len(wanted):
                    raise InvalidRecord("malformed number of copies")
                sent = [
                    # The same copy, which was dated before this took its time.
                    each._replace(offer=known)
                    if (known := offers.get(each.name)) and known.mark == each.offer.mark
                    else each
                    for each in read_copies(answer, wanted[:done], now)
                ]
                contents = await self._disk(_contents, sent)
            except PeerUnreachable as exc:
                self._pause(peer, str(exc))  # another may have a copy that is older, but newer here
                return
            except (PeerRefused, InvalidRecord) as exc:
                self._refuses(peer, exc)
                return
            kept = await self._write(peer, contents)
            for name in wanted[:done]:
                if name not in kept:
                    offers.pop(name, None)
            names = names[done:] if time.monotonic() < until else []
            if names:
                await rest(BETWEEN)

    async def _write(self, peer: str, sent: list[tuple[Sent, dict[str, Any]]]) -> set[Name]:
        """
        Write these copies; returns those that are to be looked at again: the copy here, or the key
        of the minion, has changed since they were chosen.
        """
        ids = sorted({each.name[1] for each, _ in sent})
        accepted = set(await self._accepted(ids))
        self._unaccepted.update(set(ids) - accepted)
        due = [
            (each, content, self._copies.mark(each.name))
            for each, content in sent
            if each.name[1] in accepted and self._newer(each.name, each.offer, peer)
        ]
        marks = await self._disk(self._write_all, due)
        again = {each.name for each, _ in sent if each.name[1] not in accepted}
        for (each, _, _), (written, mark) in zip(due, marks, strict=True):
            if written:
                self._copies.took(each.name, Taken(peer, each.offer.mark, mark))
            else:
                self._copies.changed(each.name, mark)
                again.add(each.name)
        return again

    def _write_all(self, due: Iterable[tuple[Sent, dict[str, Any], int]]) -> list[tuple[bool, int]]:
        """For each: whether it was written, and the mark of the copy here."""
        found = []
        for each, content, expected in due:
            step()
            at = self._clock.stamp(each.offer.at)
            found.append(self._cache.write(each.name, content, at, expected))
        return found


def _contents(sent: Iterable[Sent]) -> list[tuple[Sent, dict[str, Any]]]:
    """These copies with their contents; those that Salt could not read are left out."""
    found = []
    for each in sent:
        step()
        try:
            found.append((each, unpacked(each.packed)))
        except InvalidRecord as exc:
            log.debug("ha mines: %s of %s is not taken: %s", *each.name, exc)
    return found
