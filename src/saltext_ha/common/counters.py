"""Counts what an engine does, only for metrics: no decision depends on these numbers."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

# Seconds: from one hop in a rack to a peer that takes thousands of keys at once.
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


@dataclass
class Histogram:
    """How often something took how long; the last of ``counts`` is beyond all ``bounds``."""

    bounds: tuple[float, ...] = BOUNDS
    counts: list[int] = field(default_factory=list)
    sum: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        """(bound, how many took at most that long); the last bound is ``+Inf``."""
        total, shown = 0, []
        for bound, count in zip([*map(str, self.bounds), "+Inf"], self.counts, strict=True):
            total += count
            shown.append((bound, float(total)))
        return shown


@dataclass
class Counters:
    """
    :ivar propagation: peer → seconds from noticing a change here until the peer had it in its key
        store, by this master's clock.
    :ivar antientropy: peer → bytes sent and received to find and repair differences.
    :ivar rotations: how often this engine had the master make a new AES key.
    """

    propagation: dict[str, Histogram] = field(default_factory=dict)
    antientropy: dict[str, tuple[int, int]] = field(default_factory=dict)
    rotations: int = 0

    def arrived(self, peer: str, seconds: float) -> None:
        """Count that *peer* has a pushed change, *seconds* after it was noticed."""
        self.propagation.setdefault(peer, Histogram()).add(seconds)

    def exchanged(self, peer: str, sent: int, received: int) -> None:
        """Add the bytes of a round of anti-entropy with *peer*."""
        before = self.antientropy.get(peer, (0, 0))
        self.antientropy[peer] = before[0] + sent, before[1] + received
