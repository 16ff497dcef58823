"""What this master knows about the leader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Leadership:
    """
    Who leads at one moment, as far as this master knows.

    :ivar store: decides who leads; see :class:`.config.leader.LeaderSettings`.
    :ivar leader: the name of the leader; empty while no master leads.
    :ivar leads: whether this master leads.
    :ivar why: why no master leads; empty when one does.
    :ivar since: when ``leader`` last changed, in Unix seconds.
    :ivar apart: master → why it does not take part.
    :ivar fence: a number that grows with each change of leaders; None if the store has none.
    :ivar began: as ``since``, by :func:`.common.boot_clock.boot_clock`, which only grows.
    """

    store: str
    leader: str = ""
    leads: bool = False
    why: str = ""
    since: float = 0.0
    apart: Mapping[str, str] = field(default_factory=dict)
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
            "apart": dict(self.apart),
            "fence": self.fence,
        }
