"""Publishes a job on some or all masters of the group at once, and gathers the returns."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from saltext_ha.common.errors import (
    HaError,
    PeerMistrust,
    PeerUnreachable,
    UnknownMethod,
)
from saltext_ha.common.tasks import answers_of
from saltext_ha.minions.job_answers import (
    Answers,
    Count,
    Stray,
    read_answers,
    read_count,
    read_strays,
)
from saltext_ha.minions.job_specs import Spec
from saltext_ha.minions.own_jobs import LATE, LOOKING, OwnJobs, afterwards
from saltext_ha.minions.publishing import PUBLISHING, new_jids
from saltext_ha.sync.group import Group


class Jobs:
    """
    Runs jobs on the masters of the group.

    :param here: this master's part.
    :ivar own: this master's name.
    :param hot: called with minion → how many masters it answered at once, if more than one.
    """

    def __init__(
        self, group: Group, here: OwnJobs, hot: Callable[[Mapping[str, int]], None]
    ) -> None:
        self._group, self._hot = group, hot
        self.here = here
        self.own = group.name

    @property
    def masters(self) -> list[str]:
        """All masters of the group, by name."""
        return self._group.masters

    async def run(
        self,
        spec: Spec,
        timeout: float,
        masters: Collection[str] | None = None,
        jids: Mapping[str, str] | None = None,
        unreached: Collection[str] = (),
    ) -> tuple[dict[str, Answers], list[Stray]]:
        """
        Publish *spec* on *masters* (default: all) at once.

        :param timeout: seconds for the minions to return.
        :param jids: master → the id of its job; default: new ones.
        :param unreached: masters that did not answer just now: they are not asked who has returned.
        :return: master → the results there; and the returns that came to the wrong master.
        """
        chosen = self.masters if masters is None else sorted(masters)
        jids = jids or dict(zip(chosen, new_jids(len(chosen)), strict=True))
        # All masters listen before any publishes: no return comes too early to be seen.
        listening = [name for name in self.masters if name in chosen or name not in unreached]
        _, deaf = await self._each(
            listening, "job_expect", {"jids": [*jids.values()], "timeout": timeout}
        )
        found = {name: Answers(error=why) for name, why in deaf.items() if name in jids}
        asked = [name for name in chosen if name not in found]
        told = await asyncio.gather(
            *(self._run_on(name, jids[name], spec, timeout) for name in asked)
        )
        for name, answers in zip(asked, told, strict=True):
            found[name] = answers
            found[name].jid = jids[name]
        answered = Counter(minion_id for answers in told for minion_id in answers.returned)
        self._hot({minion_id: of for minion_id, of in answered.items() if of > 1})
        if any(each.running for each in found.values()):
            return found, []  # they are not over: :meth:`more` is asked next
        hearing = [name for name in listening if name not in deaf]
        strays, _ = await self._each(hearing, "job_strays", {"jids": [*jids.values()]})
        return found, sorted(read_strays(jids, strays), key=lambda s: (s.published, s.arrived))

    async def more(self, jids: Mapping[str, str], timeout: float) -> dict[str, Answers]:
        """
        Just after :meth:`run`, wait longer for minions that said that they still run its command.

        :param jids: master → the id of its job.
        :param timeout: seconds; then minions that have not returned are asked again.
        :return: master → all results until now; with an error where they are not known. Masters
            of a release that does not know the question are left out.
        """

        async def ask(name: str, jid: str) -> Answers | None:
            finding = self.here.finding
            payload = {"jid": jid, "timeout": timeout, "finding": finding}
            try:
                wait = timeout + LOOKING + finding + LATE + 5
                return read_answers(await self._call(name, "job_more", payload, wait))
            except UnknownMethod:
                return None
            except HaError as exc:
                return Answers(error=str(exc))

        told = await asyncio.gather(*(ask(name, jid) for name, jid in jids.items()))
        return {name: each for name, each in zip(jids, told, strict=True) if each is not None}

    async def counts(self, jids: Mapping[str, str]) -> tuple[dict[str, Count], dict[str, str]]:
        """Master → how far its job of *jids* is; and master → why it does not say."""

        async def ask(name: str) -> Count:
            contact = self._group.contacts.get(name)
            if contact is not None and contact.up is False:
                # Each failed call would lengthen the pause before the next try.
                raise HaError(contact.error)
            payload = {"jids": [jids[name]], "counts": True}
            told = await self._call(name, "job_strays", payload, self._group.timeout)
            return read_count(told, jids[name])

        return await answers_of(jids, ask)

    async def _each(
        self, names: Collection[str], method: str, payload: dict[str, Any]
    ) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """Master → its answer; and why some give none."""
        timeout = self._group.timeout
        return await answers_of(names, lambda name: self._call(name, method, payload, timeout))

    async def _call(
        self, name: str, method: str, payload: dict[str, Any], timeout: float
    ) -> dict[str, Any]:
        """The answer of a master. :raises HaError: there is none; says why."""
        if name == self.own:
            here = self.here
            own: dict[str, Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]] = {
                "job_expect": here.expect,
                "job_run": here.run,
                "job_more": here.more,
                "job_strays": here.strays,
            }
            return await own[method](payload)
        return await self._group.call(name, method, payload, timeout)

    async def _run_on(self, name: str, jid: str, spec: Spec, timeout: float) -> Answers:
        """The results of *spec* on the master *name*."""
        finding = self.here.finding
        payload = {"jid": jid, "order": spec.to_wire(), "timeout": timeout, "finding": finding}
        try:
            wait = timeout + PUBLISHING + 5 + afterwards(spec, finding)
            return read_answers(await self._call(name, "job_run", payload, wait))
        except PeerUnreachable as exc:
            return Answers(error=str(exc), unsure=not isinstance(exc, PeerMistrust) or exc.taken)
        except HaError as exc:
            return Answers(error=str(exc))
