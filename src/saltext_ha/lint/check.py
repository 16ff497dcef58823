"""The rules applied to facts: findings, and the answer of ``ha.lint`` with its exit code."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from saltext_ha.common.errors import HaError
from saltext_ha.lint.model import (
    ERROR,
    FILES,
    GROUP,
    INFO,
    MASTER,
    MINION,
    SEVERITIES,
    Hit,
    HostFacts,
    Member,
    Place,
    Rule,
)
from saltext_ha.lint.rules import CODES, RULES

Finding = dict[str, Any]
#: The rule about files that Salt cannot read: if it hits, all other rules know less.
UNREADABLE = "HA001"


@dataclass(frozen=True)
class Choice:
    """Which rules are applied: all except ``ignore``; with ``only``, just these of them."""

    only: frozenset[str] = frozenset()
    ignore: frozenset[str] = frozenset()

    def takes(self, code: str) -> bool:
        """Whether findings of that rule are wanted."""
        return code not in self.ignore and (not self.only or code in self.only)


def codes(value: Any, where: str) -> frozenset[str]:
    """
    The codes in ``HA101,HA102`` or in a list.

    :raises HaError: there is no such rule.
    """
    parts = re.split(r"[,\s]+", value) if isinstance(value, str) else value or ()
    if not isinstance(parts, (list, tuple, set, frozenset)):
        raise HaError(f"{where}: {value!r}: takes codes of rules, such as HA101")
    found = {str(part).upper() for part in parts if part}
    if unknown := sorted(found - CODES):
        raise HaError(f"{where}: there is no rule {', '.join(unknown)}; see docs/lint.md")
    return frozenset(found)


def asked(value: Any, role: str) -> frozenset[str]:
    """
    The codes of ``only=``, for the files of a *role*.

    :raises HaError: there is no such rule, or it is about the other role: it would find nothing,
        and the answer would look clean.
    """
    found = codes(value, "only")
    other, command = (MINION, "salt MINION") if role == MASTER else (MASTER, "salt-run")
    about = {MINION} if other == MINION else {MASTER, GROUP}
    if misplaced := sorted(
        rule.code for rule in RULES if rule.code in found and rule.about in about
    ):
        listed = ", ".join(misplaced)
        raise HaError(f"only: {listed}: about {other}s; ask  {command} ha.lint only={misplaced[0]}")
    return found


def configured(options: Mapping[str, Any]) -> frozenset[str]:
    """
    The codes of ``ha: lint: ignore:``.

    :raises HaError: it is no list of codes.
    """
    ha = options.get("ha")
    lint = ha.get("lint") if isinstance(ha, Mapping) else None
    if lint is None:
        return frozenset()
    if not isinstance(lint, Mapping) or set(lint) - {"ignore"}:
        raise HaError("ha: lint: takes the key ignore, a list of codes such as HA101")
    return codes(lint.get("ignore"), "ha: lint: ignore")


def inspect(
    name: str, facts: HostFacts, unknown: MutableMapping[str, str] | None = None
) -> list[Finding]:
    """
    The findings on one master or minion called *name*, by itself.

    :param unknown: gets the code of each rule that fails, and why. Without it, a rule that fails
        raises what it raises.
    """
    findings = []
    places = facts.places
    for rule in RULES:
        if rule.about in (FILES, facts.role) and rule.holds_on(facts.version):
            for hit in _hits(rule, facts, unknown):
                place = hit.place or places.get(hit.option) or places.get(hit.beside)
                findings.append(_finding(rule, hit, name, place))
    return findings


def compare(
    members: Sequence[Member], unknown: MutableMapping[str, str] | None = None
) -> list[Finding]:
    """The findings on masters compared with each other; *unknown* as for :func:`inspect`."""
    if len(members) < 2:
        return []
    by_name = {member.name: member for member in members}
    findings = []
    for rule in RULES:
        if rule.about == GROUP:
            for hit in _hits(rule, members, unknown):
                member = by_name[hit.master]
                if rule.holds_on(member.version):
                    findings.append(_finding(rule, hit, hit.master, member.places.get(hit.option)))
    return findings


def _hits(rule: Rule, seen: Any, unknown: MutableMapping[str, str] | None) -> list[Hit]:
    """The hits of *rule*; none if it fails, which *unknown* then says."""
    try:
        return list(rule.check(seen))
    except Exception as exc:
        if unknown is None:
            raise
        # Without the exception's text: it may quote a value of the configuration.
        last = traceback.extract_tb(exc.__traceback__)[-1]
        where = f"{type(exc).__name__} in {PurePath(last.filename).name}:{last.lineno}"
        unknown[rule.code] = f"this rule failed ({where}); please report it"
        return []


def _finding(rule: Rule, hit: Hit, name: str, place: Place | None) -> Finding:
    return {
        "code": rule.code,
        "severity": rule.severity,
        "on": name,
        "file": place.file if place else "",
        "line": place.line_of(hit.item) if place else 0,
        "option": hit.option,
        "title": rule.title,
        "detail": hit.detail,
        "why": rule.why,
        "fix": rule.fix,
        "versions": rule.versions,
    }


def answer(
    findings: Iterable[Finding], choice: Choice, asked: Sequence[str], unknown: Mapping[str, str]
) -> dict[str, Any]:
    """
    The answer of ``ha.lint``.

    :param asked: the masters, or the minion, that were looked at.
    :param unknown: master, file or rule that could not be looked at → why.
    """
    found = list(findings)
    # An unreadable file may set anything, so "no findings" would be a guess.
    unread = {f"{f['on']}: {f['file']}": f["detail"] for f in found if f["code"] == UNREADABLE}
    if choice.only and UNREADABLE not in choice.only | choice.ignore:
        unknown = {**unread, **unknown}
    unknown = {what: why for what, why in unknown.items() if _counts(what, choice)}
    wanted = sorted((f for f in found if choice.takes(str(f["code"]))), key=_order)
    counts = dict.fromkeys(SEVERITIES, 0)
    for finding in wanted:
        counts[finding["severity"]] += 1
    counting = sum(counts.values()) - counts[INFO]
    return {
        "kind": "lint",
        "status": "unknown" if unknown else "findings" if counting else "clean",
        "asked": list(asked),
        "only": sorted(choice.only),
        "findings": wanted,
        "counts": counts,
        "ignored": sum(str(f["code"]) in choice.ignore for f in found),
        "unknown": dict(unknown),
        "retcode": 2 if unknown else 1 if counting else 0,
    }


def _counts(what: str, choice: Choice) -> bool:
    """Whether it matters that *what* is unknown: not that of a rule that nobody asked for."""
    code = what.rpartition(": ")[2]  # of a peer:  m2: HA101
    return code not in CODES or choice.takes(code)


def _order(finding: Finding) -> tuple[Any, ...]:
    severity = finding["severity"] if finding["severity"] in SEVERITIES else ERROR
    place = (finding["on"], finding["file"], finding["line"])
    return (SEVERITIES.index(severity), finding["code"], *place)
