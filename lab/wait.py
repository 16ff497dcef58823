"""Waits for a condition with a deadline: the only way of the lab and the tests to wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL = 0.02
# A condition takes this part of a processor at most, and leaves the rest to what it waits for.
SHARE = 0.1
LONGEST = 0.5


def wait_for(condition: Callable[[], T], timeout: float, what: str, poll: float = POLL) -> T:
    """
    Call *condition* every *poll* seconds until it returns a true value; return that value. One that
    keeps the processor busy, as it reads tables of the kernel or a log, is called less often.

    An exception of *condition* counts as "not yet".

    :raises TimeoutError: after *timeout* seconds; names *what* and the last value or exception.
    """
    deadline = time.monotonic() + timeout
    while True:
        error: Exception | None = None
        begun = time.thread_time()
        try:
            value = condition()
            if value:
                return value
            last = f"last value: {value!r}"
        except Exception as exc:
            error, last = exc, f"last error: {exc!r}"
        if time.monotonic() >= deadline:
            raise TimeoutError(f"not within {timeout:g} s: {what} ({last})") from error
        took = time.thread_time() - begun
        time.sleep(max(poll, min(took / SHARE, LONGEST)))
