"""The cost of ``ha.check_consistency`` for the engines of three masters."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab import key_folders
from lab.engines import Engine, EngineProcess, Place, level
from proving.benchmarks.report import Budget, Row
from saltext_ha.transport import control_client

BUDGET = Budget(median=1000, bytes=8 * 1024)
BUSIEST = Budget(median=1000)
FILES = 20_000
# The measured checks are the only traffic.
HA = {"sync_interval": 3600, "scan_interval": 86400, "consistency": {"interval": 0}}


def measure(root: Path, size: int, runs: int, files: int = FILES) -> list[Row]:
    """
    Masters that are the same: each has *size* keys and *files* files of states.

    The checks come through the control socket of one master, as from the runner. The bytes are
    those of one peer, both ways. The first check, which reads all files, is a row of its own.
    """
    places = [_place(root, name, files) for name in ("m1", "m2", "m3")]
    level(places, key_folders.ids(size))
    with EngineProcess(places[1]) as m2, EngineProcess(places[2]) as m3:
        first, times, work, sent = asyncio.run(_checks(places, [m2, m3], runs))
    name = f"check_consistency, 3 masters, {files} files"
    return [
        Row(f"{name}, first", size, first, cpu=sum(work[0])),
        Row(name, size, times, bytes=sent, budget=BUDGET, cpu=sum(work[1])),
        Row(f"{name}, work of the busiest engine", size, [max(work[1])], budget=BUSIEST),
    ]


async def _checks(
    places: list[Place], others: list[EngineProcess], runs: int
) -> tuple[list[float], list[float], tuple[list[float], list[float]], int]:
    """
    Milliseconds of the first check, and of each later one; milliseconds of each engine's processor
    time for the first, and for a later one; and bytes of a later one.
    """

    def cpu() -> list[float]:
        return [time.process_time(), *(other.cpu() for other in others)]

    async with Engine(places[0]) as m1:
        await m1.meets(*places[1:])
        await asyncio.gather(*(m1.link(place).exchange() for place in places[1:]))
        used = cpu()
        first = [await _check(m1)]
        at_first = _since(used, cpu())
        client = m1.link(places[1]).contact.client
        before, used = client.bytes_sent + client.bytes_received, cpu()
        times = [await _check(m1) for _ in range(runs)]
        sent = (client.bytes_sent + client.bytes_received - before) // runs
        # The system counts in hundredths of a second, so all checks are counted together.
        work = [each / runs for each in _since(used, cpu())]
    return first, times, (at_first, work), sent


def _since(before: list[float], now: list[float]) -> list[float]:
    return [(this - that) * 1000 for this, that in zip(now, before, strict=True)]


async def _check(engine: Engine) -> float:
    """Milliseconds."""
    socket = engine.place.config.control_socket
    began = time.perf_counter()
    answer = await asyncio.to_thread(control_client.request, socket, "check")
    took = (time.perf_counter() - began) * 1000
    if answer["status"] != "same":
        raise AssertionError(f"not the same: {_what(answer)}")
    return took


def _what(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: (part["unknown"], part["differences"][:3])
        for name, part in answer["sections"].items()
        if part["status"] != "same"
    }


def _place(root: Path, name: str, files: int) -> Place:
    folder = root / name / "srv"
    options = {"file_roots": {"base": [str(folder)]}, "pillar_roots": {"base": []}}
    place = Place(root, name, HA, options)
    for number in range(files):
        path = folder / f"state{number // 100:03}" / f"file{number:06}.sls"
        if number % 100 == 0:
            path.parent.mkdir(parents=True)
        path.write_text(f"# {number}\n" * 20)
    # What salt-master would have been started with.
    names = ("root_dir", "pki_dir", "sock_dir", "cachedir", "id", "user", "interface", "ha")
    said = {**{option: place.opts[option] for option in names}, **options}
    Path(place.opts["conf_file"]).write_text(json.dumps(said), encoding="utf-8")
    return place
