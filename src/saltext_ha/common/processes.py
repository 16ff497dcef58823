"""Does a process still run?"""

from __future__ import annotations

import psutil


def is_alive(process: psutil.Process) -> bool:
    """Whether *process* still runs; one that has ended and was not waited for does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
