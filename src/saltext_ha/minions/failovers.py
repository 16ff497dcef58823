"""The failovers that minions reported on this master's bus."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

TAG, END = "salt/ha/minion/", "/failover"
KEPT = 50
LONGEST = 200


@dataclass(frozen=True)
class Failover:
    """A minion that left one master for another, by its own report; ``at`` in Unix seconds."""

    at: float
    id: str
    source: str
    target: str
    why: str

    def data(self) -> dict[str, Any]:
        return asdict(self)


class Failovers:
    """Takes in the events of the bus, and remembers the last failovers among them."""

    def __init__(self) -> None:
        self.count = 0
        """How many failovers were reported since the start."""
        self.last: deque[Failover] = deque(maxlen=KEPT)
        """The last of them, the latest first."""

    def __call__(self, tag: str, data: Any) -> None:
        if tag.startswith(TAG) and tag.endswith(END):
            failover = read_failover(data, time.time())
            if failover:
                self.count += 1
                self.last.appendleft(failover)


def read_failover(data: Any, at: float) -> Failover | None:
    """The failover that a minion's watchdog reports; None if the event reports none."""
    if not isinstance(data, Mapping):
        return None
    # Salt adds the id of the sending minion to the data, but not in a list of events: an accepted
    # minion can report another's failover, so reports are only shown.
    inner = data.get("data")
    said = inner if isinstance(inner, Mapping) else data
    texts = [data.get("id"), said.get("from"), said.get("to"), said.get("why")]
    shown = ["".join(c for c in t[:LONGEST] if c.isprintable()) for t in texts if type(t) is str]
    return Failover(at, *shown) if len(shown) == len(texts) else None
