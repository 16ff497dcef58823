"""
Runs the keeper in one thread: all use of replica.db and all changes of the key store go through it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from saltext_ha.common.batches import BATCH
from saltext_ha.common.beat import rest
from saltext_ha.common.complaints import Complaint
from saltext_ha.common.errors import HaError, ReplicaDamaged, UnlistedStore
from saltext_ha.reconciler import work_queue
from saltext_ha.reconciler.hints import Hint, tasks
from saltext_ha.reconciler.keeper import Keeper
from saltext_ha.reconciler.merging import Merged
from saltext_ha.reconciler.write_mode import WriteMode
from saltext_ha.replica import opening
from saltext_ha.replica.replica import Replica
from saltext_ha.replication.record import Record
from saltext_ha.replication.vouching import Vouch

log = logging.getLogger(__name__)

T = TypeVar("T")

# For how many seconds vanished keys are put off while the store goes on changing.
PUT_OFF = 2.0


class Core:
    """
    One keeper, shared by many tasks of one event loop.

    :param publish: called with records that changed here, to be pushed to the peers.
    """

    def __init__(self, keeper: Keeper, publish: Callable[[Sequence[Record]], None]) -> None:
        self.keeper = keeper
        self.problem = ""
        """Why the store or the replica cannot be used at present; empty if both can."""
        self.damage = ""
        """What showed that replica.db is damaged; empty if nothing did."""
        self._damaged = asyncio.Event()
        self._complaint = Complaint(
            lambda problem: log.error("ha store: %s", problem),
            lambda: log.info("ha store: usable again"),
        )
        self._unlisted = ""
        """Why the store could not be listed; empty once a pass has listed it again."""
        self._unrecorded = ""
        """Why what the store showed could not be read or recorded; empty once a pass could."""
        self._list_at = math.inf
        """When to make another pass, if no regular one comes before."""
        self._publish = publish
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="ha-keeper")
        self._passes = 0
        self._settled = 0.0
        """When the last pass's finds are settled, and it is known whether too much is gone."""
        self._began: dict[int, float] = {}
        """Thread → when it began what it does now."""
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def replica(self) -> Replica:
        """The keeper's replica; its class says what other threads may read."""
        return self.keeper.replica

    @property
    def mode(self) -> WriteMode:
        """Whether this master writes its key store, and why not."""
        return self.keeper.mode

    @property
    def unseen(self) -> str:
        """
        Why it is not known what the store shows: it could not be listed, or what it showed could
        not be recorded. Empty if it is known.
        """
        why = self._unlisted or self._unrecorded
        if self.mode.adopting:
            why = "its replica.db was lost, and is not rebuilt yet"
        return f"its keys are not known: {why}" if why else ""

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run *function* in the keeper's thread."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._worker, self.timed, function, *arguments)
        except Exception as exc:
            if opening.is_damage(exc):
                self.damage = str(exc)
                self._damaged.set()
            raise
        finally:
            self._wait(loop)

    async def until_damaged(self) -> None:
        """
        Wait until replica.db turns out to be damaged, which only a new start mends; while this
        master is paused, until it is resumed: a new file knows of no pause.

        :raises ReplicaDamaged: it is.
        """
        await self._damaged.wait()
        while self.mode.paused:
            await rest(1.0)
        raise ReplicaDamaged(self.damage)

    async def glance(self, function: Callable[[], T], patience: float) -> T | None:
        """
        Run *function* in the keeper's thread, for a caller that can do without the result: a slow
        or hanging file system can occupy that thread for any time.

        :param patience: for how many seconds to wait.
        :return: None if it took longer; *function* may still run then, and its result is lost.
        """
        try:
            return await asyncio.wait_for(self.run(function), patience)
        except asyncio.TimeoutError:
            return None

    @property
    def busy(self) -> float:
        """
        For how many seconds the keeper's thread has been at one piece of work, or the watch of the
        folders at one look; whichever is longer.
        """
        began = list(self._began.values())
        return time.monotonic() - min(began) if began else 0.0

    def timed(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run *function* in this thread, and count the time as :attr:`busy`."""
        self._began[threading.get_ident()] = time.monotonic()
        try:
            return function(*arguments)
        finally:
            del self._began[threading.get_ident()]

    def close(self) -> None:
        """Finish the running piece of work, and close the replica."""
        self._closed = True
        if self._timer:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        self._worker.shutdown(wait=True, cancel_futures=True)
        self.replica.close()

    async def begin(self) -> None:
        """The first pass over the store, before anything else is asked of the keeper."""
        await self.scan()
        await self.run(self.keeper.newcomers.begin_counting)
        try:
            await self.run(self.replica.index)
        except HaError as exc:
            self._note(exc)

    async def scan(self) -> float:
        """
        Make one pass over the store. The listing holds up nobody who waits for the keeper. Changes
        are handled in portions, with other work in between; the first are pushed first.

        :return: what the listing cost, in seconds of a processor.
        """
        self._passes += 1
        try:
            return await self._pass()
        finally:
            self._passes -= 1
            self._settled = time.monotonic() + work_queue.SETTLE
            self._wait(asyncio.get_running_loop())

    async def _pass(self) -> float:
        try:
            ids, cost = await asyncio.get_running_loop().run_in_executor(None, self._list)
            self._unlisted, self._list_at = "", math.inf
            portions = await self.run(self.keeper.reconciler.weigh, ids)
        except HaError as exc:
            self._unrecorded = str(exc)
            self._note(exc)
            return 0.0
        self._unrecorded = ""
        for portion in portions or [[]]:
            await self.work(self.keeper.observe, portion)
        return cost

    def _list(self) -> tuple[Iterable[str], float]:
        began = time.thread_time()
        return self.keeper.store.changed(), time.thread_time() - began

    async def hinted(self, hints: Sequence[Hint]) -> None:
        """Look at the ids that Salt's events named, and do what follows."""
        await self.work(
            lambda: self.keeper.reconcile_all([*self.keeper.work.late(), *tasks(hints)])
        )

    async def learn(
        self, records: Sequence[Record], sender: str = "", *, vouched: Sequence[Vouch] = ()
    ) -> Merged:
        """
        Merge records of the peer *sender* and apply them.

        :param vouched: vouches of the records' writers, already checked.
        :raises HaError: the replica cannot be written, or the store cannot be read; the peer must
            offer the records again.
        """
        try:
            merged = await self.run(partial(self.keeper.learn, records, sender, vouched=vouched))
        except HaError as exc:
            self._note(exc)
            raise
        self._follow(merged.records)
        if merged.learned or merged.disowned:
            await self.apply()
        return merged

    async def meet(self, vouched: Sequence[Vouch], sender: str) -> dict[str, list[str]]:
        """
        The peer *sender* was met; see :meth:`.Claims.meet`.

        :raises HaError: the vouches could not be recorded; merge nothing that this peer sends.
        """
        if not vouched:
            return {}
        disowned = await self.run(self.keeper.claims.meet, vouched, sender)
        if disowned:
            await self.apply()
        return disowned

    async def dropped_elsewhere(self, told: Mapping[tuple[str, bytes], bytes]) -> None:
        """A peer dropped these records; see :meth:`.Tombstones.dropped_elsewhere`."""
        if told:
            await self.work(self.keeper.tombstones.dropped_elsewhere, told)

    async def apply(self) -> None:
        """
        Bring the store in line with the records. If that fails, the error is noted for the status,
        and the work tried again.
        """
        left: Sequence[str] | None = None
        try:
            while left is None or left:
                changed, left = await self.run(self._apply_some, left)
                self._follow(changed)
        except HaError as exc:
            self._note(exc)
        else:
            self._note(None)

    async def order(self, look: Callable[..., list[Record]], *arguments: Any) -> list[Record]:
        """
        :meth:`work` for an operator, who has to try again after a failure.

        :raises HaError: not all of it could be recorded. What was recorded will be applied.
        """
        try:
            return await self.work(look, *arguments, asked=True)
        except HaError as exc:
            raise HaError(
                f"{exc}. So this was not done, or not all of it: mend that (is the disk full?), "
                "then run the command again"
            ) from exc

    async def work(
        self, look: Callable[..., list[Record]], *arguments: Any, asked: bool = False
    ) -> list[Record]:
        """
        Call *look*, a method of the keeper, in its thread; publish what it found; then
        :meth:`apply`.

        :param asked: raise the error of *look*. Otherwise it is noted for the status, and the work
            tried again.
        :return: the records that changed.
        """
        try:
            found = await self.run(look, *arguments)
        except HaError as exc:
            self._unrecorded = str(exc)
            self._note(exc)
            if asked:
                raise
            return []
        self._follow(found)
        await self.apply()
        return found

    def _apply_some(self, left: Sequence[str] | None) -> tuple[list[Record], Sequence[str]]:
        """
        Apply the next batch: nobody must wait until a whole store is filled again.

        :param left: the ids that are still to be applied; None: not known yet.
        :return: the records that changed, and the ids that are left.
        """
        if left is None:
            if self.problem != self._unlisted:
                self.replica.check_writable()
            left = self.replica.dirty() if self.keeper.mode.writes else []
        changed = self.keeper.reconciler.apply(left[:BATCH])
        left = left[BATCH:]
        if not left and self.keeper.reconciler.unfinished():
            self.keeper.work.wake()
        return changed, left

    def _note(self, error: HaError | None) -> None:
        """
        Note *error*; None: some work has succeeded. That tells nothing about a store that could not
        be listed.
        """
        if isinstance(error, UnlistedStore):
            self._unlisted = str(error)
            self._list_at = time.monotonic() + work_queue.RETRY
        problem = str(error) if error else self._unlisted
        self._complaint.note(problem)
        self.problem = problem
        if problem:
            self.keeper.work.wake()
            self._wait(asyncio.get_running_loop())
        elif self._unrecorded:  # now it may be possible; the next regular pass may be far off
            # Not at once: else what always fails would fill all time with passes.
            self._list_at = min(self._list_at, time.monotonic() + work_queue.RETRY)
            self.keeper.work.wake()
            self._wait(asyncio.get_running_loop())

    def _follow(self, changed: Sequence[Record]) -> None:
        if changed:
            self._publish(changed)

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the timer for the next due work; not in the middle of a pass."""
        at = max(self.keeper.work.next, self._settled)
        if self._closed or self._passes or at == math.inf:
            return
        if self._timer:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = loop.call_at(at, self._begin_due)

    def _begin_due(self) -> None:
        self._timer = None
        if not self._passes:
            self.start(self._look_at_due())

    async def _look_at_due(self) -> None:
        """
        Look at what is due. A pass may see a folder half emptied, so vanished keys are believed to
        be gone, or held, only when no more of them vanish.
        """
        if await self._still_changes() or time.monotonic() >= self._list_at:
            await self.scan()  # its finds must settle first
        elif not self._passes:  # what a pass finds that has begun meanwhile must settle, too
            await self.work(lambda: self.keeper.reconcile_all(self.keeper.work.take()))

    async def _still_changes(self) -> bool:
        """Whether the store changed since the pass that missed the vanished keys."""
        keeper = self.keeper

        def changes() -> bool:
            return 0 <= keeper.work.overdue() < PUT_OFF and keeper.store.touched()

        self._passes += 1  # due work waits for the answer
        try:
            return await self.run(changes)
        finally:
            self._passes -= 1

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
