"""
Work on the disk of a tree, in threads beside the event loop. A disk may hang: then nobody waits for
it without end, and each kind of work keeps one thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from saltext_ha.common.errors import DiskHangs, HaError, reason_of
from saltext_ha.common.files import as_text
from saltext_ha.common.looks import Looks
from saltext_ha.trees.live_path import FREE, LINKED
from saltext_ha.trees.store import TreeStore

T = TypeVar("T")

LIMIT = 600.0
"""Seconds in which nothing moves, after which work of a deployment is given up."""
LOOKING = 20.0
"""
The same of work that only reads. Peers wait for it: 30 s for a look (``sync/group.py``), and 60 s
for what they fetch (``sync/line.py``).
"""
LAST = 10.0
"""Seconds in which the last look at a live path counts, while a new one fails."""


class DiskWork:
    """
    Does one piece of work after another, in one thread.

    :param where: what it works on, for people, unless a piece says otherwise.
    :param limit: seconds without a step after which a piece is given up.
    """

    def __init__(self, where: str, limit: float) -> None:
        self.limit = limit
        self._where = self._at = where
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="ha-tree")
        self._under_way: set[Future[Any]] = set()
        self._moved = 0.0
        """When a piece last took a step, or began."""

    async def __call__(self, work: Callable[..., T], *arguments: Any, where: str = "") -> T:
        """
        The result of *work*. It may wait for the pieces before it, as long as these go on.

        :param where: what this piece works on, for people.
        :raises DiskHangs: no step was taken for ``limit`` seconds. The work goes on up to its next
            step, if the disk ever lets it; until then, others are refused at once.
        """
        piece = _Piece(self, where or self._where)
        if not self._under_way:
            self.begins(piece)
        self._check()
        begun = self._worker.submit(piece.do, work, *arguments)
        self._under_way.add(begun)
        begun.add_done_callback(self._under_way.discard)
        coming = asyncio.wrap_future(begun)
        try:
            while not coming.done():
                await asyncio.wait([coming], timeout=self._check())
            return coming.result()
        finally:
            piece.given_up = not coming.done()
            coming.cancel()  # if it has not begun, it never does

    def begins(self, piece: _Piece) -> None:
        """From now on it is *piece* that is waited for."""
        self._at = piece.where
        self.moved()

    def moved(self) -> None:
        """A step was taken."""
        self._moved = time.monotonic()

    def _check(self) -> float:
        """The seconds that are left for the next step. :raises DiskHangs: there are none."""
        still = time.monotonic() - self._moved
        if still >= self.limit:
            raise DiskHangs(
                f"{self._at}: the file system does not respond: nothing has moved for "
                f"{self.limit:g} s"
            )
        return self.limit - still


class _Piece:
    """One piece of work, which may be given up."""

    def __init__(self, lane: DiskWork, where: str) -> None:
        self.lane, self.where, self.given_up = lane, where, False

    def do(self, work: Callable[..., T], *arguments: Any) -> T:
        """Do it, in this thread."""
        self.lane.begins(self)
        before = _piece.set(self)
        try:
            return work(*arguments)
        finally:
            _piece.reset(before)


_piece: ContextVar[_Piece | None] = ContextVar("_piece", default=None)


def steps(stop: Callable[[], None]) -> Callable[[], None]:
    """
    What work calls at each of its steps: it notes that the work goes on.

    :param stop: called, too; raises to end the work.
    :return: raises DiskHangs if nobody waits for the work any more.
    """

    def step() -> None:
        stop()
        if piece := _piece.get():
            piece.lane.moved()
            if piece.given_up:
                raise DiskHangs("the file system did not respond for too long")

    return step


def either(*folders: Path) -> str:
    """Names *folders*, for people, as what work is done on."""
    return " or ".join(as_text(str(folder)) for folder in dict.fromkeys(folders))


class TreeDisk:
    """
    The folders of one tree, as the event loop uses them.

    :param store: does the work, in :func:`steps`.
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
