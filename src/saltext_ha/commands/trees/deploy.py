"""``ha.deploy``, ``ha.rollback``, ``ha.deployments``: all masters serve one version of a tree."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from saltext_ha.commands.arguments import left_out
from saltext_ha.commands.background import Background, Job
from saltext_ha.commands.trees.deploy_masters import Masters
from saltext_ha.commands.trees.deploy_plan import Planned, entry_row, plan_row
from saltext_ha.commands.trees.tree_states import (
    States,
    TreeStates,
    all_serve,
    edits,
    foreign,
    is_served,
)
from saltext_ha.common.disk_work import DiskWork, steps
from saltext_ha.common.errors import DiskHangs, FolderChanged, HaError
from saltext_ha.config.trees import Tree
from saltext_ha.reconciler import wheel_calls
from saltext_ha.replication.deployment import Entry, Register
from saltext_ha.sync.group import Group
from saltext_ha.trees import manifest as manifests
from saltext_ha.trees.live_path import FOREIGN
from saltext_ha.trees.registers import TreeRegisters, conflict
from saltext_ha.trees.source import take
from saltext_ha.trees.stager import Stager, explained
from saltext_ha.trees.tree_disk import either
from saltext_ha.trees.trees import Trees

LONGEST = 200  # characters of a message
NO_TREE = (
    "this master runs without a tree: write  ha: trees:  into its configuration (docs/trees.md), "
    "and restart salt-master"
)


class Draft(NamedTuple):
    """What a deployment would change."""

    states: States
    """Of the masters that take part."""
    by_hand: dict[str, Planned]
    """Tree → its live folder on this master, if no deployment made that."""
    rows: list[dict[str, Any]]
    """One for each tree, for the operator."""
    todo: list[Planned]
    """The trees that it changes."""


class Deploy:
    """
    The commands.

    :param digests: the folder that keeps digests of source files that were read before.
    :param stop: called while a source is read; raises to end the reading.
    :ivar background: carries :meth:`deploy` and :meth:`rollback` out.
    """

    def __init__(
        self,
        group: Group,
        registers: TreeRegisters,
        trees: Trees,
        stager: Stager,
        states: TreeStates,
        digests: Path,
        stop: Callable[[], None],
    ) -> None:
        self._group, self._registers, self._stager = group, registers, stager
        self._disks = stager.disks
        self._states, self._digests, self._step = states, digests, steps(stop)
        self._masters = Masters(group, registers, trees, stager, states)
        self.background = Background()

    # -- the commands

    async def deploy(self, payload: dict[str, Any], job: Job) -> dict[str, Any]:
        self._left_out(payload.get("without"))  # refused before anything is read
        planned = []
        await self._registers.compare()
        known = dict(self._registers)  # what comes while the source is read must not be lost
        for tree in self._named(payload.get("trees")):
            if tree.source is None:
                raise HaError(
                    f"tree {tree.name}: ha: trees: {tree.name}: source: is not set on this master"
                )
            job.text = f"reading {tree.source}"
            planned.append(await self._read(tree, tree.source, self._disks[tree.name].reading))
        return await self._carry_out(planned, known, payload, job)

    async def _read(self, tree: Tree, folder: Path, lane: DiskWork) -> Planned:
        remembered = self._digests / tree.name

        def read() -> Planned:
            found = take(folder, tree.ignore, tree.secret, remembered, self._step)
            version = manifests.version_of(found.manifest)
            return Planned(tree, version, found.manifest, found.words, found)

        return await lane(read, where=either(folder))

    async def rollback(self, payload: dict[str, Any], job: Job) -> dict[str, Any]:
        self._left_out(payload.get("without"))
        wanted = payload.get("to")
        planned = []
        await self._registers.compare()
        known = dict(self._registers)
        trees = self._named(payload.get("trees"))
        for tree in trees:
            try:
                entry = self._entry(tree.name, wanted)
            except HaError as exc:
                others = [f"tree={other.name}" for other in trees if other is not tree]
                if not others:
                    raise
                alone = " or ".join(others)
                raise HaError(f"{exc}; to take back another tree alone: {alone}") from None
            disk = self._disks[tree.name]
            async with explained(tree):
                manifest = await disk.deploying(disk.store.versions.manifest, entry.version)
                served = (await disk.deploying(disk.store.live))[1]
            # What is served is not mended yet where it was edited by hand: it may be a look only.
            if manifest is None or served != entry.version:
                job.text = f"fetching deployment {entry.number} of {tree.name}"
                await self._stager.stage(tree.name, entry.version)
                manifest = await disk.deploying(disk.store.versions.manifest, entry.version) or {}
            words = f"deployment {entry.number}, {entry.source}"
            planned.append(Planned(tree, entry.version, manifest, words[:LONGEST], None))
        return await self._carry_out(planned, known, payload, job)

    async def deployments(self, payload: dict[str, Any]) -> dict[str, Any]:
        trees = self._named(payload.get("trees"))
        unknown = await self._registers.compare()
        states, errors = await self._states.of(tree.name for tree in trees)
        unknown |= errors
        rows = []
        for tree in trees:
            register = self._registers[tree.name]
            told = {name: state[tree.name] for name, state in states.items() if tree.name in state}
            where: dict[str, int | str] = {
                name: told[name].serves(register.entries) if name in told else "not configured"
                for name in sorted(states)
            }
            where |= dict.fromkeys(errors, "unknown")
            rows.append(
                {
                    "tree": tree.name,
                    "live": str(tree.live),
                    "source": str(tree.source or ""),
                    "secret": tree.secret,
                    "current": register.current.entry.number if register.current else None,
                    "conflict": conflict(tree.name, register),
                    "deployments": [
                        entry_row(tree, entry, where, told) for entry in register.entries
                    ],
                    "masters": where,
                    "edits": edits(states, tree.name),
                }
            )
        differ = any(
            row["conflict"] or row["edits"] or not all_serve(row)
            for row in rows
            if row["deployments"]
        )
        return {
            "kind": "deployments",
            "trees": rows,
            "unknown": unknown,
            "retcode": 2 if unknown else 1 if differ else 0,
        }

    def _named(self, names: Any) -> list[Tree]:
        disks = self._disks
        if not disks:
            raise HaError(NO_TREE)
        wanted = [str(name) for name in names] if isinstance(names, list) and names else [*disks]
        for name in wanted:
            if name not in disks:
                raise HaError(f"there is no tree {name!r}; trees: {', '.join(disks)}")
        return [disks[name].tree for name in dict.fromkeys(wanted)]

    def _entry(self, name: str, wanted: Any) -> Entry:
        register = self._registers[name]
        entries = register.entries
        if wanted in (None, ""):
            current = register.current
            older = [e for e in entries if current and e.version != current.version]
            if not older:
                why = "there is no deployment before the current one"
                if register.conflict:
                    why = "there is a conflict: say which deployment, by its number or version"
                elif len(entries) > 1:
                    why = "no earlier deployment differs from the current one"
                raise HaError(f"tree {name}: {why}")
            wanted, entries = older[0].number, older
        text = str(wanted)
        found = [e for e in entries if str(e.number) == text] or [
            e for e in entries if len(text) >= 4 and e.version.hex().startswith(text)
        ]
        if len({entry.version for entry in found}) > 1:
            tree = self._disks[name].tree
            sides = ", ".join(f"{tree.shown(e.version)[:12]} on {e.on}".strip() for e in found)
            by_version = "" if tree.secret else "name one by its version, or "
            raise HaError(
                f"tree {name}: several deployments match {text} ({sides}): {by_version}salt-run "
                f"ha.deploy {name} on the master that is right"
            )
        if not found:
            numbers = ", ".join(str(entry.number) for entry in entries) or "none"
            meant = f"; did you mean tree={text}?" if text in self._disks else ""
            raise HaError(f"tree {name}: deployment {text} is not kept; kept: {numbers}{meant}")
        return found[0]

    # -- how it is carried out

    async def _carry_out(
        self,
        planned: Sequence[Planned],
        known: Mapping[str, Register],
        payload: Mapping[str, Any],
        job: Job,
    ) -> dict[str, Any]:
        """:param known: the registers as they were when the command began."""
        test, adopt = bool(payload.get("test")), bool(payload.get("adopt"))
        message, by = _message(payload), wheel_calls.name(payload.get("by")) or "?"
        left_out = self._left_out(payload.get("without"))
        job.text = "asking the other masters"
        names = [each.tree.name for each in planned]
        states = await self._masters.ready(names, left_out, adopt or test)
        draft = await self._draft(planned, states, job)
        late: dict[str, str] = {}
        problem = ""
        if draft.todo and not test:
            entries = {each.tree.name: self._entry_of(each, by, message) for each in draft.todo}
            late, problem = await self._make_current(draft, entries, known, adopt, job)
        return {
            "kind": "deploy",
            "test": test,
            "trees": draft.rows,
            "masters": dict.fromkeys(sorted(states), "") | late,
            "left_out": sorted(left_out),
            "adopt": foreign(states),
            "unknown": late,
            "problem": problem,
            "retcode": 2 if late or problem else 0,
        }

    async def _draft(self, planned: Sequence[Planned], states: States, job: Job) -> Draft:
        """
        What the deployment would change; nothing is written.

        :raises HaError: it must not be made.
        """
        by_hand, unread = await self._by_hand(planned, job)
        draft = Draft(states, by_hand, [], [])
        foreign_on = foreign(states)
        for each in planned:
            name = each.tree.name
            row = await self._plan(each, by_hand.get(name), states)
            draft.rows.append({**row, "unread": unread.get(name, "")})
            if not row["same"] or row["edits"] or not is_served(states, name, each.version):
                draft.todo.append(each)
        for each, row in zip(planned, draft.rows, strict=True):
            last = self._registers[each.tree.name].entries[:1]
            served = row["counts"]["removed"] or any(entry.files for entry in last)
            _check_source(each, bool(served or each.tree.name in foreign_on))
        return draft

    async def _make_current(
        self,
        draft: Draft,
        entries: Mapping[str, Entry],
        known: Mapping[str, Register],
        adopt: bool,
        job: Job,
    ) -> tuple[dict[str, str], str]:
        """
        Stage all trees of *draft* on all masters, then have these switch one tree after the other.

        :param entries: what the register of each tree is to say.
        :return: the masters that do not serve all of it yet, and why; and what ended the deployment
            after some trees were switched.
        :raises HaError: nothing was switched.
        """
        todo, masters = draft.todo, draft.states.keys()
        live = {
            each.tree.name: await self._keep(each, draft.by_hand, entries[each.tree.name].by)
            for each in todo
        }
        await self._masters.stage(todo, masters, job)
        await self._masters.check_unmoved({name: known[name] for name in entries}, masters)
        job.text = "switching"
        rows = {row["tree"]: row for row in draft.rows}
        late: dict[str, list[str]] = {}
        problem = ""
        for name, entry in entries.items():
            entry = entry._replace(at=time.time())  # staging may have taken long
            try:
                # Not over what came while the trees before this one were switched.
                register = await self._registers.decide(name, entry, known[name], live[name])
            except HaError as exc:
                if name == todo[0].tree.name:
                    raise
                problem = _stopped(list(entries), name, exc)
                break
            rows[name]["number"] = register.entries[0].number
            unserved = await self._masters.switch(name, register, masters, adopt)
            for master, why in unserved.items():
                late.setdefault(master, []).append(why)
        return {master: "; ".join(why) for master, why in late.items()}, problem

    async def _plan(self, each: Planned, there: Planned | None, states: States) -> dict[str, Any]:
        """As :func:`.plan_row`. A rollback does not wait for the source, which may hang."""
        disk, register = self._disks[each.tree.name], self._registers[each.tree.name]
        lane = disk.reading if each.source else disk.deploying
        read = [one.source.folder for one in (each, there) if one and one.source]
        where = either(*read, each.tree.folder)
        async with explained(each.tree):
            work = (plan_row, each, there, disk.store, register, states, self._group.name)
            return await lane(*work, where=where)

    async def _by_hand(
        self, planned: Sequence[Planned], job: Job
    ) -> tuple[dict[str, Planned], dict[str, str]]:
        """
        Tree → its live folder here, if no deployment made it; and tree → why that folder cannot
        become a version.
        """
        found: dict[str, Planned] = {}
        unread: dict[str, str] = {}
        for tree in (each.tree for each in planned):
            disk = self._disks[tree.name]
            async with explained(tree):
                live, _ = await disk.looking(disk.store.live, where=either(tree.live))
            if live == FOREIGN:
                job.text = f"reading {tree.live}"
                try:
                    found[tree.name] = await self._read(tree, tree.live, disk.deploying)
                except (DiskHangs, FolderChanged):
                    raise
                except HaError as exc:
                    unread[tree.name] = str(exc)
        return found, unread

    async def _keep(self, each: Planned, by_hand: Mapping[str, Planned], by: str) -> Entry | None:
        """
        Before the first deployment, keep what is live here as a version to go back to: a folder, or
        what was deployed under another name of the tree.
        """
        if self._registers[each.tree.name].entries:
            return None
        there = by_hand.get(each.tree.name)
        if there is not None:
            assert there.source is not None  # nosec B101
            await self._stager.stage_from(there.tree.name, there.version, there.source)
        else:
            store, do = self._disks[each.tree.name].store, self._disks[each.tree.name].deploying
            async with explained(each.tree):
                version = (await do(store.live))[1]
                manifest = await do(store.versions.manifest, version) if version else None
            if not version or not manifest or version == each.version:
                return None
            there = Planned(each.tree, version, manifest, str(each.tree.live), None)
        return self._entry_of(there, by, "what was live before")

    def _entry_of(self, each: Planned, by: str, message: str) -> Entry:
        return Entry(
            0,
            each.version,
            time.time(),
            by[:64],
            self._group.name,
            each.words[:LONGEST],
            message,
            manifests.files(each.manifest),
            manifests.size(each.manifest),
        )

    def _left_out(self, without: Any) -> set[str]:
        return left_out(without, self._group.name, self._group.masters)


def _check_source(each: Planned, served: bool) -> None:
    """
    Check that the source has files, if some are served, or were deployed last.

    :raises HaError: it has none, as if it were not mounted.
    """
    if each.source and served and not manifests.files(each.manifest):
        raise HaError(
            f"nothing was changed: tree {each.tree.name}: there is no file in {each.tree.source}; "
            "is it mounted? If all that is served is to go, put an empty file into it"
        )


def _stopped(names: list[str], failed: str, why: HaError) -> str:
    """What a deployment of the trees *names* says that ended at *failed*, after others."""
    at = names.index(failed)
    done, rest = ", ".join(names[:at]), ", ".join(names[at:])
    return f"deployed: {done}; not deployed: {rest}: {why}"


def _message(payload: Mapping[str, Any]) -> str:
    message = str(payload.get("message") or "")
    if len(message) > LONGEST:
        raise HaError(f"message: takes at most {LONGEST} characters")
    return message
