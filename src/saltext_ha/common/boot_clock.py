"""Clocks that go on evenly when somebody sets that of the machine."""

from __future__ import annotations

import time
from collections.abc import Callable

AHEAD = 60.0
"""Seconds by which the clock of a file server may be ahead of one here that nobody has set."""


def boot_clock() -> float:
    """Seconds that only grow, and run on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class FileClock:
    """
    Unix time that goes on evenly, to be compared with the times of files.

    :param wall: the clock that files are dated by. :param steady: seconds that only grow.
    """

    def __init__(
        self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = boot_clock
    ) -> None:
        self._wall, self._steady = wall, steady
        self._offset = wall() - steady()

    def __call__(self) -> float:
        """The time by this clock."""
        return self._offset + self._steady()

    def dated(self, written: float) -> float:
        """
        The time of a file by this clock, to half a second.

        :param written: Unix time; 0: there is no such file.
        :return: 0 also for a file of the future: the clock was set back after it was written, and
            nobody knows when that was.
        """
        wall, now = self._wall(), self()
        ahead = AHEAD if abs(now - wall) < 1 else 0.0
        if not written or written > wall + ahead:
            return 0.0
        return written + round(now - wall)

    def stamp(self, at: float) -> float:
        """The Unix time for a file that is to be :meth:`dated` so."""
        return at - round(self() - self._wall())
