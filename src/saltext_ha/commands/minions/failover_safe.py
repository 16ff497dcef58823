"""``ha.failover_safe``: gathers the facts that :mod:`saltext_ha.minions.safety` judges."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from saltext_ha.commands.arguments import no_master
from saltext_ha.commands.consistency.consistency_check import ConsistencyCheck
from saltext_ha.commands.masters.endpoints import Endpoints, MinionEndpoint
from saltext_ha.commands.masters.own_summary import OwnSummary
from saltext_ha.common.addresses import bare_ip
from saltext_ha.common.errors import HaError, InvalidRecord
from saltext_ha.health.fitness import counted
from saltext_ha.minion import binding
from saltext_ha.minions import reports, safety
from saltext_ha.minions.jobs import Jobs
from saltext_ha.minions.safety import Capacity, MinionReport
from saltext_ha.sync.group import Group
from saltext_ha.sync.summary import MasterSummary, Unused
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.peer import Peer

ANSWER_WITHIN = 60.0  # seconds for the answers of a peer's minions
MAX_GLOB = 1000
MAX_WAITING = 3  # questions; each is a job for the minions, one after another


class FailoverSafe:
    """
    The command, and the peers' questions for it.

    :param summary: takes the list of masters that no minion is configured with.
    :param per_worker: how many minions one worker thread can serve.
    """

    def __init__(
        self,
        group: Group,
        jobs: Jobs,
        endpoints: Endpoints,
        checking: ConsistencyCheck,
        summary: OwnSummary,
        per_worker: int,
    ) -> None:
        self._group, self._jobs = group, jobs
        self._endpoints, self._checking = endpoints, checking
        self._summary, self._per_worker = summary, per_worker
        # One job at a time: many questions of peers must not flood the minions.
        self._turn = asyncio.Lock()
        self._waiting = 0

    def for_peers(self) -> dict[str, Handler]:
        return {"minion_reports": self._reports}

    async def failover_safe(self, payload: dict[str, Any]) -> dict[str, Any]:
        own = self._group.name
        names = self._group.masters
        lost, glob = str(payload.get("master") or ""), _glob(payload)
        if lost and lost not in names:
            raise no_master([lost], names)
        shown, refused = await self._group.shown_everywhere({"glob": glob})
        if glob != "*" and not safety.accepted(shown):
            raise HaError(f"minions={glob!r}: no accepted minion matches")
        # The longest question, in parallel with all that follows.
        question = {"glob": glob}
        asking = asyncio.ensure_future(
            self._group.ask("minion_reports", question, ANSWER_WITHIN, self._mine(glob))
        )
        masters, unreached = await self._endpoints.all()
        summaries, silent = await self._group.summaries()
        sections = await self._checking.answer(safety.SECTIONS)
        told, unasked = await asking
        unreached = {**sections["unknown"], **silent, **refused, **unreached}
        known = [each for each in masters if each.reached]
        minions, failed = await asyncio.to_thread(
            _told,
            {name: one.get("minions") for name, one in told.items()},
            masters,
            own,
        )
        summaries[own] = await self._summary.get()
        group = safety.GroupFacts(
            names,
            {
                each.name: Capacity(each.workers, each.open_files, each.max_minions)
                for each in known
            },
            shown,
            sections["sections"],
            minions,
            {name: _notes(each) for name, each in summaries.items()},
            unreached,
            {**unasked, **failed},
            signed=len({each.finger for each in known}) > 1
            and all(each.sign_finger for each in known),
            number=max(each.accepted or 0 for each in summaries.values()),
            per_worker=self._per_worker,
        )
        if glob == "*":
            unused = await asyncio.to_thread(safety.unknown_to_minions, group)
            self._summary.unused = Unused(unused, time.time())
        return await asyncio.to_thread(_answer, group, [lost] if lost else names)

    async def _reports(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        return await self._mine(_glob(payload))

    async def _mine(self, glob: str) -> dict[str, Any]:
        """The reports of the minions on this master. :raises HaError: they could not be asked."""
        if self._waiting >= MAX_WAITING:
            raise HaError("its minions are being asked for others already; ask again in a minute")
        self._waiting += 1
        try:
            async with self._turn:
                return {"minions": await self._jobs.here.reports(glob)}
        except HaError as exc:
            raise HaError(str(exc)[:300]) from None
        finally:
            self._waiting -= 1


def _glob(payload: Mapping[str, Any]) -> str:
    glob = payload.get("glob") or "*"
    if not isinstance(glob, str) or len(glob) > MAX_GLOB:
        raise InvalidRecord("takes a glob")
    return glob


def _notes(summary: MasterSummary) -> list[str]:
    """What in the summary of a master makes it doubtful."""
    notes, health = [*summary.notes], summary.health
    if summary.held:
        notes.append(f"{counted(summary.held)} held back")
    if summary.dirty:
        notes.append(f"{counted(summary.dirty)} not yet written to its key store")
    # The notes already say that the master is being drained.
    if not (health.get("ready", True) or health.get("draining")):
        what = "does not serve" if health.get("healthy") is False else "is not ready"
        notes.append(f"{what}: {health.get('reason')}")
    return notes


def _told(
    answers: Mapping[str, Any], masters: list[MinionEndpoint], own: str
) -> tuple[dict[str, MinionReport], dict[str, str]]:
    """Id → a minion's report; and master → why its minions could not be asked."""
    lookup = _lookup(answers, masters, own)
    found: dict[str, MinionReport] = {}
    failed: dict[str, str] = {}
    for master, raw in answers.items():
        try:
            # Minions that are bound to several masters answer each; any answer is enough.
            for name, report in reports.read(raw, lookup).items():
                if name not in found or found[name].problem:
                    found[name] = report
        except HaError as exc:
            failed[master] = str(exc)
    return found, failed


