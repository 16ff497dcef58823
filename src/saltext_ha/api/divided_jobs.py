"""
Publishes a job on the masters that its minions listen to, as far as the group tells: each part on
one master; then joins the results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from saltext_ha.api.answer import shown
from saltext_ha.api.attempts import Attempts
from saltext_ha.api.calls import Came, at_once, begun, fail, given_up, returns
from saltext_ha.api.deadline import Deadline
from saltext_ha.api.errors import ApiPoolError, OutcomeUnknown, TimedOut, listed
from saltext_ha.api.group import GroupLocator
from saltext_ha.api.jobs import Job, Returns
from saltext_ha.api.master import MasterApi
from saltext_ha.api.publish import Publisher
from saltext_ha.api.target_split import Part, divide

T = TypeVar("T")


class DividedJobs:
    """Publishes jobs, in parts where their minions listen to different masters."""

    def __init__(
        self,
        masters: Mapping[str, MasterApi],
        group: GroupLocator,
        attempts: Attempts,
        publisher: Publisher,
    ) -> None:
        self._masters, self._group = masters, group
        self._attempts, self._publisher = attempts, publisher

    def run(
        self,
        low: dict[str, Any],
        limit: Deadline,
        idempotent: bool,
        again: bool,
        reached: Mapping[str, Sequence[str]] | None = None,
    ) -> Returns:
        """
        Publish *low* and wait for the returns.

        :param again: run it once more on minions that went to another master.
        :param reached: the result of :meth:`GroupLocator.reached`, if it was asked just now.
        """

        def finish(part: dict[str, Any], order: list[MasterApi]) -> Came:
            master, answer, status = self._attempts.publish(part, order, limit, idempotent)
            if status is not None:
                others = [each for each in self._masters.values() if each is not master]
                told = self._publisher.collect(master, status, limit, others)
                return Came(master.name, part["jid"], told.returned)
            return Came(master.name, part["jid"], returns(answer), given_up(answer))

        order = self._attempts.order(limit)
        came, errors = self._each(low, order, limit, finish, reached)
        jids = {each.master: each.jid for each in came}
        returned = {m: value for each in came for m, value in each.returned.items()}
        if errors:
            fail(errors, jids, returned)
        gone = {minion: each for each in came for minion in each.given_up}
        if not gone or len(self._masters) == 1:
            return Returns(returned, jids)
        self._group.forget()
        there = self._group.reached(order, sorted(gone), "list", limit, live=True)
        if there is None:
            return Returns(returned, jids, gone)
        unsure = {minion for minion in gone if there.perhaps_elsewhere(minion)}
        moved = [m for m, each in sorted(gone.items()) if each.master not in there.get(m, ())]
        moved = [minion for minion in moved if there.get(minion)]
        if not moved:
            return Returns(returned, jids, unsure)
        left = {minion: value for minion, value in returned.items() if minion not in moved}
        why = ""
        if again:
            low = {**low, "tgt": moved, "tgt_type": "list"}
            once_more = partial(self.run, low, limit, idempotent, False, there)
            found, errors = at_once([(there[moved[0]][0], once_more)])
            if found:
                rest = found[0]
                return Returns({**left, **rest}, {**jids, **rest.jids}, rest.unsure | unsure)
            if any(isinstance(each, (OutcomeUnknown, TimedOut)) for each in errors.values()):
                fail(errors, jids, left)
            why = "; " + listed({name: str(each) for name, each in errors.items()})
        first, now = gone[moved[0]], ", ".join(sorted({n for m in moved for n in there[m]}))
        known = f"{shown(', '.join(moved[:10]))} did not answer there, and listens to {now} now"
        raise OutcomeUnknown(first.master, known + why, first.jid, left, moved, jids)

    def begin(self, low: dict[str, Any], limit: Deadline, idempotent: bool) -> Job:
        """Publish *low*, and wait for no return."""

        def publish(part: dict[str, Any], order: list[MasterApi]) -> Job:
            master, answer, status = self._attempts.publish(part, order, limit, idempotent)
            if status is not None:
                return Job(status.jid, master.name, status.minions, counted=status.counted)
            return begun(part["jid"], master.name, answer)

        jobs, errors = self._each(low, self._attempts.order(limit), limit, publish)
        if errors:
            fail(errors, {job.master: job.jid for job in jobs}, {})
        taken = [job for job in jobs if job.minions or not job.counted] or jobs
        return replace(taken[0], others=tuple(taken[1:]))

    def _each(
        self,
        low: dict[str, Any],
        order: list[MasterApi],
        limit: Deadline,
        run: Callable[[dict[str, Any], list[MasterApi]], T],
        reached: Mapping[str, Sequence[str]] | None = None,
    ) -> tuple[list[T], dict[str, ApiPoolError]]:
        """
        Publish *low* by *run* on every master that its minions need, at once; each part gets the
        masters to try, in order. Returns the results of the parts, and the errors by master; raises
        the error of a call that is not divided.
        """
        tgt, tgt_type = low["tgt"], low["tgt_type"]
        bad = [master for master in order if master.doubted]
        if reached is None:
            reached = self._group.reached(order, tgt, tgt_type, limit)
        if any(master.doubted and master not in bad for master in order):
            order = self._attempts.sound(order, limit)  # a master did not even answer this

        def on_its_master(part: Part) -> tuple[str, Callable[[], T]]:
            first = sorted(order, key=lambda master: master.name != part.master)
            own = {**low, "tgt": part.tgt, "tgt_type": part.tgt_type}
            return part.master, partial(run, own, first)

        names = [master.name for master in order]
        work = [on_its_master(part) for part in divide(tgt, tgt_type, reached or {}, names)]
        if len(work) == 1:
            return [work[0][1]()], {}
        return at_once(work)
