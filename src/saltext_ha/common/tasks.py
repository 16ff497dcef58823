"""The tasks of an engine, which run side by side for as long as it runs."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, TypeVar

from saltext_ha.common.errors import HaError

log = logging.getLogger(__name__)

STOPPING = 5.0  # seconds that tasks get to end before the process ends without them


T = TypeVar("T")


def begin(work: Awaitable[T]) -> asyncio.Task[T]:
    """Begin *work*. Nobody need ask what came of it; of its error, asyncio would complain then."""
    begun = asyncio.ensure_future(work)
    begun.add_done_callback(lambda done: done.cancelled() or done.exception())
    return begun


async def answers_of(
    names: Collection[str], ask: Callable[[str], Awaitable[T]]
) -> tuple[dict[str, T], dict[str, str]]:
    """
    What *ask* gives for each of *names*, all at once; and why it gave nothing (a HaError). Both are
    in the order of *names*.
    """
    errors: dict[str, str] = {}

    async def answer(name: str) -> list[T]:
        try:
            return [await ask(name)]
        except HaError as exc:
            errors[name] = str(exc)
            return []

    found = await asyncio.gather(*map(answer, names))
    answers = {name: each for name, came in zip(names, found, strict=True) for each in came}
    return answers, {name: errors[name] for name in names if name in errors}


class Tasks:
    """
    Tasks by name.

    :param failed: called when a task raises: a missing part is worse than a restart of the engine.
    """

    def __init__(self, failed: Callable[[], None]) -> None:
        self._failed = failed
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks[name] = asyncio.create_task(self._guarded(name, work), name=name)
        task.add_done_callback(lambda _: work.close())  # if it was cancelled before it began

    async def _guarded(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("ha engine: %s failed", name)
            self._failed()

    def cancel(self, name: str) -> None:
        """End a task, and forget it at once."""
        self._tasks.pop(name).cancel()

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        if self._tasks:
            await asyncio.wait([*self._tasks.values()], timeout=STOPPING)


class Ending:
    """Tells threads that the engine stops. It waits for them, so long work calls check() often."""

    def __init__(self) -> None:
        self._begun = threading.Event()

    def begin(self) -> None:
        """From now on :meth:`check` raises."""
        self._begun.set()

    def check(self) -> None:
        """:raises HaError: the engine stops; the caller must give up."""
        if self._begun.is_set():
            raise HaError("the engine of this master stops")
