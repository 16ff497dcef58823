"""``ha.deploy``, ``ha.rollback``, ``ha.deployments``: what all masters serve is one version."""

from __future__ import annotations

import asyncio
import difflib
import itertools
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from saltext_ha.common.errors import HaError, InvalidRecord, reason_of
from saltext_ha.config.trees import Tree
from saltext_ha.replication.deployment import Entry
from saltext_ha.sync.group import SLOW, Group
from saltext_ha.transport import wire
from saltext_ha.transport.control_server import Command
from saltext_ha.trees import manifest as manifests
from saltext_ha.trees.manifest import FILE, Changes, Manifest
from saltext_ha.trees.source import Source, take
from saltext_ha.trees.store import FOREIGN, LINKED
from saltext_ha.trees.trees import FAILED, STAGED, Trees, conflict

LISTED = 1000
DIFF_LINES = 500
DIFF_SIZE = 64 * 1024
POLL = 0.05
SLOWEST_POLL = 1.0
LONGEST = 200  # characters of a message
KEPT_JOBS = 8


class Planned(NamedTuple):
    """One tree, and the version of it that is to be current."""

    tree: Tree
    version: bytes
    manifest: Manifest
    words: str
    """Where it is from."""
    source: Source | None
    """The folder that it is read from; None: it was deployed before."""


class _Job:
    """A deployment that goes on while the runner asks how far it is."""

    def __init__(self) -> None:
        self.text = ""
        self.task: asyncio.Task[dict[str, Any]] | None = None


