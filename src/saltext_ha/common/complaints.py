"""What is wrong is logged when it begins, changes and ends, and not each time that it is met."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from saltext_ha.common.refusals import Allowance

# Seconds without it after which a problem is over: one that comes and goes is one problem.
OVER = 10.0
# Different texts of one problem, a minute.
TEXTS = 5


class Complaint:
    """
    A problem that may last for a while, for instance a full disk.

    :param begins: logs what is wrong.
    :param over: logs that it is over.
    """

    def __init__(self, begins: Callable[[str], None], over: Callable[[], None]) -> None:
        self._begins, self._over = begins, over
        self._texts = Allowance(TEXTS)
        self._said = ""
        self._met = float("-inf")

    def note(self, problem: str) -> None:
        """It was met just now, or, with an empty *problem*, it was not."""
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
    The exception handler of the engine's event loop: what asyncio complains of, with a traceback
    each time, may be caused by others.
    """

    def __init__(self) -> None:
        self._lines = Allowance()

    def __call__(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        """asyncio has something to say."""
        if self._lines.take():
            loop.default_exception_handler(dict(context))
