"""
Instructions that the pure layer needs: the same number each time, on a busy machine, too.

``perf`` counts them where the processor allows it, which few virtual ones do, else ``valgrind``.
Each piece of work has two runs, with the work and without it: the difference counts.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from proving.benchmarks.pure_work import ITEMS, WORKS
from proving.benchmarks.report import Row

Counter = Callable[[Sequence[str]], int]
RUNS = 2
NEITHER = (
    "no instructions are counted: perf may not here, and valgrind is not there; "
    "apt-get install valgrind"
)
PERF = re.compile(r"^(\d+),[^,]*,instructions", re.MULTILINE)
VALGRIND = re.compile(r"Collected : (\d+)")


def measure() -> list[Row]:
    """A row for each piece of work: instructions for one item. No rows if no tool counts them."""
    count = counter()
    if count is None:
        print(NEITHER, file=sys.stderr)
        return []
    return [_row(name, count) for name in WORKS]


def counter() -> Counter | None:
    """The counter of a command's instructions on this machine; None without one."""
    for tool, count in (("perf", _perf), ("valgrind", _valgrind)):
        with contextlib.suppress(subprocess.CalledProcessError):  # perf is forbidden in containers
            if shutil.which(tool) and count(["true"]):
                return count
    return None


def differ(counted: Sequence[int]) -> float:
    """By how many percent the most is above the fewest."""
    return (max(counted) / min(counted) - 1) * 100


def _row(name: str, count: Counter) -> Row:
    counted = []
    for _ in range(RUNS):
        without, with_it = (count(_command(name, times)) for times in (0, 1))
        if not 0 < without < with_it:
            raise RuntimeError(f"{name}: {without} instructions without it, {with_it} with it")
        counted.append(with_it - without)
    work = f"{name} (repeats within {differ(counted):.2g} %)"
    return Row(work, ITEMS, instructions=round(min(counted) / ITEMS))


def _command(name: str, times: int) -> list[str]:
    return [sys.executable, "-m", "proving.benchmarks.pure_work", name, str(times)]


def _perf(command: Sequence[str]) -> int:
    """0 where the kernel or the processor does not count."""
    said = _said(["perf", "stat", "-x", ",", "-e", "instructions:u", *command])
    found = PERF.search(said)
    return int(found[1]) if found else 0


def _valgrind(command: Sequence[str]) -> int:
    said = _said(["valgrind", "--tool=callgrind", f"--callgrind-out-file={os.devnull}", *command])
    found = VALGRIND.search(said)
    return int(found[1]) if found else 0


def _said(command: Sequence[str]) -> str:
    # Sets have the same order each time, and Python writes no files meanwhile.
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command,
        env=environment,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, command, stderr=done.stderr)
    return done.stderr
