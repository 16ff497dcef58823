"""The answer of ``ha.check_consistency``, made of all sections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from saltext_ha.config.consistency import ConsistencySettings
from saltext_ha.consistency.comparison import Difference
from saltext_ha.consistency.facts import Facts
from saltext_ha.consistency.rules import DRIFT
from saltext_ha.consistency.section import Section

SAME = "same"
DIFFER = "differ"
UNKNOWN = "unknown"
#: Differences of one section in an answer; ``left_out`` says how many more there are.
LISTED = 1000

Answer = dict[str, Any]


def answer(
    sections: Mapping[str, Answer], masters: Iterable[str], unknown: Mapping[str, str]
) -> Answer:
    """
    The whole answer; docs/consistency.md describes its JSON.

    :param masters: all of the group.
    :param unknown: those that could not be asked, and why.
    """
    statuses = {section["status"] for section in sections.values()}
    if DIFFER in statuses:
        status = DIFFER
    else:
        status = SAME if statuses == {SAME} and not unknown else UNKNOWN
    return {
        "kind": "consistency",
        "status": status,
        "masters": sorted(masters),
        "unknown": dict(unknown),
        "sections": dict(sections),
    }


def of_section(
    section: Section,
    parts: Mapping[str, Facts],
    unreached: Mapping[str, str],
    settings: ConsistencySettings | None = None,
) -> Answer:
    """
    One section of the answer.

    :param parts: the facts of every master that answered.
    :param unreached: why the others did not.
    """
    parts = dict(sorted(parts.items()))
    found = section.compare(parts)
    for difference in found if unreached else ():
        others = {name: {"unknown": why} for name, why in unreached.items()}
        # If each master is compared with itself, the others do not matter.
        if section.name != "running":
            difference["values"] = dict(sorted({**difference["values"], **others}.items()))
    unknown = {**section.unknown(parts), **unreached}
    amount = section.size(parts) if section.size else 0
    return of_differences(section.name, found, unknown, settings, amount)


def of_differences(
    name: str,
    found: list[Difference],
    unknown: Mapping[str, str],
    settings: ConsistencySettings | None = None,
    amount: int = 0,
) -> Answer:
    """
    The section *name* with the differences *found*; its status follows from them.

    :param amount: how many things were compared; 0: not shown.
    """
    kept = [d for d in found if not settings or not settings.ignores(name, str(d["path"]))]
    drifts = _drifts(kept)
    status = DIFFER if drifts else UNKNOWN if unknown else SAME
    made: Answer = {"status": status, "differences": kept[:LISTED], "unknown": dict(unknown)}
    if amount:
        made["counts"] = {"differ": drifts, "of": amount}
    if len(kept) < len(found):
        made["ignored"] = len(found) - len(kept)
    if len(kept) > LISTED:
        made["left_out"] = len(kept) - LISTED
    return made


def exit_code(result: Mapping[str, Any]) -> int:
    """
    0 if all is the same, 1 if something differs, 2 if something could not be asked.

    2 wins over 1: an incomplete check must not look complete, and the differences are in the answer
    anyway.
    """
    sections = list(result["sections"].values())
    asked = result["status"] != UNKNOWN and not result.get("unknown")
    if not asked or any(s["status"] == UNKNOWN or s.get("unknown") for s in sections):
        return 2
    return 1 if any(section["status"] == DIFFER for section in sections) else 0


def _drifts(found: list[Difference]) -> int:
    return sum(difference.get("severity", DRIFT) == DRIFT for difference in found)
