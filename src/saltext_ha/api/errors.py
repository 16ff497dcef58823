"""
The errors of the salt-api pool. No message, attribute or chained exception has a secret in it.

::

    ApiPoolError                  the root
    ├── BadConfiguration          names the entry and the key, or the argument, and what it takes
    ├── NoMasterAvailable         nothing was run; .reasons says why, for each master
    ├── NotAuthorised             nothing was run; every master that answered refused it
    ├── CallFailed                a master took the call and said that it failed; not tried again
    ├── TimedOut                  the deadline passed; of a job: it runs, .returned are its answers
    ├── OutcomeUnknown            the answer was lost: the call may have run, or may run yet
    ├── PartlyRun                 a job for minions of several masters: some took it, some did not
    └── TargetNotDivided          nothing was run; the target cannot be divided among the masters
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any


class ApiPoolError(Exception):
    """Root of the errors of the salt-api pool; no error of Salt, which the pool does not need."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Python would copy it, or send it to another process, by calling it with its message.
        return _same, (type(self), self.args), self.__dict__


class BadConfiguration(ApiPoolError):
    """
    The configuration or an argument is wrong; nothing was run. The message names the entry and the
    key, or the argument.
    """


class _NothingRun(ApiPoolError):
    what = ""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(f"{self.what}: {listed(reasons)}")
        self.reasons = dict(reasons)


class NoMasterAvailable(_NothingRun):
    """No master could be asked; nothing was run. ``reasons``: name of each master → why not."""

    what = "no master available"


class NotAuthorised(_NothingRun):
    """
    Every master that answered refused the user or the client; nothing was run. ``reasons``: name of
    each master → what it refused.
    """

    what = "not authorised"


class CallFailed(ApiPoolError):
    """
    A master answered that the call failed.

    :ivar master: its name.
    :ivar result: what the function returned instead, where Salt tells.
    """

    def __init__(self, master: str, message: str, result: Any = None) -> None:
        super().__init__(f"{master}: {message}")
        self.master, self.result = master, result


class _OfJob(ApiPoolError):
    def __init__(
        self,
        message: str,
        master: str,
        jid: str | None = None,
        returned: Mapping[str, Any] | None = None,
        missing: Collection[str] = (),
        jids: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.master, self.jid = master, jid
        self.jids = dict(jids or ({master: jid} if jid else {}))
        self.returned, self.missing = dict(returned or {}), sorted(missing)


class TimedOut(_OfJob):
    """
    The deadline passed before the answer was complete.

    :ivar jid: the job that is known to have been published; ``None`` for reads.
    :ivar jids: master → the job that runs there; several for minions of several masters.
    :ivar master: the master that was asked last.
    :ivar returned: minion → its return, as far as they came.
    :ivar missing: the minions that have not returned.
    """


class OutcomeUnknown(_OfJob):
    """
    The answer was lost and could not be looked up: the call may have run, or may run yet.

    :ivar jid: of the job, to look it up later (``SaltApiPool.lookup``); ``None`` for runners and
        wheel functions, whose jid only the master knows.
    :ivar jids: master → the job that was sent there; several for minions of several masters, also
        those whose outcome is known.
    :ivar master: the master that it was sent to.
    :ivar known: what is known about sending it and looking it up.
    :ivar returned: minion → its return, of those that did return.
    :ivar missing: the minions whose result is unknown, if they can be named.
    """

    def __init__(
        self,
        master: str,
        known: str,
        jid: str | None = None,
        returned: Mapping[str, Any] | None = None,
        missing: Collection[str] = (),
        jids: Mapping[str, str] | None = None,
    ) -> None:
        what = f"job {jid}" if jid else "the call"
        text = f"{what} was sent to {master} and may have run, or may run yet: {known}"
        super().__init__(text, master, jid, returned, missing, jids)
        self.known = known


class PartlyRun(ApiPoolError):
    """
    A job for minions of several masters: some of these took it, others certainly did not.

    :ivar returned: minion → its return (``local``).
    :ivar jobs: master → jid of the jobs that were published.
    :ivar reasons: master → the error of the part that was for its minions.
    """

    def __init__(
        self,
        returned: Mapping[str, Any],
        jobs: Mapping[str, str],
        reasons: Mapping[str, ApiPoolError],
    ) -> None:
        ran = ", ".join(jobs) or "nobody"
        super().__init__(f"published by {ran}; {listed({k: str(v) for k, v in reasons.items()})}")
        self.returned, self.jobs, self.reasons = dict(returned), dict(jobs), dict(reasons)


class TargetNotDivided(ApiPoolError):
    """
    Minions listen to different masters, and this target cannot be divided among these: Salt takes
    it only whole. Nothing was run.
    """

    def __init__(self, tgt: str | Collection[str], tgt_type: str) -> None:
        super().__init__(
            f"the target {tgt!a:.200} ({tgt_type}) cannot be divided among the masters that "
            "minions listen to: Salt divides compound targets at every space (write ? for it, as "
            "os:Red?Hat), and takes no range, and no glob with @ in the second place, in one"
        )


def _same(kind: type[ApiPoolError], args: tuple[Any, ...]) -> ApiPoolError:
    return kind.__new__(kind, *args)


def listed(reasons: Mapping[str, str]) -> str:
    """*reasons*, master → text, in one line."""
    return "; ".join(f"{master}: {reason}" for master, reason in reasons.items())
