"""Finds where the leaves of several masters differ. Pure: no I/O, no Salt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from saltext_ha.consistency.facts import Facts
from saltext_ha.consistency.rules import EqualityRule, How
from saltext_ha.consistency.values import ABSENT, as_set, canonical, labelled

Difference = dict[str, Any]
"""
``{"path": "external_auth:pam:alice", "values": {"m1": [".*"], "m2": {"absent": True}, "m3":
{"unknown": "timed out"}}, "severity": "drift" | "note", "fix": "…"}``
"""

OTHER_VERSION = "not reported; is another version of saltext-ha installed there?"


def by_rules(rules: Mapping[str, EqualityRule], parts: Mapping[str, Facts]) -> list[Difference]:
    """
    All differences, in the order of the paths' options in *rules*.

    :param rules: by option, the first word of each path.
    :param parts: by master.
    """
    # Masters that are the same share one object of facts.
    if len({id(facts.leaves) for facts in parts.values()}) < 2 and not any(
        rule.expect for rule in rules.values()
    ):
        return []
    place = {option: number for number, option in enumerate(rules)}
    paths = {path for facts in parts.values() for path in facts.leaves}
    found = []
    for path in sorted(paths, key=lambda path: (place.get(option_of(path), len(place)), path)):
        rule = rules.get(option_of(path))
        if rule is None:
            continue  # another version of this code compares more options
        values, silent = _values(rule, path, parts)
        odd = [] if _alike(values, rule.expect) else odd_ones(values, rule.expect)
        if odd:
            found.append(difference(rule, path, values, silent, odd))
    return found


def unknown_of(rules: Iterable[EqualityRule], parts: Mapping[str, Facts]) -> dict[str, str]:
    """Master → the first thing that is unknown about it, and why."""
    unknown: dict[str, str] = {}
    for name, facts in parts.items():
        for subject, why in facts.unknown.items():  # "": everything
            unknown.setdefault(name, why if subject in ("", "…") else f"{subject}: {why}")
        for rule in rules if "" not in facts.unknown else ():
            if rule.option not in facts.covers:
                unknown.setdefault(name, f"{rule.option}: {OTHER_VERSION}")
    return unknown


def option_of(path: str) -> str:
    """The option that a path begins with."""
    return path.split(":", 1)[0]


def difference(
    rule: EqualityRule,
    path: str,
    values: Mapping[str, Any],
    silent: Mapping[str, str],
    odd: list[str],
) -> Difference:
    """One difference, ready to be shown; *odd* are the masters to look at."""
    labels: dict[str, str] = {}
    shown = {name: labelled(value, labels) for name, value in values.items()}
    shown.update({name: {"unknown": why} for name, why in silent.items()})
    tie = rule.expect is None and len(odd) == len(values)
    return {
        "path": path,
        "values": dict(sorted(shown.items())),
        "severity": rule.severity,
        "fix": rule.fix.format(
            option=rule.option, path=path, masters=names(odd, "or" if tie else "and")
        ),
    }


def odd_ones(values: Mapping[str, Any], expect: Any = None) -> list[str]:
    """The masters to look at: those in the minority, all of them when there is no majority."""
    if expect is not None:
        return [name for name, value in values.items() if value != expect]
    groups: dict[Any, list[str]] = {}
    for name, value in values.items():
        same = value if isinstance(value, bytes) else canonical(value)
        groups.setdefault(same, []).append(name)
    if len(groups) < 2:
        return []
    largest = max(groups.values(), key=len)
    if sum(len(group) == len(largest) for group in groups.values()) > 1:
        return list(values)
    return [name for name in values if name not in largest]


def names(masters: Iterable[str], word: str = "and") -> str:
    """``m1, m2 and m3``."""
    *most, last = masters
    return f"{', '.join(most)} {word} {last}" if most else last


def _alike(values: Mapping[str, Any], expect: Any) -> bool:
    """Whether all are equal, by a cheap test; lists with mappings may need a second look."""
    several = iter(values.values())
    first = next(several, None) if expect is None else expect
    return all(value == first for value in several)


def _values(
    rule: EqualityRule, path: str, parts: Mapping[str, Facts]
) -> tuple[dict[str, Any], dict[str, str]]:
    values: dict[str, Any] = {}
    silent: dict[str, str] = {}
    for name, facts in parts.items():
        if path in facts.unknown:
            silent[name] = facts.unknown[path]
        elif rule.option in facts.unknown:
            silent[name] = facts.unknown[rule.option]
        elif "" in facts.unknown:
            silent[name] = facts.unknown[""]
        elif rule.option not in facts.covers:
            silent[name] = OTHER_VERSION
        elif path not in facts.leaves and (why := _unread_above(path, facts.unknown)):
            silent[name] = why
        else:
            values[name] = meant(rule, path, facts.leaves.get(path, ABSENT))
    return values, silent


def meant(rule: EqualityRule, path: str, value: Any) -> Any:
    """What *value*, which a master has at *path*, means to Salt."""
    if value == ABSENT:
        value = rule.unset.get(path, ABSENT)
    # gitfs, and a roster, split such a text.
    if rule.listed and isinstance(value, str) and "," not in value:
        value = [value] if value else []
    # Another release may tell it in the order of the file.
    return as_set(value) if rule.how is How.SET and isinstance(value, list) else value


def _unread_above(path: str, unknown: Mapping[str, str]) -> str:
    """Why a folder that *path* lies in could not be read: what is in it is not absent."""
    while "/" in path:
        path = path.rpartition("/")[0]
        if path in unknown:
            return unknown[path]
    return ""
