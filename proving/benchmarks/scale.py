"""What grows with the number of keys: starting, joining, memory, thousands of accepts at once."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from lab import key_folders
from lab.engines import EngineProcess, Place, befriend, level
from lab.wait import wait_for
from proving.benchmarks import rsync
from proving.benchmarks.processors import used
from proving.benchmarks.report import Budget, Row
from proving.benchmarks.rivals import COPIES, copied_to_all

COLD = Budget(median=10_000)
WARM = Budget(median=2_000)
AT_REST = Budget(memory=90 * 2**20, idle=0.3)
LONG = 600.0
"""Seconds for which that holds. A regular pass, which comes as seldom, counts more in less."""
BRIEF = replace(AT_REST, idle=1.0)
MANY = Budget(median=5_000)
MOST = 100_000
PATIENCE = 300.0
SLOWEST = 400  # the fewest keys a second that a new master takes over


def start(root: Path, size: int, idle: float | None) -> list[Row]:
    """Rows of a cold start (no replica.db), a warm one, and *idle* seconds of rest."""
    place = Place(root, "m1")
    key_folders.plant(place.pki_dir, key_folders.ids(size))
    return started(place, size, idle)


def started(place: Place, size: int, idle: float | None) -> list[Row]:
    """Rows for an engine whose *size* keys are there, and that never ran."""
    with EngineProcess(place) as engine:
        cold = _start("cold", engine, size, COLD)
    with EngineProcess(place) as engine:
        warm = _start("warm", engine, size, WARM)
        at_rest = [_at_rest(engine, size, idle)] if idle else []
    return [cold, warm, *at_rest]


def _start(which: str, engine: EngineProcess, size: int, budget: Budget) -> Row:
    took, work = engine.start_seconds * 1000, engine.worked() * 1000
    return Row(f"engine start, {which}", size, [took], budget=_most(budget, size), cpu=work)


def _at_rest(engine: EngineProcess, size: int, idle: float) -> Row:
    before = used(engine)
    time.sleep(idle)
    work = used(engine) - before
    return Row(
        f"engine after {idle:.0f} s without work",
        size,
        memory=engine.memory(),
        idle=work / idle / 10,
        budget=_most(AT_REST if idle >= LONG else BRIEF, size),
        cpu=work,
    )


def _most(budget: Budget, size: int) -> Budget | None:
    """*budget* if there are no more than :data:`MOST` keys: it holds for so many."""
    return budget if size <= MOST else None


def newcomer(root: Path, size: int) -> list[Row]:
    """A master without keys joins one with *size* keys: from its start until it has them all."""
    old, new = Place(root, "m1"), Place(root, "m2")
    key_folders.plant(old.pki_dir, key_folders.ids(size))
    with EngineProcess(old):
        pass  # takes the keys in
    befriend(old, new)
    row = joined(old, new, size)
    source = root / "source"
    rsync.copy(old.pki_dir, source)
    others = {name: tool(source, root / name) for name, tool in COPIES.items()}
    return [replace(row, rivals=others)]


def joined(old: Place, new: Place, size: int) -> Row:
    """Start *new*, which has no keys, beside *old* with *size* keys; they know each other."""
    with EngineProcess(old) as giving:
        before = used(giving)
        with EngineProcess(new) as joining:
            began = time.perf_counter()
            wait_for(
                lambda: key_folders.count(new.pki_dir) == size,
                max(PATIENCE, size / SLOWEST),
                "all keys on the new master",
                poll=size / 100_000,  # a look costs more the more keys there are
            )
            took = (joining.start_seconds + time.perf_counter() - began) * 1000
            work = used(giving) - before + joining.worked() * 1000
    return Row("a new master takes all keys", size, [took], cpu=work)


def many(root: Path, size: int, masters: int) -> list[Row]:
    """
    *size* keys accepted on the first of some *masters*, until all hold them.

    The engines share the processors here: their processor time says more than how long it took.
    """
    # All of them knocked before; the limit on floods of knocks is another matter.
    ha = {"pending_limit": size}
    places = [Place(root, f"m{number}", ha) for number in range(1, masters + 1)]
    first = places[0]
    pending = key_folders.ids(size)
    level(places, pending, key_folders.PENDING)
    source = root / "source"
    rsync.copy(first.pki_dir, source)
    copies = {name: [root / f"{name}-{place.name}" for place in places[1:]] for name in COPIES}
    for name, tool in COPIES.items():
        copied_to_all(tool, source, copies[name])
    engines = [EngineProcess(place) for place in places]
    try:
        for engine in engines:
            engine.launch()
        for engine in engines:
            engine.wait_ready()
        wait_for(lambda: all(map(in_sync, engines)), 60, "all are in sync")
        os.sync()  # in real life the kernel has written the keys before an operator accepts them
        before = used(*engines)
        began = time.perf_counter()
        key_folders.accept(first.pki_dir, pending)
        wait_for(
            lambda: all(_accepted(place, size) for place in places),
            PATIENCE,
            "all keys accepted on all masters",
            poll=0.05,
        )
        took = (time.perf_counter() - began) * 1000
        work = used(*engines) - before
    finally:
        for engine in engines:
            engine.stop()
    rsync.copy(first.pki_dir, source)
    others = {name: copied_to_all(tool, source, copies[name]) for name, tool in COPIES.items()}
    name = f"accepts without events on m1 → on all {masters}"
    return [Row(name, size, [took], rivals=others, budget=MANY, cpu=work)]


def in_sync(engine: EngineProcess) -> bool:
    """Whether all masters know the same, as *engine* tells it."""
    masters = engine.control("status")["masters"]
    digests = {master["digest"] for master in masters}
    return len(digests) == 1 and all(
        master["state"] == "running" and not master["behind"] for master in masters
    )


def _accepted(place: Place, size: int) -> bool:
    # In this order: counting the keys costs processor time that the engines need.
    waiting = key_folders.are_there(place.pki_dir, key_folders.PENDING)
    return not waiting and key_folders.count(place.pki_dir) == size
