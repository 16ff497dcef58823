"""From ``salt-key -a`` on one real salt-master to the key file on the other."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from lab import Lab, Master, key_folders, wait_for
from proving.benchmarks import rivals
from proving.benchmarks.processors import used
from proving.benchmarks.report import Budget, Row

BUDGET = Budget(median=25, p99=100)
PAUSE = 0.0002  # between two looks; the error of a sample is about that
PATIENCE = 30.0


def measure(samples: int) -> Row:
    """Two salt-masters in one group, *samples* keys accepted one after the other on the first."""
    pending = key_folders.ids(samples + 1, "new")
    with Lab() as lab:
        m1, m2 = lab.add_master("m1"), lab.add_master("m2")
        m1.share_master_key(m2)
        key_folders.plant(m1.pki_dir, pending, key_folders.PENDING, seed=3)
        lab.start_all()
        lab.form_group()
        wait_for(
            lambda: key_folders.count(m2.pki_dir, key_folders.PENDING) == len(pending),
            120,
            "all keys on both masters",
        )
        with _accepter(m1) as process:
            # The first one waits until Salt's bus client connects: part of salt-key's start.
            _one(process, m1, m2, pending[0])
            before = used(m1, m2)
            times = [_one(process, m1, m2, minion_id) for minion_id in pending[1:]]
            work = (used(m1, m2) - before) / samples
        compared = rivals.measure(m1.pki_dir, lab.root / "rivals", 5)
    return Row(
        "accept on m1 → in m2's store",
        len(pending),
        times,
        rivals=compared.accept,
        budget=BUDGET,
        cpu=work,
    )


@contextlib.contextmanager
def _accepter(master: Master) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "proving.benchmarks.accepter", str(master.config_file)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    try:
        if process.stdout is None or process.stdout.readline() != "ready\n":
            raise RuntimeError("the accepter does not start; its reason is on stderr")
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream:
                stream.close()


def _one(process: subprocess.Popen[str], m1: Master, m2: Master, minion_id: str) -> float:
    """Milliseconds from the file on *m1* to the file on *m2*."""
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the accepter has no pipes")
    process.stdin.write(f"{minion_id}\n")
    process.stdin.flush()
    began = _appears(m1.pki_dir / key_folders.ACCEPTED / minion_id)
    ended = _appears(m2.pki_dir / key_folders.ACCEPTED / minion_id)
    process.stdout.readline()
    return (ended - began) * 1000


def _appears(path: Path) -> float:
    """When *path* was first seen."""
    deadline = time.perf_counter() + PATIENCE
    while not path.exists():
        if time.perf_counter() > deadline:
            raise TimeoutError(f"{path} is not there after {PATIENCE:g} s")
        time.sleep(PAUSE)
    return time.perf_counter()
