"""Waits for a condition with a deadline: the only way of the lab and the tests to wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL = 0.02


def wait_for(condition: Callable[[], T], timeout: float, what: str, poll: float = POLL) -> T:
    """
    Call *condition* every *poll* seconds until it returns a true value; return that value.

    An exception of *condition* counts as "not yet".

    :raises TimeoutError: after *timeout* seconds; names *what* and the last value or exception.
    """
    deadline = time.monotonic() + timeout
    while True:
        error: Exception | None = None
        try:
            value = condition()
            if value:
                return value
            last = f"last value: {value!r}"
        except Exception as exc:
            error, last = exc, f"last error: {exc!r}"
        if time.monotonic() >= deadline:
            raise TimeoutError(f"not within {timeout:g} s: {what} ({last})") from error
        time.sleep(poll)
