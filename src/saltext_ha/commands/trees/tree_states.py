"""The states of trees on each master, and the tree of a file that differs between masters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from saltext_ha.config.trees import Tree
from saltext_ha.consistency.comparison import Difference, names
from saltext_ha.consistency.tree import environments
from saltext_ha.sync.group import SLOW, Group, read_each
from saltext_ha.transport import wire
from saltext_ha.trees.live_path import FOREIGN
from saltext_ha.trees.stager import Stager
from saltext_ha.trees.tree_state import TreeState

OPTIONS = ("file_roots", "pillar_roots")

States = Mapping[str, Mapping[str, TreeState]]
"""Master → tree → its state there."""


class TreeStates:
    """The states of trees on all masters."""

    def __init__(self, group: Group, stager: Stager, opts: Mapping[str, Any]) -> None:
        self._group, self._stager, self._opts = group, stager, opts

    async def of(self, trees: Iterable[str]) -> tuple[States, dict[str, str]]:
        """
        The states of *trees* on every master that can say; and master → why it cannot. This master
        is one of them: its disk may hang.
        """
        wanted = list(trees)
        answers, errors = await self._group.ask(
            "tree_state", {"trees": wanted}, SLOW, self._stager.state(wanted)
        )
        return read_each(answers, errors, lambda _, answer: _read(answer)), errors

    async def explain(self, differences: Sequence[Difference]) -> None:
        """Add to each difference in a tree: which tree, where it was edited, and what mends it."""
        trees = [disk.tree for disk in self._stager.disks.values()]
        if not trees or not differences:
            return
        folders = await asyncio.to_thread(folders_of, self._opts)
        found = [(d, [*places(str(d["path"]), trees, folders)]) for d in differences]
        if any(where for _, where in found):
            states, errors = await self.of(tree.name for tree in trees)
            for difference, where in found:
                if where:
                    explain(difference, where, states, errors)


def _read(answer: Mapping[str, Any]) -> dict[str, TreeState]:
    """As :meth:`.Stager.state` answers."""
    told = wire.field(answer, "trees", dict)
    return {name: TreeState.read(wire.field(told, name, dict)) for name in told}


def explain(
    difference: Difference,
    where: Sequence[tuple[Tree, str]],
    states: States,
    unknown: Iterable[str] = (),
) -> None:
    """
    As :meth:`TreeStates.explain`, for one difference: adds ``tree``, ``edited_on`` and ``fix``.
    Pure.

    :param where: trees that it may be in, and its path in each: more than one if an environment has
        several folders.
    :param unknown: masters that did not tell the state of their trees.
    """
    edited = [(place, _edited_on(*place, states)) for place in where]
    (tree, _), masters = max(edited, key=lambda one: bool(one[1]))
    difference["tree"], difference["edited_on"] = tree.name, masters
    if masters:
        fix = (
            f"edited by hand on {names(masters)} in tree {tree.name}: salt-run ha.deployments "
            f"{tree.name} names the command that serves the deployed version again, and keeps the "
            "edit beside; where the edit is right, put it into the source, and deploy that"
        )
    else:
        fix = f"in tree {tree.name}: salt-run ha.deploy {tree.name} makes it the same on all"
        there = [state.get(tree.name) for state in states.values()]
        if len({told and told.version for told in there}) > 1:
            fix += f"; which deployment each master serves: salt-run ha.deployments {tree.name}"
    if silent := sorted(unknown):
        fix += f"; whether it was edited on {names(silent)} is unknown"
    difference["fix"] = f"{fix}; no restart needed"


def _edited_on(tree: Tree, path: str, states: States) -> list[str]:
    """Masters where *path* was edited by hand, or may have been: a master does not name all."""
    found = []
    for master, state in sorted(states.items()):
        told = state.get(tree.name)
        if told and (path in told.edits or told.edited > len(told.edits)):
            found.append(master)
    return found


def is_served(states: States, name: str, version: bytes) -> bool:
    """Whether every master serves this version of the tree *name*."""
    return all(state[name].version == version for state in states.values())


def foreign(states: States) -> dict[str, list[str]]:
    """Tree → masters where something else is at the live path."""
    found: dict[str, list[str]] = {}
    for master, state in sorted(states.items()):
        for name, tree in state.items():
            if tree.live == FOREIGN:
                found.setdefault(name, []).append(master)
    return found


def edits(states: States, name: str) -> dict[str, Any]:
    """Master → what was changed there by hand, in the folder that is served."""
    found = {}
    for master, state in sorted(states.items()):
        tree = state.get(name)
        if tree and tree.edited:
            found[master] = {"count": tree.edited, "paths": list(tree.edits)}
    return found


def all_serve(row: Mapping[str, Any]) -> bool:
    """Whether every master serves the current deployment, by a row of ``ha.deployments``."""
    return all(number == row["current"] for number in row["masters"].values())


def folders_of(opts: Mapping[str, Any]) -> dict[str, dict[str, list[str]]]:
    """Option → environment → its folders."""
    return {option: environments(opts.get(option) or {}) for option in OPTIONS}


def places(
    path: str, trees: Sequence[Tree], folders: Mapping[str, Mapping[str, Sequence[str]]]
) -> Iterator[tuple[Tree, str]]:
    """The trees that a path of the section ``roots`` may be in, and its path in each."""
    option, _, rest = path.partition(":")
    env, _, below = rest.partition(":")
    for folder in folders.get(option, {}).get(env, ()) if below else ():
        full = PurePath(folder, below)
        for tree in trees:
            if full.is_relative_to(tree.live):
                yield tree, str(full.relative_to(tree.live))
