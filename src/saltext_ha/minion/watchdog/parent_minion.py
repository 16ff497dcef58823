"""Does the minion still run to which this process, an engine, belongs?"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LOOK = 1.0  # seconds between two looks
ENDING = 10.0
"""Seconds after which a minion that waits for a child does so as it ends; it may start one, too."""


class ParentMinion:
    """
    The minion with *opts*, the parent of this process.

    A minion that ends waits for its engines. It signals only those of masters that it has reached
    (``MinionManager.stop_async`` in ``salt/minion.py``, 3006 to 3008). So an engine that waits for
    its parent to be gone would keep a minion from ending that does not reach a master, and the
    next minion from starting. But the minion removes its pidfile before it waits, if it is told to
    end; if it ends by itself, as where its key is rejected, it shows nothing but that it waits.
    """

    def __init__(self, opts: Mapping[str, Any]) -> None:
        self.pid = os.getppid()
        self._pidfile = Path(str(opts.get("pidfile") or os.devnull))
        self._named = False
        self._waiting: float | None = None
        """Since when the minion has waited for a child at each look."""
        self._over()  # the first look: the minion may end before the next one

    def lasts(self, seconds: float) -> bool:
        """Whether the minion still runs after *seconds*; returns at once when it does not."""
        end = time.monotonic() + seconds
        while not self._over():
            rest = end - time.monotonic()
            if rest <= 0:
                return True
            time.sleep(min(rest, LOOK))
        return False

    def _over(self) -> bool:
        try:
            named = int(self._pidfile.read_text(encoding="ascii")) == self.pid
        except (OSError, ValueError):
            named = False
        # Where the minion may not write it, it never names the minion, and tells nothing.
        self._named = self._named or named
        now = time.monotonic()
        self._waiting = (self._waiting or now) if _waits(self.pid) else None
        told = self._named and not named
        ends = self._waiting is not None and now - self._waiting > ENDING
        return os.getppid() != self.pid or told or ends


def _waits(pid: int) -> bool:
    """Whether the main thread of the process *pid* waits for a child; unknown: False."""
    try:
        return "do_wait" in Path(f"/proc/{pid}/wchan").read_text(encoding="ascii")
    except OSError:
        return False
