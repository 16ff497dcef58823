"""Thousands of new minions that knock at once, until all masters show them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lab import key_folders
from lab.engines import EngineProcess, Place, befriend
from lab.wait import wait_for
from proving.benchmarks.processors import used
from proving.benchmarks.report import Row
from proving.benchmarks.scale import in_sync

MINIONS = 10_000
MASTERS = 3
PATIENCE = 900.0
KNOCKED = "knocked"
"""The folder of keys that are about to be moved into the folder of pending ones."""


def measure(root: Path, size: int) -> list[Row]:
    """
    *size* new pending keys in the folders of three masters, as fast as they can be put there.

    By default, each master lets in a thousand new ids a minute: the last row shows that. In the
    other rows all may come at once, to show their cost and not how long they are put off.
    """
    at_once = {"pending_limit": size, "pending_rate": size}
    return [
        _row(root / "all", "minions knock on all 3 → shown by all", size, at_once, everywhere=True),
        _row(root / "one", "minions knock on 1 of 3 → shown by all", size, at_once),
        _row(root / "put_off", "the same, a thousand a minute (default)", size, {}),
    ]


def _row(root: Path, work: str, size: int, ha: Mapping[str, Any], everywhere: bool = False) -> Row:
    places = [Place(root, f"m{number}", ha) for number in range(1, MASTERS + 1)]
    ids = key_folders.ids(size, "new")
    for number, place in enumerate(places):
        key_folders.plant(place.pki_dir, [])
        # The same minion has the same key wherever it knocks.
        key_folders.plant(place.folder / KNOCKED, ids, key_folders.PENDING)
        if not everywhere:
            for minion_id in set(ids) - set(ids[number::MASTERS]):
                (place.folder / KNOCKED / key_folders.PENDING / minion_id).unlink()
    befriend(*places)
    with ExitStack() as stack:
        engines = [stack.enter_context(EngineProcess(place)) for place in places]
        wait_for(lambda: all(map(in_sync, engines)), 60, "all are in sync")
        os.sync()  # writing the prepared files is no work of the engines
        before, began = used(*engines), time.perf_counter()
        for number, minion_id in enumerate(ids):
            for place in places if everywhere else [places[number % MASTERS]]:
                knocked = place.folder / KNOCKED / key_folders.PENDING / minion_id
                knocked.rename(place.pki_dir / key_folders.PENDING / minion_id)
        wait_for(lambda: _shown(engines, size), PATIENCE, "all show the same", poll=0.1)
        took = (time.perf_counter() - began) * 1000
        return Row(work, size, [took], cpu=used(*engines) - before)


def _shown(engines: Sequence[EngineProcess], size: int) -> bool:
    """Whether all *size* minions are recorded and pending everywhere: none waits for its turn."""
    # Engines come last: to ask them costs time that they need.
    folders = [engine.place.pki_dir for engine in engines]
    if any(key_folders.count(folder, key_folders.PENDING) < size for folder in folders):
        return False
    rows = engines[0].control("status")["masters"]
    return all(row["pending"] == size for row in rows) and in_sync(engines[0])
