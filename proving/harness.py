"""Shared by proofs and measurements: the machine, folders, tables of numbers."""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import psutil


def machine() -> dict[str, str]:
    """The facts that the numbers depend on."""
    memory = psutil.virtual_memory().total / 2**30
    return {
        "machine": f"{psutil.cpu_count()} × {_processor()}, {memory:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "salt": version("salt"),
        "saltext-ha": f"{version('saltext-ha')} {_commit()}",
        "aiohttp": version("aiohttp"),
        "load": " ".join(f"{load:.1f}" for load in psutil.getloadavg()),
    }


def announce(about: Mapping[str, object]) -> None:
    """Print what a run is about, a line each."""
    print("\n".join(f"{key:11} {value}" for key, value in about.items()), flush=True)


def folder(parent: Path | None = None) -> tempfile.TemporaryDirectory[str]:
    """A folder for one run. Its path is short: unix sockets are below."""
    return tempfile.TemporaryDirectory(prefix="ha-", dir=parent)


def folder_in_memory() -> tempfile.TemporaryDirectory[str]:
    """The same in memory, if possible: for runs that do not test the disk."""
    memory = Path("/dev/shm")  # nosec B108
    return folder(memory if os.access(memory, os.W_OK) else None)


def aligned(lines: Sequence[Sequence[str]], words: Collection[int] = (0,)) -> str:
    """A table for a terminal: the columns *words* to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if number in words else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """The same table for a page of docs/."""
    every = [head, ["---"] * len(head), *lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in every)


def spaced(number: float) -> str:
    """``10 412``."""
    return f"{number:,.0f}".replace(",", " ")


def _commit() -> str:
    """The commit of the source that was measured; empty for an unpacked archive."""
    command = ("git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty")
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
