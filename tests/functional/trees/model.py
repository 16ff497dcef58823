"""
A group of masters in one process: their real replicas, registers, stagers and stores, on real
folders, and ``ha.deploy`` as it is. Only TLS is left out between them.

All of it runs in one thread, in the same order each time. A stroke can end one of the masters
between any two steps, fill its disk, take away what it is about to read, or hide it from the rest.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import errno
import functools
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar, cast
from unittest.mock import patch

from saltext_ha.commands.background import Job
from saltext_ha.commands.trees.deploy import Deploy
from saltext_ha.commands.trees.tree_states import TreeStates
from saltext_ha.common import disk_work
from saltext_ha.common.errors import HaError, PeerRefused, PeerUnreachable, ReplicaError
from saltext_ha.config.trees import Tree
from saltext_ha.reconciler import core
from saltext_ha.reconciler.keeper import Keeper
from saltext_ha.replica.replica import Replica
from saltext_ha.replication.deployment import Register
from saltext_ha.replication.guard import RevocationGuard
from saltext_ha.sync.contact import Contact
from saltext_ha.sync.group import Group as Asking
from saltext_ha.sync.links import Links
from saltext_ha.sync.vouching import Vouching
from saltext_ha.transport import identity, wire
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.peer import Peer, make_peer
from saltext_ha.transport.trust import Trust
from saltext_ha.trees import served_tree
from saltext_ha.trees.live_path import LINKED
from saltext_ha.trees.registers import TreeRegisters
from saltext_ha.trees.stager import Stager
from saltext_ha.trees.store import TreeStore
from saltext_ha.trees.trees import Trees
from tests.asking import Answering
from tests.disk_steps import Crash, Files, read, watched
from tests.unit.replication.model import Fuse, MemoryStore

T = TypeVar("T")

TREE = "states"
NAMES = ("m1", "m2", "m3")
# What needs room on a disk.
GROWS = {"link", "mkdir", "rename", "symlink", "transaction"}
# After these something else may be live.
SHOWS = {"exchange", "rename", "replace", "rmdir", "unlink"}
KINDS = ("crash", "full", "hidden", "source", "lost", "liar")


class Stroke(NamedTuple):
    """
    What befalls the master *name* after so many of its own steps, and messages that it sent.

    ``crash``: it ends. ``full``: its disk is, from then on. ``hidden``: no other master reaches it,
    nor it them. ``source``: a file of its source is gone. ``lost``: all versions but the live one
    are. ``liar``: it sends other bytes than those of the files, from the beginning.
    """

    kind: str
    name: str
    after: int


class Inline(ThreadPoolExecutor):
    """Does all work at once, in the thread that asks for it."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """As any executor."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as exc:
            future.set_exception(exc)
        return future


class SteppingReplica(Replica):
    """In memory; what is told to *before* may end it before, in and after each transaction."""

    def __init__(self, before: Callable[[str], None]) -> None:
        super().__init__(None)
        self._before = before

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """As any replica's."""
        try:
            self._before("transaction")
        except OSError as exc:
            raise ReplicaError(f"replica.db: cannot be written: {exc}") from exc
        with super().transaction():
            yield
            self._before("commit")
        self._before("committed")


@functools.cache
def pinned() -> Path:
    """A folder with the identity of each master, in which all have pinned each other."""
    top = Path(tempfile.mkdtemp(prefix="ha-model-"))
    atexit.register(shutil.rmtree, top, ignore_errors=True)
    peers = {}
    for name in NAMES:
        own = identity.load_or_create(top / name, name)
        peers[name] = make_peer(name, f"https://{name}:4530", own.certificate)
    for name in NAMES:
        for other in peers.keys() - {name}:
            Trust(top / name).pin(peers[other])
    return top


_running: contextvars.ContextVar[Engine] = contextvars.ContextVar("_running")


