"""Stages versions of trees on this disk, whole and checked: from peers, or from a folder here."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

from saltext_ha.common.disk_work import steps
from saltext_ha.common.errors import DiskHangs, HaError, InvalidRecord, reason_of
from saltext_ha.common.files import as_text
from saltext_ha.common.tasks import begin
from saltext_ha.config.trees import Tree
from saltext_ha.sync.contact import Asking, Contact
from saltext_ha.transport import wire
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.peer import Peer
from saltext_ha.trees import check_command, content
from saltext_ha.trees.content import Content
from saltext_ha.trees.manifest import Manifest
from saltext_ha.trees.source import Source
from saltext_ha.trees.staging import Staging
from saltext_ha.trees.store import TreeStore, explanation
from saltext_ha.trees.tree_disk import TreeDisk, either
from saltext_ha.trees.tree_state import TreeState

SHOWN = 5  # paths that a check has changed
# Deployments of one tree that several people may prepare at the same time.
AT_ONCE = 3
STAGED, WORKING, FAILED = "staged", "working", "failed"
FULL = (errno.ENOSPC, errno.EDQUOT)
QUESTION_WAITS = 1.0  # seconds for a version to be staged; then it is asked again


class _Fetch:
    """The fetching of a version for a peer, and how far it is."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.done = self.of = 0

    def progress(self, done: int, of: int) -> None:
        self.done, self.of = done, of


