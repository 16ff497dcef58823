"""
The state of the group, taken once for all callers.

A page, a scrape and a balancer together must cost the engine no more than one of them. A snapshot
is valid for two seconds; then the next caller has a new one taken, and gets the old one if that
takes longer than a second (because of an unresponsive peer). Its age is shown. No caller gets a
snapshot older than 15 seconds.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from saltext_ha.commands.masters.status import Status
from saltext_ha.common import tasks
from saltext_ha.common.errors import HaError
from saltext_ha.minions.failovers import Failovers
from saltext_ha.reconciler.core import Core
from saltext_ha.replica.history_text import row as history_row

GOOD_FOR = 2.0
NEWER_WITHIN = 1.0  # seconds; later, what is known already is shown
TOO_OLD = 15.0
CHANGES = 20
LISTED = 100  # conflicts, and differences of one section


@dataclass(frozen=True)
class Taken:
    """One snapshot: its data, the same as JSON, and when it was taken (monotonic seconds)."""

    data: Mapping[str, Any]
    body: bytes
    at: float

    @property
    def age(self) -> float:
        """Seconds since then."""
        return time.monotonic() - self.at


class Snapshots:
    """
    Takes snapshots, one at a time, on request.

    :param name: this master's.
    :param timeout: seconds that a peer may take for its part.
    """

    def __init__(
        self, name: str, status: Status, core: Core, failovers: Failovers, timeout: float
    ) -> None:
        self._name, self._timeout = name, timeout
        self._status, self._core, self._failovers = status, core, failovers
        self._last: Taken | None = None
        self._taking: asyncio.Task[Taken] | None = None
        self._changes: tuple[int, list[dict[str, Any]]] = -1, []

    async def get(self) -> Taken:
        """
        The latest snapshot.

        :raises HaError: there is none, or only one that is too old, and a new one takes too long.
        """
        last = self._last
        if last and last.age < GOOD_FOR:
            return last
        if self._taking is None or self._taking.done():
            self._taking = tasks.begin(self._take())
        # Without an old one, wait: peers answer within their timeout, or not at all.
        usable = last is not None and last.age < TOO_OLD
        patience = NEWER_WITHIN if usable else self._timeout + 5
        try:
            return await asyncio.wait_for(asyncio.shield(self._taking), patience)
        except asyncio.TimeoutError:
            if last is None:
                raise HaError("the state of the group is not known yet") from None
            if usable:
                return last
            raise HaError(
                f"the state of the group is not known: what was found {last.age:.0f} s ago "
                "is too old, and this master is still asking; see  salt-run ha.status"
            ) from None

    async def _take(self) -> Taken:
        at = time.monotonic()
        data = await self._data()
        body = await asyncio.to_thread(lambda: json.dumps(data, separators=(",", ":")).encode())
        self._last = Taken(data, body, at)
        return self._last

    async def _data(self) -> dict[str, Any]:
        now = time.time()
        status = await self._status.status({"whole": True})
        return {
            **{key: value for key, value in status.items() if key not in ("kind", "retcode")},
            "at": now,
            "master": self._name,
            "conflicts": status["conflicts"][:LISTED],
            "conflict_count": len(status["conflicts"]),
            "consistency": _listed(status["consistency"]),
            "changes": await self._latest(),
            "failovers": {
                "count": self._failovers.count,
                # A copy: the thread of the bus adds to it.
                "last": [each.data() for each in list(self._failovers.last)[:CHANGES]],
            },
        }

    async def _latest(self) -> list[dict[str, Any]]:
        """The last changes; read again only after a change."""

        def read() -> list[dict[str, Any]]:
            replica = self._core.replica
            version = replica.version
            if self._changes[0] != version:
                lines = replica.history.lines("*", CHANGES)
                self._changes = version, [history_row(line, self._name) for line in lines]
            return self._changes[1]

        found = await self._core.glance(read, NEWER_WITHIN)
        return self._changes[1] if found is None else found


def _listed(comparison: Mapping[str, Any]) -> dict[str, Any]:
    """*comparison* with at most :data:`LISTED` differences of each section."""
    sections = {}
    for name, section in comparison["sections"].items():
        found = section["differences"]
        left_out = max(0, len(found) - LISTED) + section["left_out"]
        sections[name] = {**section, "differences": found[:LISTED], "left_out": left_out}
    return {**comparison, "sections": sections}
