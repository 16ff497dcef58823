"""A history as data: masters, and steps that happen to them. Every prefix of one is one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Step = dict[str, Any]

HOT = ("web1", "web2", "db1")
"""Few ids, so that acts on them collide."""
BULK = tuple(f"node{number:02}" for number in range(14))
"""Accepted on all masters from the start: if all vanish at once, that is not believed."""
KEY_NAMES = ("k0", "k1", "k2")
MAX_OFFSET = 6 * 3600


@dataclass(frozen=True)
class MasterSpec:
    """
    One master.

    ``offset``: seconds that its clock is ahead. ``layout``: how keys are stored and read,
    ``legacy`` or ``3008``. ``salt``: the number of its release among those that take part, modulo.
    """

    name: str
    offset: int
    layout: str
    salt: int


@dataclass(frozen=True)
class History:
    """
    All that is needed to act a history out again.

    ``masters`` are there from the start, ``spare`` may join later. ``drops``: tombstones are
    dropped as soon as all masters have them, instead of a month later.
    """

    seed: int
    masters: tuple[MasterSpec, ...]
    spare: MasterSpec
    steps: tuple[Step, ...] = field(default=())
    drops: bool = False

    def has(self, do: str) -> bool:
        """Whether one of its steps is of that kind."""
        return any(step["do"] == do for step in self.steps)

    def prefix(self, length: int) -> History:
        """Its first *length* steps."""
        return self.with_steps(self.steps[:length])

    def with_steps(self, steps: Sequence[Step]) -> History:
        """The same masters with other steps."""
        return replace(self, steps=tuple(steps))

    def to_json(self) -> str:
        """One line."""
        data = {
            "seed": self.seed,
            "masters": [vars(master) for master in self.masters],
            "spare": vars(self.spare),
            "steps": list(self.steps),
            "drops": self.drops,
        }
        return json.dumps(data)

    @classmethod
    def from_json(cls, text: str) -> History:
        """What :meth:`to_json` wrote."""
        data = json.loads(text)
        return cls(
            data["seed"],
            tuple(MasterSpec(**master) for master in data["masters"]),
            MasterSpec(**data["spare"]),
            tuple(data["steps"]),
            data["drops"],
        )
