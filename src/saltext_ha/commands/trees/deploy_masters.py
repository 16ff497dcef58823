"""How all masters get a deployment: are they ready, then they stage it, then they switch."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence

from saltext_ha.commands.background import Job
from saltext_ha.commands.trees.deploy_plan import Planned
from saltext_ha.commands.trees.tree_states import States, TreeStates
from saltext_ha.common.errors import DiskHangs, HaError
from saltext_ha.replication.deployment import Register
from saltext_ha.sync.group import SLOW, Group
from saltext_ha.trees.live_path import FOREIGN
from saltext_ha.trees.registers import TreeRegisters
from saltext_ha.trees.stager import FAILED, STAGED, Stager
from saltext_ha.trees.trees import Trees

PAUSE = 0.05  # seconds between two questions to a peer that stages
LACKING = "has no tree {0}: write it into  ha: trees:  there, too, and restart its salt-master"


class Masters:
    """The masters that take part: this one, and its peers."""

    def __init__(
        self,
        group: Group,
        registers: TreeRegisters,
        trees: Trees,
        stager: Stager,
        states: TreeStates,
    ) -> None:
        self._group, self._registers, self._trees = group, registers, trees
        self._stager, self._states = stager, states

    async def ready(self, names: list[str], left_out: set[str], adopt: bool) -> States:
        """
        The states of all masters that take part.

        :param names: of the trees. :param left_out: masters that need not take part.
        :param adopt: whether a live folder may be one that no deployment made.
        :raises HaError: a master cannot take part.
        """
        # A master that does not say which version is current could have that replaced unseen.
        unasked = await self._registers.compare(self._group.peers.keys() - left_out)
        states, errors = await self._states.of(names)
        errors = {**unasked, **errors}
        problems = {name: why for name, why in errors.items() if name not in left_out}
        states = {name: state for name, state in states.items() if name not in left_out}
        out = set(problems)
        for master, state in states.items():
            if missing := [name for name in names if name not in state]:
                problems[master] = LACKING.format(", ".join(missing))
                out.add(master)
                continue
            for name in names:
                if state[name].obstacle:
                    problems[master] = state[name].obstacle
                    out.add(master)
                elif state[name].live == FOREIGN and not adopt:
                    problems[master] = state[name].foreign
        if problems:
            others = _without(out - {self._group.name}, left_out)
            raise HaError(f"nothing was changed: {_listed(problems)}{others}")
        return states

    async def stage(self, todo: Sequence[Planned], masters: Collection[str], job: Job) -> None:
        """
        Stage *todo* on all *masters*, and check it there.

        :raises HaError: a master could not; all serve what they served before.
        """
        for each in todo:
            name = each.tree.name

            def own(done: int, of: int, name: str = name) -> None:
                job.text = f"staging {name} here: {done} of {of} new files"

            try:
                if each.source is not None:
                    await self._stager.stage_from(name, each.version, each.source, own)
                else:
                    await self._stager.stage(name, each.version, progress=own)
                await self._stager.check(name, each.version)
            except HaError as exc:
                here = f"{self._group.name}: {name}"
                raise HaError(f"nothing was switched: {here}: {exc}") from None
        said: dict[str, str] = {}
        others = sorted(set(masters) - {self._group.name})
        pairs = [(peer, each) for peer in others for each in todo]
        found = await asyncio.gather(
            *(self._stage_on(peer, each, said, job) for peer, each in pairs),
            return_exceptions=True,
        )
        problems = [str(one) for one in found if isinstance(one, HaError)]
        hang = {
            peer for (peer, _), one in zip(pairs, found, strict=True) if isinstance(one, DiskHangs)
        }
        for one in found:
            if isinstance(one, BaseException) and not isinstance(one, HaError):
                raise one
        if problems:
            left_out = set(self._group.others).difference(masters)
            raise HaError(f"nothing was switched: {'; '.join(problems)}{_without(hang, left_out)}")

    async def _stage_on(self, peer: str, each: Planned, said: dict[str, str], job: Job) -> None:
        name, begin = each.tree.name, True
        while True:
            payload = {"tree": name, "version": each.version, "begin": begin}
            try:
                answer = await self._group.call(peer, "tree_stage", payload)
            except HaError as exc:
                raise HaError(f"{peer}: {name}: {exc}") from None
            begin = False
            if answer.get("state") == STAGED:
                return
            if answer.get("state") == FAILED:
                kind = DiskHangs if answer.get("hangs") is True else HaError
                raise kind(f"{peer}: {name}: {answer.get('why')}")
            said[peer] = f"{peer} {answer.get('done')} of {answer.get('of')}"
            job.text = f"staging {name}: {', '.join(said.values())} new files"
            await asyncio.sleep(PAUSE)

    async def check_unmoved(self, known: Mapping[str, Register], masters: Collection[str]) -> None:
        """:raises HaError: a register is no longer as *known*, or one of *masters* does not say."""
        if unasked := await self._registers.compare(set(masters) - {self._group.name}):
            raise HaError(f"nothing was switched: {_listed(unasked)}")
        for name, register in known.items():
            if why := self._registers.moved(name, register):
                raise HaError(f"nothing was switched: {why}")

    async def switch(
        self, name: str, register: Register, masters: Iterable[str], adopt: bool
    ) -> dict[str, str]:
        """Switch *masters* to what *register* says; returns why some do not serve it yet."""
        payload = self._registers.told(name, register, adopt)

        async def tell(peer: str) -> str:
            contact = self._group.contacts.get(peer)
            if contact is None:
                return self._group.why_unasked(peer)
            try:
                answer = await contact.call("tree_switch", payload, SLOW)
            except HaError as exc:
                return f"did not say that it serves it, and will when it can: {exc}"
            return str(answer.get("problem") or "")

        async def own() -> str:
            await self._trees[name].settle(adopt)
            return self._trees[name].unserved()

        names = sorted(masters)
        works = (own() if peer == self._group.name else tell(peer) for peer in names)
        problems = await asyncio.gather(*works)
        self._trees.switched()
        return {peer: why for peer, why in zip(names, problems, strict=True) if why}


def _without(masters: set[str], left_out: set[str]) -> str:
    """The way on without *masters*, which cannot take part, and those *left_out* already."""
    names = ",".join(sorted(masters | left_out))
    return f"; without={names} leaves out {names}" if masters else ""


def _listed(problems: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {why}" for name, why in sorted(problems.items()))