class Stager:
    """
    The versions of all trees of one master.

    :param contacts: to the peers, by name.
    :param refuse: takes the name of a peer that sent nonsense.
    :param deployed: takes a tree; returns the versions of it that registers name.
    :param stop: raises to end long work.
    """

    def __init__(
        self,
        trees: Iterable[Tree],
        contacts: Mapping[str, Contact],
        refuse: Callable[[str], None],
        deployed: Callable[[str], set[bytes]],
        stop: Callable[[], None],
    ) -> None:
        step = steps(stop)
        self.disks = {tree.name: TreeDisk(TreeStore(tree, step)) for tree in trees}
        self._contacts, self._refuse, self._deployed = contacts, refuse, deployed
        self._content = Content(self.disks)
        self._fetches: dict[tuple[str, bytes], _Fetch] = {}
        self._checked: dict[str, list[bytes]] = {name: [] for name in self.disks}
        """Tree → versions whose check runs."""
        self._staged = {name: deque[bytes](maxlen=AT_ONCE) for name in self.disks}

    def for_peers(self) -> dict[str, Handler]:
        return {
            **self._content.for_peers(),
            "tree_state": lambda peer, payload: self.state(wire.texts(payload, "trees")),
            "tree_stage": self._stage,
        }

    # -- what there is

    async def state(self, names: Iterable[str]) -> dict[str, Any]:
        """
        ``trees``: each of *names* that is here, and its :class:`.TreeState`.

        :raises HaError: a folder cannot be looked at, or a look at it does not end.
        """

        async def look(disk: TreeDisk) -> dict[str, Any]:
            async with explained(disk.tree):
                return (await disk.looking(TreeState.of, disk.store)).told()

        disks = [self.disks[name] for name in names if name in self.disks]
        states = await asyncio.gather(*map(look, disks))
        return {"trees": {d.tree.name: state for d, state in zip(disks, states, strict=True)}}

    def verified(self, name: str) -> set[bytes]:
        """Versions of a tree that were verified and not served since: some may be served soon."""
        return set(self._staged[name])

    def in_use(self, name: str) -> set[bytes]:
        """Versions of a tree that are being checked, or are deployed."""
        return {*self._checked[name], *self._deployed(name)}

    def served(self, name: str, version: bytes) -> None:
        """
        Forget that it was verified, and those before it: they were staged in vain. Once a version
        is served, somebody may edit it.
        """
        staged = self._staged[name]
        while version in staged:
            staged.popleft()

    def _note(self, name: str, version: bytes) -> None:
        """Remember that a version was verified, as the last one."""
        self._forget(name, version)
        self._staged[name].append(version)

    def _forget(self, name: str, version: bytes) -> None:
        with contextlib.suppress(ValueError):
            self._staged[name].remove(version)

    # -- for a peer that deploys

    async def _stage(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        name = content.disk_of(self.disks, payload).tree.name
        version = wire.field(payload, "version", bytes)
        again = wire.field(payload, "begin", bool, False)
        fetch = self._fetches.get((name, version))
        if fetch is None or (again and fetch.task and fetch.task.done()):
            fetch = self._fetches[name, version] = _Fetch()
            # Forget ended fetches of other versions: a peer asks for one at a time.
            for key in [k for k, f in self._fetches.items() if f.task and f.task.done()]:
                del self._fetches[key]
            fetch.task = begin(self._stage_and_check(name, version, peer.name, fetch))
        assert fetch.task is not None  # nosec B101
        await asyncio.wait([fetch.task], timeout=QUESTION_WAITS)
        if not fetch.task.done():
            return {"state": WORKING, "done": fetch.done, "of": fetch.of}
        exc = fetch.task.exception()
        if exc is None:
            return {"state": STAGED}
        return {"state": FAILED, "why": reason_of(exc), "hangs": isinstance(exc, DiskHangs)}

    async def _stage_and_check(self, name: str, version: bytes, first: str, fetch: _Fetch) -> None:
        await self.stage(name, version, first, fetch.progress)
        await self.check(name, version)

    # -- a version comes here

    async def stage(
        self,
        name: str,
        version: bytes,
        first: str = "",
        progress: content.Progress = lambda done, of: None,
    ) -> None:
        """
        Bring a version here, whole and unchanged, unless it is here already.

        :param first: the peer to ask first.
        :raises HaError: the version could not be fetched, or put together, or could not be served.
        """
        async with self._staging(name) as disk:
            await disk.deploying(disk.store.place.check)
            if not await disk.deploying(_is_sound, disk.store, version):
                await self._fetch(disk, version, first, progress)
            self._note(name, version)

    async def _fetch(
        self, disk: TreeDisk, version: bytes, first: str, progress: content.Progress
    ) -> None:
        store, peers = disk.store, self._asked(first)
        manifest = await self._manifest(peers, disk, version)
        staging = await disk.deploying(store.begin, version, manifest, self.in_use(disk.tree.name))
        await content.fetch_files(peers, disk, staging, progress, self._refuse)
        await disk.deploying(store.finish, version, staging)

    @contextlib.asynccontextmanager
    async def _staging(self, name: str) -> AsyncIterator[TreeDisk]:
        """One at a time. When the disk is full, what was fetched in vain is removed."""
        disk = self.disks[name]
        async with disk.lock, explained(disk.tree):
            try:
                yield disk
            except OSError as exc:
                if exc.errno in FULL:
                    await disk.deploying(disk.store.clear_staging)
                raise

    def _asked(self, first: str) -> dict[str, Asking]:
        contacts = sorted(self._contacts.items(), key=lambda item: item[0] != first)
        return {name: contact for name, contact in contacts if contact.up or name == first}

    async def _manifest(
        self, peers: Mapping[str, Asking], disk: TreeDisk, version: bytes
    ) -> Manifest:
        here = await disk.deploying(disk.store.versions.manifest, version)
        if here is not None:
            return here
        base, why = (await disk.deploying(disk.store.live))[1] or b"", []
        for name, peer in peers.items():
            try:
                return await content.fetch_manifest(peer, disk, version, base)
            except DiskHangs:
                raise
            except InvalidRecord as exc:
                why.append(f"{name}: {exc}")
                self._refuse(name)
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
        """As :meth:`stage`, from a folder here. :raises HaError: the folder changed meanwhile."""
        store = self.disks[name].store

        def put_together() -> None:
            store.place.check()
            if _is_sound(store, version):
                return
            staging = store.begin(version, source.manifest, in_use)
            of = len(staging.missing)
            for done, digest in enumerate(list(staging.missing)):
                progress(done, of)
                _take_own(staging, digest, source)
            progress(of, of)
            store.finish(version, staging)

        async with self._staging(name) as disk:
            in_use = self.in_use(name)
            where = either(source.folder, disk.tree.folder)
            await disk.deploying(put_together, where=where)
            self._note(name, version)

    async def check(self, name: str, version: bytes) -> None:
        """Run ``check:`` on a staged version. :raises HaError: it failed, or changed files."""
        disk = self.disks[name]
        if not disk.tree.check:
            return
        try:
            await self._check(disk, version)
        except BaseException:  # also when the engine stops
            self._forget(name, version)
            raise

    async def _check(self, disk: TreeDisk, version: bytes) -> None:
        tree, store, why = disk.tree, disk.store, ""
        folder, uses = store.versions.path_of(version), self._checked[tree.name]
        uses.append(version)
        try:
            await disk.looking(check_command.look, tree, folder, where=f"check: {tree.check}")
            try:
                await check_command.check(tree, folder)
            except HaError as exc:
                why = str(exc)
            async with explained(tree):  # it was sound when it was staged
                changed = await disk.deploying(_changed, store, version)
        finally:
            uses.remove(version)
        if changed:
            await self._take_out(disk, version)
        if changed and not why:
            why = (
                f"check: {tree.check}: it changed the version that it checked: {changed}; let it "
                "write elsewhere, or check a copy"
            )
        if why:
            raise HaError(why)

    async def _take_out(self, disk: TreeDisk, version: bytes) -> None:
        """Remove a version that its check has changed, unless it is in use."""
        async with disk.lock, explained(disk.tree):
            if version not in self.in_use(disk.tree.name):
                await disk.deploying(disk.store.take_out, version)


@contextlib.asynccontextmanager
async def explained(tree: Tree) -> AsyncIterator[None]:
    """Turn an OSError into a HaError."""
    try:
        yield
    except OSError as exc:
        raise HaError(explanation(tree, exc)) from None


def _changed(store: TreeStore, version: bytes) -> str:
    """The first paths that were changed in a version; empty: none was."""
    if store.versions.manifest(version) is None:
        return "it is gone"
    paths = sorted({path for each in store.versions.edits(version) for path in each})
    more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
    return f"{', '.join(map(as_text, paths[:SHOWN]))}{more}"


def _is_sound(store: TreeStore, version: bytes) -> bool:
    return store.versions.manifest(version) is not None and not any(store.versions.edits(version))


def _take_own(staging: Staging, digest: bytes, source: Source) -> None:
    path = source.folder / staging.missing[digest][0]
    try:
        staging.copy(digest, path)
        taken = staging.settle(digest)
    except FileNotFoundError:
        taken = False
    if not taken:
        raise HaError(f"{path}: changed while it was being read; deploy again")
