"""Whether an answer is news: events are fired when the answer changes, not for each answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from saltext_ha.consistency.result import DIFFER, SAME
from saltext_ha.consistency.rules import DRIFT

#: Places (section and path) that an event names, and that are remembered.
NAMED = 1000
DRIFTED, CONSISTENT = "drift", "consistent"
#: How places begin that stand for what was fetched by git.
FETCHED = ("roots:gitfs:", "roots:git_pillar:")


@dataclass(frozen=True)
class Last:
    """
    The last answer, as ``ha.status`` shows it; it survives a restart.

    :param known: whether there ever was a complete answer, or one with differences.
    :param drift: where masters differed, when last known.
    :param masters: all masters of the group at that time.
    """

    at: float = 0.0
    status: str = ""
    counts: Mapping[str, int] | None = None
    unknown: Mapping[str, str] | None = None
    drift: frozenset[str] = frozenset()
    known: bool = False
    masters: frozenset[str] = frozenset()

    def data(self) -> dict[str, Any]:
        """Plain data, for :meth:`read`."""
        return {
            **vars(self),
            "counts": dict(self.counts or {}),
            "unknown": dict(self.unknown or {}),
            "drift": sorted(self.drift),
            "masters": sorted(self.masters),
        }

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Last:
        """
        The inverse of :meth:`data`.

        :raises ValueError, TypeError, KeyError: it is something else.
        """
        return cls(
            float(raw["at"]),
            str(raw["status"]),
            {str(name): int(number) for name, number in raw["counts"].items()},
            {str(name): str(why) for name, why in raw["unknown"].items()},
            frozenset(map(str, raw["drift"])),
            bool(raw["known"]),
            frozenset(map(str, raw["masters"])),
        )


def follow(last: Last, result: Mapping[str, Any], at: float) -> tuple[Last, str]:
    """
    *last* after a new answer, and the event to fire: ``drift``, ``consistent`` or none.

    A place that differs is news if it did not differ before; so is one that no longer differs while
    others do. An answer without all masters can show new differences, but not that old ones are
    gone.
    """
    found = frozenset(_drift(result)[:NAMED])
    complete = result["status"] == SAME or (
        not result["unknown"] and not any(s.get("unknown") for s in result["sections"].values())
    )
    drift = found if complete else last.drift | found
    now = Last(
        at,
        result["status"],
        Counter(place.split(":", 1)[0] for place in _drift(result)),
        result["unknown"],
        drift,
        last.known or complete or bool(found),
        frozenset(result["masters"]),
    )
    if drift and drift != last.drift:
        return now, DRIFTED
    if last.drift and not drift:
        return now, CONSISTENT
    return now, ""


def only_fetched(result: Mapping[str, Any], last: Last) -> bool:
    """Whether only what each master fetches by git in its time differs, and some of it is new."""
    places = _drift(result)
    new = not last.drift.issuperset(places)
    return new and all(place.startswith(FETCHED) for place in places)


def event(result: Mapping[str, Any], master: str) -> dict[str, Any]:
    """The data of either event."""
    places = _drift(result)
    return {
        "master": master,
        "status": result["status"],
        "masters": list(result["masters"]),
        "unknown": dict(result["unknown"]),
        "count": len(places),
        "differences": places[:NAMED],
    }


def _drift(result: Mapping[str, Any]) -> list[str]:
    """All places that count, as ``section:path``."""
    return [
        f"{name}:{difference['path']}"
        for name, section in result["sections"].items()
        if section["status"] == DIFFER
        for difference in section["differences"]
        if difference.get("severity", DRIFT) == DRIFT
    ]
