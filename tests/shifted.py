"""A wall clock that a test may set while the process runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

CLOCK = "TEST_CLOCK"


def shifted(clock: Callable[[], float]) -> Callable[[], float]:
    """
    *clock*, ahead by the seconds in a file; on time without the file.

    The environment variable ``TEST_CLOCK`` names the file.
    """

    def now() -> float:
        try:
            return clock() + float(Path(os.environ[CLOCK]).read_text())
        except (KeyError, FileNotFoundError):
            return clock()

    return now
