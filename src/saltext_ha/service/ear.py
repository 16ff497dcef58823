"""What this master's event bus says besides keys: answers that are waited for, and failovers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

FAILOVER = "salt/ha/minion/"
LISTED = 50
LONGEST = 200
# What is waited for at a time is little; a bus that is flooded must not fill our memory.
MOST_EVENTS = 1000


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


@dataclass(eq=False)
class _Waiting:
    tag: str
    loop: asyncio.AbstractEventLoop
    before: list[tuple[str, Any]] = field(default_factory=list)
    is_it: Callable[[str, Any], bool] | None = None
    came: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, tag: str, data: Any) -> None:
        if self.is_it is None:
            if len(self.before) < MOST_EVENTS:
                self.before.append((tag, data))
        elif self.is_it(tag, data):
            self.came.set()

    async def until(self, is_it: Callable[[str, Any], bool]) -> None:
        """Return when an event came since the beginning of which *is_it* says so."""
        if any(is_it(tag, data) for tag, data in self.before):
            return
        # From here on each is looked at as it comes: no flood can hide the one that is awaited.
        self.came.clear()
        self.is_it = is_it
        await self.came.wait()


class Ear:
    """Told of every event on the bus, in the thread that listens there."""

    def __init__(self) -> None:
        self.failovers = 0
        """How many were heard of since the start."""
        self.last: deque[Failover] = deque(maxlen=LISTED)
        """The last of them, the latest first."""
        self._waiting: tuple[_Waiting, ...] = ()

    def heard(self, tag: Any, data: Any) -> None:
        """An event came; from any thread."""
        if not isinstance(tag, str):
            return
        for waiting in self._waiting:
            if tag.startswith(waiting.tag):
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                    waiting.loop.call_soon_threadsafe(waiting.add, tag, data)
        if tag.startswith(FAILOVER) and tag.endswith("/failover"):
            failover = read_failover(data, time.time())
            if failover:
                self.failovers += 1
                self.last.appendleft(failover)

    @contextlib.contextmanager
    def listening(self, tag: str) -> Iterator[_Waiting]:
        """Keep the events whose tag begins with *tag* from now on; inside the event loop."""
        waiting = _Waiting(tag, asyncio.get_running_loop())
        self._waiting = (*self._waiting, waiting)
        try:
            yield waiting
        finally:
            self._waiting = tuple(each for each in self._waiting if each is not waiting)


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
