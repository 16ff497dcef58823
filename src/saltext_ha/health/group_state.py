"""
The state of a group in one word, for ``ha.status`` and its exit code, the status page, its JSON and
the metrics. All of them use :func:`judge`, so that they never contradict each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from saltext_ha.health.fitness import counted

OK, DEGRADED, UNKNOWN = "ok", "degraded", "unknown"
SAME, DIFFER = "same", "differ"
NOT_COMPARED = "not compared yet"
NOT_ASKED = "its health is not checked (ha: health: false there)"
KEYS = "keys"
COMPARISON = "comparison"

BECAUSE = " because of that"
"""Ends a reason that the note of the same master explains."""


@dataclass(frozen=True)
class Reason:
    """
    Why a group is not ok.

    :ivar about: a master, or an aspect of the group: ``conflicts``, ``comparison``, ``group``.
    :ivar kind: ``silent``, ``behind``, ``held``, ``serves``, ``ready``, ``note``; otherwise as
    *about*.
    :ivar states: degraded: something is wrong; unknown: it cannot be known; a master that does not
    answer is both.
    """

    about: str
    kind: str
    states: frozenset[str]
    text: str

    def data(self) -> dict[str, Any]:
        """Plain data, for the JSON."""
        return {
            "about": self.about,
            "kind": self.kind,
            "states": sorted(self.states),
            "text": self.text,
        }


@dataclass(frozen=True)
class Verdict:
    """
    :ivar state: degraded if anything is wrong, otherwise unknown if anything is unknown, otherwise
    ok.
    :ivar tolerates: how many masters may be lost: all but one of those that could take over.
    :ivar retcode: 2 if anything is unknown, otherwise 1 if anything is wrong, otherwise 0.
    """

    state: str
    tolerates: int
    retcode: int
    reasons: tuple[Reason, ...]


def judge(
    masters: Iterable[Mapping[str, Any]],
    comparison: Mapping[str, Any],
    conflicts: int,
    troubles: Iterable[str],
    fit: int,
) -> Verdict:
    """
    Judge the group by everything that this master knows of it.

    :param masters: the rows of ``ha.status``.
    :param comparison: as :func:`compared` returns it.
    :param conflicts: how many minion ids have different accepted keys.
    :param troubles: what else is wrong with the group.
    :param fit: how many masters could take over from the others.
    """
    reasons = [reason for row in masters for reason in _of_master(row)]
    if conflicts:
        text = f"{conflicts} in conflict: different keys accepted for one id"
        reasons.append(_wrong("conflicts", "conflicts", text))
    reasons += [_wrong("group", "group", text) for text in troubles]
    reasons += _of_comparison(comparison)
    states = frozenset[str]().union(*(reason.states for reason in reasons))
    return Verdict(
        DEGRADED if DEGRADED in states else UNKNOWN if states else OK,
        max(0, fit - 1),
        2 if UNKNOWN in states else 1 if states else 0,
        tuple(reasons),
    )


def compared(
    last: Mapping[str, Any], answer: Mapping[str, Any] | None, stale: str, level: bool
) -> dict[str, Any]:
    """
    What the last comparison means now: ``status`` (same, differ, unknown), ``stale``, ``at`` (Unix
    seconds, None: there was none), ``counts`` (section → differences), ``unknown`` (master → why it
    could not be asked), and ``sections``.

    :param last: the part of it that survives restarts, as :meth:`.Last.data` returns it.
    :param answer: all of it, as ``ha.check_consistency`` returns it; None after a restart.
    :param stale: why it no longer counts; then all states are unknown, the differences stay.
    :param level: whether all masters have the same keys now; overrides the differences of keys.
    """
    counts = dict(last["counts"])
    sections: dict[str, Any] = {}
    for name, section in (answer or {}).get("sections", {}).items():
        sections[name] = {
            "status": section["status"],
            "count": counts.get(name, 0),
            "differences": section["differences"],
            "left_out": section.get("left_out", 0),
            "unknown": section.get("unknown") or {},
        }
    for name, count in counts.items():
        left = {"status": DIFFER, "count": count, "differences": [], "left_out": count}
        sections.setdefault(name, {**left, "unknown": {}})
    status = last["status"] or UNKNOWN
    if level and not stale and sections.get(KEYS, {}).get("status") == DIFFER:
        now = UNKNOWN if sections[KEYS]["unknown"] else SAME
        sections[KEYS] |= {"status": now, "count": 0, "differences": [], "left_out": 0}
        counts.pop(KEYS, None)
        if not any(section["status"] == DIFFER for section in sections.values()):
            every = all(section["status"] == SAME for section in sections.values())
            status = SAME if answer and every and not last["unknown"] else UNKNOWN
    if stale:
        sections = {name: {**section, "status": UNKNOWN} for name, section in sections.items()}
    return {
        "status": UNKNOWN if stale else status,
        "stale": stale,
        "at": last["at"] or None,
        "counts": counts,
        "unknown": dict(last["unknown"]),
        "sections": sections,
    }


def level(masters: Iterable[Mapping[str, Any]], conflicts: int) -> bool:
    """Whether all *masters* are known to have the same keys."""
    rows = list(masters)
    return not conflicts and all(
        row.get("behind") == 0 and not any(row.get(what) for what in ("held", "doubt", "busy"))
        for row in rows
    )


def _of_master(row: Mapping[str, Any]) -> Iterator[Reason]:
    name, note, health = str(row["name"]), str(row.get("note") or ""), row["health"]
    if row["state"] != "running":
        text = "does not answer" + (f": {note}" if note else "")
        yield Reason(name, "silent", frozenset({DEGRADED, UNKNOWN}), text)
        return
    if note:
        yield _wrong(name, "note", note)
    behind = row.get("behind")
    if behind is None:
        yield _unknown(name, "behind", "it is not known whether it has the same keys")
    elif behind and not row.get("self"):  # of this master these are the keys that it holds back
        yield _wrong(name, "behind", f"{counted(behind)} not as on this master")
    if row.get("held"):
        yield _wrong(name, "held", f"it holds {counted(row['held'])} back")
    if row.get("doubt"):
        yield _wrong(name, "held", str(row["doubt"]))
    asked = health.get("asked") is not False
    why = health.get("problem") or health.get("reason") or ("" if asked else NOT_ASKED)
    said = why and any(why in text for text in (note, str(row.get("doubt") or "")))
    more = BECAUSE if said else f": {why}" if why else ""
    healthy = health.get("healthy")
    if healthy is None:
        yield _unknown(name, "serves", f"it is not known whether it serves{more}")
    elif not healthy:
        yield _wrong(name, "serves", f"does not serve{more}")
    elif health.get("ready") is False:
        yield _wrong(name, "ready", f"is not ready for callers{more}")


def _of_comparison(comparison: Mapping[str, Any]) -> Iterator[Reason]:
    about = COMPARISON
    if comparison["status"] == DIFFER:
        where = ", ".join(f"{count} in {name}" for name, count in comparison["counts"].items())
        yield _wrong(about, about, where or "the last comparison found differences")
    if comparison["stale"] or not comparison["at"]:
        yield _unknown(about, about, comparison["stale"] or NOT_COMPARED)
        return
    why = dict(comparison["unknown"])
    for name, section in comparison["sections"].items():
        for master, text in section["unknown"].items():
            why.setdefault(master, f"{name}: {text}")
    listed = "; ".join(f"{master}: {text}" for master, text in sorted(why.items()))
    if listed:
        yield _unknown(about, about, f"not all could be compared: {listed}")
    elif comparison["status"] not in (SAME, DIFFER):
        yield _unknown(about, about, "not all could be compared")


def _wrong(about: str, kind: str, text: str) -> Reason:
    return Reason(about, kind, frozenset({DEGRADED}), text)


def _unknown(about: str, kind: str, text: str) -> Reason:
    return Reason(about, kind, frozenset({UNKNOWN}), text)
