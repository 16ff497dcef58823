"""``ha.reachability``: which minion hears which master."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from saltext_ha.commands.arguments import glob_of, timeout_of
from saltext_ha.commands.minions.minions import BoundMinions
from saltext_ha.minions.job_answers import Answers, Stray
from saltext_ha.minions.job_specs import PING, WHERE, JobSpec
from saltext_ha.minions.jobs import Jobs

OK = "ok"
DEAF = "deaf"
SILENT = "silent"
UNKNOWN = "unknown"
ASTRAY = "astray"
TIMEOUT = 5.0

HEARS, NOT, NO_KEY, NOT_ASKED = "hears", "silent", "no key", "unknown"
"""What may stand in a cell of the matrix."""

ASTRAY_NOTE = (
    "asked by {0.published}, it answered {0.arrived}: its masters have one address, or a port map "
    "mixes them; or it was just on its way (ask again)"
)


async def reachability(jobs: Jobs, bound: BoundMinions, payload: dict[str, Any]) -> dict[str, Any]:
    """Has every master ping the minions at once, and shows who answered whom."""
    glob = glob_of(payload)
    seconds = timeout_of(payload, TIMEOUT)
    answers, strays = await jobs.run(JobSpec(PING, glob=glob), seconds)
    targeted = {minion_id for each in answers.values() for minion_id in each.targeted}
    ids = sorted({*await bound.accepted(glob), *targeted})
    kinds = await _kinds(bound, glob, ids)
    asked = {name for name, each in answers.items() if not each.error}
    if any(i not in kinds and 0 < len(heard_by(i, answers)) < len(asked) for i in ids):
        # Is it a failover minion, or does it not hear? Minions with saltext-ha can say.
        await jobs.run(JobSpec(WHERE, glob=glob), seconds)
        kinds = await _kinds(bound, glob, ids)
    found = await asyncio.to_thread(answer, ids, answers, strays, kinds, seconds)
    if glob != "*" and not ids:  # a caller that names minions expects some
        found["retcode"] = found["retcode"] or 1
    return found


async def _kinds(bound: BoundMinions, glob: str, ids: Iterable[str]) -> dict[str, tuple[str, int]]:
    """Minion → its type and number of masters, if any master knows them."""
    known, _ = await bound.everywhere({"glob": glob}, frozenset(ids))
    return {
        minion_id: (sight.type, sight.of)
        for each in known.values()
        for minion_id, sight in each.sights.items()
        if sight.type
    }


def answer(
    ids: Iterable[str],
    answers: Mapping[str, Answers],
    strays: Iterable[Stray],
    kinds: Mapping[str, tuple[str, int]],
    seconds: float,
) -> dict[str, Any]:
    """
    The matrix.

    :param kinds: minion id → its type and the number of its masters, if known.
    :param strays: answers that came to another master than the one that asked. A minion in *ids*
        with such an answer is in state ``astray``.
    :return: ``masters``, ``minions`` (``id``, ``state``, ``type``, ``note``, ``answers``: master →
        ``state`` and ``seconds``), ``strays``, ``counts``, ``unknown`` (masters that were not
        asked, and why), ``partial``, ``retcode``.
    """
    unknown = {name: each.error for name, each in answers.items() if each.error}
    rows = [_row(i, answers, *kinds.get(i, ("", 0))) for i in ids]
    by_id = {row["id"]: row for row in rows}
    lost = []
    for each in strays:
        # A minion can return a job under any id.
        astray = [i for i in each.ids if i in by_id]
        for minion_id in astray:
            by_id[minion_id].update(state=ASTRAY, note=ASTRAY_NOTE.format(each))
        if astray:
            lost.append(
                {
                    "published": each.published,
                    "arrived": each.arrived,
                    "count": len(astray),
                    "ids": astray[:100],
                }
            )
    states = {row["state"] for row in rows}
    return {
        "kind": "reachability",
        "masters": sorted(answers),
        "minions": rows,
        "strays": lost,
        "counts": dict(Counter(row["state"] for row in rows)),
        "timeout": seconds,
        "unknown": unknown,
        "partial": bool(unknown),
        "retcode": 2 if unknown or UNKNOWN in states else 1 if states - {OK} else 0,
    }


def _row(minion_id: str, answers: Mapping[str, Answers], kind: str, of: int) -> dict[str, Any]:
    cells = {name: _cell(minion_id, each) for name, each in sorted(answers.items())}
    state, note = judge({name: cell["state"] for name, cell in cells.items()}, kind, of)
    return {"id": minion_id, "state": state, "type": kind, "answers": cells, "note": note}


def _cell(minion_id: str, told: Answers) -> dict[str, Any]:
    if told.error:
        return {"state": NOT_ASKED, "seconds": None}
    if minion_id in told.returned:
        return {"state": HEARS, "seconds": told.returned[minion_id][0]}
    return {"state": NOT if minion_id in told.targeted else NO_KEY, "seconds": None}


def judge(cells: Mapping[str, str], kind: str, of: int) -> tuple[str, str]:
    """
    Whether a minion hears the masters that it should, judged by its row of the matrix.

    :return: the state (ok, deaf, silent, unknown) and a note.
    """
    hears = _who(cells, HEARS)
    deaf, asked = _who(cells, NOT, NO_KEY), [n for n in cells if cells[n] != NOT_ASKED]
    if not hears:
        if len(asked) < len(cells):
            return UNKNOWN, f"not heard by {_names(asked)}" if asked else "nobody could ask it"
        return SILENT, "hears no master"
    if len(hears) == len(asked):
        return OK, ""
    if kind == "list":
        # It may be configured with only some masters of the group.
        if len(hears) >= min(of or len(cells), len(cells)):
            return OK, ""
        keyless = _who(cells, NO_KEY)
        why = f"; no accepted key on {_names(keyless)}" if keyless else ""
        return DEAF, f"is to hear several masters, and is deaf to {_names(deaf)}{why}"
    if kind:
        return OK, ""  # one master at a time
    return UNKNOWN, (
        f"hears {_names(hears)}, not {_names(deaf)}: right for failover, wrong for hot-hot; it "
        "does not say which it is (no saltext-ha there)"
    )


def heard_by(minion_id: str, answers: Mapping[str, Answers]) -> list[str]:
    """The masters that this minion has answered."""
    return sorted(name for name, each in answers.items() if minion_id in each.returned)


def _who(cells: Mapping[str, str], *states: str) -> list[str]:
    return sorted(name for name, state in cells.items() if state in states)


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
