"""The engine's half of ``ha.once``: may it run here now?"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from saltext_ha.commands.arguments import span
from saltext_ha.common.errors import HaError, LeadsNoMore
from saltext_ha.once.leader import Leader
from saltext_ha.once.leadership import Leadership
from saltext_ha.once.runs import Runs, check
from saltext_ha.replication.record import Dot
from saltext_ha.replication.runs import InTheWay
from saltext_ha.sync.group import Group
from saltext_ha.transport import wire

RUN, SKIP, WAIT = "run", "skip", "wait"
GAVE_WAY = "another master began it at the same time, and each gave way to the other; ask again"
LATELY = 2.0
"""Seconds for which it counts who the others say that leads: those that wait ask every moment."""


class Once:
    def __init__(self, group: Group, leader: Leader, runs: Runs) -> None:
        self._group, self._leader, self._runs = group, leader, runs
        self._told, self._at = Leadership(""), float("-inf")

    async def once(self, payload: dict[str, Any]) -> dict[str, Any]:
        """
        What to ``do``: ``run`` it now (with ``fence`` and, for a run with a name, its ``start``),
        ``skip`` it, or ``wait`` and ask again, as it may be this master's turn soon, or the last
        run has not ended though its period is over (``overdue``); and ``leader`` and ``why``.
        """
        name, function = str(payload.get("name") or ""), str(payload.get("function"))
        if name:
            check(name)
        within = span(payload.get("within") or 0)
        pid = payload.get("pid")
        if type(pid) is not int or not 0 < pid < 2**31:
            raise HaError("pid: takes a process id")
        standing = await self._standing()
        told = {"leader": standing.leader or None, "fence": standing.fence, "start": None}
        if name and (found := self._runs.in_the_way(name, function, within)):
            return {**told, **_after(found)}
        if not standing.leads:
            return {**told, **_elsewhere(standing, name)}
        if not name:
            return {**told, "do": RUN, "why": ""}
        try:
            run, found = await self._runs.begin(name, function, str(payload.get("by")), within, pid)
        except LeadsNoMore as exc:  # another one may run it now, or this one again
            return {**told, "leader": None, "do": WAIT, "why": str(exc)}
        if run:
            return {**told, "do": RUN, "why": "", "start": list(run.start)}
        if found:
            return {**told, **_after(found)}
        return {**told, "leader": None, "do": WAIT, "why": GAVE_WAY}

    async def _standing(self) -> Leadership:
        """Who leads: as this master knows; if it takes no part, as the others say."""
        own = self._leader.standing
        if own.store:
            return own
        if time.monotonic() - self._at > LATELY:
            answers, _ = await self._group.ask("leading")
            leading = [name for name, told in answers.items() if told.get("leads") is True]
            why = "" if leading else f"{own.why}, and no other one leads"
            self._told = replace(own, leader=min(leading, default=""), why=why)
            self._at = time.monotonic()
        return self._told

    async def end(self, payload: dict[str, Any]) -> dict[str, Any]:
        """A run ended: ``name``, ``start``, ``state``."""
        node, counter = wire.row(payload.get("start"), "start", str, int)
        name, state = str(payload.get("name")), str(payload.get("state"))
        await self._runs.end(name, Dot(node, counter), state)
        return {}


def _after(found: InTheWay) -> dict[str, Any]:
    """What to do while *found* is in the way."""
    do = WAIT if found.overdue or found.fresh else SKIP
    return {"do": do, "why": found.why, "overdue": found.overdue}


def _elsewhere(standing: Leadership, name: str) -> dict[str, Any]:
    """What to do on a master that does not lead."""
    if not standing.leader:
        return {"do": WAIT, "why": f"nobody leads: {standing.why}"}
    if name:
        # Its leader may have gone down just before the run: that shows within seconds.
        return {"do": WAIT, "why": f"{standing.leader} leads, and has not begun it"}
    return {"do": SKIP, "why": f"{standing.leader} leads"}
