"""One accept and one delete, from one engine to the last of several."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from lab import key_folders
from lab.engines import Engine, EngineProcess, Place, befriend
from proving.benchmarks import rivals
from proving.benchmarks.processors import used
from proving.benchmarks.report import Budget, Row

ONE = Budget(median=25, p99=100)
PATIENCE = 60.0
POLL = 0.0005


def measure(root: Path, size: int, masters: int, samples: int, runs: int) -> list[Row]:
    """
    Rows for *masters* engines that hold the same *size* keys, without salt-masters.

    The first engine runs in this process, each other one has a process of its own.

    :param runs: how often the other tools do it, 0 for not at all. They copy to one other place,
        and are left out if there are more.
    """
    # Otherwise so many deletions in a minute would be held until an operator confirms them.
    places = [
        Place(root, f"m{number + 1}", {"hold_minimum": 2 * samples}) for number in range(masters)
    ]
    first = places[0]
    key_folders.plant(first.pki_dir, key_folders.ids(size))
    with EngineProcess(first):
        pass  # takes the keys in
    for other in places[1:]:
        other.take_over(first)
    befriend(*places)
    accepts, deletes, work = asyncio.run(_times(places, samples))
    compared = rivals.measure(first.pki_dir, root / "rivals", runs) if runs else None
    # Eight processes on two processors wait for each other: only two masters have a budget.
    budget = ONE if masters == 2 else None
    last = f"to the last of {masters} engines"
    return [
        Row(
            f"accept, {last}",
            size,
            accepts,
            rivals=compared.accept if compared else {},
            budget=budget,
            cpu=work[0],
        ),
        Row(
            f"delete, {last}",
            size,
            deletes,
            rivals=compared.delete if compared else {},
            budget=budget,
            cpu=work[1],
        ),
    ]


async def _times(
    places: Sequence[Place], samples: int
) -> tuple[list[float], list[float], tuple[float, float]]:
    """
    Milliseconds of every accept, and of every delete, until the last has it; and of processor time
    for one of each.
    """

    def worked() -> float:
        return time.process_time() * 1000 + used(*processes)

    first, others = places[0], places[1:]
    accepts, deletes = [], []
    processes = [EngineProcess(place) for place in others]
    try:
        for process in processes:
            process.launch()
        for process in processes:
            await asyncio.to_thread(process.wait_ready)
        async with Engine(first) as engine:
            await engine.meets(*others)
            before = worked()
            for minion_id in key_folders.ids(samples, "fresh"):
                key_folders.plant(first.pki_dir, [minion_id], seed=time.monotonic_ns())
                accepts.append(await _one(engine, minion_id, others, gone=False))
            between = worked()
            for minion_id in key_folders.ids(samples, "fresh"):
                (first.pki_dir / key_folders.ACCEPTED / minion_id).unlink()
                deletes.append(await _one(engine, minion_id, others, gone=True))
            after = worked()
            for other in others:
                done = await engine.link(other).exchange()
                if done.received or done.sent:
                    raise AssertionError(f"not in sync with {other.name} at the end: {done}")
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                await asyncio.to_thread(process.stop)
    return accepts, deletes, ((between - before) / samples, (after - between) / samples)


async def _one(engine: Engine, minion_id: str, others: Sequence[Place], gone: bool) -> float:
    """Milliseconds from the hint until the key file is there, or gone, on all *others*."""
    waiting = [place.pki_dir / key_folders.ACCEPTED / minion_id for place in others]
    began = time.perf_counter()
    task = asyncio.ensure_future(engine.hint(minion_id, gone))
    still: Callable[[Path], bool] = (lambda p: p.exists()) if gone else (lambda p: not p.exists())
    while waiting := [path for path in waiting if still(path)]:
        if time.perf_counter() - began > PATIENCE:
            raise TimeoutError(f"not within {PATIENCE:g} s: {waiting[0]} {gone=}")
        await asyncio.sleep(POLL)
    took = (time.perf_counter() - began) * 1000
    await task
    return took
