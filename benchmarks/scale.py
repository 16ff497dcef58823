"""What grows with the number of keys: starting, memory, and thousands of accepts at once."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from benchmarks import keys, rsync
from benchmarks.engines import Engine, EngineProcess, Place, befriend
from benchmarks.report import Budget, Row
from lab.wait import wait_for

COLD = Budget(median=10_000)
WARM = Budget(median=2_000)
MEMORY = Budget(bytes=150 * 2**20)
MANY = Budget(median=5_000)
ONE = Budget(median=25, p99=100)
IDLE = 10.0
PATIENCE = 300.0


def start(root: Path, size: int) -> list[Row]:
    """Cold (no replica.db), warm, and what it holds in memory then."""
    place = Place(root, "m1")
    keys.plant(place.pki_dir, keys.ids(size))
    seconds = []
    for _ in range(2):
        with EngineProcess(place) as engine:
            seconds.append(engine.start_seconds)
            used = engine.cpu()
            time.sleep(IDLE)
            idle = (engine.cpu() - used) / IDLE * 100
            memory = engine.memory()
    cold, warm = ([value * 1000] for value in seconds)
    return [
        Row("engine start, cold", size, cold, budget=COLD),
        Row("engine start, warm", size, warm, budget=WARM),
        Row(f"engine memory (idle: {idle:.1f} % CPU)", size, bytes=memory, budget=MEMORY),
    ]


def many(root: Path, size: int) -> Row:
    """*size* keys accepted on the first of three masters, until all three hold them."""
    places = [Place(root, name) for name in ("m1", "m2", "m3")]
    first = places[0]
    pending = keys.ids(size)
    keys.plant(first.pki_dir, pending, keys.PENDING)
    with EngineProcess(first):
        pass  # takes the keys in
    for other in places[1:]:
        other.take_over(first)
    befriend(*places)
    copies = [root / "copy2", root / "copy3"]
    if rsync.available():
        for copy in copies:
            rsync.copy(first.pki_dir, copy)
    engines = [EngineProcess(place) for place in places]
    try:
        for engine in engines:
            engine.launch()
        for engine in engines:
            engine.wait_ready()
        wait_for(lambda: engines[0].control("status")["state"] == "ok", 60, "all are in sync")
        began = time.perf_counter()
        keys.accept(first.pki_dir, pending)
        wait_for(
            lambda: all(_accepted(place) == (size, 0) for place in places),
            PATIENCE,
            "all keys accepted on all masters",
            poll=0.05,
        )
        took = (time.perf_counter() - began) * 1000
    finally:
        for engine in engines:
            engine.stop()
    shot = _rsync_many(first.pki_dir, copies)
    note = "-" if shot else "not installed"
    return Row("accepts on m1 → on all three", size, [took], None, shot, note, MANY)


def _accepted(place: Place) -> tuple[int, int]:
    return keys.count(place.pki_dir), keys.count(place.pki_dir, keys.PENDING)


def _rsync_many(source: Path, targets: list[Path]) -> rsync.Shot | None:
    if not rsync.available():
        return None
    shots = [rsync.copy(source, target) for target in targets]
    return rsync.Shot(sum(s.ms for s in shots), sum(s.bytes for s in shots))


def accept_among(root: Path, size: int, samples: int) -> Row:
    """One accept beside *size* keys: engines without salt-masters, folder watching and all."""
    one, two = Place(root, "m1"), Place(root, "m2")
    keys.plant(one.pki_dir, keys.ids(size))
    with EngineProcess(one):
        pass  # takes the keys in
    two.take_over(one)
    befriend(one, two)
    times = asyncio.run(_accepts(one, two, samples))
    return Row("accept, engines only", size, times, budget=ONE)


async def _accepts(one: Place, two: Place, samples: int) -> list[float]:
    times = []
    # The other one is a process, so that each has a processor of its own.
    other = await asyncio.to_thread(EngineProcess(two).start)
    try:
        async with Engine(one) as m1:
            await m1.meets(two)
            for minion_id in keys.ids(samples, "fresh"):
                keys.plant(one.pki_dir, [minion_id], seed=time.monotonic_ns())
                times.append(await _one(m1, minion_id, two.pki_dir / keys.ACCEPTED / minion_id))
            # The last answers are in, and nothing was lost on the way.
            done = await m1.link(two).exchange()
            if done.received or done.sent:
                raise AssertionError(f"not in sync at the end: {done}")
    finally:
        await asyncio.to_thread(other.stop)
    return times


async def _one(m1: Engine, minion_id: str, target: Path) -> float:
    """Milliseconds from the hint to the key file on the other master."""
    began = time.perf_counter()
    task = asyncio.ensure_future(m1.hint(minion_id))
    while not target.exists():
        if time.perf_counter() - began > PATIENCE:
            raise TimeoutError(f"{target} is not there after {PATIENCE:g} s")
        await asyncio.sleep(0.0005)
    took = (time.perf_counter() - began) * 1000
    await task
    return took
