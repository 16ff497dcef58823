"""The clock that leases and locks go by."""

from __future__ import annotations

import time


def boot_clock() -> float:
    """Seconds that only grow, and run on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