def _lookup(
    answers: Mapping[str, Any], masters: list[MinionEndpoint], own: str = ""
) -> reports.Lookup:
    """
    Address → masters: those that minions met there, and those that give it as their own. The
    minions count more: behind a port map they use other addresses. If minions contradict each
    other, a master's own address counts, so that one minion cannot change it.
    """
    addresses: dict[reports.Place, set[str]] = defaultdict(set)
    for each in masters:
        hosts = {each.address, *binding.resolved(each.address)}
        if each.name == own:
            hosts |= binding.own_names()
        for host in hosts:
            addresses[reports.place(host, each.request_port)].add(each.name)
    learnt: dict[reports.Place, set[str]] = defaultdict(set)
    for name, raw in answers.items():
        for where in reports.met(raw):
            learnt[where].add(name)
    known: dict[str, frozenset[str]] = {}

    def lookup(host: str, port: int) -> set[str]:
        where = reports.place(host, port)
        if bare_ip(host):
            met, own = learnt.get(where, set()), addresses.get(where, set())
            return met & own or met or own
        # A host name may mean several masters; these minions may have met only one of them.
        if host not in known:
            known[host] = binding.resolved(host)
        found = (addresses.get((each, port), set()) for each in {where[0], *known[host]})
        return learnt.get(where, set()).union(*found)

    return lookup


def _answer(group: safety.GroupFacts, asked: list[str]) -> dict[str, Any]:
    judged = {name: safety.judge(group, name) for name in asked}
    doubts = any(reason.unknown for reasons in judged.values() for reason in reasons)
    safe = not any(judged.values())
    everybody = safety.accepted(group.keys)
    return {
        "kind": "failover_safe",
        "safe": safe,
        "masters": [
            {"name": name, "safe": not reasons, "reasons": [reason.data() for reason in reasons]}
            for name, reasons in judged.items()
        ],
        "minions": {"accepted": len(everybody), "answered": len(everybody & group.minions.keys())},
        "retcode": 0 if safe else 2 if doubts else 1,
    }
