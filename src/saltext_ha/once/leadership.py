"""What this master knows about the leader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

NO_MORE = "this master leads no more"
QUIET = 10.0
"""Seconds without a leader, as between two leaders, after which a note says so."""


class Apart(NamedTuple):
    """Why a master does not elect with this one; ``out``: it takes no part, or cannot."""

    why: str
    out: bool = False


@dataclass(frozen=True)
class Leadership:
    """
    Who leads at one moment, as far as this master knows.

    :ivar store: decides who leads; see :class:`.config.leader.LeaderSettings`.
    :ivar leader: the name of the leader; empty while no master leads.
    :ivar leads: whether this master leads.
    :ivar why: why no master leads; empty when one does.
    :ivar since: when ``leader`` last changed, in Unix seconds.
    :ivar apart: the masters of the group that do not elect with this one.
    :ivar fence: a number that grows with each change of leaders; None if the store has none.
    :ivar began: when this master began to lead, or last met another one that did, by
        :func:`.common.boot_clock.boot_clock`, which only grows.
    """

    store: str
    leader: str = ""
    leads: bool = False
    why: str = ""
    since: float = 0.0
    apart: Mapping[str, Apart] = field(default_factory=dict)
    fence: int | None = None
    began: float = float("-inf")

    def told(self) -> dict[str, Any]:
        """Plain data, nothing secret."""
        return {
            "store": self.store,
            "leader": self.leader or None,
            "leads": self.leads,
            "why": self.why,
            "since": self.since,
            "apart": {name: each.why for name, each in self.apart.items()},
            "fence": self.fence,
        }
