"""
An engine process whose wall clock a test may set while it runs.

``time.time`` is replaced before the engine is imported; what asks the kernel itself, as OpenSSL
does, is not deceived.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

CLOCK = "TEST_CLOCK"


def shifted(clock: Callable[[], float], offset: Path) -> Callable[[], float]:
    """*clock*, ahead by the seconds that the file *offset* says; on time without one."""

    def now() -> float:
        try:
            return clock() + float(offset.read_text())
        except FileNotFoundError:
            return clock()

    return now


if __name__ == "__main__":
    time.time = shifted(time.time, Path(os.environ[CLOCK]))

    from lab import engines

    engines.main()
