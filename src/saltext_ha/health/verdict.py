"""
The verdict after a round of questions: a pure function, so that every case can be tested.

A master is up or down after several equal rounds in a row (:mod:`saltext_ha.common.hysteresis`).
Before the first decision it is neither: salt-master starts its engines before its workers answer.
So failures in the first seconds decide nothing, and one complete round that succeeds decides at
once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from saltext_ha.common.hysteresis import Health, Rules, after

STARTING = 30.0
UNDECIDED = Health(usable=False, known=False, reason="not asked yet")


@dataclass(frozen=True)
class Result:
    """
    The answer to one question.

    :ivar problem: empty for a good answer.
    :ivar seconds: how long it took.
    :ivar at: when it came (Unix seconds).
    :ivar note: why the question was not asked, so that the answer is unknown; empty if it was.
    """

    name: str
    problem: str
    seconds: float
    at: float
    note: str = ""

    def told(self) -> dict[str, Any]:
        """Plain data for peers and the page; ``ok`` is None when nothing is known."""
        return {
            "name": self.name,
            "ok": None if self.note else not self.problem,
            "problem": self.problem or self.note,
            "seconds": round(self.seconds, 4),
            "at": self.at,
        }


def reason(results: Iterable[Result]) -> str:
    """What is wrong, in one line; empty when nothing is."""
    return "; ".join(f"{result.name}: {result.problem}" for result in results if result.problem)


def follow(state: Health, problem: str, now: float, rules: Rules, age: float) -> Health:
    """
    *state* after one more round that found *problem* (empty: none) at *now* (monotonic seconds).

    :param age: seconds since the first round.
    """
    if state.known:
        return after(state, not problem, problem, now, rules)
    if not problem:
        return Health(True, True, 0, now, "")
    if age < STARTING:
        return replace(state, reason=problem)
    return Health(False, True, 0, now, problem)
