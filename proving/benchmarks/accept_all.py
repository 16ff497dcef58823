"""``salt-key -A`` on one of several real salt-masters: all keys that wait, by one command."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from lab import Lab, Master, key_folders, wait_for
from proving.benchmarks import rsync
from proving.benchmarks.processors import used
from proving.benchmarks.report import Budget, Row
from proving.benchmarks.rivals import COPIES, copied_to_all

BUDGET = Budget(median=1_000)
POLL = 0.01
PATIENCE = 300.0
SALT_KEY = Path(sys.executable).with_name("salt-key")


def measure(root: Path, size: int, masters: int) -> list[Row]:
    """
    *size* keys wait on *masters* masters. The clock runs from the last key that the command moves
    on the first master to the last key on all; the tools start when the command has ended.
    """
    waiting = key_folders.ids(size)
    with Lab() as lab:
        places = [lab.add_master(f"m{number}") for number in range(1, masters + 1)]
        first = places[0]
        for place in places[1:]:
            first.share_master_key(place)
        for place in places:
            key_folders.plant(place.pki_dir, waiting, key_folders.PENDING)
        lab.start_all()
        lab.form_group()
        source = root / "source"
        rsync.copy(first.pki_dir, source)
        copies = {name: [root / f"{name}-{place.name}" for place in places[1:]] for name in COPIES}
        for name, tool in COPIES.items():
            copied_to_all(tool, source, copies[name])
        before = used(*places)
        took = _accept_all(places, size)
        work = used(*places) - before
        rsync.copy(first.pki_dir, source)
        others = {name: copied_to_all(tool, source, copies[name]) for name, tool in COPIES.items()}
    name = f"salt-key -A on m1, its last key → on all {masters}"
    return [Row(name, size, [took], rivals=others, budget=BUDGET, cpu=work)]


def _accept_all(places: list[Master], size: int) -> float:
    """Milliseconds from the last key on the first of *places* to the last one on all."""
    command = [str(SALT_KEY), "-c", str(places[0].config_file.parent), "-A", "-y"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        wait_for(lambda: _has_all(places[0], size), PATIENCE, "all accepted on m1", poll=POLL)
        began = time.perf_counter()
        wait_for(
            lambda: all(_has_all(place, size) for place in places[1:]),
            PATIENCE,
            "all accepted on all masters",
            poll=POLL,
        )
        took = (time.perf_counter() - began) * 1000
        if process.wait():
            raise RuntimeError(f"salt-key -A ended with {process.returncode}")
    return took


def _has_all(place: Master, size: int) -> bool:
    # In this order: counting the keys costs processor time that the engines need.
    waiting = key_folders.are_there(place.pki_dir, key_folders.PENDING)
    return not waiting and key_folders.count(place.pki_dir) == size
