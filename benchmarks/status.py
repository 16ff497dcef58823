"""What the status listener answers with, beside many keys and minions."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import aiohttp

from benchmarks import keys
from benchmarks.engines import Engine, EngineProcess, Place, befriend, free_port
from benchmarks.report import Budget, Row
from saltext_ha.web import pages, snapshot

BUDGET = Budget(median=50)
MINIONS = 10_000


def measure(root: Path, size: int, samples: int, minions: int = MINIONS) -> list[Row]:
    """
    Two engines with *size* accepted keys, which have both heard *minions* of them.

    A key is accepted before each question, and nothing that was answered before is used again:
    what a page or a scrape costs that comes less often than every two seconds.
    """
    first, second = places = [
        Place(root, name, {"status": {"port": free_port()}}) for name in ("m1", "m2")
    ]
    names = keys.ids(size)
    keys.plant(first.pki_dir, names)
    with EngineProcess(first):
        pass  # takes the keys in
    second.take_over(first)
    befriend(*places)
    heard = names[: min(size, minions)]
    taken = asyncio.run(_times(first, second, heard, samples))
    return [Row(what, size, times, budget=BUDGET) for what, times in taken.items()]


async def _times(
    first: Place, second: Place, heard: list[str], samples: int
) -> dict[str, list[float]]:
    """What was asked → milliseconds until the whole answer was there."""
    assert first.config.status
    url = first.config.status.url
    questions = {
        "/status.json": "/status.json",
        "/metrics": "/metrics",
        # As the page asks when somebody looks for web0005; and for the first ten thousand.
        "/minions.json, 100 found": "/minions.json?glob=*web0005*",
        f"/minions.json, {len(heard)} found": "/minions.json?glob=web00*",
    }
    kept = snapshot.GOOD_FOR, pages.MINIONS_GOOD_FOR
    snapshot.GOOD_FOR = pages.MINIONS_GOOD_FOR = 0.0
    fresh = iter(keys.ids(samples * len(questions), "fresh"))
    found: dict[str, list[float]] = {what: [] for what in questions}
    try:
        async with (
            Engine(first) as m1,
            Engine(second) as m2,
            aiohttp.ClientSession() as session,
        ):
            await m1.meets(m2)
            for engine in (m1, m2):
                for minion_id in heard:
                    engine.service.heard(f"salt/beacon/{minion_id}/load", {"id": minion_id})
            for what, path in questions.items():
                for _ in range(samples):
                    minion_id = next(fresh)
                    keys.plant(first.pki_dir, [minion_id], seed=time.monotonic_ns())
                    await m1.hint(minion_id)
                    began = time.perf_counter()
                    async with session.get(url + path) as answer:
                        body = await answer.read()
                    found[what].append((time.perf_counter() - began) * 1000)
                    if answer.status != 200:
                        raise AssertionError(f"{path}: {answer.status} {body[:200]!r}")
    finally:
        snapshot.GOOD_FOR, pages.MINIONS_GOOD_FOR = kept
    return found
