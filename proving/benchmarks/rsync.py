"""A tool that users would pick instead: ``rsync -a --delete`` of the key folders, in one shot."""

from __future__ import annotations

import re
import resource
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab.key_folders import FOLDERS

DURABLE = "rsync --fsync"
"""Its writes are durable, like an engine's."""
_BYTES = re.compile(r"^Total bytes (?:sent|received): ([\d,]+)$", re.MULTILINE)


@dataclass(frozen=True)
class Shot:
    """
    One run, or the medians of several: milliseconds, bytes in both directions, and milliseconds of
    processor time of all its processes; None where that is not known.
    """

    ms: float
    bytes: int | None = None
    cpu: float | None = None


def of_several(shots: Sequence[Shot], one: Callable[[list[float]], float]) -> Shot:
    """*shots* combined by *one* (a sum, a median)."""
    sizes = [shot.bytes for shot in shots if shot.bytes is not None]
    works = [shot.cpu for shot in shots if shot.cpu is not None]
    return Shot(
        one([shot.ms for shot in shots]),
        int(one([*map(float, sizes)])) if sizes else None,
        one(works) if works else None,
    )


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> tuple[Shot, str]:
    """*command* until it ends well, and what it printed."""
    before, began = _children(), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    took = (time.perf_counter() - began) * 1000
    return Shot(took, cpu=_children() - before), done.stdout


def _children() -> float:
    """Milliseconds of processor time of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1000


def copy(source: Path, target: Path, *more: str) -> Shot:
    """
    Make the key folders of *target* those of *source*.

    Both ends are on this machine, without ssh: this is what rsync itself needs, the least it costs.

    :param more: options of rsync.
    """
    target.mkdir(parents=True, exist_ok=True)
    folders = [str(source / name) for name in FOLDERS if (source / name).is_dir()]
    command = ["rsync", "-a", "--delete", "--exclude=.*", "--stats", *more, *folders, str(target)]
    shot, said = run(command)
    return replace(shot, bytes=bytes_in(said))


def durable(source: Path, target: Path) -> Shot:
    """:func:`copy` that survives a power failure (``--fsync``, rsync 3.2.4), as ours does."""
    return copy(source, target, "--fsync")


def bytes_in(stats: str) -> int:
    """Bytes in both directions, by the output of ``rsync --stats``."""
    numbers = _BYTES.findall(stats)
    if len(numbers) != 2:
        raise RuntimeError(f"rsync --stats says something unexpected:\n{stats}")
    return sum(int(number.replace(",", "")) for number in numbers)
