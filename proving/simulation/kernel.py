"""Coroutines in simulated time: a heap of future events, and no loop, thread or clock."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any

Resume = Callable[[Any], None]
Arm = Callable[[Resume], None]


@types.coroutine
def suspend(arm: Arm) -> Generator[Arm, Any, Any]:
    """Give *arm* a function; wait until that is called, and return its argument."""
    return (yield arm)


class Kernel:
    """The simulated time, ``now`` in seconds, and the events to come."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        # Of two events at the same time the one planned first comes first: the same seed gives the
        # same run.
        self._number = itertools.count()

    def at(self, when: float, function: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._heap, (when, next(self._number), function, arguments))

    async def sleep(self, seconds: float) -> None:
        await suspend(lambda resume: self.at(self.now + seconds, resume, None))

    def run(self, until: float, over: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass to *until*, or until *over* is true; return whether it was *over*."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, function, arguments = heapq.heappop(heap)
            function(*arguments)
            if over():
                return True
        self.now = until
        return False


class Process:
    """A coroutine that runs in simulated time from now on."""

    def __init__(
        self,
        coroutine: Coroutine[Arm, Any, Any],
        done: Callable[[Process, Any], None] | None = None,
    ) -> None:
        self.over = False
        self._coroutine = coroutine
        self._done = done
        self._step(None)

    def _step(self, value: Any) -> None:
        if self.over:
            return
        try:
            arm = self._coroutine.send(value)
        except StopIteration as end:
            self.over = True
            if self._done:
                self._done(self, end.value)
            return
        arm(self._step)

    def stop(self) -> None:
        """Kill it: nothing of it happens any more."""
        if not self.over:
            self.over = True
            # Before Python 3.13 close() would leave an asynchronous generator that it waits for.
            with contextlib.suppress(asyncio.CancelledError):
                self._coroutine.throw(asyncio.CancelledError())


class Event:
    """``asyncio.Event`` as far as a link uses one: with a single waiter."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: Callable[[], None] | None = None

    def set(self) -> None:
        """Wake the waiter, and let the next one pass."""
        self._is_set = True
        if self._waiter:
            waiter, self._waiter = self._waiter, None
            waiter()

    def clear(self) -> None:
        """From now on callers wait."""
        self._is_set = False

    def wait(self) -> Event:
        """The event itself, for :meth:`wait_for`."""
        return self

    async def wait_for(self, kernel: Kernel, seconds: float) -> bool:
        """Whether it was set within *seconds*."""
        if self._is_set:
            return True

        def arm(resume: Resume) -> None:
            def woken() -> None:
                kernel.at(kernel.now, resume, True)

            def late() -> None:
                # A later wait has another waiter, which this timeout does not concern.
                if self._waiter is woken:
                    self._waiter = None
                    resume(False)

            self._waiter = woken
            kernel.at(kernel.now + seconds, late)

        return bool(await suspend(arm))


class Worker:
    """One thread: it does its work one after the other, and that takes time."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._queue: deque[Resume] = deque()
        self._busy = False

    async def __aenter__(self) -> None:
        if self._busy:
            await suspend(self._queue.append)
        self._busy = True

    async def __aexit__(self, *exc: object) -> None:
        if self._queue:
            # It stays busy, with the next work.
            self._kernel.at(self._kernel.now, self._queue.popleft(), None)
        else:
            self._busy = False
