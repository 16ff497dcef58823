"""
Work on a disk, in threads beside the event loop. A disk may hang: then nobody waits for it without
end, and each kind of work keeps one thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import ContextVar
from typing import Any, TypeVar

from saltext_ha.common.errors import DiskHangs

T = TypeVar("T")


class DiskWork:
    """
    Does one piece of work after another, in one thread.

    :param where: what it works on, for people, unless a piece says otherwise.
    :param limit: seconds without a step after which a piece is given up.
    :param then: what is to be known of a piece that was given up, for people.
    """

    def __init__(self, where: str, limit: float, then: str = "") -> None:
        self.limit = limit
        self._then = f"; {then}" if then else ""
        self._where = self._at = where
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="ha-disk")
        self._under_way: set[Future[Any]] = set()
        self._moved = 0.0
        """When a piece last took a step, or began."""

    async def __call__(
        self, work: Callable[..., T], *arguments: Any, where: str = "", patience: float = 0.0
    ) -> T:
        """
        The result of *work*. It may wait for the pieces before it, as long as these go on.

        :param where: what this piece works on, for people.
        :param patience: seconds for which the event loop itself waits, unless there are pieces
            before it: nothing else happens before what comes after a piece that is done so soon.
        :raises DiskHangs: no step was taken for ``limit`` seconds. The work goes on up to its next
            :func:`step`, if the disk ever lets it; until then, others are refused at once.
        """
        piece = _Piece(self, where or self._where)
        first = not self._under_way
        if first:
            self.begins(piece)
        self._check()
        begun = self._worker.submit(piece.do, work, *arguments)
        self._under_way.add(begun)
        begun.add_done_callback(self._under_way.discard)
        coming: asyncio.Future[T] | None = None
        try:
            if first and patience and wait([begun], patience).done:
                self._under_way.discard(begun)  # the callback may come a moment later
                return begun.result()
            coming = asyncio.wrap_future(begun)
            while not coming.done():
                await asyncio.wait([coming], timeout=self._check())
            return coming.result()
        finally:
            piece.given_up = not begun.done()
            if coming:
                coming.cancel()  # if it has not begun, it never does
            del begun, coming  # they refer to an error, and the error to this frame

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
                f"{self.limit:g} s{self._then}"
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


def goes_on() -> bool:
    """Note that the work of this thread goes on; returns whether it is still waited for."""
    piece = _piece.get()
    if piece is None:
        return True
    piece.lane.moved()
    return not piece.given_up


def step() -> None:
    """
    What work calls at each of its steps: it notes that the work goes on.

    :raises DiskHangs: nobody waits for the work any more.
    """
    if not goes_on():
        raise DiskHangs("the file system did not respond for too long")


def steps(stop: Callable[[], None]) -> Callable[[], None]:
    """:func:`step`, which also calls *stop*; this raises to end the work."""

    def both() -> None:
        stop()
        step()

    return both
