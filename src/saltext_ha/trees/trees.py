"""
Has this master serve the current version of each tree. If the version is not here, this master
fetches and verifies it first, whichever master deployed it and however long this master was away.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from saltext_ha.common.errors import DiskHangs, HaError, reason_of
from saltext_ha.reconciler.core import Core
from saltext_ha.replication.deployment import Entry
from saltext_ha.transport import wire
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.peer import Peer
from saltext_ha.trees import register_rows
from saltext_ha.trees.content import disk_of
from saltext_ha.trees.live_path import FOREIGN, LINKED
from saltext_ha.trees.registers import TreeRegisters, conflict
from saltext_ha.trees.stager import Stager
from saltext_ha.trees.tree_disk import TreeDisk

log = logging.getLogger(__name__)

# A fileserver that listed the old files just before the switch writes that list just after it.
SETTLED = 2.0
# Seconds until tidying that failed is tried again, unless a deployment does that.
AGAIN = 300.0
# Seconds between two steps of copying; each takes a fifth of a second, or as long as one file.
BREATH = 1.0


class Trees:
    """
    The trees that this master serves.

    :param stager: has the versions. :param registers: say which are current.
    :param announce: fires events.
    :param cachedir: of Salt; its fileserver keeps lists of files there.
    :param interval: seconds between two rounds.
    :param switched: called after a deployment, once this master was told to serve it.
    """

    def __init__(
        self,
        stager: Stager,
        registers: TreeRegisters,
        core: Core,
        announce: Callable[[str, dict[str, Any]], None],
        *,
        cachedir: Path,
        interval: float,
        switched: Callable[[], None] = lambda: None,
    ) -> None:
        self.switched = switched
        self._stager, self._disks, self._registers = stager, stager.disks, registers
        self._core, self._announce = core, announce
        self._lists, self._interval = cachedir / "file_lists" / "roots", interval
        self._late: dict[str, str] = {}
        """Tree → why this master does not serve its current version."""
        self._told: dict[str, Entry] = {}
        """Tree → the deployment that is known to be served here; it is told of once."""
        self._closed: set[str] = set()
        """Trees whose folders were given their access rights since the start."""
        self._untidy: dict[str, str] = {}
        """Tree → why its versions are not removed or copied; empty: they are."""
        self._following: dict[str, asyncio.Task[None]] = {}
        """Tree → the task that serves its current version."""
        self._lacking: dict[str, list[bytes]] = {}
        """Tree → contents that are still to be copied, while they are."""

    # -- what others ask

    def for_peers(self) -> dict[str, Handler]:
        return {"tree_switch": self._switch}

    def behind(self) -> str:
        """Why this master does not serve the current versions, or does not know; empty: it does."""
        if not self._disks:
            return ""
        if others := ", ".join(self._registers.unasked()):
            return f"trees are not yet compared with {others} since its start"
        return next((why for name in self._disks if (why := self.lag(name))), "")

    def lag(self, name: str) -> str:
        """Why this master does not serve the current version of a tree; empty: it does."""
        current = self._registers[name].current
        if current is None:
            return ""
        try:
            if self._disks[name].lately() == (LINKED, current.version):
                return ""
        except HaError as exc:
            return f"tree {name}: {exc}"
        why = self._late.get(name) or "it is being fetched"
        return f"tree {name}: deployment {current.entry.number} is not served here yet: {why}"

    def unserved(self, name: str) -> str:
        """Why this master serves neither the version just deployed nor a later one; or empty."""
        return conflict(name, self._registers[name]) or self.lag(name)

    def notes(self) -> Iterator[str]:
        """Notes for operators; some are empty."""
        yield from (self.unserved(name) for name in self._disks)
        for name, why in self._untidy.items():
            if why:
                yield f"tree {name}: old versions are not removed or copied: {why}"
        yield from self._registers.notes()

    async def _switch(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        name = disk_of(self._disks, payload).tree.name
        register = register_rows.from_rows(payload.get("register"))
        await self._registers.learn({name: register}, payload.get("vouched"), peer.name)
        await self.settle(name, wire.field(payload, "adopt", bool, False))
        self.switched()
        return {"problem": self.unserved(name)}

    # -- what is served

    async def run(self) -> None:
        """Catch up again and again while the engine runs."""
        again = -math.inf
        try:
            while self._disks:
                self._registers.changed.clear()
                await self.catch_up()
                # Before it has caught up, versions here may still be needed.
                if time.monotonic() >= again and not self.behind():
                    for name in self._disks:
                        is_due = again < 0 or self._untidy.get(name)
                        if is_due and not self._is_lost(name):
                            self._core.start(self._tidy(name))
                    again = time.monotonic() + AGAIN
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._registers.changed.wait(), self._interval)
        finally:
            for task in self._following.values():
                task.cancel()

    def _is_lost(self, name: str) -> bool:
        """Whether nobody here knows of deployments that were made: replica.db may come back."""
        try:
            nothing = self._registers[name].current is None
            return nothing and self._disks[name].live()[0] == LINKED
        except HaError:
            return True

    async def catch_up(self) -> None:
        """One round: ask all peers, and begin to serve the current versions."""
        await self._registers.compare()
        for name in self._disks:  # nobody waits for them: the disk of one may hang
            before = self._following.get(name)
            if before is None or before.done():
                if before is not None:
                    before.result()  # an error that nobody expects ends the engine
                self._following[name] = asyncio.ensure_future(self._follow(name))

    async def _follow(self, name: str) -> None:
        """Settle a tree until its register has stayed as it was."""
        if name not in self._closed:
            await self._disks[name].close()
            self._closed.add(name)
        register = None
        while register != self._registers[name]:
            register = self._registers[name]
            await self.settle(name)

    async def settle(self, name: str, adopt: bool = False) -> None:
        """Serve the current version of a tree; fetch it first if it is not here."""
        current = self._registers[name].current
        if current is None:
            self._late.pop(name, None)
            return
        disk = self._disks[name]
        try:
            live = disk.lately()
            if live == (LINKED, current.version):
                if disk.lock.locked():  # by another task, which may be about to tell of it
                    await disk.switched()
                    return
                if name not in self._late:
                    self._told[name] = current.entry
                    return
            elif live[0] == FOREIGN and not adopt:
                raise HaError(disk.store.place.foreign())
            elif not await self._serve(disk, current.version, adopt):
                return
        except (HaError, OSError) as exc:
            why = reason_of(exc)
            if self._late.get(name) != why:
                log.error("ha trees: %s is not served: %s", name, why)
                self._announce("deploy/failed", {"tree": name, "reason": why})
            self._late[name] = why
            return
        # Also of a switch that was given up, as the disk hung, and was done later.
        self._is_served(name, current.entry)

    async def _serve(self, disk: TreeDisk, version: bytes, adopt: bool) -> bool:
        """Switch to a version, and fetch it first if needed; returns whether this task did it."""
        name, store = disk.tree.name, disk.store
        verified = version in self._stager.verified(name)
        if not verified or not await disk.deploying(store.manifest, version):
            await self._stager.stage(name, version)
        async with disk.lock:
            if await disk.deploying(store.live) == (LINKED, version):
                return False  # two tasks noticed at once
            await disk.switch(version, adopt)
        return True

    def _is_served(self, name: str, entry: Entry) -> None:
        """Tell that a deployment is served here, and do what comes after a switch."""
        self._late.pop(name, None)
        self._stager.served(name, entry.version)
        if self._told.get(name) == entry:
            return  # it could not be looked at for a while
        self._told[name] = entry
        log.info("ha trees: %s: deployment %d is served", name, entry.number)
        self._clear_lists()
        asyncio.get_running_loop().call_later(SETTLED, self._clear_lists)
        self._announce(
            "deployed",
            {
                "tree": name,
                "number": entry.number,
                "version": self._disks[name].tree.shown(entry.version),
                "by": entry.by,
                "source": entry.source,
            },
        )
        # Do not wait for this: whoever deployed wants to know that it is served.
        self._core.start(self._tidy(name))

    async def _tidy(self, name: str) -> None:
        """Remove versions that no rollback can go back to any more, and copy contents of others."""
        disk, store = self._disks[name], self._disks[name].store
        try:
            async with disk.lock:  # by then, staging under way has verified its version
                why = await disk.deploying(store.keep, self._kept(name))
                lacking = await disk.deploying(store.lacking, self._kept(name))
            under_way = name in self._lacking
            self._lacking[name] = lacking
            if not under_way:
                await self._preserve(name)
        except (OSError, DiskHangs) as exc:
            why = reason_of(exc)
        except HaError:  # the engine stops
            return
        if why and self._untidy.get(name) != why:
            log.warning("ha trees: %s: old versions are not removed or copied: %s", name, why)
        self._untidy[name] = why

    async def _preserve(self, name: str) -> None:
        """Copy contents until none is lacking; later deployments exchange the list."""
        try:
            while self._lacking[name]:
                disk = self._disks[name]
                async with disk.lock:  # a deployment waits for one step at most
                    await disk.deploying(disk.store.preserve, self._lacking[name])
                if self._lacking[name]:
                    await asyncio.sleep(BREATH)
        finally:
            del self._lacking[name]

    def _kept(self, name: str) -> set[bytes]:
        """Versions of a tree that a rollback can go back to, or that may be served soon."""
        return self._stager.in_use(name) | self._stager.verified(name)

    def _clear_lists(self) -> None:
        """Remove Salt's lists of files: it keeps them for ``fileserver_list_cache_time``, 20 s."""
        with contextlib.suppress(OSError):
            for kept in self._lists.glob("*.p"):
                kept.unlink(missing_ok=True)
