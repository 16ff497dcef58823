"""
A wall clock that can be wrong by hours.

It is set up before the product is imported, so that all of the product reads this clock;
``time.monotonic`` stays right, as on a machine whose date was set wrong. Files have the right time
of the kernel: to an engine they are hours old, or hours ahead, like those of a file server with
another clock.
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
    """The class that all code finds as ``datetime``; libraries in C and Rust take its instances."""

    __slots__ = ()  # they compare its size, too

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Self:
        return cls.fromtimestamp(_shown(), tz)

    @classmethod
    def utcnow(cls) -> Self:
        return cls.now(datetime.timezone.utc).replace(tzinfo=None)


def set_up() -> None:
    """Make all modules that this process imports from now on read this clock."""
    vars(time)["time"] = _shown
    vars(time)["time_ns"] = _shown_ns
    vars(datetime)["datetime"] = _Datetime
