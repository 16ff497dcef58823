"""
Has this master serve the current version of one tree. If the version is not here, this master
fetches and verifies it first, whichever master deployed it and however long this master was away.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from saltext_ha.common.errors import DiskHangs, HaError, reason_of
from saltext_ha.replication.deployment import Entry
from saltext_ha.trees.live_path import FOREIGN, LINKED
from saltext_ha.trees.registers import TreeRegisters, conflict
from saltext_ha.trees.stager import Stager, explained
from saltext_ha.trees.tree_disk import TreeDisk

log = logging.getLogger(__name__)

# A fileserver that listed the old files just before the switch writes that list just after it.
SETTLED = 2.0
# Seconds by which the register may come before the message to adopt what is live.
EARLY = 1.0
# Seconds between two steps of copying; each takes a fifth of a second, or as long as one file.
BREATH = 1.0


class ServedTree:
    """
    One tree that this master serves.

    :param disk: its folders. :param stager: has its versions.
    :param registers: say which version is current.
    :param announce: fires events.
    :param start: starts work that nobody waits for.
    :param lists: the folder in which Salt's fileserver keeps lists of files.
    :ivar untidy: why versions are not removed or copied; empty: they are.
    """

    def __init__(
        self,
        disk: TreeDisk,
        stager: Stager,
        registers: TreeRegisters,
        announce: Callable[[str, dict[str, Any]], None],
        start: Callable[[Coroutine[Any, Any, None]], object],
        lists: Path,
    ) -> None:
        self._name, self._disk, self._stager = disk.tree.name, disk, stager
        self._registers, self._announce = registers, announce
        self._start, self._lists = start, lists
        self.untidy = ""
        self._late = ""
        """Why this master does not serve the current version, as last tried."""
        self._told: Entry | None = None
        """The deployment that is known to be served here; it is told of once."""
        self._closed = False
        """Whether the folders were given their access rights since the start."""
        self._following: asyncio.Task[None] | None = None
        """Serves the current version."""
        self._lacking: list[bytes] | None = None
        """Contents that are still to be copied, while they are."""

    # -- what others ask

    def lag(self) -> str:
        """Why this master does not serve the current version; empty: it does."""
        current = self._registers[self._name].current
        if current is None:
            return ""
        try:
            if self._disk.lately() == (LINKED, current.version):
                return ""
        except HaError as exc:
            return f"tree {self._name}: {exc}"
        why = self._late or "it is being fetched"
        return f"tree {self._name}: deployment {current.entry.number} is not served here yet: {why}"

    def unserved(self) -> str:
        """Why this master serves neither the version just deployed nor a later one; or empty."""
        return conflict(self._name, self._registers[self._name]) or self.lag()

    def is_lost(self) -> bool:
        """Whether nobody here knows of deployments that were made: replica.db may come back."""
        try:
            nothing = self._registers[self._name].current is None
            return nothing and self._disk.live()[0] == LINKED
        except HaError:
            return True

    # -- what is served

    def follow(self) -> None:
        """Begin to serve the current version, unless a task is at it: the disk may hang."""
        before = self._following
        if before is None or before.done():
            if before is not None:
                before.result()  # an error that nobody expects ends the engine
            self._following = asyncio.ensure_future(self._follow())

    def stop(self) -> None:
        """The engine ends."""
        if self._following is not None:
            self._following.cancel()

    async def _follow(self) -> None:
        """Settle until the register has stayed as it was."""
        if not self._closed:
            await self._disk.close()
            self._closed = True
        register = None
        while register != self._registers[self._name]:
            await self._be_told()
            register = self._registers[self._name]
            await self.settle()

    async def _be_told(self) -> None:
        """A deployment may be about to have this master adopt what is live: that is no fault."""
        with contextlib.suppress(HaError):
            if self._registers[self._name].current and self._disk.lately()[0] == FOREIGN:
                await asyncio.sleep(EARLY)
                await self._disk.switched()

    async def settle(self, adopt: bool = False) -> None:
        """Serve the current version; fetch it first if it is not here."""
        current, disk = self._registers[self._name].current, self._disk
        if current is None:
            self._late = ""
            return
        try:
            live = disk.lately()
            if live == (LINKED, current.version):
                if disk.lock.locked():  # by another task, which may be about to tell of it
                    await disk.switched()
                    return
                if not self._late:
                    self._told = current.entry
                    return
            elif live[0] == FOREIGN and not adopt:
                raise HaError(disk.store.place.foreign())
            else:
                async with explained(disk.tree):
                    if not await self._serve(current.version, adopt):
                        return
        except HaError as exc:
            why = reason_of(exc)
            if self._late != why:
                log.error("ha trees: %s is not served: %s", self._name, why)
                self._announce("deploy/failed", {"tree": self._name, "reason": why})
            self._late = why
            return
        # Also of a switch that was given up, as the disk hung, and was done later.
        self._is_served(current.entry)

    async def _serve(self, version: bytes, adopt: bool) -> bool:
        """Switch to a version, and fetch it first if needed; returns whether this task did it."""
        disk, store = self._disk, self._disk.store
        verified = version in self._stager.verified(self._name)
        if not verified or not await disk.deploying(store.versions.manifest, version):
            await self._stager.stage(self._name, version)
        async with disk.lock:
            if await disk.deploying(store.live) == (LINKED, version):
                return False  # two tasks noticed at once
            await disk.switch(version, adopt)
        return True

    def _is_served(self, entry: Entry) -> None:
        """Tell that a deployment is served here, and do what comes after a switch."""
        self._late = ""
        self._stager.served(self._name, entry.version)
        if self._told == entry:
            return  # it could not be looked at for a while
        self._told = entry
        log.info("ha trees: %s: deployment %d is served", self._name, entry.number)
        self._clear_lists()
        asyncio.get_running_loop().call_later(SETTLED, self._clear_lists)
        self._announce(
            "deployed",
            {
                "tree": self._name,
                "number": entry.number,
                "version": self._disk.tree.shown(entry.version),
                "by": entry.by,
                "source": entry.source,
            },
        )
        # Do not wait for this: the deployment waits for the answer that it is served.
        self.tidy()

    def tidy(self) -> None:
        """Begin to remove versions that no rollback can go back to any more, and to copy others."""
        self._start(self._tidy())

    async def _tidy(self) -> None:
        disk, store = self._disk, self._disk.store
        try:
            async with disk.lock:  # by then, staging under way has verified its version
                why = await disk.deploying(store.keep, self._kept())
                lacking = await disk.deploying(store.lacking, self._kept())
            under_way = self._lacking is not None
            self._lacking = lacking
            if not under_way:
                await self._preserve()
        except (OSError, DiskHangs) as exc:
            why = reason_of(exc)
        except HaError:  # the engine stops
            return
        if why and self.untidy != why:
            log.warning("ha trees: %s: old versions are not removed or copied: %s", self._name, why)
        self.untidy = why

    async def _preserve(self) -> None:
        """Copy contents until none is lacking; later deployments exchange the list."""
        disk = self._disk
        try:
            while self._lacking:
                async with disk.lock:  # a deployment waits for one step at most
                    await disk.deploying(disk.store.preserve, self._lacking)
                if self._lacking:
                    await asyncio.sleep(BREATH)
        finally:
            self._lacking = None

    def _kept(self) -> set[bytes]:
        """Versions that a rollback can go back to, or that may be served soon."""
        return self._stager.in_use(self._name) | self._stager.verified(self._name)

    def _clear_lists(self) -> None:
        """Remove Salt's lists of files: it keeps them for ``fileserver_list_cache_time``, 20 s."""
        with contextlib.suppress(OSError):
            for kept in self._lists.glob("*.p"):
                kept.unlink(missing_ok=True)
