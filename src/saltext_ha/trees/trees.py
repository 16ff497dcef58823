"""
Holds what masters serve and what is current together: whatever is not current here is fetched,
verified, and then served, whoever made it so and however long this master was away.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from saltext_ha.common.errors import HaError, PeerError, reason_of
from saltext_ha.common.fail_points import point
from saltext_ha.config.trees import Tree
from saltext_ha.reconciler.core import Core
from saltext_ha.replication import deployment
from saltext_ha.replication.deployment import KEPT, Entry, Register
from saltext_ha.sync.link import Link
from saltext_ha.transport import wire
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.trust import Peer
from saltext_ha.trees import content, register_rows
from saltext_ha.trees.content import Call, Content
from saltext_ha.trees.manifest import Manifest
from saltext_ha.trees.source import Source
from saltext_ha.trees.store import FOREIGN, LINKED, Staging, TreeStore, copy_part

log = logging.getLogger(__name__)

MOST_OUTPUT = 4000  # characters of what a check says
MOST_READ = 64 * 1024
LISTED = 20
# A fileserver that listed the old files just before the switch writes that down just after it.
SETTLED = 2.0
# Deployments of one tree that several people prepare at the same time.
AT_ONCE = 3
STAGED, WORKING, FAILED = "staged", "working", "failed"


class _Work:
    """A version that is being fetched, and how far it is."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.done = self.of = 0

    def progress(self, done: int, of: int) -> None:
        self.done, self.of = done, of


