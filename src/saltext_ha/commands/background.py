"""Deployments outlast the time for an answer: one command begins, another asks for progress."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from saltext_ha.common import tasks
from saltext_ha.common.errors import HaError, reason_of
from saltext_ha.transport.control_server import Command

QUESTION_WAITS = 0.2  # seconds for the end of the work; then it is asked again
KEPT = 8  # pieces of work whose result can still be asked for


class Job:
    """One piece of work; ``text`` says how far it is."""

    def __init__(self) -> None:
        self.text = ""
        self.task: asyncio.Task[dict[str, Any]] | None = None


Work = Callable[[dict[str, Any], Job], Awaitable[dict[str, Any]]]


class Background:
    """Does one piece of work at a time."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}

    def begins(self, work: Work) -> Command:
        """A command that begins *work* and answers the name of this work, ``job``."""

        async def begin(payload: dict[str, Any]) -> dict[str, Any]:
            if any(job.task and not job.task.done() for job in self._jobs.values()):
                raise HaError("a deployment is under way on this master; wait until it has ended")
            for old in list(self._jobs)[: 1 - KEPT]:
                del self._jobs[old]
            name, job = secrets.token_hex(8), Job()
            self._jobs[name] = job
            job.task = tasks.begin(work(payload, job))
            return {"job": name}

        return begin

    async def progress(self, payload: dict[str, Any]) -> dict[str, Any]:
        """How far ``job`` is (``text``), or its result (``answer``)."""
        job = self._jobs.get(str(payload.get("job")))
        if job is None or job.task is None:
            raise HaError(
                "a deployment of that name is not known here; salt-run ha.deployments shows all"
            )
        await asyncio.wait([job.task], timeout=QUESTION_WAITS)
        if not job.task.done():
            return {"text": job.text}
        try:
            return {"answer": job.task.result()}
        except OSError as exc:
            raise HaError(f"{exc.filename or 'a deployment'}: {reason_of(exc)}") from None
