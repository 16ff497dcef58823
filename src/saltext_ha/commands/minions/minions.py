"""``ha.minions``: which master each minion is connected to, by what the masters have heard."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from saltext_ha.commands.arguments import glob_of, timeout_of
from saltext_ha.common.batches import batches
from saltext_ha.common.beat import rest
from saltext_ha.common.errors import HaError, InvalidRecord
from saltext_ha.common.tasks import answers_of
from saltext_ha.minions import locator
from saltext_ha.minions.connections import subscribers
from saltext_ha.minions.job_answers import Answers
from saltext_ha.minions.job_specs import WHERE, JobSpec, check_glob
from saltext_ha.minions.jobs import Jobs
from saltext_ha.minions.locator import BOUND, PARTLY, SILENT, UNKNOWN
from saltext_ha.minions.presence import Presence, Sight
from saltext_ha.reconciler.core import Core
from saltext_ha.replica.replica import Replica
from saltext_ha.replication.record import ACCEPTED
from saltext_ha.salt_bus.intake import MemoryBudget
from saltext_ha.sync.group import SLOW, Group
from saltext_ha.transport import wire
from saltext_ha.transport.listener import Handler

PAGE = 5_000  # minions in one message, some 400 KB
MAX_PAGES = 200
SETTLE = 2.0  # seconds between two turns of settle_regularly
COUNTED = 15  # turns between two counts of accepted minions
COUNT_FOR = 5.0  # seconds for which a count of connections is good
LIVE_TIMEOUT = 5.0
NEW = COUNT_FOR + 5.0  # seconds; a minion heard since then may have a connection not counted yet


@dataclass
class MasterSights:
    """What one master says: its connections, how long it has listened, which minions it heard."""

    connections: int | None = None
    listening: float = 0.0
    sights: dict[str, Sight] = field(default_factory=dict)

    def of(self, ids: Collection[str]) -> MasterSights:
        """The same of *ids* only."""
        return replace(self, sights={i: each for i, each in self.sights.items() if i in ids})

    def forget_connected(self) -> None:
        """
        If no minion is subscribed, let none count as bound, even if one was heard: Salt's own
        failover does not tell the master that the minion leaves.
        """
        if self.connections != 0:
            return
        for minion_id, sight in self.sights.items():
            if sight.sure is not None and sight.sure > NEW:
                self.sights[minion_id] = sight._replace(lasts=min(sight.lasts, NEW))

    def add(self, page: Mapping[str, Any], ids: Collection[str]) -> None:
        """
        Take in one page, as far as it is about *ids*.

        :raises InvalidRecord: a peer sends nonsense.
        """
        connections, listening = page.get("connections"), page.get("listening")
        number = isinstance(listening, (int, float)) and math.isfinite(listening)
        rows = wire.field(page, "minions", list)
        if not (connections is None or type(connections) is int) or not number or len(rows) > PAGE:
            raise InvalidRecord("malformed answer about minions")
        self.connections, self.listening = connections, float(listening or 0)
        wire.rows(rows, "answer about minions", str)
        for minion_id, *sight in rows:
            if minion_id in ids:
                self.sights[minion_id] = Sight.from_wire(sight)


class BoundMinions:
    """
    The minions that are connected to this master, and to the others.

    The status page and the metrics use :meth:`count` and :meth:`known` for this master,
    :meth:`minions` for the group.

    :param presence: what this master's bus tells of minions.
    :param memory: the memory for that; gets the number of accepted minions from time to time.
    """

    def __init__(
        self,
        group: Group,
        jobs: Jobs,
        core: Core,
        opts: Mapping[str, Any],
        *,
        presence: Presence,
        memory: MemoryBudget,
    ) -> None:
        self._group, self._jobs = group, jobs
        self._core, self._opts = core, opts
        self._presence, self._memory = presence, memory
        self._counted: tuple[float, int | None] = (-math.inf, None)
        self._counting = asyncio.Lock()

    def for_peers(self) -> dict[str, Handler]:
        return {"bound": lambda _, payload: self.page(payload)}

    async def count(self) -> int | None:
        """
        How many minions are subscribed to this master's publisher: its established connections, as
        they were at most five seconds ago; None where these cannot be seen. Cheap enough for any
        scrape.
        """
        async with self._counting:
            at, counted = self._counted
            if time.monotonic() - at >= COUNT_FOR:
                counted = await asyncio.to_thread(subscribers, self._opts)
                self._counted = (time.monotonic(), counted)
        return counted

    async def known(self, glob: str = "*") -> dict[str, Sight]:
        """
        The sights of accepted minions that match *glob* on this master; minions that it never heard
        are missing.

        :raises InvalidRecord: that is no glob.
        """
        return self._presence.sights(await self.accepted(glob))

    async def accepted(self, glob: str, after: str = "", most: int = -1) -> list[str]:
        """The ids of accepted minions that match *glob*; see :meth:`Replica.accepted`."""
        core = self._core
        return await core.run(core.replica.accepted, check_glob(glob), after, most)

    async def settle(self) -> None:
        """Find out which minions that were heard for the first time have an accepted key."""
        core, presence = self._core, self._presence
        for some in batches(presence.newcomers()):  # others also wait for the replica
            presence.accept(await core.run(accepted_of, core.replica, some))

    async def settle_regularly(self) -> None:
        """:meth:`settle` often enough that not too many newcomers gather."""
        turn = 0
        while True:
            if turn % COUNTED == 0:
                with contextlib.suppress(HaError):  # the status tells what is wrong
                    counts = await self._core.run(self._core.replica.counts)
                    self._memory.suit(counts.get(ACCEPTED, 0))
            turn += 1
            await rest(SETTLE)
            await self.settle()

    async def page(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """
        A page of this master's sights, for a peer: by glob, or of some ids.

        Its cost depends on the page only, not on the number of minions: with 100 000, each page
        would otherwise block the event loop, and with it every other peer.
        """
        glob, after = wire.field(payload, "glob", str, "*"), wire.field(payload, "after", str, "")
        ids = payload.get("ids")
        presence, sights = self._presence, dict[str, Sight]()
        if ids is None:
            # One more than a page has shows that there are more.
            while len(sights) <= PAGE and (some := await self.accepted(glob, after, PAGE)):
                sights |= presence.sights(some)
                after = some[-1]
        elif not isinstance(ids, list) or len(ids) > PAGE:
            raise InvalidRecord(f"takes a list of at most {PAGE} ids")
        else:
            sights = presence.sights(i for i in ids if isinstance(i, str) and i > after)
        rows = sorted(sights.items())
        return {
            "connections": await self.count(),
            "listening": round(presence.listening, 1),
            "minions": [[minion_id, *sight.to_wire()] for minion_id, sight in rows[:PAGE]],
            "more": len(rows) > PAGE,
        }

    async def everywhere(
        self, question: Mapping[str, Any], ids: Collection[str]
    ) -> tuple[dict[str, MasterSights], dict[str, str]]:
        """
        Every master's sights of *ids*, and why some do not answer; *question* as in :meth:`page`.
        """

        async def ask(name: str) -> MasterSights:
            known, after = MasterSights(), ""
            for _ in range(MAX_PAGES):
                payload = {**question, "after": after}
                timeout = SLOW if after else self._group.timeout
                if name == self._group.name:
                    page = await self.page(payload)
                else:
                    page = await self._group.call(name, "bound", payload, timeout)
                known.add(page, ids)
                if not page.get("more") or not page["minions"]:
                    known.forget_connected()
                    return known
                after = str(page["minions"][-1][0])
            raise HaError("says more than fits")

        return await answers_of(self._jobs.masters, ask)

    async def minions(self, payload: dict[str, Any]) -> dict[str, Any]:
        glob, live = glob_of(payload), bool(payload.get("live"))
        seconds = timeout_of(payload, LIVE_TIMEOUT)
        asked: dict[str, Answers] = {}
        if live:
            asked, _ = await self._jobs.run(JobSpec(WHERE, glob=glob), seconds)
        ids = await self.accepted(glob)
        known, unknown = await self.everywhere({"glob": glob}, frozenset(ids))
        unknown.update((name, each.error) for name, each in asked.items() if each.error)
        if live:
            known = _just_now(known, asked)
        # Ten thousand take a third of a second, during which peers must be answered.
        rows = await asyncio.to_thread(_rows, ids, known)
        versions = _versions(asked)
        for row in rows if live else ():
            row["version"] = versions.get(row["id"])
            if row["state"] == BOUND:
                row["note"] = ""  # the minion has just answered where it is
            elif row["state"] == UNKNOWN:
                row.update(state=SILENT, note="does not answer")
        connections = {name: each.connections for name, each in known.items()}
        gone = {} if live else locator.gone(rows, connections, NEW)
        if glob == "*" and not unknown and locator.accounted(rows, connections):
            for row in rows:
                row["note"] = row["note"] if row["state"] == PARTLY else ""
        counts = dict(Counter(row["state"] for row in rows))
        return {
            "kind": "minions",
            "live": live,
            "masters": self._masters(rows, known, unknown, gone),
            "minions": rows,
            "counts": counts,
            "online": locator.online(counts, not unknown, sum(gone.values())),
            "unknown": unknown,
            "retcode": _retcode(rows, unknown, live, glob) or (2 if gone else 0),
        }

    def _masters(
        self,
        rows: Iterable[Mapping[str, Any]],
        known: Mapping[str, MasterSights],
        unknown: Iterable[str],
        gone: Mapping[str, int],
    ) -> list[dict[str, Any]]:
        bound = Counter(
            name for row in rows if row["state"] in (BOUND, PARTLY) for name in row["masters"]
        )
        return [
            {
                "name": name,
                "self": name == self._group.name,
                "state": "unknown" if name in unknown else "running",
                "connections": known[name].connections if name in known else None,
                "minions": bound[name] if name in known else None,
                "listening": known[name].listening if name in known else None,
                "gone": gone.get(name, 0),
            }
            for name in sorted({*known, *unknown})
        ]


def accepted_of(replica: Replica, ids: Iterable[str]) -> list[str]:
    """Those of *ids* that have an accepted key; in the keeper's thread."""
    return [i for i in replica.brought(ids) if replica.applied(i).stored.state == ACCEPTED]


