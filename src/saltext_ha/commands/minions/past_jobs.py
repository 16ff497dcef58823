"""``ha.jobs`` and ``ha.lookup_jid``: jobs of all masters, whichever published them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any, NamedTuple

from saltext_ha.commands.arguments import is_glob, whole_of
from saltext_ha.commands.runner_arguments import shown
from saltext_ha.common.batches import batches
from saltext_ha.common.errors import HaError, InvalidRecord
from saltext_ha.minions.job_answers import NONSENSE
from saltext_ha.minions.job_cache import MOST, JobCache, check_jid
from saltext_ha.minions.job_specs import MAX_IDS, RUNNING, JobSpec
from saltext_ha.minions.jobs import Jobs
from saltext_ha.minions.own_jobs import MAX_ANSWERS, NO_ROOM, SHOWS
from saltext_ha.salt_bus.intake import fitted
from saltext_ha.sync.group import SLOW, Group
from saltext_ha.transport import wire
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.peer import Peer

FINDING = 5.0  # seconds for minions to say what they run
MOST_ASKED = 8 * MAX_IDS
"""How many minions are asked what they run; in portions, one after the other."""
TOO_MANY = (
    "{0} minions without a return were not asked whether they still run it: at most "
    f"{MOST_ASKED} are asked at a time"
)
UNNAMED = (
    "{0} without a return cannot be asked whether they still run it, as Salt cannot name their ids "
    "in a list: {1}"
)
SHOWN = 10
USUAL = 50
"""How many jobs are listed if nobody says."""
DENIED = "shows its jobs to no other master (ha: commands: False)"
MAX_LISTED = 15 * 1024 * 1024  # bytes of jobs in one answer; a little less than peers take
LARGE = ["(left out: too large; salt-run jobs.list_job shows them on the master that published it)"]
"""In the place of the arguments of a job, such as the files that salt-cp sends."""


class Running(NamedTuple):
    """
    What minions say that they run: minion → job ids. ``unknown``: master → why its minions were not
    asked; ``asked``: the minions that every master asked; ``rest``: how many were too many.
    """

    jobs: dict[str, list[str]]
    unknown: dict[str, str]
    asked: frozenset[str]
    rest: int
    notes: list[str]


class PastJobs:
    def __init__(self, group: Group, jobs: Jobs, cache: JobCache) -> None:
        self._group, self._jobs, self._cache = group, jobs, cache
        self._reading = asyncio.Semaphore(1)

    def for_peers(self) -> dict[str, Handler]:
        async def listed(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            self._check()
            return await self._list(payload)

        async def looked_up(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            self._check()
            return await self._look_up(payload)

        return {"past_jobs": listed, "past_job": looked_up}

    def _check(self) -> None:
        if not self._jobs.here.takes_commands:
            raise HaError(DENIED)

    async def _list(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        search, limit = wire.field(payload, "search", str), whole_of(payload, "limit", USUAL, MOST)
        async with self._reading:
            rows = await asyncio.to_thread(self._cache.jobs, search, limit)
            return {"jobs": await asyncio.to_thread(fitting, rows)}

    async def _look_up(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        jid = check_jid(payload.get("jid"))
        async with self._reading:
            job, returned = await asyncio.to_thread(self._cache.job, jid)
        # A return whose value has no room keeps its code: it may have failed.
        values = {minion: each["return"] for minion, each in returned.items()}
        too_much = {"error": NO_ROOM + SHOWS.format(jid, self._group.name)}
        there = fitted(values, MAX_ANSWERS, too_much)
        fit = {minion: {**each, "return": there[minion]} for minion, each in returned.items()}
        # One that is for more minions than an answer takes was never published.
        (shown,) = fitting([job], MAX_LISTED - MAX_ANSWERS) if job else (None,)
        return {"job": shown, "returned": fit}

    async def jobs(self, payload: dict[str, Any]) -> dict[str, Any]:
        limit = whole_of(payload, "limit", USUAL, MOST)
        wanted = {"search": str(payload.get("search") or ""), "limit": limit}
        told, unknown = await self._group.ask("past_jobs", wanted, SLOW, self._list(wanted))
        rows, nonsense = merged({name: each.get("jobs") for name, each in told.items()})
        rows = rows[:limit]
        running = await self._running(i for row in rows for i in row["missing"])
        for row in rows:
            row["running"] = [i for i in row["missing"] if row["jid"] in running.jobs.get(i, ())]
            row["state"] = _state(row, running.asked)
        unknown = {**running.unknown, **unknown, **nonsense}
        return {
            "kind": "jobs",
            "jobs": rows,
            "unknown": unknown,
            "notes": running.notes,
            "retcode": 2 if unknown or running.rest else 0,
        }

    async def lookup(self, payload: dict[str, Any]) -> dict[str, Any]:
        jid = check_jid(payload.get("jid"))
        wanted = {"jid": jid}
        told, unknown = await self._group.ask("past_job", wanted, SLOW, self._look_up(wanted))
        job: dict[str, Any] | None = None
        published: list[str] = []
        minions: set[str] = set()
        returned: dict[str, Any] = {}
        arrived: dict[str, str] = {}
        for name in sorted(told):
            try:
                there, targeted, values = _told(told[name])
            except (KeyError, TypeError, AttributeError):
                unknown[name] = NONSENSE
                continue
            if there:
                published.append(name)
                job = job or there
                minions |= targeted
            for minion, value in values.items():
                returned.setdefault(minion, value)
                arrived.setdefault(minion, name)
        whom = _whom(job, minions) if job else set()
        missing = sorted((whom or set()) - returned.keys())
        running = await self._running(missing)
        runs = [i for i in missing if jid in running.jobs.get(i, ())]
        unknown = {**running.unknown, **unknown}
        failed = sorted(i for i, v in returned.items() if isinstance(v, dict) and v.get("retcode"))
        wrong = failed or missing or not (job or returned)
        unsure = unknown or whom is None or running.rest
        return {
            "kind": "lookup_jid",
            "jid": jid,
            "job": job,
            "published": published,
            "targeted": None if whom is None else len(whom | returned.keys()),
            "returned": {
                i: value.get("return", value) if isinstance(value, Mapping) else value
                for i, value in sorted(returned.items())
            },
            "arrived": arrived,
            "failed": failed,
            "missing": [i for i in missing if i not in runs],
            "running": runs,
            "unknown": unknown,
            "notes": running.notes,
            "retcode": 2 if unsure else int(bool(wrong)),
        }

    async def _running(self, ids: Iterable[str]) -> Running:
        """Ask *ids* on all masters what they run; the first of them if they are too many."""
        asked, unnamed, rest = list[str](), list[str](), 0
        for minion_id in dict.fromkeys(ids):
            if len(asked) == MOST_ASKED:
                rest += 1
            elif _can_be_named(minion_id):
                asked.append(minion_id)
            else:
                unnamed.append(minion_id)
        running: dict[str, list[str]] = {}
        unknown: dict[str, str] = {}
        masters = self._jobs.masters  # one that leaves meanwhile becomes unknown
        for portion in batches(asked, MAX_IDS):
            there = [name for name in masters if name not in unknown]
            spec = JobSpec(RUNNING, ids=tuple(portion))
            found, _ = await self._jobs.run(spec, FINDING, there, unreached=[*unknown])
            for answers in found.values():
                for minion, (_, jids) in answers.returned.items():
                    running.setdefault(minion, []).extend(jids if isinstance(jids, list) else ())
            unknown |= {name: each.error for name, each in found.items() if each.error}
        notes = [TOO_MANY.format(rest)] if rest else []
        if unnamed:
            listed = "; ".join([shown(each) for each in unnamed[:SHOWN]])
            more = f" and {len(unnamed) - SHOWN} more" if len(unnamed) > SHOWN else ""
            notes.append(UNNAMED.format(len(unnamed), listed + more))
        everywhere = frozenset[str]() if unknown else frozenset(asked)
        return Running(running, unknown, everywhere, rest, notes)


def _can_be_named(minion_id: str) -> bool:
    """False for an id with a comma, and for what a job cache has and was never an id."""
    try:
        JobSpec(RUNNING, ids=(minion_id,))
    except InvalidRecord:
        return False
    return True


def fitting(rows: list[dict[str, Any]], most: int = MAX_LISTED) -> list[dict[str, Any]]:
    """
    The jobs as *most* bytes take them: the largest arguments are left out.

    :raises HaError: they do not fit without any arguments.
    """
    sizes = [len(wire.pack({**row, "arguments": None})) for row in rows]
    if (size := sum(sizes)) > most:
        fewer = sum(total <= most for total in accumulate(sizes))
        raise HaError(
            f"the ids of the minions of {len(rows)} jobs have {size >> 20} MB, more than fits into "
            f"an answer; ask for fewer jobs: limit={fewer or 1}"
        )
    there = fitted({row["jid"]: row["arguments"] for row in rows}, most - size, LARGE)
    return [{**row, "arguments": there[row["jid"]]} for row in rows]


def merged(told: Mapping[str, Any]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """
    The jobs of all masters, newest first: each once, with the masters that know it, and the minions
    without a return on any master. And master → what is wrong with its answer.
    """
    rows: dict[str, dict[str, Any]] = {}
    unknown = {}
    for name in sorted(told):
        jobs = told[name] if isinstance(told[name], list) else [None]
        for each in jobs:
            try:
                _merge(rows, name, each)
            except (HaError, KeyError, TypeError):  # the others of that master are shown
                unknown[name] = NONSENSE
    return [_counted(row) for _, row in sorted(rows.items(), reverse=True)], unknown


def _merge(rows: dict[str, dict[str, Any]], master: str, job: Any) -> None:
    """:raises HaError, KeyError, TypeError: it is no job; then nothing was merged."""
    jid, told = check_jid(job["jid"]), _shown(job)
    minions, got = ({str(i) for i in job[key]} for key in ("minions", "returned"))
    row = rows.setdefault(jid, {**told, "masters": [], "minions": set(), "got": set()})
    if not row["target"]:  # only returns of it were there
        row |= told
    row["masters"].append(master)
    row["minions"] |= minions
    row["got"] |= got


def _counted(row: Mapping[str, Any]) -> dict[str, Any]:
    got, whom = row["got"], _whom(row, row["minions"])
    return {
        **{key: value for key, value in row.items() if key not in ("minions", "got")},
        "targeted": None if whom is None else len(whom | got),
        "returned": len(got),
        "missing": sorted((whom or set()) - got),
    }


def _state(row: Mapping[str, Any], asked: frozenset[str]) -> str:
    """:param asked: the minions that all masters asked whether they still run a job."""
    if row["running"]:
        return "running"
    if not asked.isdisjoint(row["missing"]):
        return "missing"
    return "unknown" if row["missing"] or row["targeted"] is None else "done"


def _whom(job: Mapping[str, Any], minions: set[str]) -> set[str] | None:
    """
    The minions that a job was for; None if neither its job cache keeps them (mysql and pgjsonb do
    not) nor its target names them, and of a question to whoever listened to its master.
    """
    if job["listening"]:
        return None
    if minions:
        return minions
    if job["target_type"] == "list":
        return {each.strip() for each in job["target"].split(",")}
    by_id = job["target_type"] == "glob" and not is_glob(job["target"])
    return {job["target"]} if by_id and job["target"] else None


def _told(answer: Mapping[str, Any]) -> tuple[dict[str, Any] | None, set[str], dict[str, Any]]:
    """How a master published a job (None: it did not), for which minions, and what came back."""
    job, returned = answer.get("job"), answer.get("returned") or {}
    minions = {str(i) for i in job["minions"]} if job else set()
    values = {str(minion): value for minion, value in returned.items()}
    return (_shown(job) if job else None), minions, values


def _shown(job: Mapping[str, Any]) -> dict[str, Any]:
    texts = ("jid", "function", "target", "target_type", "user")
    return {
        **{key: str(job[key]) for key in texts},
        "arguments": job.get("arguments"),
        "listening": job.get("listening") is True,  # an older release does not say
    }
