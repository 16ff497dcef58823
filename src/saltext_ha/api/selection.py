"""In which order masters are tried."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

Policy = Literal["priority", "round_robin", "sticky"]
POLICIES: tuple[Policy, ...] = get_args(Policy)


class Standing(NamedTuple):
    """What the order depends on, of one master."""

    name: str
    priority: int
    usable: bool


def ranked(
    masters: Sequence[Standing], policy: Policy, turn: int = 0, held: str | None = None
) -> list[str]:
    """
    The names of all *masters*, the one to try first in front. Those that are down come last, and
    are not left out: they may be up again.

    :param turn: for ``round_robin``: how many calls there were before.
    :param held: for ``sticky``: the master of the last call.
    """
    best = sorted(masters, key=lambda master: master.priority)  # stable: then as configured
    up = [master.name for master in best if master.usable]
    down = [master.name for master in best if not master.usable]
    if policy == "round_robin" and up:
        first = turn % len(up)
        up = up[first:] + up[:first]
    elif policy == "sticky" and held in up:
        up.remove(held)
        up.insert(0, held)
    return up + down


class Selector:
    """What the policies have to remember from call to call."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._turn = 0
        self._held: str | None = None
        self._lock = threading.Lock()

    def order(self, masters: Sequence[Standing]) -> list[str]:
        """The names of *masters* in the order in which this call tries them."""
        with self._lock:
            names = ranked(masters, self.policy, self._turn, self._held)
            self._turn += 1
            self._held = names[0]
        return names
