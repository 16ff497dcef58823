"""The messages between masters for ``ha.lint``, checked as if from a stranger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saltext_ha.common.errors import NO_SENSE, InvalidRecord
from saltext_ha.lint.check import Finding
from saltext_ha.lint.model import SEVERITIES, Member, Place
from saltext_ha.lint.rules.group import COMPARED

MAX_FINDINGS = 1000
MAX_TEXT = 2000
_TEXTS = ("code", "file", "option", "title", "detail", "why", "fix", "versions")
_LISTS = ("schedule", "reactor", "cluster_peers")


def to_wire(member: Member, findings: list[Finding], unknown: Mapping[str, str]) -> dict[str, Any]:
    """A master's own findings, and its facts for the rules that compare."""
    return {
        "version": list(member.version),
        "options": dict(member.options),
        "places": {name: [p.file, p.line] for name, p in member.places.items()},
        "fingerprint": member.fingerprint,
        "marks": dict(member.marks),
        "findings": findings[:MAX_FINDINGS],
        "unknown": dict(unknown),
    }


def from_wire(name: str, raw: Mapping[str, Any]) -> tuple[Member, list[Finding], dict[str, str]]:
    """
    The peer *name*, its findings, and what it could not look at.

    :raises InvalidRecord: it makes no sense.
    """
    try:
        member = Member(
            name,
            tuple(int(part) for part in raw["version"]),
            {option: _option(option, raw["options"].get(option)) for option in COMPARED},
            {str(option): Place(str(p[0]), int(p[1])) for option, p in raw["places"].items()},
            None if raw["fingerprint"] is None else str(raw["fingerprint"]),
            {str(file): str(mark) for file, mark in raw["marks"].items()},
        )
        findings = [_finding(name, finding) for finding in raw["findings"][:MAX_FINDINGS]]
        unknown = {
            str(what)[:MAX_TEXT]: str(why)[:MAX_TEXT] for what, why in raw["unknown"].items()
        }
    except NO_SENSE as exc:
        raise InvalidRecord(f"its answer makes no sense: {exc!r:.100}") from None
    return member, findings, unknown


def _option(option: str, value: Any) -> Any:
    if option in _LISTS:
        return [str(item) for item in value or ()]
    if option == "ha":
        ours: dict[str, Any] = {"masters": [str(url) for url in value["masters"]]}
        if "reacts_once" in value:  # older releases have none of these
            ours["reacts_once"] = bool(value["reacts_once"])
        if "trees" in value:
            ours["trees"] = {
                str(name)[:MAX_TEXT]: {
                    "live": str(tree["live"])[:MAX_TEXT],
                    "secret": bool(tree["secret"]),
                }
                for name, tree in value["trees"].items()
            }
        return ours
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return str(value)[:MAX_TEXT]


def _finding(name: str, raw: Mapping[str, Any]) -> Finding:
    if raw["severity"] not in SEVERITIES:
        raise ValueError("severity")
    texts = {key: str(raw[key])[:MAX_TEXT] for key in _TEXTS}
    return {**texts, "severity": raw["severity"], "on": name, "line": int(raw["line"])}
