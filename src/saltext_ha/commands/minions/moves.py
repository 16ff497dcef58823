"""Moves minions, batch after batch, and sees where they arrive."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from saltext_ha.commands.minions.drained import DrainedMasters
from saltext_ha.commands.minions.minions import BoundMinions
from saltext_ha.common.batches import batches
from saltext_ha.minions.job_specs import MOVE, JobSpec
from saltext_ha.minions.jobs import Jobs
from saltext_ha.minions.move_planner import RebalanceStep

log = logging.getLogger(__name__)

ANSWERING = 15.0  # seconds for a minion to answer; first it asks whether its other masters answer
POLL = 0.5
FEW = 10
"""A batch does not wait for silent minions if there is at most one in so many; the end does."""
LOST = "left its master, and was heard nowhere"
Leaving = dict[str, tuple[dict[str, Any], float]]
"""Minion → its row, and when it was asked, by the clock of the event loop."""


class Moves:
    """:param drained: which masters get no minions from now on."""

    def __init__(self, jobs: Jobs, bound: BoundMinions, drained: DrainedMasters) -> None:
        self._jobs, self._bound, self._drained = jobs, bound, drained

    async def carry_out(
        self, steps: list[RebalanceStep], batch: int, seconds: float, test: bool
    ) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        silent: Leaving = {}
        deaf = set[str]()
        if steps and not test:
            log.info("ha minions: moving count=%d batch=%d", len(steps), batch)
        for part in batches(steps, batch):
            # They were planned minutes ago.
            targets = {name for s in part for name in (s.target, *dict(s.others))}
            shut = set() if test else await self._drained.among(targets)
            ways = {step.minion: step.avoiding(shut | deaf) for step in part}
            rows += [
                _row(step, None, _closed(step.target, shut), test)
                for step in part
                if ways[step.minion] is None
            ]
            going = [way for way in ways.values() if way]
            moved = await self._move(going, seconds, test, silent)
            deaf |= _deaf(moved)
            rows += moved
        if not test:
            await self._await_arrival(silent, seconds)
        return rows

    async def _move(
        self, steps: list[RebalanceStep], seconds: float, test: bool, silent: Leaving | None = None
    ) -> list[dict[str, Any]]:
        """
        Have one batch move, and wait until its minions are heard where they went. Those that say no
        are asked to go to the next master that they may go to.

        :param silent: gets those that do not answer, if they are few, instead of waiting for them.
        """
        told: dict[str, Any] = {}
        problems: dict[str, str] = {}
        # The first minion may have arrived before the last one has answered.
        began = asyncio.get_running_loop().time()

        async def ask(source: str, entry: str) -> None:
            ids = tuple(s.minion for s in steps if (s.source, s.entry) == (source, entry))
            spec = JobSpec(MOVE, ids=ids, to=entry, test=test)
            answers, _ = await self._jobs.run(spec, ANSWERING, [source])
            problems.update((i, answers[source].error) for i in ids if answers[source].error)
            told.update((i, value) for i, (_, value) in answers[source].returned.items())

        await asyncio.gather(*(ask(*each) for each in {(s.source, s.entry) for s in steps}))
        rows = [
            _row(step, told.get(step.minion), problems.get(step.minion), test) for step in steps
        ]
        said = {i: each.get("result") for i, each in told.items() if isinstance(each, Mapping)}
        # A minion that has not answered may be on its way all the same.
        late = {step.minion for step in steps} - told.keys() - problems.keys()
        leaving = {i: (row, began) for row in rows if said.get(i := row["id"]) is True or i in late}
        if silent is not None and len(late) * FEW <= len(steps):
            silent.update((i, leaving.pop(i)) for i in late)
        if not test:
            await self._await_arrival(leaving, seconds)
        again = [n for s in steps if said.get(s.minion) is False and (n := s.instead())]
        later = {row["id"]: row for row in await self._move(again, seconds, test)} if again else {}
        return [_joined(row, later.get(row["id"])) for row in rows]

    async def _await_arrival(self, leaving: Leaving, seconds: float) -> None:
        """
        Wait, at most *seconds*, until another master surely heard each minion after it was asked:
        those that said that they move, and those that said nothing.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        missing = dict(leaving)
        while missing and loop.time() < end:
            await asyncio.sleep(POLL)
            # Ages are measured later than this; the answer with them may take seconds.
            now = loop.time()
            known, _ = await self._bound.everywhere({"ids": sorted(missing)}, missing)
            for minion_id, (row, began) in list(missing.items()):
                ages = {
                    name: each.sights[minion_id].sure
                    for name, each in known.items()
                    if name != row["from"] and minion_id in each.sights
                }
                heard = [n for n, age in ages.items() if age is not None and age < now - began]
                if heard:
                    row.update(moved=True, to=heard[0], note="")
                    del missing[minion_id]
        for row, _ in missing.values():
            row["note"] = row["note"] or (
                f"{LOST} within {seconds:g} s; ask by salt-run ha.minions live=True"
            )


def _deaf(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    """The masters that heard none of those of a batch that went there: two or more were lost."""
    lost = Counter(row["to"] for row in rows if LOST in row["note"])
    heard = {row["to"] for row in rows if row["moved"]}
    return {name for name, count in lost.items() if count > 1} - heard


def _closed(target: str, shut: Collection[str]) -> str:
    """Why nobody goes to *target* any more."""
    if target in shut:
        return f"{target} is drained now"
    return f"not asked: {target} has heard none of a batch that went there"


def _joined(refused: dict[str, Any], later: dict[str, Any] | None) -> dict[str, Any]:
    """The row of a minion that was refused by one master, and then asked to go to another."""
    if later is None or later["moved"] or later["planned"]:
        return later or refused
    notes = dict.fromkeys(f"{row['to']}: {row['note']}" for row in (refused, later))
    return later | {"note": "; ".join(notes)}


def _row(step: RebalanceStep, answer: Any, problem: str | None, test: bool) -> dict[str, Any]:
    row = {
        "id": step.minion,
        "from": step.source,
        "to": step.target,
        "moved": False,
        "planned": False,
        "note": "",
    }
    if problem:
        return row | {"note": problem}
    if not isinstance(answer, Mapping):
        return row | {"note": "did not answer"}
    said = str(answer.get("comment") or answer.get("error") or "")
    if test:
        # None: it could; False: it says why not.
        able = "result" in answer and answer["result"] is None
        return row | {"planned": able, "note": "" if able else said}
    return row | {"note": "" if answer.get("result") is True else said}
