"""Which minions left one master for another, as they said on this master's bus?"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

TAG, END = "salt/ha/minion/", "/failover"
LISTED = 50
LONGEST = 200


@dataclass(frozen=True)
class Failover:
    """A minion that left one master for another, as it says itself; ``at`` in Unix seconds."""

    at: float
    id: str
    source: str
    target: str
    why: str

    def data(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


class Failovers:
    """Takes in the events of the bus, and remembers the last failovers among them."""

    def __init__(self) -> None:
        self.count = 0
        """How many were heard of since the start."""
        self.last: deque[Failover] = deque(maxlen=LISTED)
        """The last of them, the latest first."""

    def __call__(self, tag: str, data: Any) -> None:
        """An event of the bus."""
        if tag.startswith(TAG) and tag.endswith(END):
            failover = read_failover(data, time.time())
            if failover:
                self.count += 1
                self.last.appendleft(failover)


def read_failover(data: Any, at: float) -> Failover | None:
    """What the watchdog of a minion says; None when it is not that."""
    if not isinstance(data, Mapping):
        return None
    # Salt puts the id of the minion that sent it beside the data. Of a list of events it does not:
    # an accepted minion can tell of another's failover, so this is shown, and nothing else.
    inner = data.get("data")
    said = inner if isinstance(inner, Mapping) else data
    texts = [data.get("id"), said.get("from"), said.get("to"), said.get("why")]
    shown = ["".join(c for c in t[:LONGEST] if c.isprintable()) for t in texts if type(t) is str]
    return Failover(at, *shown) if len(shown) == len(texts) else None
