"""This master's part of jobs: publishes what it or a peer asks for, and gathers the returns."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from saltext_ha.common.errors import HaError, InvalidRecord, PublishingTimedOut
from saltext_ha.common.validators import is_number
from saltext_ha.minions.connections import audience
from saltext_ha.minions.job_specs import (
    CMD,
    JID,
    LONGEST,
    REPORT,
    CommandSpec,
    JobSpec,
    Spec,
    answer,
    read,
)
from saltext_ha.minions.publishing import PUBLISHING, Publish, new_jids, publish_here
from saltext_ha.minions.returns import LEFT_OUT, Returns
from saltext_ha.salt_bus.intake import TOO_MUCH, fitted
from saltext_ha.transport import wire
from saltext_ha.transport.listener import Handler

log = logging.getLogger(__name__)

AFTERWARDS = 10.0  # seconds for which stray returns are still kept
AT_ONCE = 4  # jobs being published
MAX_RUNNING = 32  # jobs being waited for
MAX_ANSWERS = 6 * 1024 * 1024  # bytes of one message to a peer
NO_ROOM = "answered so much that it does not fit beside the others"
SHOWS = "; salt-run jobs.lookup_jid {0} on {1} shows it"
# A report takes its minion seconds, and longer if many are asked at once: wait as long as reports
# keep coming.
REPORTING = 45.0  # seconds in all
SILENT = 20.0  # seconds without a report
# Seconds without a return, once as many minions have returned as there are connections. That is not
# certain to be all: several minions of a deltaproxy, or behind a broker, share a connection.
LAST = 2.0
# A minion that has not returned a command in time is asked whether it still runs it.
FIND_JOB = "saltutil.find_job"
FINDING = 5.0
"""Seconds to answer, where all who are connected have returned, or for an older release that asks;
otherwise as many as Salt's own clients wait: ``gather_job_timeout``."""
MOST_FINDING = 60.0
LOOKING = 5.0  # seconds to publish the question, beside those to answer it
LATE = 2.0  # seconds in which the return of a minion that has just ended it must come


class Published(NamedTuple):
    """
    A job that was published here: when (``time.monotonic``), and which minions it is for.

    ``connections``: how many there were to the publisher then, of these minions and others; None:
    not known, or no measure of how many minions listen.
    """

    began: float
    targeted: frozenset[str]
    connections: int | None


