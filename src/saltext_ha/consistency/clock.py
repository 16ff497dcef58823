"""Compares the clocks of the masters; ``commands/consistency/consistency_check.py`` asks them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from saltext_ha.consistency.comparison import Difference
from saltext_ha.consistency.rules import DRIFT

NAME = "clock"
QUESTION = "How far are their clocks apart, and how surely is that known?"

#: Seconds that the clocks may be apart: with NTP it is much less, and nothing breaks before that.
TOLERANCE = 5.0
FIX = "set the clocks by NTP; keys do not depend on them, tokens and certificates do"


@dataclass(frozen=True)
class Offset:
    """
    Seconds that a peer's clock is ahead of this one's, give or take *error*: the answer was
    written at some time between question and answer.
    """

    seconds: float
    error: float

    def data(self) -> dict[str, float]:
        """Its form in the answer."""
        return {"offset": round(self.seconds, 6), "error": round(self.error, 6)}


def offset(rounds: Iterable[tuple[float, float, float]]) -> Offset | None:
    """
    The offset from *rounds*: the peer's clock, and ours at question and answer.

    The shortest round trip is the most exact. None without any.
    """
    measured = [
        Offset(theirs - (asked + answered) / 2, max(0.0, answered - asked) / 2)
        for theirs, asked, answered in rounds
    ]
    return min(measured, key=lambda found: found.error, default=None)


def compare(
    own: str, offsets: Mapping[str, Offset], unknown: Mapping[str, str]
) -> list[Difference]:
    """One difference with the offset of every master, if any two are too far apart."""
    known = {own: Offset(0.0, 0.0), **offsets}
    if not apart(known.values()):
        return []
    values: dict[str, Any] = {name: found.data() for name, found in known.items()}
    values.update({name: {"unknown": why} for name, why in unknown.items()})
    return [{"path": NAME, "values": dict(sorted(values.items())), "severity": DRIFT, "fix": FIX}]


def apart(offsets: Iterable[Offset]) -> bool:
    """Whether any two of these clocks are too far apart, beyond the error."""
    known = sorted(offsets, key=lambda found: found.seconds)
    if not known:
        return False
    early, late = known[0], known[-1]
    return late.seconds - early.seconds - late.error - early.error > TOLERANCE
