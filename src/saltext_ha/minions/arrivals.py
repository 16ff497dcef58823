"""
Asks minions that move here to refresh their mine, grains and pillar in the cache of this master.

Salt refreshes these when a minion starts, not when it changes its master: until the next
``mine_interval`` the new master has nothing, or what was true when the minion was here last. The
minion fires its start event in both cases, so the age of the cache tells which case it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import salt.cache

from saltext_ha.common.beat import rest
from saltext_ha.common.boot_clock import FileClock
from saltext_ha.common.errors import HaError, StoreError
from saltext_ha.minions.minion_cache import LOADING, RELEASE, place
from saltext_ha.salt_bus.intake import FROM_MINION

log = logging.getLogger(__name__)

TURN = 0.5
AT_ONCE = 20
"""Minions that are asked at a time: the master must not render thousands of pillars at once."""
RECENT = 60.0
"""Seconds; a cache that is younger when a minion fires its start was refreshed by that start."""
REFRESH_WITHIN = 10.0  # seconds for a minion to refresh
TRIES = 2
MOST = 100_000
NAMED = 3
TOLD = 600.0  # seconds for which a minion that did not refresh is named in notes


class _Asked(NamedTuple):
    since: float
    tries: int


Written = Callable[[Iterable[str]], dict[str, float]]


class Arrivals:
    """
    Refreshes the caches of one master for minions that moved to it.

    :param publish: asks these minions to refresh; raises HaError.
    :param written: id → when this master's cache of its grains was written (Unix time; 0: never);
        blocks. While that cannot be read, all count as not cached, and are asked.
    """

    def __init__(
        self,
        publish: Callable[[tuple[str, ...]], Awaitable[None]],
        written: Written,
        clock: FileClock | None = None,
    ) -> None:
        self._publish, self._written, self._clock = publish, written, clock or FileClock()
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._came: OrderedDict[str, _Asked] = OrderedDict()
        self._asked: dict[str, _Asked] = {}
        self._silent: dict[str, float] = {}
        """Minions that did not refresh → since when they are not asked any more."""
        self._looked = 0.0  # when their caches were last looked at
        self._why = ""

    def __call__(self, tag: str, data: Any) -> None:
        """Take in an event."""
        if minion_id := arrived(tag, data):
            self._loop.call_soon_threadsafe(self._add, minion_id)

    def _add(self, minion_id: str) -> None:
        if "," in minion_id:
            return  # it cannot be named in a list
        if len(self._came) < MOST and minion_id not in self._asked:
            self._silent.pop(minion_id, None)  # it is asked anew
            self._came.setdefault(minion_id, _Asked(self._clock(), 0))
            self._news.set()

    def notes(self) -> Iterator[str]:
        """What an operator should know."""
        if late := list(self._silent):
            they = f"{len(late)} minions" if len(late) > 1 else "1 minion"
            more = " …" if len(late) > NAMED else ""
            yield (
                f"{they} came here with old grains, pillar or mine on this master: "
                f"{self._why or 'asked, and did not refresh'} ({', '.join(late[:NAMED])}{more}): "
                "salt ID saltutil.refresh_pillar, salt ID mine.update"
            )

    def asks(self, minion_id: str) -> bool:
        """Whether this minion is being asked, or will be."""
        return minion_id in self._came or minion_id in self._asked

    async def run(self) -> None:
        """Ask, for as long as the engine runs."""
        while True:
            if not self.waits:
                self._news.clear()
                await self._news.wait()
            await self.step()
            await rest(TURN)

    @property
    def waits(self) -> bool:
        """Whether a minion is to be asked, or has not refreshed."""
        return bool(self._came or self._asked or self._silent)

    async def step(self) -> None:
        """See which minions have refreshed, and ask the next."""
        now = self._clock()
        await self._look_at_late(now)
        written = await self._written_at(self._asked)
        for minion_id, asked in list(self._asked.items()):
            if written.get(minion_id, 0.0) >= int(asked.since):
                del self._asked[minion_id]
            elif now - asked.since > REFRESH_WITHIN:
                del self._asked[minion_id]
                if asked.tries < TRIES:
                    self._came[minion_id] = _Asked(now, asked.tries)
                else:
                    self._silent[minion_id] = now
        self._silent = {name: at for name, at in self._silent.items() if now - at <= TOLD}
        await self._ask_next()

    async def _written_at(self, ids: Iterable[str]) -> dict[str, float]:
        """When the caches of *ids* were written, by this clock; 0: never, or nobody knows when."""
        wanted = tuple(ids)
        try:
            written = await asyncio.to_thread(self._written, wanted)
        except StoreError:
            return dict.fromkeys(wanted, 0.0)
        return {minion_id: self._clock.dated(at) for minion_id, at in written.items()}

    async def _look_at_late(self, now: float) -> None:
        """See which minions have refreshed after all: a pillar may take long to render."""
        if not self._silent or now - self._looked < REFRESH_WITHIN:
            return
        self._looked = now
        written = await self._written_at(self._silent)
        for minion_id, at in list(self._silent.items()):
            if written.get(minion_id, 0.0) >= int(at - REFRESH_WITHIN):
                del self._silent[minion_id]

    async def _ask_next(self) -> None:
        chosen: dict[str, _Asked] = {}
        while self._came and len(chosen) < AT_ONCE - len(self._asked):
            minion_id, came = self._came.popitem(last=False)
            chosen[minion_id] = came
        written = await self._written_at(chosen)
        old = {
            minion_id: came
            for minion_id, came in chosen.items()
            if written.get(minion_id, 0.0) < came.since - RECENT
        }
        if not old:
            return
        now = self._clock()
        self._asked.update({name: _Asked(now, came.tries + 1) for name, came in old.items()})
        self._why = ""
        try:
            await self._publish(tuple(old))
        except HaError as exc:
            self._why = str(exc)
        else:
            log.info("ha arrivals: asked=%d to refresh mine, grains and pillar", len(old))


def arrived(tag: str, data: Any) -> str:
    """The minion whose start this event of the bus reports; empty if it reports none."""
    parts = tag.split("/")
    if len(parts) != 4 or parts[:2] != ["salt", "minion"] or parts[3] != "start":
        return ""
    genuine = data.get("cmd") == FROM_MINION and data.get("id") == parts[2]
    return parts[2] if genuine else ""


def cached(opts: Mapping[str, Any], kind: str, release: int = RELEASE) -> Written:
    """
    When the cache of the master with *opts* got this *kind* of data of minions: see
    :class:`Arrivals`; any thread may ask. Salt does not read what another release has left in the
    same cache, so that does not count.

    :param release: of its Salt.
    :raises StoreError: raised by the returned function if the cache cannot be read.
    """
    cache = salt.cache.factory(dict(opts))

    def written(minion_id: str) -> float:
        bank, key = place(kind, minion_id, release)
        # contains() first: Salt logs a warning about an entry that is not there.
        there = cache.contains(bank, key)
        return float(cache.updated(bank, key) or 0.0) if there else 0.0

    def of(ids: Iterable[str]) -> dict[str, float]:
        try:
            with LOADING:
                for name in ("contains", "updated"):
                    cache.modules[f"{cache.driver}.{name}"]
            return {minion_id: written(minion_id) for minion_id in ids}
        except Exception as exc:  # a cache driver may raise anything
            raise StoreError(f"the cache of minions cannot be read: {exc!r}") from exc

    return of
