"""
Which local changes are too large to be believed.

A wiped, unmounted or restored key folder looks like an operator who deleted everything. Such a
change is held back until somebody confirms it; it is not recorded, so no peer hears of it.
"""

from __future__ import annotations

from collections import deque


class RevocationGuard:
    """
    Counts accepted keys that went away on this master within *window* seconds.

    Up to ``max(minimum, fraction × accepted keys)`` are believed; what goes beyond is held.
    """

    def __init__(self, fraction: float, minimum: int, window: float = 60.0) -> None:
        self._fraction = fraction
        self._minimum = minimum
        self._window = window
        self._believed: deque[float] = deque()

    def allows(self, gone: int, accepted: int, now: float) -> bool:
        """
        Whether *gone* more accepted keys may go, of *accepted* there were before; remembers a yes.

        *now* is any steadily growing time in seconds.
        """
        while self._believed and self._believed[0] <= now - self._window:
            self._believed.popleft()
        recent = len(self._believed)
        limit = max(self._minimum, int(self._fraction * (accepted + recent)))
        if recent + gone > limit:
            return False
        self._believed.extend([now] * gone)
        return True
