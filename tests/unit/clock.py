"""A clock that stands still until a test sets it."""

from __future__ import annotations


class Clock:
    """Called as ``time.monotonic`` is; what it shows, in seconds, is *now*."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += seconds
