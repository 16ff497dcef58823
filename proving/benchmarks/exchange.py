"""One round of anti-entropy between two engines: in sync, and with one difference."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

from lab import key_folders
from lab.engines import Engine, EngineProcess, Place, befriend
from proving.benchmarks import rivals
from proving.benchmarks.report import Budget, Row

BUDGETS = {
    "in-sync check": Budget(median=10, bytes=1024),
    "repair 1 difference": Budget(median=100, bytes=10 * 1024),
}
# The measured rounds are the only ones; no pass over the store and no check comes in between.
HA = {"sync_interval": 3600, "scan_interval": 86400, "consistency": {"interval": 0}}


def measure(root: Path, size: int, rounds: int) -> list[Row]:
    """Rows for two masters that hold the same *size* keys."""
    one, two = Place(root, "m1", HA), Place(root, "m2", HA)
    key_folders.plant(one.pki_dir, key_folders.ids(size))
    with EngineProcess(one):
        pass  # takes the keys in
    two.take_over(one)
    befriend(one, two)
    rows = between(one, two, size, rounds)
    others = rivals.measure(one.pki_dir, one.root / "rivals", _runs(size))
    beside = (others.in_sync, others.accept, others.accept)
    return [replace(row, rivals=shots) for row, shots in zip(rows, beside, strict=True)]


def between(one: Place, two: Place, size: int, rounds: int) -> list[Row]:
    """Rows for two masters that know each other and the same *size* keys; see :data:`HA`."""
    return asyncio.run(_rows(one, two, size, rounds))


async def _rows(one: Place, two: Place, size: int, rounds: int) -> list[Row]:
    async with Engine(one) as m1, Engine(two) as m2:
        await m1.meets(m2)
        await m2.meets(m1)
        check = await _in_sync(m1, m2, rounds)
        fresh = key_folders.fresh("fresh")
        sent = await _repair(m1, m1, m2, rounds, fresh.__next__)
        received = await _repair(m2, m1, m2, rounds, fresh.__next__)
    return [
        check.row("in-sync check", size, BUDGETS["in-sync check"]),
        *(
            result.row(f"repair 1 difference, {way}", size, BUDGETS["repair 1 difference"])
            for way, result in (("m1 sends it", sent), ("m2 fetches it", received))
        ),
    ]


class Timed(NamedTuple):
    """For each round: milliseconds, bytes in both directions, processor time of both ends."""

    times: list[float]
    sizes: list[int]
    works: list[float]

    def row(self, work: str, size: int, budget: Budget) -> Row:
        """For the table."""
        sent = int(median(self.sizes))
        return Row(work, size, self.times, sent, budget=budget, cpu=mean(self.works))


async def _in_sync(m1: Engine, m2: Engine, rounds: int) -> Timed:
    async def unchanged() -> None:
        done = await m1.link(m2).exchange()
        if done.received or done.sent:
            raise AssertionError(f"not in sync: {done}")

    await unchanged()
    return await _timed(m1, m2, rounds, unchanged)


async def _repair(
    asking: Engine, m1: Engine, m2: Engine, rounds: int, fresh: Callable[[], str]
) -> Timed:
    """A key accepted on *m1* that *m2* did not hear of; *asking* finds it."""
    other = m2 if asking is m1 else m1
    total = Timed([], [], [])
    for _ in range(rounds):
        minion_id = fresh()
        key_folders.plant(m1.place.pki_dir, [minion_id], seed=time.monotonic_ns())
        await m1.notice(minion_id)
        found = await _timed(asking, other, 1, asking.link(other).exchange)
        if not (m2.place.pki_dir / key_folders.ACCEPTED / minion_id).exists():
            raise AssertionError(f"{minion_id} was not repaired")
        await m2.settle()
        total.times.extend(found.times)
        total.sizes.extend(found.sizes)
        total.works.extend(found.works)
    return total


async def _timed(
    asking: Engine, other: Engine, rounds: int, work: Callable[[], Awaitable[object]]
) -> Timed:
    """Do *work* in so many *rounds*; both ends are in this process."""
    client = asking.link(other).contact.client
    timed = Timed([], [], [])
    for _ in range(rounds):
        before = client.bytes_sent + client.bytes_received
        began, worked = time.perf_counter(), time.process_time()
        await work()
        timed.times.append((time.perf_counter() - began) * 1000)
        timed.works.append((time.process_time() - worked) * 1000)
        timed.sizes.append(client.bytes_sent + client.bytes_received - before)
    return timed


def _runs(size: int) -> int:
    return 3 if size >= 100_000 else 7
