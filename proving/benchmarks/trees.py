"""One deployment of a tree, from the command to the last of three masters that serves it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from lab.engines import EngineProcess, Place, befriend
from lab.wait import wait_for
from proving.benchmarks.processors import used
from proving.benchmarks.report import Budget, Row
from proving.benchmarks.rsync import DURABLE, Shot, bytes_in, of_several, run

FILES = (1_000, 20_000)
IN_ONE_FOLDER = 100
SIZE = 1_000
# The budget is for few changes in many files.
FEW, MANY = 10, 20_000
FOLLOWERS = 2
SPREAD = Budget(median=50)
PATIENCE = 120.0
DEVICES = Path("/proc/self/net/dev")
IDLE = 10.0
"""Seconds for which the group is watched while nothing is deployed."""


def measure(root: Path, files: int, runs: int) -> list[Row]:
    """Rows for 1, 10 and all of *files* changed, beside ``rsync -a --delete --fsync`` of them."""
    source = root / "source"
    for number in range(files):
        folder = source / f"{number // IN_ONE_FOLDER}"
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / f"{number}", number)
    places = [
        Place(
            root / "engines",
            name,
            {"trees": {"t": {"source": str(source), "live": str(root / f"live-{name}")}}},
        )
        for name in ("m1", "m2", "m3")
    ]
    copies = [root / f"copy-{place.name}" for place in places]
    befriend(*places)
    rows = []
    with _started(places) as engines:
        wait_for(lambda: _level(engines), PATIENCE, "they have met")
        worked = used(*engines)
        first = _deploy(engines[0])
        rows.append(_row("deploy, first", files, [first], used(*engines) - worked))
        _copy(source, copies)
        idle = _idle()
        for changed in (1, FEW, files):
            times, sizes, spreads, shots, work = [], [], [], [], 0.0
            for run in range(runs):
                for number in range(changed):
                    _write(
                        source / f"{number // IN_ONE_FOLDER}" / f"{number}",
                        f"{run} {changed} {number}",
                    )
                before, worked = _bytes(), used(*engines)
                times.append(_deploy(engines[0]))
                work += (used(*engines) - worked) / runs
                # Without the bytes that masters send each other all the time.
                sizes.append(_bytes() - before - int(idle * times[-1]))
                spreads.append(_spread(root, places))
                shots.append(_copy(source, copies))
            rows.append(
                _row(f"deploy, {changed} changed", files, times, work, sizes, shots, changed)
            )
            rows.append(Row("between first and last switch", files, spreads, budget=SPREAD))
    return rows


def _row(
    work: str,
    files: int,
    times: Sequence[float],
    cpu: float,
    sizes: Sequence[int] = (),
    shots: Sequence[Shot] = (),
    changed: int = 0,
) -> Row:
    rival = of_several(shots, median) if shots else None
    budget = None
    if changed == FEW and files == MANY:
        budget = Budget(median=1000, bytes=2 * changed * SIZE * FOLLOWERS)
    return Row(
        work,
        files,
        times,
        bytes=int(median(sizes)) if sizes else None,
        rivals={DURABLE: rival} if rival else {},
        budget=budget,
        cpu=cpu,
    )


@contextlib.contextmanager
def _started(places: Sequence[Place]) -> Iterator[list[EngineProcess]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(EngineProcess(place)) for place in places]


def _level(engines: Sequence[EngineProcess]) -> bool:
    rows = [row for engine in engines for row in engine.control("peers")["peers"]]
    return all(row["state"] == "up" for row in rows)


def _write(file: Path, content: object) -> None:
    file.write_text(f"{content}\n".ljust(SIZE, "."))


def _deploy(engine: EngineProcess) -> float:
    """Milliseconds until the command is answered."""
    began = time.perf_counter()
    job = engine.control("deploy", {"by": "root"})["job"]
    while "answer" not in (found := engine.control("deploy_progress", {"job": job})):
        pass
    if found["answer"]["retcode"]:
        raise RuntimeError(f"it was not deployed: {found}")
    return (time.perf_counter() - began) * 1000


def _copy(source: Path, targets: Sequence[Path]) -> Shot:
    """Copy *source* to all *targets* by rsync, as people do instead."""
    shots = []
    for target in targets:
        shot, said = run(
            ["rsync", "-a", "--delete", "--fsync", "--stats", f"{source}/", f"{target}/"]
        )
        shots.append(replace(shot, bytes=bytes_in(said)))
    return of_several(shots, sum)


def _bytes() -> int:
    """Bytes sent over loopback in this network namespace; /sys shows the one that mounted it."""
    lines = (line.partition(":") for line in DEVICES.read_text().splitlines())
    return next(int(rest.split()[8]) for name, _, rest in lines if name.strip() == "lo")


def _idle() -> float:
    """Bytes that masters send in a millisecond when nothing is deployed."""
    before, began = _bytes(), time.perf_counter()
    time.sleep(IDLE)
    return (_bytes() - before) / (time.perf_counter() - began) / 1000


def _spread(root: Path, places: Sequence[Place]) -> float:
    """Milliseconds between the first and the last master that exchanged its link."""
    times = [(root / f"live-{place.name}").lstat().st_ctime_ns for place in places]
    return (max(times) - min(times)) / 1e6