class Deploy:
    """
    The commands.

    :param digests: a folder where it is remembered which files of sources were read.
    """

    def __init__(self, group: Group, trees: Trees, digests: Path) -> None:
        self._group, self._trees, self._digests = group, trees, digests
        self._one_at_a_time = asyncio.Lock()
        self._jobs: dict[str, _Job] = {}

    def commands(self) -> dict[str, Command]:
        """What the control socket answers of these."""
        return {
            "deploy": self._begun(self.deploy),
            "rollback": self._begun(self.rollback),
            "deploy_progress": self.progress,
            "deployments": self.deployments,
        }

    def _begun(self, work: Callable[[dict[str, Any], _Job], Awaitable[dict[str, Any]]]) -> Command:
        async def begin(payload: dict[str, Any]) -> dict[str, Any]:
            if self._one_at_a_time.locked():
                raise HaError("a deployment is under way on this master; wait until it has ended")
            for old in list(self._jobs)[: 1 - KEPT_JOBS]:
                del self._jobs[old]
            name, job = secrets.token_hex(8), _Job()
            self._jobs[name] = job

            async def run() -> dict[str, Any]:
                async with self._one_at_a_time:
                    return await work(payload, job)

            job.task = asyncio.ensure_future(run())
            # Retrieved, lest asyncio complain of it when nobody asks any more.
            job.task.add_done_callback(lambda done: done.cancelled() or done.exception())
            return {"job": name}

        return begin

    async def progress(self, payload: dict[str, Any]) -> dict[str, Any]:
        """How far a deployment is (``text``), or what came of it (``answer``)."""
        job = self._jobs.get(str(payload.get("job")))
        if job is None or job.task is None:
            raise HaError("that deployment is not known here; salt-run ha.deployments shows all")
        await asyncio.wait([job.task], timeout=POLL * 4)
        if not job.task.done():
            return {"text": job.text}
        try:
            return {"answer": job.task.result()}
        except OSError as exc:
            raise HaError(f"{exc.filename or 'a tree'}: {reason_of(exc)}") from None

    # -- the commands

    async def deploy(self, payload: dict[str, Any], job: _Job) -> dict[str, Any]:
        """``ha.deploy``."""
        planned = []
        for tree in self._named(payload.get("trees")):
            if tree.source is None:
                raise HaError(
                    f"tree {tree.name}: ha: trees: {tree.name}: source: is not set on this master"
                )
            job.text = f"reading {tree.source}"
            found = await asyncio.to_thread(
                take, tree.source, tree.ignore, tree.secret, self._digests / tree.name
            )
            version = await asyncio.to_thread(manifests.version_of, found.manifest)
            planned.append(Planned(tree, version, found.manifest, found.words, found))
        return await self._carry_out(planned, payload, job)

    async def rollback(self, payload: dict[str, Any], job: _Job) -> dict[str, Any]:
        """``ha.rollback``."""
        wanted = payload.get("to")
        planned = []
        await self._trees.compare()
        for tree in self._named(payload.get("trees")):
            entry = self._entry(tree.name, wanted)
            job.text = f"fetching deployment {entry.number} of {tree.name}"
            await self._trees.stage(tree.name, entry.version)
            manifest = self._trees.stores[tree.name].manifest(entry.version) or {}
            words = f"deployment {entry.number}, {entry.source}"
            planned.append(Planned(tree, entry.version, manifest, words[:LONGEST], None))
        return await self._carry_out(planned, payload, job)

    async def deployments(self, payload: dict[str, Any]) -> dict[str, Any]:
        """``ha.deployments``."""
        trees = self._named(payload.get("trees"))
        unknown = await self._trees.compare()
        states, errors = await self._states([tree.name for tree in trees])
        unknown |= errors
        rows = []
        for tree in trees:
            register = self._trees.registers[tree.name]
            where: dict[str, int | str] = {
                name: _said(state.get(tree.name), register.entries)
                for name, state in sorted(states.items())
            }
            where |= dict.fromkeys(errors, "unknown")
            rows.append(
                {
                    "tree": tree.name,
                    "live": str(tree.live),
                    "source": str(tree.source or ""),
                    "secret": tree.secret,
                    "current": register.current.entry.number if register.current else None,
                    "conflict": conflict(tree.name, register) if register.conflict else "",
                    "deployments": [_entry_row(tree, entry, where) for entry in register.entries],
                    "masters": where,
                    "edits": _edits(states, tree.name),
                }
            )
        differ = any(
            row["conflict"] or row["edits"] or not _serves(row)
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
        stores = self._trees.stores
        if not stores:
            raise HaError("no tree is configured on this master; see  ha: trees:  in docs/trees.md")
        wanted = [str(name) for name in names] if isinstance(names, list) and names else [*stores]
        for name in wanted:
            if name not in stores:
                raise HaError(f"there is no tree {name!r}; trees: {', '.join(stores)}")
        return [stores[name].tree for name in dict.fromkeys(wanted)]

    def _entry(self, name: str, wanted: Any) -> Entry:
        register = self._trees.registers[name]
        entries = register.entries
        if wanted in (None, ""):
            current = register.current
            older = [e for e in entries if current and e.version != current.version]
            if not older:
                raise HaError(
                    f"tree {name}: "
                    + (
                        "there is a conflict: say which deployment, by its number or version"
                        if register.conflict
                        else "there is no deployment before the current one"
                    )
                )
            return older[0]
        text = str(wanted)
        found = [e for e in entries if str(e.number) == text]
        found = found or [e for e in entries if len(text) >= 4 and e.version.hex().startswith(text)]
        if len({entry.version for entry in found}) > 1:
            shown = self._trees.stores[name].tree.shown
            sides = ", ".join(f"{shown(e.version)[:12]} on {e.on}".strip() for e in found)
            raise HaError(
                f"tree {name}: there are several of number {text} ({sides}): name one by its "
                f"version, or salt-run ha.deploy {name} on the master that is right"
            )
        if not found:
            numbers = ", ".join(str(entry.number) for entry in entries) or "none"
            raise HaError(f"tree {name}: deployment {text} is not kept; kept: {numbers}")
        return found[0]

    # -- how it is carried out

    async def _carry_out(
        self, planned: Sequence[Planned], payload: Mapping[str, Any], job: _Job
    ) -> dict[str, Any]:
        test, adopt = bool(payload.get("test")), bool(payload.get("adopt"))
        message, by = str(payload.get("message") or ""), str(payload.get("by") or "?")
        if len(message) > LONGEST:
            raise HaError(f"message: takes at most {LONGEST} characters")
        left_out = self._left_out(payload.get("without"))
        job.text = "asking the other masters"
        await self._trees.compare()
        names = [each.tree.name for each in planned]
        states = await self._ready(names, left_out, adopt or test)
        rows = await asyncio.to_thread(self._plan, planned, states)
        todo = [
            each
            for each, row in zip(planned, rows, strict=True)
            if not row["same"] or row["edits"] or not _is_served(states, each)
        ]
        answer: dict[str, Any] = {
            "kind": "deploy",
            "test": test,
            "trees": rows,
            "masters": dict.fromkeys(sorted(states), ""),
            "left_out": sorted(left_out),
            "adopt": _foreign(states),
            "unknown": {},
            "retcode": 0,
        }
        if test or not todo:
            return answer
        known = {each.tree.name: self._trees.registers[each.tree.name] for each in todo}
        await self._stage(todo, sorted(states.keys() - {self._group.name}), job)
        await self._trees.compare()
        for name, register in known.items():
            if self._trees.registers[name] != register:
                raise HaError(
                    f"nothing was switched: tree {name} was deployed on another master meanwhile; "
                    "look at it by test=True, and deploy again"
                )
        job.text = "switching"
        for each in todo:
            entry = Entry(
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
            problems = await self._switch(each.tree.name, entry, states.keys(), adopt)
            row = next(row for row in rows if row["tree"] == each.tree.name)
            current = self._trees.registers[each.tree.name].current
            row["number"] = current.entry.number if current else None
            answer["unknown"] |= problems
        answer["masters"] |= answer["unknown"]
        answer["retcode"] = 2 if answer["unknown"] else 0
        return answer

    def _left_out(self, without: Any) -> set[str]:
        names = without if isinstance(without, list) else str(without or "").split(",")
        left_out = {str(name).strip() for name in names} - {""}
        if nobody := left_out - set(self._group.peers):
            peers = ", ".join(sorted(self._group.peers)) or "none"
            raise HaError(f"without: there is no peer {', '.join(sorted(nobody))}; peers: {peers}")
        return left_out

    async def _states(self, names: list[str]) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """How the trees are on every master that answers, and why others do not."""
        answers, errors = await self._group.ask("tree_state", {"trees": names}, SLOW)
        states = {self._group.name: await self._trees.state(names)}
        for name, answer in answers.items():
            try:
                states[name] = wire.field(answer, "trees", dict)
            except InvalidRecord as exc:
                errors[name] = str(exc)
        return states, errors

    async def _ready(
        self, names: list[str], left_out: set[str], adopt: bool
    ) -> dict[str, dict[str, Any]]:
        """
        The states of all masters that take part.

        :raises HaError: one of them cannot.
        """
        states, errors = await self._states(names)
        problems = {name: why for name, why in errors.items() if name not in left_out}
        states = {name: state for name, state in states.items() if name not in left_out}
        for master, state in states.items():
            for name in names:
                if name not in state:
                    problems[master] = f"has no tree {name} in  ha: trees:"
                elif state[name].get("live") == FOREIGN and not adopt:
                    problems[master] = str(state[name].get("foreign"))
        if problems:
            listed = "; ".join(f"{name}: {why}" for name, why in sorted(problems.items()))
            silent = ",".join(sorted(problems.keys() & errors.keys()))
            hint = f"; without={silent} leaves out {silent}" if silent else ""
            raise HaError(f"nothing was changed: {listed}{hint}")
        return states

    async def _stage(self, todo: Sequence[Planned], peers: Sequence[str], job: _Job) -> None:
        """
        Have all of it on every master, checked there.

        :raises HaError: one could not; nothing is served that was not.
        """
        for each in todo:
            name = each.tree.name

            def own(done: int, of: int, name: str = name) -> None:
                job.text = f"staging {name} here: {done} of {of} new files"

            if each.source is not None:
                await self._trees.stage_from(name, each.version, each.source, own)
            await self._trees.check(name, each.version)
        said: dict[str, str] = {}
        found = await asyncio.gather(
            *(self._stage_on(peer, each, said, job) for peer in peers for each in todo),
            return_exceptions=True,
        )
        problems = [str(one) for one in found if isinstance(one, HaError)]
        for one in found:
            if isinstance(one, BaseException) and not isinstance(one, HaError):
                raise one
        if problems:
            raise HaError(f"nothing was switched: {'; '.join(problems)}")

    async def _stage_on(self, peer: str, each: Planned, said: dict[str, str], job: _Job) -> None:
        link = self._group.links.get(peer)
        name, pause, begin = each.tree.name, POLL, True
        while True:
            if link is None:
                raise HaError(f"{peer}: is no peer any more")
            payload = {"tree": name, "version": each.version, "begin": begin}
            try:
                answer = await link.call("tree_stage", payload)
            except HaError as exc:
                raise HaError(f"{peer}: {name}: {exc}") from None
            begin = False
            if answer.get("state") == STAGED:
                return
            if answer.get("state") == FAILED:
                raise HaError(f"{peer}: {name}: {answer.get('why')}")
            said[peer] = f"{peer} {answer.get('done')} of {answer.get('of')}"
            job.text = f"staging {name}: {', '.join(said.values())} new files"
            await asyncio.sleep(pause)
            pause = min(2 * pause, SLOWEST_POLL)

    async def _switch(
        self, name: str, entry: Entry, masters: Iterable[str], adopt: bool
    ) -> dict[str, str]:
        """From here on *entry* is current; why masters do not say that they serve it."""
        register = await self._trees.decide(name, entry)
        payload = self._trees.told(name, register, adopt)

        async def tell(peer: str) -> str:
            link = self._group.links.get(peer)
            if link is None:
                return "is no peer any more"
            try:
                answer = await link.call("tree_switch", payload, SLOW)
            except HaError as exc:
                return f"did not say that it serves it, and will when it can: {exc}"
            return str(answer.get("problem") or "")

        async def own() -> str:
            await self._trees.settle(name, adopt)
            return self._trees.lag(name)

        names = sorted(masters)
        works = (own() if peer == self._group.name else tell(peer) for peer in names)
        problems = await asyncio.gather(*works)
        return {peer: why for peer, why in zip(names, problems, strict=True) if why}

    # -- what is shown

    def _plan(
        self, planned: Sequence[Planned], states: Mapping[str, dict[str, Any]]
    ) -> list[dict[str, Any]]:
        return [self._row(each, states) for each in planned]

    def _row(self, each: Planned, states: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        name, store = each.tree.name, self._trees.stores[each.tree.name]
        register = self._trees.registers[name]
        live, version = store.live()
        served = version if live == LINKED else None
        before = (store.manifest(served) if served else None) or {}
        found = manifests.changes(before, each.manifest)
        new = each.source.folder if each.source else store.path_of(each.version)
        old = store.path_of(served) if served else None
        return {
            "tree": name,
            "secret": each.tree.secret,
            "source": each.words,
            "version": each.tree.shown(each.version),
            "number": None,
            "current": register.current.entry.number if register.current else None,
            "same": not register.conflict
            and register.current is not None
            and register.current.version == each.version,
            "files": manifests.files(each.manifest),
            "size": manifests.size(each.manifest),
            "counts": {kind: len(paths) for kind, paths in found._asdict().items()},
            **{
                kind: [_file_row(path, each.manifest, before) for path in paths[:LISTED]]
                for kind, paths in found._asdict().items()
            },
            "diff": [] if each.tree.secret else _diff(found, before, each.manifest, old, new),
            "conflict": conflict(name, register) if register.conflict else "",
            "edits": _edits(states, name),
        }


def _is_served(states: Mapping[str, dict[str, Any]], each: Planned) -> bool:
    return all(state[each.tree.name].get("version") == each.version for state in states.values())


def _foreign(states: Mapping[str, dict[str, Any]]) -> dict[str, list[str]]:
    """Tree → masters where something else is at the live path."""
    found: dict[str, list[str]] = {}
    for master, state in sorted(states.items()):
        for name, tree in state.items():
            if tree.get("live") == FOREIGN:
                found.setdefault(name, []).append(master)
    return found


def _edits(states: Mapping[str, dict[str, Any]], name: str) -> dict[str, Any]:
    """Master → what was changed there by hand, in the folder that is served."""
    found = {}
    for master, state in sorted(states.items()):
        tree = state.get(name) or {}
        if tree.get("edited"):
            found[master] = {"count": tree["edited"], "paths": list(tree.get("edits") or ())}
    return found


def _said(state: Any, entries: Iterable[Entry]) -> int | str:
    """Which deployment a master serves; in words where it is none of these."""
    if not isinstance(state, Mapping):
        return "not configured"
    if state.get("live") == FOREIGN:
        return "a folder of its own"
    if not state.get("version"):
        return "nothing"
    found = (entry.number for entry in entries if entry.version == state["version"])
    return next(found, "one that is not kept")


def _serves(row: Mapping[str, Any]) -> bool:
    return all(number == row["current"] for number in row["masters"].values())


def _entry_row(tree: Tree, entry: Entry, where: Mapping[str, int | str]) -> dict[str, Any]:
    return {
        **entry._asdict(),
        "version": tree.shown(entry.version),
        "live_on": [name for name, serves in where.items() if serves == entry.number],
    }


def _file_row(path: str, after: Manifest, before: Manifest) -> dict[str, Any]:
    node = after.get(path) or before[path]
    return {"path": path, "kind": node.kind, "size": node.size}


def _diff(
    found: Changes, before: Manifest, after: Manifest, old: Path | None, new: Path
) -> list[str]:
    """Differences of text, as ``diff -u`` writes them; of what is small, and text."""
    lines: list[str] = []
    for path in sorted([*found.added, *found.changed, *found.removed]):
        left = _text(old, path, before)
        right = _text(new, path, after)
        if left is None or right is None:
            continue
        some = difflib.unified_diff(left, right, f"a/{path}", f"b/{path}", lineterm="")
        lines += itertools.islice(some, DIFF_LINES + 1 - len(lines))
        if len(lines) > DIFF_LINES:
            return [*lines[:DIFF_LINES], "… more"]
    return lines


def _text(folder: Path | None, path: str, manifest: Manifest) -> list[str] | None:
    """The lines of a file; none where it is not; None where it is no text to show."""
    node = manifest.get(path)
    if node is None or folder is None:
        return []
    if node.kind != FILE or node.size > DIFF_SIZE:
        return None
    try:
        return (folder / path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
