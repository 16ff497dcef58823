"""
Which local changes are too large to be believed.

A wiped, unmounted or restored key folder looks like an operator who deleted everything. Such a
change is held until an operator confirms it; it is not recorded, so no peer hears of it.
"""

from __future__ import annotations

from collections.abc import Collection


class RevocationGuard:
    """
    Counts keys that went away on this master, or came back though they were revoked, within
    *window* seconds.

    Up to ``max(minimum, fraction × keys in that state)`` changes are believed; more are held.
    """

    def __init__(self, fraction: float, minimum: int, window: float = 60.0) -> None:
        self._fraction = fraction
        self._minimum = minimum
        self._window = window
        self._believed: dict[str, float] = {}

    def allows(self, ids: Collection[str], there: int, now: float) -> bool:
        """
        Whether changes of *ids* are believed, out of as many keys as were *there*; remembers a yes.

        An id that comes again, because its change could not be recorded, counts once. *now* is any
        steadily growing time in seconds.
        """
        begin = now - self._window
        self._believed = {i: at for i, at in self._believed.items() if at > begin}
        recent = len(self._believed.keys() - set(ids))
        limit = max(self._minimum, int(self._fraction * (there + recent)))
        if recent + len(ids) > limit:
            return False
        self._believed.update(dict.fromkeys(ids, now))
        return True
