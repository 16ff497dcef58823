"""One round of anti-entropy between two engines: in sync, and with one difference."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

from lab import key_folders
from lab.engines import Engine, EngineProcess, Place, befriend
from proving.benchmarks import rivals
from proving.benchmarks.report import Budget, Row

BUDGETS = {
    "in-sync check": Budget(median=10, bytes=1024),
    "repair 1 difference": Budget(median=100, bytes=10 * 1024),
}
# The rounds measured are the only ones, and no pass over the store comes in between.
HA = {"sync_interval": 3600, "scan_interval": 86400}


def measure(root: Path, size: int, rounds: int) -> list[Row]:
    """Rows for two masters that hold the same *size* keys."""
    one, two = Place(root, "m1", HA), Place(root, "m2", HA)
    key_folders.plant(one.pki_dir, key_folders.ids(size))
    with EngineProcess(one):
        pass  # takes the keys in
    two.take_over(one)
    befriend(one, two)
    return asyncio.run(_rows(one, two, size, rounds))


async def _rows(one: Place, two: Place, size: int, rounds: int) -> list[Row]:
    async with Engine(one) as m1, Engine(two) as m2:
        await m1.meets(m2)
        await m2.meets(m1)
        check, work = await _in_sync(m1, m2, rounds)
        fresh = key_folders.fresh("fresh")
        sent = await _repair(m1, m1, m2, size, rounds, fresh.__next__)
        received = await _repair(m2, m1, m2, size, rounds, fresh.__next__)
    others = rivals.measure(one.pki_dir, one.root / "rivals", _runs(size))
    rows = [
        Row("in-sync check", size, *check, rivals=others.in_sync, budget=BUDGETS["in-sync check"]),
        Row("in-sync check, work of both engines", size, [work]),
    ]
    for way, result in (("m1 sends it", sent), ("m2 fetches it", received)):
        name = "repair 1 difference"
        rows.append(
            Row(f"{name}, {way}", size, *result, rivals=others.accept, budget=BUDGETS[name])
        )
    return rows


async def _in_sync(m1: Engine, m2: Engine, rounds: int) -> tuple[tuple[list[float], int], float]:
    """As :func:`_timed`, and the milliseconds of a processor that a round takes at both ends."""

    async def unchanged() -> None:
        done = await m1.link(m2).exchange()
        if done.received or done.sent:
            raise AssertionError(f"not in sync: {done}")

    await unchanged()
    before = time.process_time()
    timed = await _timed(m1, m2, rounds, unchanged)
    return timed, (time.process_time() - before) * 1000 / rounds


async def _repair(
    asking: Engine, m1: Engine, m2: Engine, size: int, rounds: int, fresh: Callable[[], str]
) -> tuple[list[float], int]:
    """A key accepted on *m1* that *m2* did not hear of; *asking* finds it."""
    other = m2 if asking is m1 else m1
    times: list[float] = []
    sizes: list[int] = []
    for _ in range(rounds):
        minion_id = fresh()
        key_folders.plant(m1.place.pki_dir, [minion_id], seed=time.monotonic_ns())
        await m1.notice(minion_id)
        found, size_of = await _timed(asking, other, 1, asking.link(other).exchange)
        if not (m2.place.pki_dir / key_folders.ACCEPTED / minion_id).exists():
            raise AssertionError(f"{minion_id} was not repaired")
        await m2.settle()
        times += found
        sizes.append(size_of)
    return times, int(median(sizes))


async def _timed(
    asking: Engine, other: Engine, rounds: int, work: Callable[[], Awaitable[object]]
) -> tuple[list[float], int]:
    """Milliseconds of each round, and the median of bytes on the wire in both directions."""
    client = asking.link(other).client
    times: list[float] = []
    sizes: list[int] = []
    for _ in range(rounds):
        before = client.bytes_sent + client.bytes_received
        began = time.perf_counter()
        await work()
        times.append((time.perf_counter() - began) * 1000)
        sizes.append(client.bytes_sent + client.bytes_received - before)
    return times, int(median(sizes))


def _runs(size: int) -> int:
    return 3 if size >= 100_000 else 7
