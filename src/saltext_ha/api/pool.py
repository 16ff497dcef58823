"""The pool: which master a call goes to, and what happens when it does not answer."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any

from saltext_ha.api import config
from saltext_ha.api.attempts import Attempts
from saltext_ha.api.calls import at_once, beside, fail, function, none_left, publication, summary
from saltext_ha.api.config import Endpoint
from saltext_ha.api.deadline import Deadline
from saltext_ha.api.divided_jobs import DividedJobs
from saltext_ha.api.errors import ApiPoolError, BadConfiguration, CallFailed
from saltext_ha.api.group import GroupLocator
from saltext_ha.api.jobs import Job, JobStatus, Returns
from saltext_ha.api.master import MasterApi
from saltext_ha.api.minions import Minions, union
from saltext_ha.api.prober import Prober
from saltext_ha.api.publish import Publisher, from_others
from saltext_ha.api.selection import POLICIES, Policy, Selector
from saltext_ha.api.tokens import Refused
from saltext_ha.api.transport import Lost, NotSent
from saltext_ha.common.hysteresis import Rules

GOODBYE_LIMIT = 1.0


class SaltApiPool:
    """
    The salt-api of several masters as one; any number of threads may use it. Create it after
    ``fork()``: another process than that which made it is refused.

    :param masters: URLs, mappings (``url``, ``name``, ``priority``, ``username``, ``password`` or
        ``password_file``, ``eauth``, ``verify``) or :class:`Endpoint`; by default those of the
        environment (:mod:`saltext_ha.api.config`).
    :param username: for masters without their own, like *password*, *password_file* and *eauth*.
    :param selection: ``priority`` (the healthy master with the lowest number), ``round_robin``, or
        ``sticky`` (the last one until it is down).
    :param deadline: seconds for one call as a whole, whatever it has to try.
    :param verify: ``True``, ``False``, or the path of a CA file, for masters without their own.
    :param allow_insecure: http:// to another host than this one sends the password in clear text:
        ``None`` warns (:class:`InsecureConnection`), ``True`` allows it, ``False`` refuses it.
    :param probe_interval: seconds between two probes of a master.
    :param probe_timeout: seconds for a probe, with both of its layers.
    :param fall: failures in a row until a master is down.
    :param rise: successes in a row until it is up again.
    :param spacing: seconds; signals that are closer together count once.
    :raises BadConfiguration: naming the entry and the key.

    Every call raises an :class:`~saltext_ha.api.errors.ApiPoolError`; see there for which.
    """

    def __init__(
        self,
        masters: Sequence[Endpoint | Mapping[str, Any] | str] | None = None,
        *,
        username: str | None = None,
        password: str | None = None,
        password_file: str | None = None,
        eauth: str | None = None,
        selection: Policy = "priority",
        deadline: float = 60.0,
        verify: bool | str | None = None,
        allow_insecure: bool | None = None,
        probe_interval: float = 10.0,
        probe_timeout: float = 5.0,
        fall: int = 2,
        rise: int = 3,
        spacing: float = 1.0,
    ) -> None:
        self._masters: dict[str, MasterApi] = {}
        numbers: dict[str, Any] = {"deadline": deadline, "fall": fall, "rise": rise}
        numbers |= {"probe_interval": probe_interval, "probe_timeout": probe_timeout}
        options: dict[str, Any] = {"username": username, "password": password, "verify": verify}
        options |= {"password_file": password_file, "eauth": eauth}
        given = {key: value for key, value in options.items() if value is not None}
        endpoints, problem = list[Endpoint](), ""
        try:
            if masters is None:
                endpoints = config.from_environment(os.environ, given)
            else:
                endpoints = config.endpoints(masters, given, "masters")
        except BadConfiguration as exc:
            problem = str(exc)
        # They have passwords in clear text, and error reporters show the frames of an error.
        masters = password = None
        options.clear()
        given.clear()
        if problem:
            raise BadConfiguration(problem)
        if selection not in POLICIES:
            raise BadConfiguration(f"selection: {selection!r}; takes one of {', '.join(POLICIES)}")
        config.check_numbers(numbers)
        config.check_seconds("spacing", spacing)
        config.check_insecure(endpoints, allow_insecure)
        rules = Rules(fall, rise, spacing)
        self._masters = {endpoint.name: MasterApi(endpoint, rules) for endpoint in endpoints}
        self._deadline, self._closing = float(deadline), threading.Event()
        self._process = os.getpid()
        self._publisher = Publisher(self._closing)
        self._prober = Prober(list(self._masters.values()), probe_interval, probe_timeout)
        self._attempts = Attempts(
            self._masters, Selector(selection), self._publisher, self._prober, probe_timeout
        )
        self._jobs = DividedJobs(
            self._masters, GroupLocator(self._masters), self._attempts, self._publisher
        )
        self._prober.start()
        # Of a pool that nobody closes, such as one for a single call, the thread would go on.
        weakref.finalize(self, self._prober.abandon).atexit = False

    # -- calls

    def local(
        self,
        tgt: str | Sequence[str],
        fun: str,
        arg: Sequence[Any] = (),
        kwarg: Mapping[str, Any] | None = None,
        *,
        tgt_type: str = "glob",
        timeout: int | None = None,
        deadline: float | None = None,
        idempotent: bool = False,
    ) -> Returns:
        """
        Run *fun* on minions and wait for their returns. The job goes to the masters that its
        minions listen to, as far as the group tells (``ha.where``), and to each minion once.

        :param timeout: Salt's: seconds until it asks whether silent minions still run it, and gives
            up those that do not answer. A very busy one may not; its return then comes later.
        :param deadline: seconds for the whole call, instead of the pool's.
        :param idempotent: running it twice does no harm: when the answer is lost and the master is
            gone, another master runs it again.
        :return: minion → return; ``False`` for a minion that Salt gave up. Empty when no minion
            matched. Its ``jids`` has the job on each master; its ``unsure`` the minions that were
            given up and may listen to another master (:class:`~saltext_ha.api.jobs.Returns`).
        :raises TimedOut: it was published; with the returns that came.
        :raises OutcomeUnknown: the answer was lost and could not be looked up; or a minion went to
            another master meanwhile (``missing``; ``returned`` has what came).
        :raises PartlyRun: minions of one master took it, those of another one certainly did not.
        :raises TargetNotDivided: it is for minions of several masters, and cannot be divided.
        """
        config.check_flag("idempotent", idempotent)
        limit = self._limit(deadline)
        low = publication("local", tgt, fun, arg, kwarg, tgt_type, timeout)
        return self._jobs.run(low, limit, idempotent, again=idempotent)

    def local_async(
        self,
        tgt: str | Sequence[str],
        fun: str,
        arg: Sequence[Any] = (),
        kwarg: Mapping[str, Any] | None = None,
        *,
        tgt_type: str = "glob",
        deadline: float | None = None,
        idempotent: bool = False,
    ) -> Job:
        """
        Publish a job and return at once; :meth:`wait` and :meth:`lookup` take what this returns.

        Parameters and errors are those of :meth:`local`. Where the minions listen to several
        masters, there is a job on each of these: ``Job.others``.
        """
        config.check_flag("idempotent", idempotent)
        low = publication("local_async", tgt, fun, arg, kwarg, tgt_type, None)
        limit = self._limit(deadline)
        return self._jobs.begin(low, limit, idempotent)

    def runner(
        self,
        fun: str,
        arg: Sequence[Any] = (),
        kwarg: Mapping[str, Any] | None = None,
        *,
        deadline: float | None = None,
        idempotent: bool = False,
    ) -> Any:
        """
        Run a runner function, and return what it returns.

        :param idempotent: running it twice does no harm: when the answer is lost, another master
            runs it. Known reads (:mod:`saltext_ha.api.reads`) need not say so.
        :raises CallFailed: it ran and failed.
        :raises OutcomeUnknown: the answer was lost, and it is neither a read nor idempotent.
        """
        config.check_flag("idempotent", idempotent)
        low = function("runner", fun, arg, kwarg) | {"full_return": True}
        return self._attempts.returned(low, self._limit(deadline), idempotent)

    def wheel(
        self,
        fun: str,
        arg: Sequence[Any] = (),
        kwarg: Mapping[str, Any] | None = None,
        *,
        deadline: float | None = None,
        idempotent: bool = False,
    ) -> Any:
        """Like :meth:`runner`, for a wheel function."""
        config.check_flag("idempotent", idempotent)
        low = function("wheel", fun, arg, kwarg)
        return self._attempts.returned(low, self._limit(deadline), idempotent)

    def lookup(
        self, jid: str, master: str | None = None, *, deadline: float | None = None
    ) -> JobStatus:
        """
        What the job caches know of *jid*.

        :param master: the name of the one to ask, as in ``Job.master``; by default all are asked
            until one knows it, then the others for the returns of minions that moved meanwhile.
        :raises NoMasterAvailable: no master that could be asked knows it, and some could not be.
        """
        limit, reasons, refused = self._limit(deadline), dict[str, str](), dict[str, str]()
        names = list(self._masters) if master is None else [self._named(master).name]
        names.sort(key=lambda name: not self._masters[name].health.usable)
        absent: JobStatus | None = None
        for left, name in zip(range(len(names), 0, -1), names, strict=True):
            try:
                status = self._masters[name].job(jid, limit.part(left))
            except Refused as exc:
                refused[name] = str(exc)
                continue
            except (NotSent, Lost, CallFailed) as exc:
                reasons[name] = str(exc)
                continue
            if status.found:
                return from_others(status, self._others(name, master), limit)
            absent = status
        if absent is None or reasons or refused:
            none_left(reasons, refused)
        return absent

    def wait(self, job: Job | str, *, deadline: float | None = None) -> dict[str, Any]:
        """
        The returns of a job, when all have come: those of all minions that the master counts by
        then.

        :param job: what :meth:`local_async` returned, or a jid.
        :raises TimedOut: with the returns that came.
        """
        limit = self._limit(deadline)
        if isinstance(job, Job) and job.others:
            return self._wait_all((replace(job, others=()), *job.others), limit)
        if isinstance(job, Job):
            name = self._named(job.master).name
            # If it is counted and has no minions, it is complete.
            status = JobStatus(job.jid, name, True, job.minions, counted=job.counted)
        else:
            status = self.lookup(job, deadline=limit.remaining())
        if not status.found:
            raise CallFailed(status.master, f"has no job {status.jid}")
        master = self._masters[status.master]
        others = self._others(master.name)
        return dict(self._publisher.collect(master, status, limit, others).returned)

    def _others(self, name: str, asked: str | None = None) -> list[MasterApi]:
        """The masters other than *name*; none if the caller *asked* for one master only."""
        return [] if asked else [each for each in self._masters.values() if each.name != name]

    def minions(self, *, timeout: int | None = None, deadline: float | None = None) -> Minions:
        """
        Which minions are up: the union of what ``manage.status`` says on every master. A minion is
        down only when no master reaches it; masters that could not be asked are named.

        :param timeout: Salt's: seconds until a silent minion is down for a master.
        :raises NoMasterAvailable: no master could be asked. NotAuthorised: none would tell.
        """
        limit = self._limit(deadline)
        low = {"client": "runner", "fun": "manage.status", "arg": [], "kwarg": {}}
        if timeout is not None:
            low["kwarg"] = {"timeout": timeout, "gather_job_timeout": timeout}

        def ask(master: MasterApi) -> Any:
            # Half of the time for a master that is presumed down: it delays the whole answer.
            return master.call(low, limit if master.health.usable else limit.part(2))

        answers, reasons, refused = dict[str, Any](), dict[str, str](), dict[str, str]()
        futures = {name: beside(partial(ask, one)) for name, one in self._masters.items()}
        for name, future in futures.items():
            try:
                answers[name] = future.result()
            except Refused as exc:
                refused[name] = str(exc)
            except (NotSent, Lost, CallFailed) as exc:
                reasons[name] = str(exc)
                self._prober.suspect(self._masters[name])
        found = union(answers, reasons | refused)
        if not found.asked:
            none_left({**reasons, **found.unasked}, refused)
        return found

    def status(self) -> dict[str, Any]:
        """
        The presumed health of the masters; asks none of them.

        :return: ``status`` (online: all are healthy; degraded: some; offline: all are down;
            unknown: none is healthy so far, and some may be), ``master_count``,
            ``healthy_count`` and ``masters``: ``url``, ``name``, ``healthy`` (``None``: not known
            yet), ``reason``.
        """
        self._check_process()
        return summary(self._masters.values())

    # -- ending

    def close(self) -> None:
        """End the background thread, log out, close the connections. It may be called twice."""
        # After a fork all of it belongs to the process before it, the token too.
        if self._closing.is_set() or self._process != os.getpid():
            return
        self._closing.set()
        self._prober.close()
        for master in self._masters.values():
            master.close(GOODBYE_LIMIT)

    def __enter__(self) -> SaltApiPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<SaltApiPool {', '.join(self._masters)}>"

    # -- helpers

    def _check_process(self) -> None:
        """
        After a fork two processes share connections, and one reads the answers to the calls of the
        other; nobody probes; and a lock that a thread held is held for ever.
        """
        if self._process != os.getpid():
            raise ApiPoolError(
                "this SaltApiPool was made before fork(); make one in each process, after it"
            )

    def _limit(self, deadline: float | None) -> Deadline:
        self._check_process()
        if self._closing.is_set():
            raise ApiPoolError("this SaltApiPool is closed")
        if deadline is None:
            return Deadline(self._deadline)
        config.check_seconds("deadline", deadline)
        return Deadline(float(deadline))

    def _named(self, name: str) -> MasterApi:
        if not isinstance(name, str) or name not in self._masters:
            raise BadConfiguration(f"master {name!r}: takes one of {', '.join(self._masters)}")
        return self._masters[name]

    def _wait_all(self, jobs: Collection[Job], limit: Deadline) -> dict[str, Any]:
        # At once: a slow minion of one master must not use up the time of the others.
        found, errors = at_once(
            [(job.master, partial(self.wait, job, deadline=limit.remaining())) for job in jobs]
        )
        returned = {minion: value for each in found for minion, value in each.items()}
        if errors:
            jids = {job.master: job.jid for job in jobs if job.master not in errors}
            fail(errors, jids, returned)
        return returned
