"""One limit for all that a call does."""

from __future__ import annotations

import time

# Seconds that one wait takes at most, 23 days: sockets and locks refuse longer ones.
LONGEST = 2_000_000.0


class Deadline:
    """A point in time, *seconds* from now."""

    def __init__(self, seconds: float) -> None:
        self.at = time.monotonic() + seconds

    def remaining(self) -> float:
        """Seconds that are left, at most :data:`LONGEST`; 0 when it has passed."""
        return min(max(0.0, self.at - time.monotonic()), LONGEST)

    @property
    def passed(self) -> bool:
        return self.remaining() <= 0

    def part(self, tries: int = 1, limit: float = float("inf")) -> Deadline:
        """An equal share of what is left for one of *tries*, at most *limit* seconds."""
        return Deadline(min(self.remaining() / max(1, tries), limit))
