"""An event loop whose time jumps to what comes next, and processes in it that can be stopped."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any

_process: ContextVar[Process] = ContextVar("process")


class Process:
    """What :meth:`start` begins, with all that follows: while it is stopped, nothing of it runs."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._context = Context()
        self._context.run(_process.set, self)
        self._due: list[tuple[_Step, Context]] = []
        self.stopped = False

    @classmethod
    def current(cls) -> Process | None:
        """The one that runs just now."""
        return _process.get(None)

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Have it do *work*."""
        return self._context.copy().run(self._loop.create_task, work)

    def hold(self, step: _Step) -> None:
        """It is due when this process goes on."""
        self._due.append((step, copy_context()))

    def go_on(self) -> None:
        """As after SIGCONT: what became due meanwhile runs now, in the same order."""
        self.stopped = False
        due, self._due = self._due, []
        for step, context in due:
            self._loop.again(step, context)


class _Step:
    """One step of a process."""

    def __init__(self, process: Process, callback: Callable[..., Any], args: tuple[Any, ...]):
        self._process, self._callback, self._args = process, callback, args
        self.handle: asyncio.Handle

    def __call__(self) -> None:
        if self._process.stopped:
            self._process.hold(self)
        elif not self.handle.cancelled():
            self._callback(*self._args)


class VirtualLoop(asyncio.SelectorEventLoop):
    """
    Never waits.

    :ivar look: called at each moment at which something has happened.
    """

    def __init__(self) -> None:
        self._jumps = _Jumps(lambda: self.look())
        self.look: Callable[[], object] = lambda: None
        super().__init__(self._jumps)

    def time(self) -> float:
        return self._jumps.now

    def pass_by(self, seconds: float) -> None:
        """Let so many seconds go by."""
        self.run_until_complete(asyncio.sleep(seconds))

    def end(self) -> None:
        """Cancel all that is left."""
        self.look = lambda: None
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        if tasks:
            self.run_until_complete(asyncio.wait(tasks))
        self.close()

    def again(self, step: _Step, context: Context) -> None:
        """Take a *step* that was held."""
        super().call_soon(step, context=context)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self._of_its_process(super().call_soon, callback, args, context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        def schedule(step: Callable[..., Any], *args: Any, context: Context) -> asyncio.TimerHandle:
            return super(VirtualLoop, self).call_at(when, step, *args, context=context)

        return self._of_its_process(schedule, callback, args, context)

    def _of_its_process(
        self,
        schedule: Callable[..., Any],
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        context: Context | None,
    ) -> Any:
        where = copy_context() if context is None else context
        process = where.get(_process)
        if process is None:
            return schedule(callback, *args, context=where)
        step = _Step(process, callback, args)
        step.handle = schedule(step, context=where)
        return step.handle


class _Jumps(selectors.SelectSelector):
    """In the place of waiting time goes by."""

    def __init__(self, look: Callable[[], object]) -> None:
        super().__init__()
        self._look = look
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "nothing will happen any more"
        if timeout > 0:
            self._look()
            self.now += timeout
        return []
