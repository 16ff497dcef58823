"""Job ids, and what a master's job cache says about them."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from saltext_ha.api.answer import are_names


def new_jid() -> str:
    """
    A new jid in Salt's form, with a suffix (that of ``unique_jid``) that is random here.

    It must be unique: a minion drops a job whose jid it has seen already.
    """
    return f"{datetime.now(timezone.utc):%Y%m%d%H%M%S%f}_{secrets.randbits(64)}"


@dataclass(frozen=True)
class Job:
    """
    A job that a master took.

    :ivar jid: as sent by the pool.
    :ivar master: name of the master that published it, and that has its returns.
    :ivar minions: the minions that the master expects to return; if it is empty and ``counted``,
        none matched, and nothing was run.
    :ivar others: the jobs of the same call on other masters, where its minions listen to several;
        ``minions`` are those of this one alone.
    :ivar counted: whether ``minions`` are all that the master knows to expect. A master of masters
        (``order_masters``) does not know the minions below its syndics when it publishes, and
        gives a jid even if none of its own matches (Salt 3006 to 3008: ``publish`` in
        ``salt/master.py``, ``_check_pub_data`` in ``salt/client/__init__.py``). Where the answer
        was lost, the job cache may not tell (:class:`JobStatus`).
    """

    jid: str
    master: str
    minions: tuple[str, ...] = ()
    others: tuple[Job, ...] = ()
    counted: bool = True


class Returns(dict[str, Any]):
    """
    What ``local`` returns: minion → return.

    :ivar jids: master → jid of the job that it published for this call.
    :ivar unsure: minions that Salt gave up, while another master may reach them: no master tells,
        one could not be asked, or a master reaches them that is not in the pool or never answered
        it. They stand in the mapping with ``False``. Always empty in a pool of one master, which
        asks nobody.
    """

    def __init__(
        self,
        returned: Mapping[str, Any],
        jids: Mapping[str, str],
        unsure: Collection[str] = (),
    ) -> None:
        super().__init__(returned)
        self.jids, self.unsure = dict(jids), frozenset(unsure)


@dataclass(frozen=True)
class JobStatus:
    """
    What one master knows of a job.

    :ivar found: whether its job cache has the job at all.
    :ivar returned: minion → what the function returned there; also of a minion that returned to
        another master than the one that published the job, because it moved meanwhile.
    :ivar counted: whether ``minions`` are all minions of the job. Most job caches other than Salt's
        own keep only those that have returned (``get_load`` of pgjsonb, mysql, redis, …).
    """

    jid: str
    master: str
    found: bool
    minions: tuple[str, ...] = ()
    returned: Mapping[str, Any] = field(default_factory=dict)
    counted: bool = True

    @property
    def missing(self) -> list[str]:
        """The minions that have not returned, sorted."""
        return sorted(set(self.minions) - self.returned.keys())

    @property
    def complete(self) -> bool:
        """Whether it was published, and all minions have returned, as far as is known."""
        return self.found and self.counted and not self.missing

    def with_returns(self, more: Mapping[str, Any]) -> JobStatus:
        """This status, with what its missing minions have returned elsewhere."""
        came = {minion: more[minion] for minion in self.missing if minion in more}
        return replace(self, returned={**self.returned, **came}) if came else self

    def followed_by(self, later: JobStatus) -> JobStatus:
        """This status and a *later* one together: what was known once stays known."""
        if not later.found:
            return self
        minions = tuple(sorted({*self.minions, *later.minions}))
        returned = {**self.returned, **later.returned}
        counted = self.counted or later.counted
        return replace(later, minions=minions, counted=counted, returned=returned)


def read_status(jid: str, master: str, answer: Any) -> JobStatus:
    """The status in an answer of ``jobs.list_job``. :raises ValueError: it has another form."""
    formed = isinstance(answer, dict) and isinstance(answer.get("Result", {}), dict)
    if not formed or not are_names(answer.get("Minions") or []):
        raise ValueError("the answer of jobs.list_job has another form")
    returned = {
        minion: found.get("return") if isinstance(found, dict) else found
        for minion, found in answer.get("Result", {}).items()
    }
    # For a job that this master did not publish, Salt has an Error or an unknown function, by
    # release; and what minions have returned here.
    if "Error" in answer or answer.get("Function", "unknown-function") == "unknown-function":
        return JobStatus(jid, master, False, returned=returned)
    counted = bool(answer.get("Minions"))
    minions = tuple(sorted(answer["Minions"] if counted else returned))
    return JobStatus(jid, master, True, minions, returned, counted)
