"""
A wall clock that can be wrong by hours.

Set up before the product is imported, so that all of it looks at this clock; ``time.monotonic``
stays right, as it does on a machine whose date was set wrong. Files bear the time of the kernel,
which nobody here deceives: to an engine they come from hours ago, or from hours ahead, as those of
a file server with another clock do.
"""

from __future__ import annotations

import datetime
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

_right, _right_ns, _Right = time.time, time.time_ns, datetime.datetime
_offset = 0.0


def put_off(seconds: float) -> None:
    """From now on the clock of this process is *seconds* ahead."""
    global _offset
    _offset = seconds


def _shown() -> float:
    return _right() + _offset


def _shown_ns() -> int:
    return _right_ns() + int(_offset * 1e9)


class _AnyDatetime(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _Right)


class _Datetime(datetime.datetime, metaclass=_AnyDatetime):
    """The class that everybody finds, and whose instances libraries in C and Rust ask for."""

    __slots__ = ()  # they compare its size, too

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Self:
        return cls.fromtimestamp(_shown(), tz)

    @classmethod
    def utcnow(cls) -> Self:
        return cls.now(datetime.timezone.utc).replace(tzinfo=None)


def set_up() -> None:
    """Have all that this process imports from now on look at this clock."""
    vars(time)["time"] = _shown
    vars(time)["time_ns"] = _shown_ns
    vars(datetime)["datetime"] = _Datetime
