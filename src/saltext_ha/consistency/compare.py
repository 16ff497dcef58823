"""
What differs between masters, given a snapshot of each. Pure: no I/O, no Salt.

A master that could not be asked is *unknown* in every section, and unknown is never "same".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from saltext_ha.consistency.rules import CLOCK_TOLERANCE, DRIFT, NOTE, RULES, Rule

SAME = "same"
DIFFER = "differ"
UNKNOWN = "unknown"
ABSENT = {"absent": True}

_MALFORMED = "its answer is not a snapshot; is another version of saltext-ha installed there?"
_SIGNED = (
    "fine while all minions verify the signing key (failover, verify_master_pubkey_sign); "
    "hot-hot minions need one pair everywhere"
)


def compare(
    snapshots: Mapping[str, Mapping[str, Any] | None],
    errors: Mapping[str, str],
    extra: Mapping[str, dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """
    Compare what the masters are.

    :param snapshots: by master, what :func:`saltext_ha.consistency.snapshot.take` returned there;
        None for a master that could not be asked.
    :param errors: by master, why it could not be asked.
    :param extra: sections computed elsewhere (``keys``), in the shape below; they come first.
    :returns: plain data::

        {"kind": "consistency", "status": "same" | "differ" | "unknown",
         "masters": ["m1", "m2"], "unknown": {"m3": "timed out"},
         "sections": {"access": {
             "status": "same" | "differ" | "unknown",
             "unknown": {"m3": "timed out"},
             "differences": [{"path": "external_auth:pam:alice",
                              "values": {"m1": [".*"], "m2": {"absent": True},
                                         "m3": {"unknown": "timed out"}},
                              "severity": "drift" | "note", "fix": "…"}]}}}

        In ``values``, ``{"secret": "#1"}`` stands for something not shown; the same number on two
        masters is the same secret. In the section ``running`` a value is ``{"file": …,
        "running": …}`` and only masters where these differ are named.
    """
    known: dict[str, Mapping[str, Any]] = {}
    unknown: dict[str, str] = {}
    for name in sorted(snapshots.keys() | errors.keys()):
        snapshot = snapshots.get(name)
        if snapshot is None:
            unknown[name] = errors.get(name) or "no answer"
        elif _wellformed(snapshot):
            known[name] = snapshot
        else:
            unknown[name] = _MALFORMED

    sections = dict(extra or {})
    for section in dict.fromkeys(rule.section for rule in RULES):
        rules = [rule for rule in RULES if rule.section == section]
        sections[section] = _section(rules, known, unknown)
    _forgive_signed_keys(sections["master_key"], known)
    sections["running"] = _running(known, unknown)
    sections["clock"] = _clock(known, unknown)
    return {
        "kind": "consistency",
        "status": _overall(sections, known),
        "masters": sorted([*known, *unknown]),
        "unknown": unknown,
        "sections": sections,
    }


def exit_code(result: Mapping[str, Any]) -> int:
    """
    0 when all is the same, 1 when something differs, 2 when something could not be asked.

    2 wins over 1: a check that is not complete must not pass for one that is, and what did
    differ is in the answer all the same.
    """
    sections = list(result["sections"].values())
    asked = result["status"] != UNKNOWN and not result.get("unknown")
    if not asked or any(s["status"] == UNKNOWN or s.get("unknown") for s in sections):
        return 2
    return 1 if any(section["status"] == DIFFER for section in sections) else 0


def section(differences: list[dict[str, Any]], unknown: Mapping[str, str]) -> dict[str, Any]:
    """A section of the result; its status follows from what is in it."""
    if any(difference.get("severity", DRIFT) == DRIFT for difference in differences):
        status = DIFFER
    else:
        status = UNKNOWN if unknown else SAME
    return {"status": status, "differences": differences, "unknown": dict(unknown)}


def _overall(sections: Mapping[str, Mapping[str, Any]], known: Mapping[str, Any]) -> str:
    statuses = {section["status"] for section in sections.values()}
    if DIFFER in statuses:
        return DIFFER
    return SAME if statuses == {SAME} and known else UNKNOWN


def _wellformed(snapshot: Any) -> bool:
    return (
        isinstance(snapshot, Mapping)
        and isinstance(snapshot.get("sections"), Mapping)
        and all(isinstance(options, Mapping) for options in snapshot["sections"].values())
        and isinstance(snapshot.get("running"), Mapping)
        and isinstance(snapshot.get("time"), (int, float))
    )


def _read(part: Any) -> tuple[Mapping[str, Any] | None, str]:
    """The leaves of an option, or None and why they are not known."""
    if isinstance(part, Mapping) and isinstance(part.get("leaves"), Mapping):
        return part["leaves"], ""
    if isinstance(part, Mapping) and "unknown" in part:
        return None, str(part["unknown"])
    return None, "not reported; is another version of saltext-ha installed there?"


def _section(
    rules: list[Rule], known: Mapping[str, Mapping[str, Any]], unreached: Mapping[str, str]
) -> dict[str, Any]:
    differences: list[dict[str, Any]] = []
    unknown = dict(unreached)
    for rule in rules:
        leaves: dict[str, Mapping[str, Any]] = {}
        silent = dict(unreached)
        for name, snapshot in known.items():
            found, why = _read(snapshot["sections"].get(rule.section, {}).get(rule.option))
            if found is None:
                silent[name] = why
                unknown.setdefault(name, f"{rule.option}: {why}")
            else:
                leaves[name] = found
        for path in sorted({path for found in leaves.values() for path in found}):
            values = {name: found.get(path, ABSENT) for name, found in leaves.items()}
            odd = _odd(values, rule)
            if odd:
                differences.append(_difference(rule, path, values, silent, odd))
    return section(differences, unknown)


def _odd(values: Mapping[str, Any], rule: Rule) -> list[str]:
    """The masters to look at: those in the minority, all of them when there is no majority."""
    if rule.expect is not None:
        return [name for name, value in values.items() if value != rule.expect]
    groups: dict[str, list[str]] = {}
    for name, value in values.items():
        groups.setdefault(_canonical(value), []).append(name)
    if len(groups) < 2:
        return []
    largest = max(groups.values(), key=len)
    if sum(len(group) == len(largest) for group in groups.values()) > 1:
        return list(values)
    return [name for name in values if name not in largest]


def _difference(
    rule: Rule, path: str, values: Mapping[str, Any], silent: Mapping[str, str], odd: list[str]
) -> dict[str, Any]:
    labels: dict[str, str] = {}
    shown = {name: _label(value, labels) for name, value in values.items()}
    shown.update({name: {"unknown": why} for name, why in silent.items()})
    tie = rule.expect is None and len(odd) == len(values)
    return {
        "path": path,
        "values": dict(sorted(shown.items())),
        "severity": rule.severity,
        "fix": rule.fix.format(option=rule.option, masters=_names(odd, "or" if tie else "and")),
    }


def _running(
    known: Mapping[str, Mapping[str, Any]], unreached: Mapping[str, str]
) -> dict[str, Any]:
    by_path: dict[str, dict[str, Any]] = {}
    unknown = dict(unreached)
    for name, snapshot in known.items():
        found, why = _read(snapshot["running"])
        if found is None:
            unknown[name] = why
            continue
        for path, pair in found.items():
            by_path.setdefault(path, {})[name] = pair
    differences = []
    for path, values in sorted(by_path.items()):
        labels: dict[str, str] = {}
        differences.append(
            {
                "path": path,
                "values": {name: _label(pair, labels) for name, pair in values.items()},
                "severity": DRIFT,
                "fix": f"restart salt-master on {_names(list(values), 'and')}",
            }
        )
    return section(differences, unknown)


def _clock(known: Mapping[str, Mapping[str, Any]], unknown: Mapping[str, str]) -> dict[str, Any]:
    times = {name: float(snapshot["time"]) for name, snapshot in known.items()}
    if not times or max(times.values()) - min(times.values()) <= CLOCK_TOLERANCE:
        return section([], unknown)
    first = min(times.values())
    values: dict[str, Any] = {name: f"+{round(t - first)} s" for name, t in times.items()}
    values.update({name: {"unknown": why} for name, why in unknown.items()})
    fix = "set the clocks by NTP; keys do not depend on them, tokens and certificates do"
    difference = {"path": "clock", "values": values, "severity": DRIFT, "fix": fix}
    return section([difference], unknown)


def _forgive_signed_keys(part: dict[str, Any], known: Mapping[str, Mapping[str, Any]]) -> None:
    """Masters may have keys of their own where one signing key vouches for all of them."""
    signers = set()
    for snapshot in known.values():
        leaves, _ = _read(snapshot["sections"].get("master_key", {}).get("sign_fingerprint"))
        signers.add(leaves.get("sign_fingerprint") if leaves else None)
    if len(signers) != 1 or None in signers:
        return
    for difference in part["differences"]:
        if difference["path"] == "fingerprint":
            difference.update(severity=NOTE, fix=_SIGNED)
    part.update(section(part["differences"], part["unknown"]))


def _label(value: Any, labels: dict[str, str]) -> Any:
    """*value* with its digests replaced by numbers, which tell nothing outside this answer."""
    if isinstance(value, Mapping):
        secret = value.get("secret")
        if isinstance(secret, str) and len(value) == 1:
            return {"secret": labels.setdefault(secret, f"#{len(labels) + 1}")}
        return {key: _label(item, labels) for key, item in value.items()}
    if isinstance(value, list):
        return [_label(item, labels) for item in value]
    return value


def _names(names: list[str], word: str) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} {word} {names[-1]}"


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
