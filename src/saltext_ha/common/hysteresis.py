"""
When a master counts as usable: hysteresis, as a pure function of the signals from it.

A master goes down after ``fall`` failures in a row and comes up after ``rise`` successes in a row.
Signals closer together than ``spacing`` count once: fifty threads that meet the same broken
connection are one failure, and fifty calls in one millisecond do not prove that it is stable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Rules:
    """
    :ivar fall: failures in a row until a master is down.
    :ivar rise: successes in a row until it is up again.
    :ivar spacing: seconds; signals that are closer together count once.
    """

    fall: int = 2
    rise: int = 3
    spacing: float = 1.0


@dataclass(frozen=True)
class Health:
    """
    The state of one master.

    :ivar usable: whether calls should go to it; true until the first signal.
    :ivar known: whether signals from it have decided that; false before the first one.
    :ivar streak: how many signals in a row spoke against ``usable``.
    :ivar counted: when the last of these signals came (monotonic seconds).
    :ivar reason: the last signal, in words.
    """

    usable: bool = True
    known: bool = False
    streak: int = 0
    counted: float = float("-inf")
    reason: str = "not asked yet"


def after(health: Health, good: bool, reason: str, now: float, rules: Rules) -> Health:
    """*health* after one more signal at *now*."""
    if good == health.usable:
        return Health(good, True, 0, health.counted, reason)
    if health.streak and now - health.counted < rules.spacing:
        return replace(health, reason=reason)
    streak = health.streak + 1
    if streak >= (rules.rise if good else rules.fall):
        return Health(good, True, 0, now, reason)
    # A master that has only failed so far is not known to work.
    return Health(health.usable, health.known, streak, now, reason)
