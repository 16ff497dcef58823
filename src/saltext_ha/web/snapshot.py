"""
The state of the group, taken once for all who look at it.

A page, a scrape and a balancer together must cost the engine no more than one of them. A snapshot
is good for two seconds; then the next who asks has another one taken, and is given the old one when
that takes longer than he waits (a peer that hangs is waited for). Its age is always said.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saltext_ha.errors import HaError
from saltext_ha.history_text import row as history_row

if TYPE_CHECKING:
    from saltext_ha.service.service import Service

GOOD_FOR = 2.0
PATIENCE = 1.0
CHANGES = 20
LISTED = 100  # conflicts, and differences of one section

OK, DEGRADED, UNKNOWN = "ok", "degraded", "unknown"


@dataclass(frozen=True)
class Taken:
    """One snapshot: its data, the same as JSON, and when it was taken (monotonic seconds)."""

    data: Mapping[str, Any]
    body: bytes
    at: float


class Snapshots:
    """Takes them, one at a time, when somebody asks."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._last: Taken | None = None
        self._taking: asyncio.Task[Taken] | None = None
        self._changes: tuple[int, list[dict[str, Any]]] = -1, []

    async def get(self) -> Taken:
        """
        The latest.

        :raises HaError: there is none yet, and none can be taken.
        """
        last = self._last
        if last and time.monotonic() - last.at < GOOD_FOR:
            return last
        if self._taking is None or self._taking.done():
            self._taking = asyncio.ensure_future(self._take())
        # The first has nothing else to be given; peers answer within their timeout, or not at all.
        patience = PATIENCE if last else self._service.config.peer_timeout + 5
        try:
            return await asyncio.wait_for(asyncio.shield(self._taking), patience)
        except asyncio.TimeoutError:
            if last:
                return last
            raise HaError("the state of the group is not known yet") from None

    async def _take(self) -> Taken:
        at = time.monotonic()
        data = await self._data()
        body = await asyncio.to_thread(lambda: json.dumps(data, separators=(",", ":")).encode())
        self._last = Taken(data, body, at)
        return self._last

    async def _data(self) -> dict[str, Any]:
        service = self._service
        now = time.time()
        status = await service.views.status({})
        drift = _drift(service.watch.last.data(), service.watch.answer, service.watch.stale())
        data = {
            **{key: value for key, value in status.items() if key not in ("kind", "retcode")},
            "at": now,
            "master": service.config.name,
            "state": _state(status, drift),
            "conflicts": status["conflicts"][:LISTED],
            "conflict_count": len(status["conflicts"]),
            "consistency": drift,
            "changes": await self._latest(),
            "failovers": {
                "count": service.failovers.count,
                "last": [failover.data() for failover in service.failovers.last][:CHANGES],
            },
            "minions_known": service.minions is not None,
        }
        return data

    async def _latest(self) -> list[dict[str, Any]]:
        """The last changes; read again only after a change."""
        core, name = self._service.core, self._service.config.name

        def read() -> list[dict[str, Any]]:
            version = core.replica.version
            if self._changes[0] != version:
                lines = core.replica.history.lines("*", CHANGES)
                self._changes = version, [history_row(line, name) for line in lines]
            return self._changes[1]

        return await core.run(read)


def _state(status: Mapping[str, Any], drift: Mapping[str, Any]) -> str:
    """Never ok for what is not known."""
    if status["state"] != OK or drift["status"] == "differ":
        return DEGRADED
    healths = [row["health"].get("healthy") for row in status["masters"]]
    if None in healths or drift["status"] != "same":
        return UNKNOWN
    return OK if all(healths) else DEGRADED


def _drift(last: Mapping[str, Any], answer: Mapping[str, Any] | None, stale: str) -> dict[str, Any]:
    """
    The last consistency check: by section, with what differs as far as it is remembered.

    Where it is *stale*, everything is unknown, and shown as what was known then.
    """
    sections: dict[str, Any] = {}
    for name, section in (answer or {}).get("sections", {}).items():
        found = section["differences"]
        sections[name] = {
            "status": section["status"],
            "count": last["counts"].get(name, 0),
            "differences": found[:LISTED],
            "left_out": max(0, len(found) - LISTED) + section.get("left_out", 0),
            "unknown": section.get("unknown") or {},
        }
    for name, count in last["counts"].items():
        left = {"status": "differ", "count": count, "differences": [], "left_out": count}
        sections.setdefault(name, {**left, "unknown": {}})
    if stale:
        sections = {name: {**section, "status": UNKNOWN} for name, section in sections.items()}
    return {
        "status": UNKNOWN if stale else last["status"] or UNKNOWN,
        "stale": stale,
        "at": last["at"] or None,
        "unknown": last["unknown"],
        "sections": sections,
    }
