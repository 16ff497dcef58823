"""
Puts events and calls that must happen once between the unchanged steps of a history. Pure.

Half of them follow a settling, when promises hold; the rest come at any time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from proving.torture.history import History, Step

CALM, ANY = (0.8, 0.5), (0.15, 0.05)
"""The chances of an event, and of a call of ``ha.once``: after a settling, and elsewhere."""
AGAIN = 0.35
KILL = 0.15


def woven(history: History) -> History:
    """*history* with events and calls."""
    return replace(history, steps=tuple(_Weaver(history).steps()))


class _Weaver:
    def __init__(self, history: History) -> None:
        self._rng = random.Random(f"once {history.seed}")
        self._history = history
        self._names = [master.name for master in history.masters]
        self._called: list[str] = []

    def steps(self) -> Iterator[Step]:
        for step in self._history.steps:
            yield step
            event, once = CALM if step["do"] == "settle" else ANY
            if self._rng.random() < event:
                yield self._event()
            if self._rng.random() < once:
                yield from self._once()

    def _event(self) -> Step:
        everywhere = self._rng.random() < 0.5
        count = len(self._names) if everywhere else self._rng.randint(1, len(self._names) - 1)
        return {"do": "event", "on": sorted(self._rng.sample(self._names, count))}

    def _once(self) -> Iterator[Step]:
        rng = self._rng
        if self._called and rng.random() < AGAIN:
            name = rng.choice(self._called)
        else:
            name = f"run{len(self._called) + 1}"
            self._called.append(name)
        step: Step = {"do": "once", "name": name}
        if rng.random() >= KILL:
            yield step
            return
        victim = rng.choice(self._names)
        yield {**step, "kill": victim, "after": round(rng.uniform(0, 0.3), 4)}
        yield {"do": "start", "on": victim}
