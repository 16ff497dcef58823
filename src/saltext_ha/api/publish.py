"""
Publishing a job once, whatever happens to the answer.

The pool chooses the jid. After a lost answer it asks the same master whether it knows that jid;
only if not, it sends the job again, with the *same* jid: a minion that saw the first one drops the
second, because it remembers the last jids (``minion_jid_queue_hwm``, 100) of all its masters.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Collection, Mapping
from typing import Any

from saltext_ha.api.answer import shown
from saltext_ha.api.deadline import Deadline
from saltext_ha.api.errors import CallFailed, TimedOut
from saltext_ha.api.jobs import JobStatus
from saltext_ha.api.master import MasterApi
from saltext_ha.api.tokens import Refused
from saltext_ha.api.transport import Lost, NoTime, NotSent

log = logging.getLogger(__name__)

# So long "not there" is not believed: a lost job may still be on its way through salt-api.
GRACE = 1.5
# Seconds between two looks into the job cache: a runner call is a process on the master.
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0
# Seconds that one look may take.
LOOK_LIMIT = 10.0
# Seconds between two looks into the job caches of the other masters, where minions moved meanwhile.
ELSEWHERE = 5.0
SENDINGS = 3


class Unsettled(Exception):
    """What became of the job cannot be found out; the text says what is known."""


class Publisher:
    """Sends jobs and settles lost answers, until the pool is *closing*."""

    def __init__(self, closing: threading.Event) -> None:
        self._closing = closing

    def send(
        self, master: MasterApi, low: Mapping[str, Any], deadline: Deadline, patient: bool
    ) -> tuple[Any, JobStatus | None]:
        """
        Send *low*, which has a jid, to *master*.

        :param patient: look for a lost job until the deadline; otherwise give up as soon as the
            master cannot be asked.
        :return: its answer; or, if that was lost and the job is there, what it knows of the job.
        :raises NotSent, Refused: it was certainly not published.
        :raises Unsettled: the answer was lost, and the master tells nothing.
        :raises CallFailed: it was not published, and would not be the next time.
        """
        jid = str(low["jid"])
        # Half of the time for the answer: looking for it must be possible with the other half.
        answer, lost = self._try(master, low, deadline.part(2))
        sent = 1
        while lost is not None:
            log.warning(
                "api_pool master=%s jid=%s event=answer_lost reason=%r", master.name, jid, str(lost)
            )
            found = self._settle(master, jid, lost, deadline, patient)
            if found is not None:
                return None, found
            if lost.finished and sent > 1:
                # Twice a complete error and no such job: it will not be better the third time.
                raise CallFailed(master.name, f"{lost}; it published no such job")
            if sent >= SENDINGS:
                raise Unsettled(f"{lost}; sent {sent} times, and {master.name} does not know it")
            log.warning("api_pool master=%s jid=%s event=sent_again", master.name, jid)
            sent += 1
            try:
                answer, lost = self._try(master, low, deadline.part(2))
            except (NotSent, Refused) as exc:
                # This sending certainly failed; the one before may have succeeded.
                lost = Lost(str(exc))
        return answer, None

    def _try(
        self, master: MasterApi, low: Mapping[str, Any], deadline: Deadline
    ) -> tuple[Any, Lost | None]:
        try:
            return master.call(low, deadline), None
        except Lost as exc:
            return None, exc

    def _settle(
        self, master: MasterApi, jid: str, lost: Lost, deadline: Deadline, patient: bool
    ) -> JobStatus | None:
        """What is known of *jid*; None: it is certainly not there. Raises like :meth:`send`."""
        pauses, problem = Pauses(self._closing), ""
        grace: Deadline | None = None
        while not deadline.passed:
            try:
                status = master.job(jid, deadline, LOOK_LIMIT)
            except Refused as exc:
                raise Unsettled(f"{lost}; looking it up: {exc} (it takes @jobs)") from None
            except (NotSent, Lost, CallFailed) as exc:
                if not problem or not isinstance(exc, NoTime):  # that says nothing of the master
                    problem = f"{lost}; looking it up: {exc}"
                if not patient:
                    break
            else:
                if status.found:
                    return status
                # From the first look on: requests to a master that was frozen may overtake others.
                grace = grace or Deadline(GRACE)
                if grace.passed:
                    return None
                problem = f"{lost}; {master.name} does not know it yet"
            if not pauses.pause(deadline):
                break
        raise Unsettled(problem or str(lost))

    def collect(
        self,
        master: MasterApi,
        status: JobStatus,
        deadline: Deadline,
        others: Collection[MasterApi] = (),
    ) -> JobStatus:
        """
        Wait for the returns of a job that was published.

        :param others: masters to which minions that moved meanwhile may have returned.
        :raises TimedOut: with the returns that came.
        """
        pauses = Pauses(self._closing)
        problem = ""
        elsewhere = time.monotonic() + ELSEWHERE
        while not status.complete:
            if time.monotonic() >= elsewhere:
                status = from_others(status, others, deadline)
                elsewhere = time.monotonic() + ELSEWHERE
                continue
            if not pauses.pause(deadline):
                left = (
                    f"job {status.jid} runs on {len(status.missing)} of {len(status.minions)} "
                    f"minions still, or they are down: {shown(', '.join(status.missing[:10]))}"
                    if status.counted
                    else f"job {status.jid}: the job cache does not tell to whom it was published; "
                    f"{len(status.returned)} minions have returned"
                )
                raise TimedOut(
                    left + problem,
                    master.name,
                    status.jid,
                    status.returned,
                    status.missing,
                )
            try:
                now = master.job(status.jid, deadline, LOOK_LIMIT)
                problem = "" if now.found else f" ({master.name} has no such job any more)"
                status = status.followed_by(now)
            except NoTime:
                pass  # this says nothing of the master
            except (NotSent, Lost, Refused, CallFailed) as exc:
                problem = f" (last look at {master.name}: {exc})"
        return status


def from_others(status: JobStatus, others: Collection[MasterApi], deadline: Deadline) -> JobStatus:
    """*status*, with what minions that are missing have returned to other masters."""
    for master in others:
        if not status.missing:
            break
        if master.name != status.master and master.health.usable:
            with contextlib.suppress(NotSent, Lost, Refused, CallFailed):
                told = master.job(status.jid, deadline.part(limit=LOOK_LIMIT))
                status = status.with_returns(told.returned)
    return status


class Pauses:
    """Growing pauses between two looks."""

    def __init__(self, closing: threading.Event) -> None:
        self._closing, self._next = closing, FIRST_PAUSE

    def pause(self, deadline: Deadline) -> bool:
        """Wait a while; ``False`` when there is no time left, or the pool is being closed."""
        closed = self._closing.wait(min(self._next, deadline.remaining()))
        self._next = min(self._next * 1.5, LONGEST_PAUSE)
        return not closed and not deadline.passed
