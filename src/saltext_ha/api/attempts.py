"""One call, tried on one master after another until one of them takes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saltext_ha.api.answer import shown
from saltext_ha.api.calls import none_left
from saltext_ha.api.deadline import Deadline
from saltext_ha.api.errors import CallFailed, OutcomeUnknown, TimedOut, listed
from saltext_ha.api.jobs import JobStatus, new_jid
from saltext_ha.api.master import MasterApi
from saltext_ha.api.prober import Prober
from saltext_ha.api.publish import Publisher, Unsettled
from saltext_ha.api.reads import is_read
from saltext_ha.api.selection import Selector
from saltext_ha.api.tokens import Refused
from saltext_ha.api.transport import Lost, NotSent


class Attempts:
    """
    Tries the masters in the order that *selector* gives them.

    :param masters: by name.
    :param prober: probes masters that lost an answer.
    :param looking: seconds that a look at a master in doubt may take.
    """

    def __init__(
        self,
        masters: Mapping[str, MasterApi],
        selector: Selector,
        publisher: Publisher,
        prober: Prober,
        looking: float,
    ) -> None:
        self._masters, self._selector = masters, selector
        self._publisher, self._prober, self._looking = publisher, prober, looking

    def order(self, deadline: Deadline) -> list[MasterApi]:
        """The masters in the order in which a call tries them; those in doubt are probed first."""
        standings = [master.standing for master in self._masters.values()]
        order = [self._masters[name] for name in self._selector.order(standings)]
        return self.sound(order, deadline)

    def sound(self, order: list[MasterApi], deadline: Deadline) -> list[MasterApi]:
        """Probe masters in doubt: those that do not work come last in *order*."""
        bad = [
            master
            for master in order
            if master.doubted and master.health.usable and not master.probe(self._share(deadline))
        ]
        return [master for master in order if master not in bad] + bad

    def _share(self, deadline: Deadline) -> float:
        """Seconds of the time until *deadline* that a look at a master in doubt may take."""
        return deadline.part(2, self._looking).remaining()

    def publish(
        self, low: dict[str, Any], order: list[MasterApi], deadline: Deadline, idempotent: bool
    ) -> tuple[MasterApi, Any, JobStatus | None]:
        """The master that published *low*, and its answer or else what it knows of the job."""
        reasons, refused = dict[str, str](), dict[str, str]()
        lost = dict[str, str]()
        for place, master in enumerate(order):
            last = place == len(order) - 1
            # An absent master uses up its share; a master that took the job may use all the time.
            limit = deadline if last or not idempotent else deadline.part(len(order) - place)
            low["jid"] = new_jid()
            try:
                master.probe_in_doubt(self._share(limit))
                patient = last or not idempotent
                return master, *self._publisher.send(master, low, limit, patient)
            except NotSent as exc:
                reasons[master.name] = str(exc)
            except Refused as exc:
                refused[master.name] = str(exc)
            except Unsettled as exc:
                master.doubt()
                self._prober.suspect(master)
                lost[master.name] = low["jid"]
                if last or not idempotent:
                    raise OutcomeUnknown(master.name, str(exc), low["jid"], jids=lost) from None
                # The next master gets another jid: it waits for returns, and minions that saw this
                # jid would drop the job.
                reasons[master.name] = str(exc)
        if lost:
            name, jid = list(lost.items())[-1]
            raise OutcomeUnknown(name, listed(reasons | refused), jid, jids=lost)
        none_left(reasons, refused)

    def returned(self, low: Mapping[str, Any], deadline: Deadline, idempotent: bool) -> Any:
        """
        What the runner or wheel function of *low* returned. If its answer is lost, the call is
        repeated if it is a read, or *idempotent*.

        :raises CallFailed: it ran and failed.
        """
        master, answer = self._call(low, deadline, idempotent)
        result = answer["data"]["return"]
        if not answer["data"]["success"]:
            what = f"{low['client']} {low['fun']}"
            raise CallFailed(master.name, f"{what} failed: {shown(result)}", result)
        return result

    def _call(
        self, low: Mapping[str, Any], deadline: Deadline, idempotent: bool
    ) -> tuple[MasterApi, Any]:
        """The answer to a call that has no jid of ours, and the master that gave it."""
        read = is_read(low["client"], low["fun"])
        repeatable = read or idempotent
        order, failed, lost = self.order(deadline), None, None
        if repeatable and len(order) == 1:
            order *= 2
        reasons, refused, slow = dict[str, str](), dict[str, str](), False
        for place, master in enumerate(order):
            try:
                tries = len(order) - place
                master.probe_in_doubt(self._share(deadline))
                return master, master.call(low, deadline.part(tries if repeatable else 1), tries)
            except NotSent as exc:
                reasons[master.name] = str(exc)
            except Refused as exc:
                refused[master.name] = str(exc)
            except Lost as exc:
                if not exc.nonsense:  # such a master is down, though a login may succeed
                    master.doubt()
                    self._prober.suspect(master)
                if not repeatable:
                    raise OutcomeUnknown(master.name, str(exc)) from None
                reasons[master.name] = str(exc)
                lost = master
                slow = slow or exc.slow
                if exc.finished and place == len(order) - 1:
                    failed = CallFailed(master.name, f"{low['client']} {low['fun']}: {exc}")
        if failed is not None:
            raise failed
        if slow and deadline.passed:
            raise TimedOut(
                f"{low['client']} {low['fun']}: no answer in time: {listed(reasons)}",
                order[-1].name,
            )
        if lost is not None and not read:
            raise OutcomeUnknown(lost.name, listed(reasons | refused))
        none_left(reasons, refused)
