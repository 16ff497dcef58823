"""Removes from an answer what concerned only masters that have left the group."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from saltext_ha.consistency import clock, comparison, master_key, result, running


def without(answer: Mapping[str, Any], gone: Collection[str]) -> result.Answer:
    """*answer* (see :func:`.result.answer`) without what concerns only *gone* masters."""
    sections = {name: _section(name, section, gone) for name, section in answer["sections"].items()}
    masters = [name for name in answer["masters"] if name not in gone]
    return result.answer(sections, masters, _others(answer["unknown"], gone))


def _section(name: str, section: Mapping[str, Any], gone: Collection[str]) -> result.Answer:
    found = []
    for difference in section["differences"]:
        values = _others(difference["values"], gone)
        if _differ(name, difference, values):
            found.append({**difference, "values": values})
    left = result.of_differences(name, found, _others(section.get("unknown") or {}, gone))
    if section.get("left_out"):
        left["status"] = section["status"]  # which masters those concern is not remembered
    return {**section, **left}


def _differ(name: str, difference: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    known = {m: v for m, v in values.items() if not (isinstance(v, Mapping) and "unknown" in v)}
    if name == running.SECTION.name:
        return bool(known)  # each of them differs from its own files
    if name == clock.NAME:
        return clock.apart(
            [clock.Offset(value["offset"], value["error"]) for value in known.values()]
        )
    if name == "keys" and difference["path"] in ("held", "denied"):
        return any(known.values())
    rule = master_key.RULES.get(difference["path"]) if name == master_key.SECTION.name else None
    return bool(comparison.odd_ones(known, rule.expect if rule else None))


def _others(by_master: Mapping[str, Any], gone: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in by_master.items() if name not in gone}
