"""Logs problems when they begin, change and end, not each time that they are met."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from saltext_ha.common.refusals import Allowance

# Seconds without it after which a problem is over: one that comes and goes is one problem.
OVER = 10.0
# Different texts of one problem that are logged a minute.
TEXTS = 5


class Complaint:
    """
    A problem that may last for a while, for instance a full disk.

    :param begins: logs the problem.
    :param over: logs that it is over.
    """

    def __init__(self, begins: Callable[[str], None], over: Callable[[], None]) -> None:
        self._begins, self._over = begins, over
        self._texts = Allowance(TEXTS)
        self._said = ""
        self._met = float("-inf")

    def note(self, problem: str) -> None:
        """Note that *problem* was met just now; empty: that none was met."""
        now = time.monotonic()
        if not problem:
            if self._said and now - self._met >= OVER:
                self._said = ""
                self._over()
            return
        self._met = now
        if problem != self._said and self._texts.take():
            self._said = problem
            self._begins(problem)


class LoopErrors:
    """
    The exception handler of the engine's event loop. It limits the lines: others may cause the
    complaints of asyncio, and each has a traceback.
    """

    def __init__(self) -> None:
        self._lines = Allowance()

    def __call__(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        """Log a complaint of asyncio, if one more may be logged now."""
        if self._lines.take():
            loop.default_exception_handler(dict(context))