class OwnJobs:
    """
    The only way in which an engine publishes jobs; see :mod:`saltext_ha.minions.job_specs`.

    :param name: this master's. :param opts: its configuration.
    :param returns: collects the returns from its bus.
    :param check_ending: raises HaError if the engine stops: it hears no returns any more.
    :ivar takes_commands: whether this master takes commands from other masters.
    :ivar publish: hands a job with an id of our choice to this master, and returns the minions
        that it is for; blocks. :raises HaError: it could not be published.
    :ivar connections: how many connections there are to this master's publisher; None: not known.
    """

    def __init__(
        self,
        name: str,
        opts: Mapping[str, Any],
        returns: Returns,
        takes_commands: bool,
        check_ending: Callable[[], None] = lambda: None,
    ) -> None:
        self._name, self._opts, self._returns = name, opts, returns
        self._check_ending = check_ending
        self.takes_commands = takes_commands
        self.publish: Publish = publish_here
        self.connections: Callable[[], int | None] = functools.partial(audience, opts)
        given: Any = opts.get("gather_job_timeout")
        usable = is_number(given) and given > 0
        self.finding: float = min(given, MOST_FINDING) if usable else FINDING
        """Seconds that minions have to say whether they still run what this master asked for."""
        self._shared = False
        """Whether more minions have ever returned or run a job than there were connections."""
        self._running: dict[str, asyncio.Task[dict[str, Any]]] = {}
        self._commands: dict[str, Published] = {}
        """Commands that were published here and whose returns are kept, by their id."""
        self._waiting_on = 0
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._arrived = asyncio.Event()
        loop = asyncio.get_running_loop()

        def arrived() -> None:
            loop.call_soon_threadsafe(self._arrived.set)

        returns.arrived = arrived

    def for_peers(self) -> dict[str, Handler]:
        """What peers may ask."""
        return {
            "job_expect": lambda peer, payload: self.expect(payload),
            "job_run": lambda peer, payload: self.run(payload, peer.name),
            "job_more": lambda peer, payload: self.more(payload),
            "job_strays": lambda peer, payload: self.strays(payload),
        }

    async def reports(self, glob: str) -> dict[str, dict[str, Any]]:
        """
        The reports of the minions that listen to this master, by id; see
        :mod:`saltext_ha.minions.reports`.

        :raises HaError: they could not be asked.
        """
        spec = JobSpec(REPORT, glob=glob)
        (jid,) = new_jids(1)
        told = await self.run({"jid": jid, "order": spec.to_wire(), "timeout": REPORTING})
        self._over([jid])
        if told["error"]:
            raise HaError(told["error"])
        return {minion_id: value for minion_id, _, value in told["returned"]}

    async def tell(self, spec: Spec) -> None:
        """Publish *spec* here, and wait for no return. :raises HaError: it is not published."""
        (jid,) = new_jids(1)
        async with self._turns:
            await asyncio.to_thread(self.publish, self._opts, spec, jid)

    async def expect(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        seconds = _seconds(payload.get("timeout")) + PUBLISHING + AFTERWARDS
        self._note_returns(_jids(payload), seconds)
        return {}

    def _note_returns(
        self, jids: Iterable[str], seconds: float, keep: Callable[[Any], Any] | None = None
    ) -> None:
        """As :meth:`.Returns.expect`, and forget them then."""
        self._returns.expect(jids, seconds, keep)
        asyncio.get_running_loop().call_later(seconds + 1, self._returns.forget_old)

    async def run(self, payload: Mapping[str, Any], by: str = "") -> dict[str, Any]:
        jid = _jid(payload)
        spec, timeout = read(payload.get("order")), _seconds(payload.get("timeout"))
        finding = _seconds(payload.get("finding", FINDING))
        if spec.what == CMD and by and not self.takes_commands:
            raise InvalidRecord("takes no commands from other masters (ha: commands: False)")
        # A call may come twice, when a connection breaks; the job is published once.
        task = self._running.get(jid)
        if task is None:
            if sum(not each.done() for each in self._running.values()) >= MAX_RUNNING:
                raise InvalidRecord(f"{MAX_RUNNING} jobs are under way; try again later")
            level = logging.INFO if spec.what == CMD else logging.DEBUG
            what, asked = f"{spec.what} {spec.job()[0]}", by or "this master"
            log.log(level, "ha job: jid=%s what=%s by=%s", jid, what, asked)
            task = asyncio.ensure_future(self._carry_out(spec, jid, timeout, finding))
            self._running[jid] = task
            loop = asyncio.get_running_loop()
            task.add_done_callback(
                lambda _: loop.call_later(AFTERWARDS, self._running.pop, jid, None)
            )
        return await asyncio.shield(task)

    async def _carry_out(
        self, spec: Spec, jid: str, timeout: float, finding: float
    ) -> dict[str, Any]:
        returns = self._returns
        try:
            patience = timeout + PUBLISHING + afterwards(spec, finding)
            job = await self._published(spec, jid, patience, functools.partial(answer, spec.what))
        except HaError as exc:
            unsure = isinstance(exc, PublishingTimedOut)
            return {"error": f"{self._name} could not publish: {exc}", "unsure": unsure}
        silent = SILENT if spec.what == REPORT else timeout
        await self._all_of(jid, job, timeout, silent)
        running: Collection[str] = ()
        if spec.what == CMD:
            known = {i: one for i, one in self._commands.items() if returns.targeted(i) is not None}
            self._commands = {**known, jid: job}
            running = await self._still_running(jid, job, finding)
        try:
            self._check_heard(jid, job)
        except HaError as exc:
            return {"error": f"{self._name}: {exc}", "unsure": True}
        self._note_sharing(jid, job, len(running))
        # Before they are forgotten: minions that were not waited for may have returned meanwhile.
        asyncio.get_running_loop().call_later(AFTERWARDS / 2, self._note_sharing, jid, job)
        return self._came_of(spec.what, jid, job, running)

    async def more(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Wait longer for a command published here, for any peer: it could read returns anyway."""
        jid = _jid(payload)
        timeout = _seconds(payload.get("timeout"))
        finding = _seconds(payload.get("finding", FINDING))
        job = self._commands.get(jid)
        if job is None or self._returns.targeted(jid) is None:
            raise InvalidRecord("that job is no longer waited for")
        if self._waiting_on >= MAX_RUNNING:
            raise InvalidRecord(f"{MAX_RUNNING} jobs are waited for; try again later")
        self._note_returns([jid], timeout + LOOKING + finding + LATE + AFTERWARDS)
        self._waiting_on += 1
        running: Collection[str] = ()
        try:
            await self._all_of(jid, job, timeout, timeout)
            running = await self._still_running(jid, job, finding)
            self._note_sharing(jid, job, len(running))
            if not running:
                # A minion whose command has just ended sends its return after this answer.
                await self._all_of(jid, job, LATE, LATE)
        finally:
            self._waiting_on -= 1
            if not running:  # else the caller asks again, once all masters have answered
                self._over([jid])
        self._check_heard(jid, job)
        return self._came_of(CMD, jid, job, running)

    def _check_heard(self, jid: str, job: Published) -> None:
        """:raises HaError: a return of *job* may have been missed, as the engine stops."""
        if job.targeted - self._returns.of(jid).keys():
            self._check_ending()

    def _note_sharing(self, jid: str, job: Published, running: int = 0) -> None:
        """Note whether minions share connections; *running* have not returned *job* yet."""
        there = self._returns.count(jid) + running
        self._shared |= job.connections is not None and there > job.connections

    def _came_of(
        self, what: str, jid: str, job: Published, running: Iterable[str]
    ) -> dict[str, Any]:
        """The results of a job so far, as a message for a peer."""
        came = self._returns.of(jid)
        # They go to a peer in one message.
        whole = SHOWS.format(jid, self._name) if what == CMD else ""
        too_much = {"problem" if what == REPORT else "error": NO_ROOM + whole}

        def told(value: Any) -> Any:
            if value is LEFT_OUT:
                return too_much
            return TOO_MUCH + whole if value == TOO_MUCH else value

        values = fitted({i: told(each.value) for i, each in came.items()}, MAX_ANSWERS, too_much)
        return {
            "error": "",
            "targeted": sorted(job.targeted),
            "returned": [
                [minion_id, round(max(0.0, each.at - job.began), 4), values[minion_id]]
                for minion_id, each in sorted(came.items())
            ],
            "failed": {i: each.retcode for i, each in sorted(came.items()) if each.retcode},
            "running": sorted(i for i in running if i not in came),
        }

    async def _published(
        self,
        spec: Spec,
        jid: str,
        patience: float,
        keep: Callable[[Any], Any],
        count: bool = True,
    ) -> Published:
        """
        Publish *spec* here, and keep its returns until shortly after the caller's patience.

        :param patience: seconds that it may wait for its turn; after that no caller waits for it.
        :param keep: returns the part of a return to keep. :param count: count connections as well.
        :raises HaError: it could not be published.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + patience
        async with self._turns:
            if loop.time() > end:
                raise HaError("too many jobs were being published; its turn came too late")
            self._note_returns([jid], patience + AFTERWARDS, keep)
            job = await loop.run_in_executor(None, self._publish, spec, jid, count)
            self._returns.narrow(jid, job.targeted)
        return job

    def _publish(self, spec: Spec, jid: str, count: bool) -> Published:
        """Publish *spec*; blocks."""
        # In a cluster of Salt's own, minions of other members return here as well.
        count = count and not self._opts.get("cluster_id")
        before = self.connections() if count else None
        began = time.monotonic()
        targeted = frozenset(self.publish(self._opts, spec, jid))
        after = self.connections() if before is not None else None
        # One that left or came just then may have heard it.
        most = None if before is None or after is None else max(before, after)
        return Published(began, targeted, most)

    async def _still_running(self, jid: str, job: Published, finding: float) -> list[str]:
        """The minions that have not returned *job*, and say that they still run it."""
        loop, returns = asyncio.get_running_loop(), self._returns
        missing = sorted(job.targeted - returns.of(jid).keys())
        if not missing:
            return []
        (look,) = new_jids(1)
        question = CommandSpec(missing, "list", FIND_JOB, (jid,))

        def keep(value: Any) -> bool:
            """Whether the minion answers that it runs that job."""
            return isinstance(value, Mapping) and value.get("jid") == jid

        patience = LOOKING + finding
        end = loop.time() + patience
        try:
            asked = await asyncio.wait_for(
                self._published(question, look, patience, keep, count=False), patience
            )
        except (HaError, asyncio.TimeoutError):
            self._over([look])
            return []  # no minion said so
        most = min(FINDING, finding) if self._all_heard(jid, job) else finding
        seconds = min(most, end - loop.time())
        await self._all_of(look, asked, seconds, seconds)
        self._over([look])
        return [minion_id for minion_id, each in returns.of(look).items() if each.value]

    async def _all_of(self, jid: str, job: Published, timeout: float, silent: float) -> None:
        """
        Wait until all minions that *job* is for have returned it, at most *timeout* seconds, and
        *silent* without a new return; :data:`LAST` once there are as many as connections.
        """
        loop, returns = asyncio.get_running_loop(), self._returns
        end = loop.time() + timeout
        before, last = 0, loop.time()
        while (here := returns.count(jid)) < len(job.targeted):
            now = loop.time()
            if here > before:
                before, last = here, now
            patience = min(silent, LAST) if self._all_heard(jid, job) else silent
            left = min(end, last + patience) - now
            if left <= 0:
                return
            self._arrived.clear()
            if returns.count(jid) == here:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._arrived.wait(), min(left, 1.0))

    def _all_heard(self, jid: str, job: Published) -> bool:
        """Whether as many minions have returned *job* as were connected."""
        return self._returns.count(jid) == job.connections and not self._shared

    async def strays(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """The minions that returned these jobs here; with ``counts`` only how far they are."""
        returns = self._returns
        if payload.get("counts") is True:
            return {"counts": {jid: _counted(returns, jid) for jid in _jids(payload)}}
        found = {jid: returns.of(jid) for jid in _jids(payload)}
        self._over(found)  # the caller asks this last
        return {
            "returned": {
                jid: sorted(minion_id for minion_id, each in came.items() if not each.relayed)
                for jid, came in found.items()
            }
        }

    def _over(self, jids: Iterable[str]) -> None:
        """Note that no caller waits for these jobs any more, except one whose connection broke."""
        returns = self._returns
        returns.over(jids, AFTERWARDS)
        asyncio.get_running_loop().call_later(AFTERWARDS + 1, returns.forget_old)


def afterwards(spec: Spec, finding: float) -> float:
    """
    Seconds that a master may take after it has published *spec* and waited for returns.

    :param finding: for minions to say whether they still run it.
    """
    return LOOKING + finding if spec.what == CMD else 0.0


def _counted(returns: Returns, jid: str) -> list[int | None]:
    """A :class:`Count`, as a message for a peer."""
    targeted = returns.targeted(jid)
    if targeted is None:
        return [None, 0, 0]  # returns of other minions may be among them
    return [len(targeted), returns.count(jid), returns.failed(jid)]


def _jid(payload: Mapping[str, Any]) -> str:
    return _jids({"jids": [payload.get("jid")]})[0]


def _jids(payload: Mapping[str, Any]) -> list[str]:
    jids = wire.texts(payload, "jids")
    if not 0 < len(jids) <= 64:
        raise InvalidRecord("takes 1 to 64 job ids")
    if not all(map(JID.fullmatch, jids)):
        raise InvalidRecord("a job id has 20 digits")
    return jids


def _seconds(value: Any) -> float:
    if not is_number(value) or not 0 < value <= LONGEST:
        raise InvalidRecord(f"takes seconds, more than 0, at most {LONGEST:g}")
    return float(value)
