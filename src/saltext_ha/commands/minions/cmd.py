"""``ha.cmd``: a job for minions of the whole group, each asked by a master that it listens to."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from saltext_ha.api.errors import TargetNotDivided
from saltext_ha.api.target_split import Part, divide
from saltext_ha.commands.arguments import timeout_of
from saltext_ha.commands.minions.cmd_batches import LISTABLE, TIMEOUT
from saltext_ha.commands.minions.where import Where
from saltext_ha.common.errors import InvalidRecord
from saltext_ha.minions.job_answers import Answers
from saltext_ha.minions.job_specs import CommandSpec, sendable
from saltext_ha.minions.jobs import Jobs
from saltext_ha.minions.publishing import new_jids
from saltext_ha.transport import wire

BELOW = (
    "batch: no minion with an accepted key matches, and those below its syndics, whom a master of "
    "masters does not know, would all run it at once; run it on their masters, or without batch"
)
OPERATION = re.compile(r"[0-9a-f]{32}")


@dataclass
class UnderWay:
    """
    The parts of a job under way, by master. ``jids``: job ids of the running parts; ``ended``: what
    came of the others.
    """

    jids: dict[str, str] = field(default_factory=dict)
    ended: dict[str, Answers] = field(default_factory=dict)


class CmdCommand:
    """
    Publishes an operator's job: one part on each master that its minions need.

    :param order_masters: whether this is a master of masters: there Salt also publishes a job that
        none of its own minions matches, for minions below its syndics, which it does not know.
    """

    def __init__(self, jobs: Jobs, where: Where, order_masters: bool = False) -> None:
        self._jobs, self._where = jobs, where
        self._order_masters = order_masters
        self._under_way: dict[str, UnderWay] = {}
        """By operation, while its command runs."""

    async def cmd(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """``ha.cmd``; :meth:`progress` tells how far it is if *payload* has an ``operation``."""
        if "operation" not in payload:
            return await self._cmd(payload, UnderWay())
        operation = _operation(payload)
        if operation in self._under_way:
            raise InvalidRecord("operation: that one is under way already")
        self._under_way[operation] = under_way = UnderWay()
        try:
            return await self._cmd(payload, under_way)
        finally:
            del self._under_way[operation]

    async def more(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """
        Wait another ``timeout`` seconds for minions that still run ``jids`` (master → job id).

        :return: ``masters`` (name → all that has ``returned``, ``failed`` or is ``running`` by
            now; not those of a release that does not say) and ``unknown`` (master → why it does
            not say, such as one that has left the group).
        """
        seconds, jids = timeout_of(payload, TIMEOUT), wire.field(payload, "jids", dict)
        if not all(isinstance(jid, str) for jid in jids.values()):
            raise InvalidRecord("jids: takes ids of jobs by master")
        found = await self._jobs.more(jids, seconds)
        return {
            "masters": {
                name: {
                    "returned": {i: value for i, (_, value) in each.returned.items()},
                    "failed": each.failed,
                    "running": sorted(each.running),
                }
                for name, each in found.items()
                if not each.error
            },
            "unknown": {name: each.error for name, each in found.items() if each.error},
        }

    async def progress(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """
        How far ``operation`` is; both are empty when it is not under way.

        :return: ``masters`` (name → counts of minions: ``targeted`` by its part, None before that
            is published; ``returned``; of these ``failed``) and ``unknown`` (master → why it does
            not say).
        """
        under_way = self._under_way.get(_operation(payload), UnderWay())
        counts, unknown = await self._jobs.counts(dict(under_way.jids))
        # A part may have ended meanwhile: then its result counts.
        for name, found in under_way.ended.items():
            counts.pop(name, None)
            unknown.pop(name, None)
            if found.error:
                unknown[name] = found.error
            else:
                counts[name] = found.count
        return {"masters": {n: each._asdict() for n, each in counts.items()}, "unknown": unknown}

    async def _cmd(self, payload: Mapping[str, Any], under_way: UnderWay) -> dict[str, Any]:
        seconds, wanted = timeout_of(payload, TIMEOUT), _wanted(payload)
        tgt, tgt_type = wanted.tgt, wanted.tgt_type
        question = (
            {"ids": tgt} if tgt_type == "list" else {"glob": tgt if tgt_type == "glob" else "*"}
        )
        told = await self._where.where({**question, "all": True})
        nobody, batch = not told["count"], payload.get("batch") is True
        if batch and nobody and self._order_masters:
            raise InvalidRecord(BELOW)
        own = self._jobs.own
        order = [own, *(name for name in self._jobs.masters if name != own)]
        try:
            parts = divide(wanted.tgt, tgt_type, told["minions"], order)
        except TargetNotDivided as exc:
            raise InvalidRecord(str(exc)) from None

        async def run(part: Part) -> None:
            name = part.master
            job = CommandSpec(part.tgt, part.tgt_type, wanted.fun, wanted.arg, wanted.kwarg)
            jids = {name: under_way.jids[name]}
            answers, _ = await self._jobs.run(job, seconds, [name], jids, told["unknown"])
            under_way.ended[name] = answers[name]
            del under_way.jids[name]

        plan = {part.master: part for part in parts}
        found: dict[str, Answers] = {}
        test = bool(payload.get("test"))
        if nobody and (batch or (test and tgt_type in LISTABLE and not self._order_masters)):
            # Batches, too: Salt may know minions that the group does not, and all would run it.
            plan = {}
        elif not test:
            under_way.jids = dict(zip(plan, new_jids(len(plan)), strict=True))
            await asyncio.gather(*map(run, parts))
            found = {name: under_way.ended[name] for name in plan}
        anyway = own if self._order_masters else ""
        return answer(wanted, plan, found, told, test, anyway)


def _wanted(payload: Mapping[str, Any]) -> CommandSpec:
    """The job that *payload* asks for. :raises InvalidRecord: it is none."""
    arg, kwarg = wire.field(payload, "arg", list, []), payload.get("kwarg") or {}
    tgt, tgt_type = payload.get("tgt", ""), payload.get("tgt_type", "glob")
    if tgt_type == "list" and isinstance(tgt, str):
        tgt = [each for each in tgt.split(",") if each]
    return CommandSpec(tgt, tgt_type, payload.get("fun", ""), tuple(sendable(arg)), sendable(kwarg))


def _operation(payload: Mapping[str, Any]) -> str:
    name = payload.get("operation")
    if not isinstance(name, str) or not OPERATION.fullmatch(name):
        raise InvalidRecord("operation: takes 32 hexadecimal digits")
    return name


def _problem(found: Answers) -> str:
    return f"{found.error}; may have run: job {found.jid}" if found.unsure else found.error


def _home(plan: Mapping[str, Part], by: Collection[str]) -> str | None:
    """The master that a minion which *by* reach is asked by; see :func:`.divide`."""
    return next((name for name in plan if name in by), None)


def _not_reached(
    wanted: CommandSpec,
    plan: Mapping[str, Part],
    found: Mapping[str, Answers],
    told: Mapping[str, Any],
) -> set[str]:
    """Minions that no master reaches, or whose key is not accepted where they were to be asked."""
    nowhere = {i for i, by in told["minions"].items() if not by}
    said = {name for name, each in found.items() if not each.error}
    keyless = {i for i in told["ids"] if _home(plan, told["minions"].get(i, plan)) in said}
    if wanted.tgt_type == "list":
        keyless |= {*(wanted.tgt if said and said == found.keys() else told.get("absent", ()))}
    return nowhere | keyless.difference(*(each.targeted for each in found.values()))


def _unsure(
    plan: Mapping[str, Part],
    found: Mapping[str, Answers],
    told: Mapping[str, Any],
    unreachable: Collection[str],
    listed: bool,
) -> list[str]:
    """
    Minions that may run the job: the answer of the master that was to publish it to them was lost.

    :param listed: whether the group can tell whom the target means.
    """
    lost = {n for n, each in found.items() if each.error and each.unsure}
    unsure = {i for i, by in told["minions"].items() if listed and _home(plan, by) in lost}
    for part in plan.values():
        if part.tgt_type == "list" and part.master in lost:
            unsure |= {*part.tgt}.difference(told.get("absent", ()), unreachable)
    return sorted(unsure)


def answer(
    wanted: CommandSpec,
    plan: Mapping[str, Part],
    found: Mapping[str, Answers],
    told: Mapping[str, Any],
    test: bool,
    anyway: str = "",
) -> dict[str, Any]:
    """
    The answer of ``ha.cmd``; see the runner.

    :param anyway: the master that publishes also what no minion that it knows matches.
    """
    unknown = {**told["unknown"], **{n: _problem(each) for n, each in found.items() if each.error}}
    returned, failed, missing = dict[str, Any](), dict[str, int](), dict[str, str]()
    running = dict[str, str]()
    for name, each in found.items():
        failed |= each.failed
        returned |= {i: value for i, (_, value) in each.returned.items()}
        left = sorted(each.targeted - each.returned.keys())
        missing |= dict.fromkeys(left, name)
        running |= {i: each.jid for i in left if i in each.running}
    listed = wanted.tgt_type in LISTABLE
    unreachable = sorted(
        _not_reached(wanted, plan, found, told) - returned.keys() if listed else ()
    )
    unsure = _unsure(plan, found, told, unreachable, listed)
    # Others publish nothing for a target without minions.
    jobs = {
        name: each.jid
        for name, each in found.items()
        if (each.targeted or name == anyway) and not each.error
    }
    troubled = failed or missing or (not plan if test else unreachable or not returned)
    return {
        "kind": "cmd",
        "test": test,
        "fun": wanted.fun,
        "targets": {name: part.tgt for name, part in plan.items()},
        "jobs": jobs,
        "returned": dict(sorted(returned.items())),
        "failed": failed,
        "missing": missing,
        "running": running,
        "unsure": unsure,
        "unreachable": unreachable,
        "unknown": unknown,
        "retcode": 2 if unknown else 1 if troubled else 0,
    }
