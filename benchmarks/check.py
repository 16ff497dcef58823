"""``ha.check_consistency`` over three masters: what their engines need for it."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks import keys
from benchmarks.engines import EngineProcess, Place, befriend
from benchmarks.report import Budget, Row
from lab.wait import wait_for

BUDGET = Budget(median=1000)


def measure(root: Path, size: int, runs: int) -> Row:
    """All same, *size* keys; asked through the control socket as the runner does."""
    places = [Place(root, name) for name in ("m1", "m2", "m3")]
    keys.plant(places[0].pki_dir, keys.ids(size))
    with EngineProcess(places[0]):
        pass  # takes the keys in
    for other in places[1:]:
        other.take_over(places[0])
    befriend(*places)
    engines = [EngineProcess(place) for place in places]
    times = []
    try:
        for engine in engines:
            engine.launch()
        for engine in engines:
            engine.wait_ready()
        wait_for(lambda: engines[0].control("status")["state"] == "ok", 60, "all are in sync")
        for _ in range(runs):
            began = time.perf_counter()
            answer = engines[0].control("check")
            times.append((time.perf_counter() - began) * 1000)
            differ = answer["sections"]["keys"]["counts"]["differ"]
            if differ:
                raise AssertionError(f"{differ} keys differ where none should")
    finally:
        for engine in engines:
            engine.stop()
    return Row("check_consistency, 3 masters", size, times, budget=BUDGET)
