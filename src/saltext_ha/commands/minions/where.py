"""``ha.where``: which masters reach each minion; pings minions if that is not certain."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from saltext_ha.commands.arguments import glob_of, is_glob, timeout_of
from saltext_ha.commands.minions.minions import PAGE, BoundMinions, accepted_of, sights_of
from saltext_ha.common.batches import batches
from saltext_ha.common.errors import InvalidRecord
from saltext_ha.minions.job_specs import MAX_IDS, PING, JobSpec
from saltext_ha.minions.jobs import Jobs
from saltext_ha.minions.locator import reached_by
from saltext_ha.minions.presence import Sight
from saltext_ha.reconciler.core import Core
from saltext_ha.sync.group import MEANWHILE

TIMEOUT = 2.0
"""Seconds that a minion has to answer a ping, if no master is sure that it listens there."""
PINGING = 20.0
"""Seconds, beside twice those of one ping, in which all pings must end."""
SIDE_BY_SIDE = 8  # batches that are pinged
MOST_LISTED = 100_000


class Where:
    """
    On which master a job must be published so that a minion receives it.

    For nearly all minions the masters' evidence says so. The others are pinged by all masters at
    once, and then every master knows which minion answers where.
    """

    def __init__(self, core: Core, jobs: Jobs, bound: BoundMinions) -> None:
        self._core, self._jobs, self._bound = core, jobs, bound

    async def where(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        seconds = timeout_of(payload, TIMEOUT)
        if payload.get("ids") is None:
            glob = glob_of(payload)
            found = await self._bound.accepted(glob)
            question: dict[str, Any] = {"glob": glob}
            named = [] if is_glob(glob) else [glob]
            nobody = glob != "*" and not found
        else:
            found = await self._accepted_of(payload["ids"])
            named, nobody = payload["ids"], False
            question = {"ids": found} if len(found) <= PAGE else {"glob": "*"}
        live = bool(payload.get("live"))
        minions, silent, unknown = await self.of(found, question, seconds, live)
        masters = self._jobs.masters  # also those that could not be asked, which reach none
        absent = sorted({*named} - minions.keys())
        wrong = silent or absent or nobody or [] in minions.values()
        return {
            "kind": "where",
            "self": self._jobs.own,
            "masters": masters,
            "count": len(minions),
            "minions": {i: by for i, by in minions.items() if by != masters or i in silent},
            "ids": sorted(minions) if payload.get("all") else [],
            "silent": silent,
            "absent": absent,
            "unknown": unknown,
            "retcode": 2 if unknown else int(bool(wrong)),
        }

    async def of(
        self, ids: Collection[str], question: Mapping[str, Any], seconds: float, live: bool
    ) -> tuple[dict[str, list[str]], list[str], dict[str, str]]:
        """
        Where *ids* are.

        :return: each id → the masters that reach it, sorted; the ids that answer no ping and so
            count where they were heard last; master → why it could not be asked.

        :param question: the part of their evidence that the masters are asked for, as
            :meth:`.BoundMinions.everywhere` takes it.
        :param live: ping all of *ids*.
        """
        known, unknown = await self._bound.everywhere(question, frozenset(ids))
        told = {i: sights_of(i, known) for i in ids}
        reached = {i: reached_by(sights, list(known)) for i, sights in told.items()}
        asking = [i for i, by in reached.items() if (live or by is None) and "," not in i]
        answered = await self._pinged(asking, seconds, list(known), unknown)
        came = [name for name in self._jobs.masters if name not in known]
        unknown.update((name, MEANWHILE) for name in came if name not in unknown)
        silent = []
        for minion_id in ids:
            by = answered.get(minion_id) or reached[minion_id]
            if live and answered.get(minion_id) == []:
                by = []
            elif by is None:
                # It does not answer, or not in time: take the master that heard it last.
                by = last_heard(told[minion_id])
                silent += [minion_id] if by else []
            reached[minion_id] = by
        found = {i: sorted(by or ()) for i, by in sorted(reached.items())}
        return found, sorted(silent), unknown

    async def _pinged(
        self,
        ids: Collection[str],
        seconds: float,
        masters: Collection[str],
        unknown: dict[str, str],
    ) -> dict[str, list[str]]:
        """
        Pinged minion → those of *masters* that it answered. Masters that could not be asked are
        added to *unknown*, and not asked again.
        """
        found: dict[str, list[str]] = {}
        turns = asyncio.Semaphore(SIDE_BY_SIDE)

        async def ping(batch: list[str]) -> None:
            async with turns:
                asked = [name for name in masters if name not in unknown]
                spec = JobSpec(PING, ids=tuple(batch))
                answers, _ = await self._jobs.run(spec, seconds, asked, unreached=list(unknown))
            found.update((minion_id, []) for minion_id in batch)
            for name, each in answers.items():
                if each.error:
                    unknown[name] = each.error
                for minion_id in each.returned:
                    found.setdefault(minion_id, []).append(name)

        pings = [asyncio.ensure_future(ping(batch)) for batch in batches(sorted(ids), MAX_IDS)]
        if not pings:
            return found
        try:
            done, _ = await asyncio.wait(pings, timeout=2 * seconds + PINGING)
        finally:
            for each in pings:
                each.cancel()
            await asyncio.gather(*pings, return_exceptions=True)
        for each in done:
            each.result()
        return found

    async def _accepted_of(self, ids: Any) -> list[str]:
        listed = isinstance(ids, list) and all(isinstance(each, str) for each in ids)
        if not listed or len(ids) > MOST_LISTED:
            raise InvalidRecord(f"takes a list of at most {MOST_LISTED} minion ids")
        core = self._core
        found: list[str] = []
        for some in batches(sorted(set(ids))):  # others also wait for the replica
            found += await core.run(accepted_of, core.replica, some)
        return found


def last_heard(sights: Mapping[str, Sight]) -> list[str]:
    """The master that heard the minion last."""
    ages = [
        (age, name)
        for name, each in sights.items()
        for age in (each.sure, each.likely)
        if age is not None
    ]
    return [min(ages)[1]] if ages else []
