"""What users would pick instead: ``rsync -a --delete`` of the key folders, in one shot."""

from __future__ import annotations

import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from lab.key_folders import FOLDERS

DURABLE = "rsync --fsync"
"""It makes durable what it writes, as an engine does."""
_BYTES = re.compile(r"^Total bytes (?:sent|received): ([\d,]+)$", re.MULTILINE)


@dataclass(frozen=True)
class Shot:
    """
    One run, or the medians of several: milliseconds, and bytes in both directions, None where the
    tool does not say them.
    """

    ms: float
    bytes: int | None = None


def copy(source: Path, target: Path, *more: str) -> Shot:
    """
    Make the key folders of *target* those of *source*.

    Both ends on this machine, without ssh: what rsync itself needs, and the least it can cost.

    :param more: options of rsync.
    """
    target.mkdir(parents=True, exist_ok=True)
    folders = [str(source / name) for name in FOLDERS if (source / name).is_dir()]
    command = ["rsync", "-a", "--delete", "--exclude=.*", "--stats", *more, *folders, str(target)]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - began
    return Shot(seconds * 1000, bytes_in(done.stdout))


def durable(source: Path, target: Path) -> Shot:
    """:func:`copy` that is there after a power failure (``--fsync``, rsync 3.2.4), as ours is."""
    return copy(source, target, "--fsync")


def bytes_in(stats: str) -> int:
    """Bytes in both directions, by what ``rsync --stats`` says."""
    numbers = _BYTES.findall(stats)
    if len(numbers) != 2:
        raise RuntimeError(f"rsync --stats says something unexpected:\n{stats}")
    return sum(int(number.replace(",", "")) for number in numbers)
