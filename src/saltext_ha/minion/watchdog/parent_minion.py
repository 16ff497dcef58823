"""Does the minion still run to which this process, an engine, belongs?"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LOOK = 1.0  # seconds between two looks


class ParentMinion:
    """
    The minion with *opts*, the parent of this process.

    A minion that ends waits for its engines. It signals only those of masters that it has reached
    (``MinionManager.stop_async`` in ``salt/minion.py``, 3006 to 3008). So an engine that waits for
    its parent to be gone would keep a minion from ending that does not reach a master, and the
    next minion from starting. But the minion removes its pidfile before it waits.
    """

    def __init__(self, opts: Mapping[str, Any]) -> None:
        self.pid = os.getppid()
        self._pidfile = Path(str(opts.get("pidfile") or os.devnull))
        self._named = False
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
        return os.getppid() != self.pid or (self._named and not named)
