"""
A wall clock that can be wrong by hours.

Imported before the product, so that all of it looks at this clock; ``time.monotonic`` stays right,
as it does on a machine whose date was set wrong.
"""

from __future__ import annotations

import time

_right = time.time
_offset = 0.0


def put_off(seconds: float) -> None:
    """From now on the clock of this process is *seconds* ahead."""
    global _offset
    _offset = seconds


def _shown() -> float:
    return _right() + _offset


vars(time)["time"] = _shown