def sights_of(minion_id: str, known: Mapping[str, MasterSights]) -> dict[str, Sight]:
    """Master → its sight of the minion, what it has heard of it."""
    return {n: each.sights[minion_id] for n, each in known.items() if minion_id in each.sights}


def _rows(ids: Iterable[str], known: Mapping[str, MasterSights]) -> list[dict[str, Any]]:
    return [{"id": i, **locator.locate(sights_of(i, known), known)} for i in ids]


def _just_now(
    known: Mapping[str, MasterSights], asked: Mapping[str, Answers]
) -> dict[str, MasterSights]:
    """What each master knows of the minions that answered it just now."""
    return {
        name: each.of(asked[name].returned)
        for name, each in known.items()
        if name in asked and not asked[name].error
    }


def _versions(asked: Mapping[str, Answers]) -> dict[str, str]:
    """Minion → its version of saltext-ha, if it has just told it."""
    return {
        minion_id: str(value["version"])
        for answers in asked.values()
        for minion_id, (_, value) in answers.returned.items()
        if isinstance(value, Mapping) and value.get("version")
    }


def _retcode(
    rows: Iterable[Mapping[str, Any]], unknown: Mapping[str, str], live: bool, glob: str
) -> int:
    states = {row["state"] for row in rows} - {BOUND}
    if unknown or (states and not live):
        return 2
    nobody = glob != "*" and not rows  # a caller that names minions expects some
    return 1 if states or nobody else 0
