"""For how long the last answer counts: masters change after it."""

from __future__ import annotations

#: Seconds beyond the interval: a check takes time, and the engine starts before the first.
GRACE = 300.0
#: Seconds, if only operators check.
DAY = 86400.0


def stale(at: float, now: float, interval: float, failed: str) -> str:
    """
    Why the answer at the time *at* does not count any more; empty while it does.

    :param at: Unix seconds, as *now*; 0: there was none.
    :param interval: seconds between two checks of the engine; 0: no checks.
    :param failed: why a check after that answer failed; empty if none did.
    """
    if failed:
        return f"the last check failed: {failed}"
    limit = 3 * interval + GRACE if interval else DAY
    # A clock that was set back must not make it count longer.
    if not at or abs(now - at) <= limit:
        return ""
    if interval:
        return f"no check has ended since, though one is due every {interval:g} s"
    return "that is more than a day ago, and the engine makes none (ha: consistency: interval: 0)"