class Trees:
    """
    The trees of one master.

    :param links: to the peers, by name.
    :param announce: fires events.
    :param cachedir: of Salt, where its fileserver keeps lists of files.
    :param interval: seconds between two rounds.
    """

    def __init__(
        self,
        trees: Iterable[Tree],
        core: Core,
        links: Mapping[str, Link],
        announce: Callable[[str, dict[str, Any]], None],
        *,
        cachedir: Path,
        interval: float,
    ) -> None:
        self.stores = {tree.name: TreeStore(tree) for tree in trees}
        self._core, self._links, self._announce = core, links, announce
        self._lists, self._interval = cachedir / "file_lists" / "roots", interval
        self._content = Content(self.stores)
        self._writing = asyncio.Lock()
        self._locks = {name: asyncio.Lock() for name in self.stores}
        self._work: dict[tuple[str, bytes], _Work] = {}
        self._wake = asyncio.Event()
        self._asked: set[str] = set()
        self._met = False
        """Whether all peers that are up were asked since the start."""
        self._late: dict[str, str] = {}
        """Tree → why what is current is not served here."""
        self._troubles: dict[str, str] = {}
        """Peer → why what it says is not taken."""
        self._staged = {name: deque[bytes](maxlen=AT_ONCE) for name in self.stores}
        """Versions of each tree that were verified, and were not served since: some may soon be."""
        self.registers = {name: self._stored(name) for name in self.stores}

    def _stored(self, name: str) -> Register:
        body = self._core.replica.trees.all().get(name)
        return register_rows.unpack(body) if body else Register()

    # -- what others ask

    def for_peers(self) -> dict[str, Handler]:
        """What peers may ask."""
        return {
            **self._content.for_peers(),
            "trees": self._registers,
            "tree_state": self._state,
            "tree_stage": self._stage,
            "tree_switch": self._switch,
        }

    def behind(self) -> str:
        """Why this master does not serve what is current, or does not know; empty: it does."""
        if not self.stores:
            return ""
        if not self._met:
            # Down is an answer, too: a master must serve when it is the only one left.
            unasked = [
                name
                for name, link in self._links.items()
                if name not in self._asked and link.up is not False
            ]
            if unasked:
                others = ", ".join(sorted(unasked))
                return f"trees are not yet compared with {others} since its start"
            self._met = True
        return next((why for name in self.stores if (why := self.lag(name))), "")

    def lag(self, name: str) -> str:
        """Why a tree is not served here as it is to be; empty: it is."""
        current = self.registers[name].current
        if current is None or self.stores[name].live() == (LINKED, current.version):
            return ""
        why = self._late.get(name) or "it is being fetched"
        return f"tree {name}: deployment {current.entry.number} is not served here yet: {why}"

    def notes(self) -> Iterator[str]:
        """What an operator should know."""
        for name, register in self.registers.items():
            if register.conflict:
                yield conflict(name, register)
            yield self.lag(name)
        for name, why in self._troubles.items():
            yield f"trees: what {name} says is not taken: {why}"

    async def _registers(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        have = wire.field(payload, "have", dict)
        return {
            "trees": {
                name: register_rows.to_rows(register)
                for name, register in self.registers.items()
                if have.get(name) != register.digest
            }
        }

    async def _state(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        return {"trees": await self.state(wire.texts(payload, "trees"))}

    async def state(self, names: Iterable[str]) -> dict[str, Any]:
        """
        Of each tree: ``live`` (linked, free, foreign), ``version`` (what is served), ``foreign``
        (what to do about that), ``edited`` (changes by hand in it: how many, and some).
        """
        return {name: await self._state_of(name) for name in names if name in self.stores}

    async def _state_of(self, name: str) -> dict[str, Any]:
        store = self.stores[name]

        def look() -> dict[str, Any]:
            live, version = store.live()
            edits = store.edits(version) if version else ((), (), ())
            paths = sorted({path for each in edits for path in each})
            return {
                "live": live,
                "version": version or b"",
                "foreign": store.foreign() if live == FOREIGN else "",
                "edited": len(paths),
                "edits": paths[:LISTED],
            }

        return await asyncio.to_thread(look)

    async def _stage(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        name, version = self._named(payload), wire.field(payload, "version", bytes)
        again = wire.field(payload, "begin", bool, False)
        work = self._work.get((name, version))
        if work is None or (again and work.task and work.task.done()):
            work = self._work[name, version] = _Work()
            # Of others nothing is remembered: who asks asks for one at a time.
            for key in [k for k, w in self._work.items() if w.task and w.task.done()]:
                del self._work[key]
            work.task = asyncio.ensure_future(self._stage_and_check(name, version, peer.name, work))
        assert work.task is not None  # nosec B101
        if not work.task.done():
            return {"state": WORKING, "done": work.done, "of": work.of}
        exc = work.task.exception()
        if exc is None:
            return {"state": STAGED}
        return {"state": FAILED, "why": reason_of(exc)}

    async def _stage_and_check(self, name: str, version: bytes, first: str, work: _Work) -> None:
        await self.stage(name, version, first, work.progress)
        await self.check(name, version)

    async def _switch(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        name = self._named(payload)
        await self.learn(name, register_rows.from_rows(payload.get("register")))
        await self.settle(name, wire.field(payload, "adopt", bool, False))
        return {"problem": self.lag(name)}

    def _named(self, payload: dict[str, Any]) -> str:
        name = wire.field(payload, "tree", str)
        if name not in self.stores:
            raise HaError(f"there is no tree {name!r:.40} in  ha: trees:  here")
        return name

    # -- what is current

    async def learn(self, name: str, theirs: Register) -> None:
        """Take in what a peer knows of a tree."""
        async with self._writing:
            merged = deployment.merge(self.registers[name], theirs)
            if merged != self.registers[name]:
                await self._write(name, merged)
                self._wake.set()

    async def decide(self, name: str, entry: Entry, old: Entry | None = None) -> Register:
        """
        Make *entry* current, over all that is known here; what came of it, for the peers.

        :param old: as :func:`.deployment.deploy` takes it.
        """
        async with self._writing:
            node = self._core.replica.node
            register = deployment.deploy(self.registers[name], node, entry, old)
            await self._write(name, register)
        point("tree.decided")
        return register

    @staticmethod
    def told(name: str, register: Register, adopt: bool) -> dict[str, Any]:
        """What a peer is told, to serve what is current now."""
        return {"tree": name, "register": register_rows.to_rows(register), "adopt": adopt}

    async def _write(self, name: str, register: Register) -> None:
        replica = self._core.replica

        def write() -> None:
            with replica.transaction():
                replica.trees.put(name, register_rows.pack(register))
                point("tree.record")

        await self._core.run(write)
        self.registers[name] = register

    # -- what is served

    async def run(self) -> None:
        """For as long as the engine runs."""
        for store in self.stores.values():
            with contextlib.suppress(OSError):  # staging comes to it, and says so
                await asyncio.to_thread(store.close)
        while self.stores:
            self._wake.clear()
            await self.compare()
            for name in self.stores:
                await self.settle(name)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._interval)

    async def compare(self) -> dict[str, str]:
        """Ask all peers what they know; why some could not be asked."""
        links = dict(self._links)
        problems = await asyncio.gather(
            *(self._compare(name, link) for name, link in links.items())
        )
        return {name: why for name, why in zip(links, problems, strict=True) if why}

    async def _compare(self, name: str, link: Link) -> str:
        if not link.up:
            return link.error or "it is not up"
        have = {tree: register.digest for tree, register in self.registers.items()}
        try:
            answer = await link.call("trees", {"have": have})
            told = wire.field(answer, "trees", dict)
            for tree in self.registers.keys() & told.keys():
                await self.learn(tree, register_rows.from_rows(told[tree]))
        except PeerError as exc:
            # A release without trees says no; it has none to be asked for.
            self._asked.add(name)
            return str(exc)
        except (HaError, OSError) as exc:
            # Nonsense, or our own disk is full: it is asked again.
            why = reason_of(exc)
            if self._troubles.get(name) != why:
                log.warning("ha trees: what %s says is not taken: %s", name, why)
            self._troubles[name] = why
            return why
        self._troubles.pop(name, None)
        self._asked.add(name)
        return ""

    async def settle(self, name: str, adopt: bool = False) -> None:
        """Serve what is current, after fetching it where it is not here."""
        current = self.registers[name].current
        store = self.stores[name]
        if current is None or store.live() == (LINKED, current.version):
            self._late.pop(name, None)
            return
        try:
            if store.live()[0] == FOREIGN and not adopt:
                raise HaError(store.foreign())
            if current.version not in self._staged[name] or not store.manifest(current.version):
                await self.stage(name, current.version)
            async with self._locks[name]:
                if store.live() == (LINKED, current.version):
                    return  # two noticed at once
                await asyncio.to_thread(store.switch, current.version, adopt)
        except (HaError, OSError) as exc:
            why = reason_of(exc)
            if self._late.get(name) != why:
                log.error("ha trees: %s is not served: %s", name, why)
                self._announce("deploy/failed", {"tree": name, "reason": why})
            self._late[name] = why
            return
        self._late.pop(name, None)
        if current.version in self._staged[name]:
            self._staged[name].remove(current.version)  # from here on somebody may edit it
        log.info("ha trees: %s: deployment %d is served", name, current.entry.number)
        self._clear_lists()
        asyncio.get_running_loop().call_later(SETTLED, self._clear_lists)
        self._announce(
            "deployed",
            {
                "tree": name,
                "number": current.entry.number,
                "version": self.stores[name].tree.shown(current.version),
                "by": current.entry.by,
                "source": current.entry.source,
            },
        )
        # Not waited for: whoever deployed wants to know that it is served.
        self._core.start(self._tidy(name))

    async def _tidy(self, name: str) -> None:
        """Remove what nobody goes back to any more."""
        keep = {entry.version for entry in self.registers[name].entries[:KEPT]}
        keep |= set(self._staged[name])
        async with self._locks[name]:
            with contextlib.suppress(OSError):  # it is tried again after the next
                await asyncio.to_thread(self.stores[name].keep, keep)

    def _clear_lists(self) -> None:
        """Salt keeps lists of files for ``fileserver_list_cache_time``, 20 s."""
        with contextlib.suppress(OSError):
            for kept in self._lists.glob("*.p"):
                kept.unlink(missing_ok=True)

    # -- fetching

    async def stage(
        self,
        name: str,
        version: bytes,
        first: str = "",
        progress: content.Progress = lambda done, of: None,
    ) -> None:
        """
        Have a version here whole, and as it should be.

        :param first: the peer to ask first. :raises HaError: it could not be fetched.
        """
        store = self.stores[name]
        async with self._locks[name]:
            if await asyncio.to_thread(_is_sound, store, version):
                return
            calls = self._calls(first)
            manifest = await self._manifest(calls, store, version)
            staging = await asyncio.to_thread(store.begin, version, manifest)
            await content.fetch_files(calls, store, staging, progress)
            await asyncio.to_thread(store.finish, version, staging)
            self._staged[name].append(version)

    def _calls(self, first: str) -> dict[str, Call]:
        links = sorted(self._links.items(), key=lambda item: item[0] != first)
        return {name: link.call for name, link in links if link.up or name == first}

    async def _manifest(
        self, calls: Mapping[str, Call], store: TreeStore, version: bytes
    ) -> Manifest:
        here = await asyncio.to_thread(store.manifest, version)
        if here is not None:
            return here
        base, why = store.live()[1] or b"", []
        for name, call in calls.items():
            try:
                return await content.fetch_manifest(call, store, version, base)
            except HaError as exc:
                why.append(f"{name}: {exc}")
        raise HaError("; ".join(why) or "no other master is up that may have it")

    async def stage_from(
        self,
        name: str,
        version: bytes,
        source: Source,
        progress: content.Progress = lambda done, of: None,
    ) -> None:
        """As :meth:`stage`, from a folder here. :raises HaError: it changed meanwhile."""
        store = self.stores[name]

        def work() -> None:
            if _is_sound(store, version):
                return
            staging = store.begin(version, source.manifest)
            of = len(staging.missing)
            for done, digest in enumerate(list(staging.missing)):
                progress(done, of)
                _take_own(store, staging, digest, source.folder)
            progress(of, of)
            store.finish(version, staging)

        async with self._locks[name]:
            await asyncio.to_thread(work)
            self._staged[name].append(version)

    async def check(self, name: str, version: bytes) -> None:
        """
        Run ``check:`` on a staged version.

        :raises HaError: it failed, or took too long; with what it said, but of secret trees.
        """
        tree = self.stores[name].tree
        if not tree.check:
            return
        path = self.stores[name].path_of(version)
        command = [part.replace("{tree}", str(path)) for part in shlex.split(tree.check)]
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=path,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as exc:
            raise HaError(f"check: {tree.check}: {reason_of(exc)}") from None
        try:
            said, code = await asyncio.wait_for(_ended(process), tree.check_timeout)
        except asyncio.TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what it has started, too
            await process.wait()
            raise HaError(f"check: {tree.check}: not within {tree.check_timeout:g} s") from None
        if code != 0:
            shown = "run it there to see why (the tree is secret)" if tree.secret else said
            raise HaError(f"check: {tree.check}: exit code {code}: {shown}")


async def _ended(process: asyncio.subprocess.Process) -> tuple[str, int]:
    """The last of what it said, and how it ended; it may say more than there is memory."""
    said = b""
    assert process.stdout is not None  # nosec B101
    while more := await process.stdout.read(MOST_READ):
        said = (said + more)[-MOST_OUTPUT:]
    return said.decode(errors="replace").strip(), await process.wait()


def conflict(name: str, register: Register) -> str:
    """What is said of a tree that was deployed twice, by people who did not know of each other."""
    sides = ", ".join(
        f"number {value.entry.number} on {value.entry.on} by {value.entry.by}"
        for value in register.values
    )
    return (
        f"tree {name}: different versions were deployed while masters did not see each other "
        f"({sides}); each master goes on serving its own: salt-run ha.deploy {name}, or "
        "salt-run ha.rollback, ends that"
    )


def _is_sound(store: TreeStore, version: bytes) -> bool:
    return store.manifest(version) is not None and not any(store.edits(version))


def _take_own(store: TreeStore, staging: Staging, digest: bytes, folder: Path) -> None:
    path = staging.missing[digest][0]
    try:
        copy_part(store, digest, folder / path)
        taken = store.settle(staging, digest)
    except FileNotFoundError:
        taken = False
    if not taken:
        raise HaError(f"{folder / path}: changed while it was being read; deploy again")
