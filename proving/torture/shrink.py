"""The shortest part of a failing history that still fails."""

from __future__ import annotations

from collections.abc import Callable

from proving.torture.history import History, Step

Fails = Callable[[History], bool]


def shortest_prefix(history: History, fails: Fails) -> History:
    """
    The shortest prefix of *history* that fails, as far as halving finds it.

    Races do not always end the same way, so *fails* had better try more than once.
    """
    passes, failing = -1, len(history.steps)
    while failing - passes > 1:
        middle = (passes + failing) // 2
        if fails(history.prefix(middle)):
            failing = middle
        else:
            passes = middle
    return history.prefix(failing)


def without_idle_steps(history: History, fails: Fails, tries: int = 60) -> History:
    """*history* without the steps that it does not need to fail; at most *tries* attempts."""
    steps: list[Step] = list(history.steps)
    size = max(1, len(steps) // 2)
    while tries > 0:
        removed = False
        position = 0
        while position < len(steps) and tries > 0:
            shorter = steps[:position] + steps[position + size :]
            tries -= 1
            if len(shorter) < len(steps) and fails(history.with_steps(shorter)):
                steps, removed = shorter, True
            else:
                position += size
        if size == 1 and not removed:
            break
        size = max(1, size // 2)
    return history.with_steps(steps)