class Engine:
    """A master's engine, from one start to its end."""

    def __init__(self, master: Master) -> None:
        self.master, self.group, self.ended = master, master.group, False
        self.announced: list[tuple[str, Any]] = []
        folder = pinned() / master.name
        trust, own = Trust(folder), identity.load_or_create(folder, master.name)
        self.vouching = Vouching(master.replica, lambda: own, trust)
        self.vouching.begin()
        keeper = Keeper(
            master.store,
            master.replica,
            name=master.name,
            guard=RevocationGuard(1.0, 1000),
            revoke=lambda *_: None,
        )
        with patch.object(core, "ThreadPoolExecutor", Inline):
            self.core = core.Core(keeper, lambda records: None)
        self.ways = {name: Way(self, name) for name in NAMES if name != master.name}
        contacts = cast("dict[str, Contact]", self.ways)
        self.registers = TreeRegisters([TREE], self.core, contacts, lambda _: None, self.vouching)
        with patch.object(disk_work, "ThreadPoolExecutor", Inline):
            self.stager = Stager(
                [master.tree], contacts, lambda _: None, self.registers.kept, lambda: None
            )
        self.trees = Trees(
            self.stager,
            self.registers,
            self.core,
            lambda tag, data: self.announced.append((tag, data)),
            cachedir=master.root,
            interval=1.0,
        )
        links = cast("Links", SimpleNamespace(contacts=contacts))
        asking = Asking(master.name, self.core, trust, links, 1.0)
        states = TreeStates(asking, self.stager, {})
        digests = master.root / "digests"
        self.deploy = Deploy(
            asking, self.registers, self.trees, self.stager, states, digests, lambda: None
        )
        self.handlers: dict[str, Handler] = {
            **self.stager.for_peers(),
            **self.registers.for_peers(),
            **self.trees.for_peers(),
            "digest": self._digest,
        }

    @property
    def store(self) -> TreeStore:
        """The versions on its disk."""
        return self.stager.disks[TREE].store

    @property
    def register(self) -> Register:
        """What it knows of what is current."""
        return self.registers[TREE]

    async def _digest(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        return {}

    async def answer(self, method: str, payload: dict[str, Any], peer: Peer) -> dict[str, Any]:
        """What it says to a peer."""
        return await self.handlers[method](peer, payload)

    async def round(self) -> None:
        """What it does every few seconds: meet all peers, ask them, serve what is current."""
        for way in self.ways.values():
            await way.meet()
        await self.trees.catch_up()

    def step(self, name: str) -> None:
        """It is about to do something. :raises Crash: it has ended."""
        if self.ended:
            raise Crash
        if name in SHOWS:
            self.master.look()
        self.group.strike(self, name)
        if self.ended:
            raise Crash


class Way(Answering):
    """From one master to another: the contact, as far as trees use it."""

    def __init__(self, engine: Engine, name: str) -> None:
        super().__init__(self.call)
        self._engine, self._name = engine, name
        self.up: bool | None = None
        self.error = "not met yet"

    @property
    def _other(self) -> Engine:
        """:raises PeerUnreachable: it is not reached."""
        other = self._engine.group.masters[self._name].engine
        here = self._engine.master.name
        if other is None or self._engine.group.apart(here, self._name):
            self.up, self.error = False, "it is not reached"
            raise PeerUnreachable(self.error)
        return other

    async def meet(self) -> None:
        """Find out whether it is there."""
        with contextlib.suppress(PeerUnreachable):
            self.up = self._other is not None

    async def call(
        self, method: str, payload: dict[str, Any], timeout: float | None = None
    ) -> dict[str, Any]:
        """As that of a contact. What was asked may have been done, although no answer comes."""
        self._engine.step("message")
        other, peer = self._other, make_of(self._engine.master.name)
        work = other.answer(method, wire.unpack(wire.pack(payload)), peer)
        try:
            # It goes on when we are gone.
            answer = await asyncio.shield(running(other, work))
        except Crash:
            answer = {}
        except HaError as exc:
            raise PeerRefused(str(exc)) from None
        if self._other is not other:
            raise PeerUnreachable("it has ended")
        if method == "tree_parts" and self._engine.group.lies(self._name):
            answer["parts"] = [[what, at, data[::-1]] for what, at, data in answer["parts"]]
        return wire.unpack(wire.pack(answer))


@functools.cache
def make_of(name: str) -> Peer:
    """The peer of that name."""
    own = identity.load_or_create(pinned() / name, name)
    return make_peer(name, f"https://{name}:4530", own.certificate)


def running(engine: Engine, work: Awaitable[T]) -> asyncio.Task[T]:
    """*work*, whose steps are those of *engine*."""

    async def run() -> T:
        _running.set(engine)
        return await work

    return asyncio.ensure_future(run())


class Master:
    """One master: its disk, and its engine while it runs."""

    def __init__(self, group: Group, name: str) -> None:
        self.group, self.name = group, name
        self.root = group.root / name
        self.root.mkdir()
        self.source = self.root / "source"
        self.source.mkdir()
        self.tree = Tree(TREE, self.root / "live", self.source, secret=True)
        self.replica = SteppingReplica(_step)
        with self.replica.transaction():
            self.replica.meta.blank = False
        self.store = MemoryStore(Fuse())
        self.engine: Engine | None = None
        self.by_hand: set[str] = set()
        """What an operator wrote into live folders here, and did not remove since."""
        self.edited: Files | None = None
        """What was live after the last edit."""
        self.served: set[str] = set()
        """Where the live path led to since the last works began."""
        self.deleted: set[str] = set()
        """Versions that somebody deleted here by hand: where they are served, nothing is."""
        self.linked = False
        """Whether a version was served."""

    def start(self) -> None:
        """Start, or start again: nothing is kept but what is on the disk."""
        self.engine = Engine(self)
        self.engine.store.close()

    def end(self) -> None:
        """All of it is over, at once."""
        if self.engine:
            self.engine.ended = True
        self.engine = None

    def live(self) -> Files:
        """What Salt would read."""
        return read(self.tree.live.resolve()) if self.tree.live.exists() else {}

    def look(self) -> None:
        """T2 and T3: what is live is a whole version, or what its operator made of it."""
        live, top = self.live(), self.tree.live
        version = top.resolve().name if top.is_symlink() else ""
        if version:
            self.served.add(version)
            self.linked = True
        nothing = not live and (version in self.deleted if self.linked else not version)
        whole = nothing or live in self.group.contents or live == self.edited
        if not whole:
            self.group.torn.append((self.name, live))

    def versions(self) -> list[Path]:
        """The folders of versions that are here."""
        folder = self.tree.folder / "versions"
        return sorted(path for path in folder.glob("*") if path.is_dir())


class Group:
    """
    The masters, what lies between them, and what befalls them.

    :param contents: all that may ever be live as a whole.
    """

    def __init__(self, root: Path, contents: list[Files]) -> None:
        self.root, self.contents = root, contents
        self.stroke: Stroke | None = None
        self.torn: list[tuple[str, Files]] = []
        """What was live and should not have been."""
        self.unhandled: list[dict[str, Any]] = []
        self.sides: dict[str, int] = dict.fromkeys(NAMES, 0)
        self._taken = 0
        self._struck = False
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(Inline())
        self.loop.set_exception_handler(self._unhandled)
        self.masters: dict[str, Master] = {}
        for name in NAMES:
            self.masters[name] = Master(self, name)
        for master in self.masters.values():
            master.start()

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What nobody waited for has failed: not by itself, if its master has ended."""
        if not isinstance(context.get("exception"), Crash):
            self.unhandled.append(context)

    def close(self) -> None:
        """Over."""
        for master in self.masters.values():
            master.end()
            master.replica.close()
        self.loop.close()
        shutil.rmtree(self.root)

    @property
    def up(self) -> list[Engine]:
        """The engines that run."""
        return [master.engine for master in self.masters.values() if master.engine]

    def apart(self, one: str, other: str) -> bool:
        """Whether these two do not reach each other."""
        return self.sides[one] != self.sides[other]

    def lies(self, name: str) -> bool:
        """Whether that one sends other bytes than it should."""
        return self.stroke is not None and self.stroke[:2] == ("liar", name)

    def do(
        self, *works: tuple[Engine, Coroutine[Any, Any, Any]], stroke: Stroke | None = None
    ) -> list[Any]:
        """
        Have all these works done at the same time, and all that follows from them.

        :return: what came of each: its result, or what it raised.
        """
        self.stroke, self._taken, self._struck = stroke, 0, False
        for master in self.masters.values():
            master.served.clear()

        async def all_of_it() -> list[Any]:
            tasks = [running(engine, work) for engine, work in works]
            found = await asyncio.gather(*tasks, return_exceptions=True)
            own = asyncio.current_task()
            while rest := asyncio.all_tasks() - {own}:
                await asyncio.gather(*rest, return_exceptions=True)
            return found

        try:
            with watched(_step), patch.object(served_tree, "EARLY", 0.0):
                return self.loop.run_until_complete(all_of_it())
        finally:
            self.stroke = None
            for master in self.masters.values():
                master.look()

    def strike(self, engine: Engine, step: str) -> None:
        """*engine* is about to take a step: is this where it is struck?"""
        stroke = self.stroke
        if stroke is None or stroke.name != engine.master.name or stroke.kind == "liar":
            return
        self._taken += 1
        if self._taken <= stroke.after:
            return
        if stroke.kind == "full":
            if step in GROWS:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return
        if self._struck:
            return
        self._struck = True
        context = contextvars.Context()  # these are steps of nobody
        context.run(getattr(self, f"_{stroke.kind}"), engine.master)

    def _crash(self, master: Master) -> None:
        master.end()

    def _hidden(self, master: Master) -> None:
        self.sides[master.name] = 1 + max(self.sides.values())

    def _source(self, master: Master) -> None:
        for path in sorted(path for path in master.source.rglob("*") if path.is_file())[:1]:
            path.unlink()
        self.contents.append(read(master.source))

    def _lost(self, master: Master) -> None:
        live = master.tree.live.resolve()
        for path in master.versions():
            if path != live:
                self.take_away(master, path)

    def take_away(self, master: Master, version: Path) -> None:
        """Somebody deletes a version by hand."""
        master.by_hand -= set(read(version).values())
        master.deleted.add(version.name)
        shutil.rmtree(version)


def _step(name: str) -> None:
    engine = _running.get(None)
    if engine is not None:
        engine.step(name)


__all__ = ["LINKED", "NAMES", "TREE", "Engine", "Group", "Job", "Master", "Stroke"]
