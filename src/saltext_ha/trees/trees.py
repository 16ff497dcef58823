"""The trees that this master serves: has each of them follow its register."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from saltext_ha.reconciler.core import Core
from saltext_ha.transport import wire
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.peer import Peer
from saltext_ha.trees import registers
from saltext_ha.trees.content import disk_of
from saltext_ha.trees.registers import TreeRegisters
from saltext_ha.trees.served_tree import ServedTree
from saltext_ha.trees.stager import Stager

# Seconds until tidying that failed is tried again, unless a deployment does that.
AGAIN = 300.0


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
        self._disks, self._registers, self._interval = stager.disks, registers, interval
        lists = cachedir / "file_lists" / "roots"
        self._trees = {
            name: ServedTree(disk, stager, registers, announce, core.start, lists)
            for name, disk in stager.disks.items()
        }

    def __getitem__(self, name: str) -> ServedTree:
        return self._trees[name]

    # -- what others ask

    def for_peers(self) -> dict[str, Handler]:
        return {"tree_switch": self._switch}

    def behind(self) -> str:
        """Why this master does not serve the current versions, or does not know; empty: it does."""
        if not self._trees:
            return ""
        if others := ", ".join(self._registers.unasked()):
            return f"trees are not yet compared with {others} since its start"
        return next((why for tree in self._trees.values() if (why := tree.lag())), "")

    def notes(self) -> Iterator[str]:
        """Notes for operators; some are empty."""
        yield from (tree.unserved() for tree in self._trees.values())
        for name, tree in self._trees.items():
            if tree.untidy:
                yield f"tree {name}: old versions are not removed or copied: {tree.untidy}"
        yield from self._registers.notes()

    async def _switch(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        name = disk_of(self._disks, payload).tree.name
        register = registers.from_rows(payload.get("register"))
        await self._registers.learn({name: register}, payload.get("vouched"), peer.name)
        await self[name].settle(wire.field(payload, "adopt", bool, False))
        self.switched()
        return {"problem": self[name].unserved()}

    # -- what is served

    async def run(self) -> None:
        """Catch up again and again while the engine runs."""
        again = -math.inf
        try:
            while self._trees:
                self._registers.changed.clear()
                await self.catch_up()
                # Before it has caught up, versions here may still be needed.
                if time.monotonic() >= again and not self.behind():
                    for tree in self._trees.values():
                        if (again < 0 or tree.untidy) and not tree.is_lost():
                            tree.tidy()
                    again = time.monotonic() + AGAIN
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._registers.changed.wait(), self._interval)
        finally:
            for tree in self._trees.values():
                tree.stop()

    async def catch_up(self) -> None:
        """One round: ask all peers, and begin to serve the current versions."""
        await self._registers.compare()
        for tree in self._trees.values():
            tree.follow()
