"""The folders of one tree, as the event loop uses them: its work there is done in threads."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from pathlib import Path

from saltext_ha.common.disk_work import DiskWork
from saltext_ha.common.errors import DiskHangs, HaError, reason_of
from saltext_ha.common.file_looks import Looks
from saltext_ha.common.files import as_text
from saltext_ha.trees.live_path import FREE, LINKED
from saltext_ha.trees.store import TreeStore

LIMIT = 600.0
"""Seconds in which nothing moves, after which work of a deployment is given up."""
LOOKING = 20.0
"""
The same of work that only reads. Peers wait for it: 30 s for a look (``sync/group.py``), and 60 s
for what they fetch (``sync/contact.py``).
"""
LAST = 10.0
"""Seconds in which the last look at a live path counts, while a new one fails."""


def either(*folders: Path) -> str:
    """Names *folders*, for people, as what work is done on."""
    return " or ".join(as_text(str(folder)) for folder in dict.fromkeys(folders))


class TreeDisk:
    """
    The folders of one tree, as the event loop uses them.

    :param store: does the work, in :func:`.steps`.
    :ivar lock: held by who changes versions.
    :ivar deploying: what a deployment or a rollback does here. :ivar reading: reads the source.
    :ivar looking: for whoever wants to know what is there. :ivar sending: what peers fetch.
    """

    def __init__(self, store: TreeStore) -> None:
        self.store, self.tree = store, store.tree
        self.lock = asyncio.Lock()
        where, source = either(store.tree.folder), either(store.tree.source or store.tree.live)
        self.deploying, self.reading = DiskWork(where, LIMIT), DiskWork(source, LIMIT)
        self.looking, self.sending = DiskWork(where, LOOKING), DiskWork(where, LOOKING)
        self._whole = asyncio.Event()
        """Not set while a switch is under way: its link may be there already."""
        self._whole.set()
        self._look = Looks()
        self._seen: tuple[str, bytes | None] = (FREE, None)
        self._seen_at = -math.inf

    async def close(self) -> None:
        """As :meth:`.TreeStore.close`. If that fails, staging meets it, too, and says so."""
        with contextlib.suppress(OSError, DiskHangs):
            await self.looking(self.store.close)

    async def switch(self, version: bytes, adopt: bool) -> None:
        """As :meth:`.TreeStore.switch`."""
        self._whole.clear()
        try:
            await self.deploying(self.store.switch, version, adopt)
            self._saw((LINKED, version))
        finally:
            self._whole.set()

    async def switched(self) -> None:
        """Wait for the end of a switch that another task makes, if one does."""
        await self._whole.wait()

    def live(self) -> tuple[str, bytes | None]:
        """
        As :meth:`.LivePath.look`, from the event loop.

        :raises HaError: the live path cannot be looked at; in a second at most, see :class:`Looks`.
        """
        try:
            self._saw(self._look(self.store.live))
        except OSError as exc:
            kind = DiskHangs if isinstance(exc, TimeoutError) else HaError
            raise kind(f"{self.tree.live} cannot be looked at: {reason_of(exc)}") from None
        return self._seen

    def lately(self) -> tuple[str, bytes | None]:
        """
        As :meth:`live`, or what was there at most :data:`LAST` seconds ago: masters that share a
        file server must not all be taken from a load balancer by a pause of it.
        """
        try:
            return self.live()
        except HaError:
            if time.monotonic() - self._seen_at > LAST:
                raise
            return self._seen

    def _saw(self, live: tuple[str, bytes | None]) -> None:
        self._seen, self._seen_at = live, time.monotonic()
