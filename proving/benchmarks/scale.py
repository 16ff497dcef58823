"""What grows with the number of keys: starting, joining, memory, thousands of accepts at once."""

from __future__ import annotations

import os
import time
from pathlib import Path

from lab import key_folders
from lab.engines import EngineProcess, Place, befriend, level
from lab.wait import wait_for
from proving.benchmarks import rsync
from proving.benchmarks.report import Budget, Row
from proving.benchmarks.rivals import COPIES, Tool

COLD = Budget(median=10_000)
WARM = Budget(median=2_000)
AT_REST = Budget(memory=150 * 2**20, idle=1.0)
MANY = Budget(median=5_000)
PATIENCE = 300.0


def start(root: Path, size: int, idle: float | None) -> list[Row]:
    """Cold (no replica.db), warm, and what it needs when nothing happens for *idle* seconds."""
    place = Place(root, "m1")
    key_folders.plant(place.pki_dir, key_folders.ids(size))
    with EngineProcess(place) as engine:
        cold = engine.start_seconds * 1000
    with EngineProcess(place) as engine:
        warm = engine.start_seconds * 1000
        at_rest = [_at_rest(engine, size, idle)] if idle else []
    return [
        Row("engine start, cold", size, [cold], budget=COLD),
        Row("engine start, warm", size, [warm], budget=WARM),
        *at_rest,
    ]


def _at_rest(engine: EngineProcess, size: int, idle: float) -> Row:
    used = engine.cpu()
    time.sleep(idle)
    share = (engine.cpu() - used) / idle * 100
    work = f"engine after {idle:.0f} s without work"
    return Row(work, size, memory=engine.memory(), idle=share, budget=AT_REST)


def newcomer(root: Path, size: int) -> list[Row]:
    """A master without keys joins one that has *size*: until it has them all, from its start."""
    old, new = Place(root, "m1"), Place(root, "m2")
    key_folders.plant(old.pki_dir, key_folders.ids(size))
    with EngineProcess(old):
        pass  # takes the keys in
    befriend(old, new)
    with EngineProcess(old), EngineProcess(new) as joining:
        began = time.perf_counter()
        wait_for(
            lambda: key_folders.count(new.pki_dir) == size,
            PATIENCE,
            "all keys on the new master",
            poll=size / 100_000,  # looking costs the more, the more there are
        )
        took = (joining.start_seconds + time.perf_counter() - began) * 1000
    source = root / "source"
    rsync.copy(old.pki_dir, source)
    others = {name: tool(source, root / name) for name, tool in COPIES.items()}
    return [Row("a new master takes all keys", size, [took], rivals=others)]


def many(root: Path, size: int, masters: int) -> list[Row]:
    """
    *size* keys accepted on the first of some *masters*, until all hold them.

    The engines share the processors here: what the busiest of them needs is a row of its own.
    """
    # All of them knocked before; that nobody floods a group so is another matter.
    ha = {"pending_limit": size}
    places = [Place(root, f"m{number}", ha) for number in range(1, masters + 1)]
    first = places[0]
    pending = key_folders.ids(size)
    level(places, pending, key_folders.PENDING)
    source = root / "source"
    rsync.copy(first.pki_dir, source)
    copies = {name: [root / f"{name}-{place.name}" for place in places[1:]] for name in COPIES}
    for name, tool in COPIES.items():
        _all(tool, source, copies[name])
    engines = [EngineProcess(place) for place in places]
    try:
        for engine in engines:
            engine.launch()
        for engine in engines:
            engine.wait_ready()
        wait_for(lambda: all(map(_in_sync, engines)), 60, "all are in sync")
        os.sync()  # keys wait for an operator longer than a kernel waits with what was written
        before = [engine.cpu() for engine in engines]
        began = time.perf_counter()
        key_folders.accept(first.pki_dir, pending)
        wait_for(
            lambda: all(_accepted(place, size) for place in places),
            PATIENCE,
            "all keys accepted on all masters",
            poll=0.05,
        )
        took = (time.perf_counter() - began) * 1000
        work = [engine.cpu() - used for engine, used in zip(engines, before, strict=True)]
    finally:
        for engine in engines:
            engine.stop()
    rsync.copy(first.pki_dir, source)
    others = {name: _all(tool, source, copies[name]) for name, tool in COPIES.items()}
    name = f"accepts on m1 → on all {masters}"
    return [
        Row(name, size, [took], rivals=others, budget=MANY),
        Row(f"{name}, work of the busiest engine", size, [max(work) * 1000]),
    ]


def _in_sync(engine: EngineProcess) -> bool:
    masters = engine.control("status")["masters"]
    digests = {master["digest"] for master in masters}
    return len(digests) == 1 and all(
        master["state"] == "running" and not master["behind"] for master in masters
    )


def _accepted(place: Place, size: int) -> bool:
    # In this order: to count the keys costs processor time that the engines lack then.
    waiting = key_folders.are_there(place.pki_dir, key_folders.PENDING)
    return not waiting and key_folders.count(place.pki_dir) == size


def _all(tool: Tool, source: Path, targets: list[Path]) -> rsync.Shot:
    shots = [tool(source, target) for target in targets]
    sizes = [shot.bytes for shot in shots if shot.bytes is not None]
    return rsync.Shot(sum(shot.ms for shot in shots), sum(sizes) if sizes else None)
