"""``ha.drain`` and ``ha.rebalance``: move failover minions between masters that work."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from saltext_ha.commands.arguments import no_master, timeout_of, whole_of
from saltext_ha.commands.minions import closed_masters
from saltext_ha.commands.minions.drained import DrainedMasters
from saltext_ha.commands.minions.minions import BoundMinions
from saltext_ha.commands.minions.moves import Moves
from saltext_ha.common.errors import HaError, reason_of
from saltext_ha.health.watcher import Watcher
from saltext_ha.minion import binding
from saltext_ha.minions import move_planner
from saltext_ha.minions.job_answers import Answers
from saltext_ha.minions.job_specs import WHERE, JobSpec
from saltext_ha.minions.jobs import Jobs
from saltext_ha.minions.move_planner import BoundMinion, RebalanceStep
from saltext_ha.sync.group import Group
from saltext_ha.transport.listener import Handler

log = logging.getLogger(__name__)

ASKING = 15.0  # seconds for minions to answer where they are,
PER_SECOND = 500  # and one second more for each so many minions
ARRIVING = 60.0  # seconds within which the other master must have heard a moved minion
BATCH = 50
LARGEST = 500
NOT_HEARD = "hot-hot, and no other master that is ready has heard from it just now"
STAYS = "{0} stays drained until salt-run ha.rebalance, or a restart of salt-master there"
NOT_ANY_MORE = (
    "{0} is not drained any more: its salt-master was restarted meanwhile, or ha.rebalance was "
    "run. Run it again"
)
STILL = "still drained, as it could not be told that this is over ({0}): run ha.rebalance again"
UNTOLD = "{0} could not be told that it is not drained any more ({1}): run ha.rebalance again"
LEFT_OUT = "{0} is left out: it is {1}"
LOOKING_UP = 10.0
"""Seconds to look up hosts; a minion may name many, and a name service may not answer."""
LOCALHOST = {"127.0.0.1", "::1"}  # of other masters' names, too, in a file of hosts
UNASKED = "which could not be asked"


class Staying(NamedTuple):
    """A minion that cannot be moved."""

    why: str
    goes_on: bool | None
    """Whether it goes on with another master; None: unknown."""


class Drain:
    """
    Moves minions in batches, and reports on each.

    :param health: of this master; draining marks it as not ready.
    :param host: the host at which others reach this master.
    """

    def __init__(
        self, group: Group, jobs: Jobs, bound: BoundMinions, health: Watcher, host: str
    ) -> None:
        self._group, self._jobs, self._bound, self._host = group, jobs, bound, host
        self._drained = DrainedMasters(group, health)
        self._moves = Moves(jobs, bound, self._drained)
        self._turn = asyncio.Lock()

    def for_peers(self) -> dict[str, Handler]:
        return self._drained.for_peers()

    async def may_drain(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Refuse what :meth:`drain` would refuse at once; the runner asks before it says a word."""
        source, *_ = self._wish(payload)
        self._alone()
        _, silent = await self._group.summaries()
        if source in silent:
            raise _unasked(source, silent[source])
        self._ready_without(source, await self._drained.healths(), payload)
        return {}

    async def drain(self, payload: dict[str, Any]) -> dict[str, Any]:
        source, batch, seconds = self._wish(payload)
        test = bool(payload.get("test"))
        async with self._alone():
            healths = await self._drained.healths()
            self._ready_without(source, healths, payload)
            answers = await self._where()
            if answers[source].error:
                raise _unasked(source, answers[source].error)
            if not test:
                healths = await self._begin(source, healths, payload)
            last = self._ready_without(source, healths, payload)
            with contextlib.nullcontext() if test else _drained(source):
                closed = closed_masters.closed(answers, healths, insisting=bool(last))
                steps, stay, unheard = await self._leaving(source, answers, closed)
                done = await self._moves.carry_out(steps, batch, seconds, test)
                after = {} if test else (await self._drained.healths()).get(source, {})
        reasons = {i: each.why for i, each in stay.items()}
        answer = self._answer("drain", done, reasons, answers, payload, unheard)
        answer["master"] = source
        answer["notes"] = [last] if last else []
        if after and after.get("draining") is not True:
            answer["notes"].append(NOT_ANY_MORE.format(source))
        for row in answer["stay"]:
            row["goes_on"] = stay[row["id"]].goes_on
        if answer["notes"] or not all(each.goes_on for each in stay.values()):
            answer["retcode"] = answer["retcode"] or 1
        return answer

    def _wish(self, payload: Mapping[str, Any]) -> tuple[str, int, float]:
        """The master to be drained, the size of a batch, and the seconds that it may take."""
        name, masters = payload.get("name"), self._jobs.masters
        if not isinstance(name, str) or name not in masters:
            raise no_master([name], masters)
        return (
            name,
            whole_of(payload, "batch", BATCH, LARGEST),
            timeout_of(payload, ARRIVING),
        )

    def _ready_without(
        self, source: str, healths: Mapping[str, Mapping[str, Any]], payload: Mapping[str, Any]
    ) -> str:
        """
        That no master but *source* is ready; empty when another one is.

        :raises HaError: the caller does not insist on draining the last one.
        """
        last = closed_masters.no_other_ready(source, healths)
        if last and not (payload.get("test") or payload.get("force")):
            raise HaError(f"{last}. Bring another one back, or insist: force=True")
        return last

    async def _begin(
        self, source: str, before: Mapping[str, Mapping[str, Any]], payload: Mapping[str, Any]
    ) -> dict[str, Mapping[str, Any]]:
        """
        Mark *source*, and ask once more whether another master is ready: one may have been drained
        since *before*. That drain marks its master first, too, so that one of both notices.

        :return: what the masters say of their health now.
        :raises HaError: no other one is ready now, or *source* may not know that it is drained.
        """
        await self._drained.mark(source)
        healths = await self._drained.healths()
        try:
            self._ready_without(source, healths, payload)
        except HaError:
            if before.get(source, {}).get("draining") is not True:
                await self._drained.mark(source, draining=False)
            raise
        return healths

    async def _leaving(
        self, source: str, answers: Mapping[str, Answers], closed: Mapping[str, str]
    ) -> tuple[list[RebalanceStep], dict[str, Staying], dict[str, str]]:
        """
        Where the minions of *source* go, and those that stay; master → why it does not say which
        minions it has heard.

        :param closed: masters that get no minions → why. Such a master is often empty, and would
            look like the one with the most room.
        """
        everyone = _everyone(answers)
        working = {n: each for n, each in answers.items() if n != source and not each.error}
        load = {
            name: sum(each.on == name and not each.stays for each in everyone.values())
            for name in working
        }
        closed = {name: closed[name] for name in closed.keys() & load.keys()}
        load = {name: count for name, count in load.items() if name not in closed}
        here = {i: each for i, each in everyone.items() if each.on == source}
        # *everyone* has a hot-hot minion on one of its masters only.
        here.update(
            (i, _found(i, source, value)) for i, (_, value) in answers[source].returned.items()
        )
        shut = {n: UNASKED for n, each in answers.items() if n != source and each.error} | closed
        steps, reasons = move_planner.drain(here, await self._names(everyone), load, shut)
        others = {n: each for n, each in answers.items() if n != source and n not in closed}
        stay = {i: Staying(why, _fate(here[i], i, others)) for i, why in reasons.items()}
        for minion_id, each in stay.items():
            if here[minion_id].type == move_planner.HOT and not each.goes_on:
                stay[minion_id] = each._replace(why=NOT_HEARD)
        quiet, unheard = await self._quiet(source, {*here, *everyone})
        for minion_id in quiet:
            stay[minion_id] = Staying(f"was heard on {source} and does not answer now", None)
        return steps, stay, unheard

    async def rebalance(self, payload: dict[str, Any]) -> dict[str, Any]:
        batch, seconds = whole_of(payload, "batch", BATCH, LARGEST), timeout_of(payload, ARRIVING)
        test = bool(payload.get("test"))
        async with self._alone():
            untold = {} if test else await self._drained.unmark_all()
            healths = await self._drained.healths()
            if test:
                healths = {name: closed_masters.released(each) for name, each in healths.items()}
            drained = {name for name, each in healths.items() if each.get("draining") is True}
            # A master that says that it is not drained need not be told.
            untold = {n: untold[n] for n in sorted(untold) if n in drained or n not in healths}
            answers = await self._where()
            everyone = _everyone(answers)
            working = [name for name, told in answers.items() if not told.error]
            closed = closed_masters.closed(working, healths)
            still = closed.keys() & untold.keys() & drained
            closed |= {name: STILL.format(untold[name]) for name in still}
            ready = [name for name in working if name not in closed]
            steps = move_planner.level(everyone, await self._names(everyone), ready)
            stay = {i: each.stays for i, each in everyone.items() if each.stays}
            before = Counter(each.on for each in everyone.values() if not each.stays)
            done = await self._moves.carry_out(steps, batch, seconds, test)
        after = before.copy()
        for row in done:
            if row["moved"] or row["planned"]:
                after[row["from"]] -= 1
                after[row["to"]] += 1
        spreading = {
            name: {"before": before[name], "after": after[name]} for name in sorted(working)
        }
        answer = self._answer("rebalance", done, stay, answers, payload) | {"spread": spreading}
        answer["untold"] = untold
        answer["notes"] = [LEFT_OUT.format(*each) for each in sorted(closed.items())]
        answer["notes"] += [UNTOLD.format(*each) for each in untold.items() if each[0] not in still]
        answer["retcode"] = 2 if untold else answer["retcode"] or int(bool(closed))
        return answer

    async def _where(self) -> dict[str, Answers]:
        many = len(await self._bound.accepted("*"))
        answers, _ = await self._jobs.run(JobSpec(WHERE, glob="*"), ASKING + many / PER_SECOND)
        return answers

    def _alone(self) -> asyncio.Lock:
        if self._turn.locked():
            raise HaError("minions are being moved already; wait until that is done")
        return self._turn

    async def _names(self, everyone: Mapping[str, BoundMinion]) -> dict[str, str]:
        addresses = {
            name: {urlsplit(peer.url).hostname or ""} for name, peer in self._group.peers.items()
        }
        addresses[self._group.name] = {move_planner.host_of(self._host)}
        # Minions of a master know its host; that of a master without minions is looked up.
        if unmet := move_planner.unmet(everyone.values()):
            addresses = await asyncio.to_thread(_looked_up, unmet, addresses, self._group.name)
        return move_planner.names_of(everyone.values(), addresses)

    async def _quiet(
        self, source: str, answered: Collection[str]
    ) -> tuple[list[str], dict[str, str]]:
        """
        Minions that are bound to *source*, as far as masters heard, and did not answer; and
        master → why it does not say whom it heard.
        """
        view = await self._bound.minions({"glob": "*"})
        quiet = [
            row["id"]
            for row in view["minions"]
            if row["id"] not in answered and source in (row["masters"] or _last(row["on"]))
        ]
        return quiet, view["unknown"]

    def _answer(
        self,
        kind: str,
        rows: list[dict[str, Any]],
        stay: Mapping[str, str],
        answers: Mapping[str, Answers],
        payload: Mapping[str, Any],
        unheard: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        unknown = {name: each.error for name, each in answers.items() if each.error}
        unknown = {**(unheard or {}), **unknown}
        failed = [row for row in rows if not (row["moved"] or row["planned"])]
        return {
            "kind": kind,
            "test": bool(payload.get("test")),
            "moves": rows,
            "stay": [{"id": i, "why": why} for i, why in sorted(stay.items())],
            "unknown": unknown,
            "retcode": 2 if unknown else 1 if failed else 0,
        }


@contextlib.contextmanager
def _drained(name: str) -> Iterator[None]:
    """Whatever ends the work within says that the master *name* is drained, and what ends that."""
    try:
        yield
    except (HaError, OSError) as exc:
        raise HaError(f"{reason_of(exc)}. {STAYS.format(name)}") from exc
    except asyncio.CancelledError:  # this engine stops
        log.warning("ha minions: no more are moved: %s", STAYS.format(name))
        raise
    except Exception:
        log.exception("ha minions: moving failed")
        why = "the engine failed; salt-master's log has the traceback"
        raise HaError(f"{why}. {STAYS.format(name)}") from None


def _everyone(answers: Mapping[str, Answers]) -> dict[str, BoundMinion]:
    """Each minion that answered, with one of the masters that it answered."""
    return {
        minion_id: _found(minion_id, name, value)
        for name, each in sorted(answers.items(), reverse=True)
        for minion_id, (_, value) in each.returned.items()
    }


def _looked_up(
    hosts: Collection[str], addresses: Mapping[str, set[str]], own: str
) -> dict[str, set[str]]:
    """The *addresses* of masters, and those of *hosts* that are the same machine. Blocks."""
    end, ips = time.monotonic() + LOOKING_UP, dict[str, frozenset[str]]()
    for host in sorted(hosts):
        if time.monotonic() < end:
            ips[host] = binding.resolved(host)
    found = {}
    for name, known in addresses.items():
        there = frozenset[str]().union(*map(binding.resolved, known)) - LOCALHOST
        found[name] = known | {host for host, at in ips.items() if at & there}
    found[own] |= binding.own_names()
    return found


def _last(heard: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The master that heard a minion last, from ``on`` of a row of ``ha.minions``."""
    return sorted(heard, key=lambda name: (float(heard[name]["seen"]), name))[:1]


def _fate(minion: BoundMinion, minion_id: str, others: Mapping[str, Answers]) -> bool | None:
    """Whether a minion that stays goes on with one of *others*: see :func:`.goes_on`."""
    hears = [name for name, each in others.items() if minion_id in each.returned]
    return move_planner.goes_on(minion, hears, not any(each.error for each in others.values()))


def _found(minion_id: str, on: str, value: Any) -> BoundMinion:
    if "," in minion_id:
        why = "its id has a comma, so that Salt cannot name it in a list"
        return replace(move_planner.found(on, value), stays=why)
    return move_planner.found(on, value)


def _unasked(source: str, why: str) -> HaError:
    return HaError(
        f"{source} cannot be asked: {why}. Minions that are bound to it hear no other master; with "
        "the watchdog they leave it when it does not work"
    )
