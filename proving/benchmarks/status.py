"""How fast the status listener answers with many keys and minions."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from statistics import mean
from typing import Any

import aiohttp

from lab import engines, key_folders
from lab.engines import Engine, EngineProcess, Place, free_port, level
from lab.wait import wait_for
from proving.benchmarks.processors import used
from proving.benchmarks.report import Budget, Row
from saltext_ha.engine import parts
from saltext_ha.minions.presence import Presence
from saltext_ha.web import pages, snapshot

BUDGET = Budget(median=50)
MINIONS = 10_000
AGAIN = "again"
HEARD = "SALTEXT_HA_BENCHMARK_HEARD"
PATIENCE = 60.0


def measure(root: Path, size: int, samples: int) -> list[Row]:
    """
    Two engines with *size* accepted keys; both have heard the first ten thousand minions.

    A key is accepted before each question, and no earlier answer is used again, as if somebody came
    every minute. The first engine runs in this process, the other one has a process of its own.
    """
    first, second = places = [
        Place(root, name, {"status": {"port": free_port()}}) for name in ("m1", "m2")
    ]
    heard = min(size, MINIONS)
    level(places, key_folders.ids(size))
    # As the page asks when somebody looks for web0005; and for the first ten thousand.
    some, every = "/minions.json?glob=*web0005*", "/minions.json?glob=web00*"
    with EngineProcess(second, {HEARD: str(heard)}, module="proving.benchmarks.status") as other:
        found = asyncio.run(_times(first, other, heard, samples, (some, every)))
    rows = (
        ("/status.json", "/status.json", BUDGET),
        ("/metrics", "/metrics", BUDGET),
        ("/minions.json, 100 found", some, None),
        (f"/minions.json, {heard} found", every, None),
        (f"/minions.json, {heard} found, within 5 s", AGAIN, BUDGET),
    )
    return [
        Row(
            work,
            size,
            [ms for ms, _ in found[path]],
            budget=budget,
            cpu=mean(cpu for _, cpu in found[path]),
        )
        for work, path, budget in rows
    ]


async def _times(
    first: Place, other: EngineProcess, heard: int, samples: int, searches: tuple[str, ...]
) -> dict[str, list[tuple[float, float]]]:
    """Path → milliseconds until the whole answer was there, and of processor time."""
    second = other.place
    assert first.config.status
    url = first.config.status.url
    fresh = iter(key_folders.ids(2 * samples * (len(searches) + 2), "fresh"))
    found: dict[str, list[tuple[float, float]]] = {}
    kept = snapshot.GOOD_FOR, pages.MINIONS_GOOD_FOR
    async with Engine(first) as m1, aiohttp.ClientSession() as session:
        await m1.meets(second)
        _hear(m1.parts.presence, heard)

        async def ask(path: str) -> tuple[float, float]:
            worked, began = _worked(other), time.perf_counter()
            async with session.get(url + path) as answer:
                body = await answer.read()
            took = (time.perf_counter() - began) * 1000
            if answer.status != 200:
                raise AssertionError(f"{path}: {answer.status} {body[:200]!r}")
            return took, _worked(other) - worked

        async def change() -> None:
            minion_id = next(fresh)
            key_folders.plant(first.pki_dir, [minion_id], seed=time.monotonic_ns())
            await m1.hint(minion_id)
            there = second.pki_dir / key_folders.ACCEPTED / minion_id
            await asyncio.to_thread(wait_for, there.exists, PATIENCE, "m2 has it", poll=0.005)
            # A pass over the folder would take processor time from the answer.
            await m1.settle()

        try:
            snapshot.GOOD_FOR = pages.MINIONS_GOOD_FOR = 0.0
            for path in ("/status.json", "/metrics", *searches):
                found[path] = []
                for _ in range(samples):
                    await change()
                    found[path].append(await ask(path))
        finally:
            snapshot.GOOD_FOR, pages.MINIONS_GOOD_FOR = kept
        found[AGAIN] = [await ask(searches[-1]) for _ in range(samples)]
    return found


def _worked(other: EngineProcess) -> float:
    return time.process_time() * 1000 + used(other)


def _hear(heard: Presence, count: int) -> None:
    """Have *heard* hear an event of each of the first *count* minions."""
    for minion_id in key_folders.ids(count):
        heard(f"salt/beacon/{minion_id}/load", {"id": minion_id})


class _Filled(Presence):
    """The presence of an engine that has been listening for a while."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        _hear(self, int(os.environ[HEARD]))


def main() -> None:
    """An engine that has heard many minions."""
    # mypy does not allow to assign a class.
    setattr(parts, "Presence", _Filled)  # noqa: B010
    engines.main()


if __name__ == "__main__":
    main()
