"""
Which process is the minion, which one is its job, and is a process still the same one?

A process id alone does not tell: when a process has ended, another one may get its id.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

import psutil

from saltext_ha.minion import tcp_links


class KnownProcess(NamedTuple):
    """A process, identified by its id and its start time."""

    pid: int
    started: float


def know(process: psutil.Process) -> KnownProcess:
    """The identity of *process*, the same everywhere. :raises psutil.Error: it is not seen."""
    return KnownProcess(process.pid, _started(process))


def find(pid: int | None) -> KnownProcess | None:
    """The identity of process *pid*; None when there is none."""
    with contextlib.suppress(psutil.Error):
        return None if pid is None else know(psutil.Process(pid))
    return None


def living(known: KnownProcess) -> psutil.Process | None:
    """The process *known*; None when it has ended, even if another one has its id now."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(known.pid)
        zombie = process.status() == psutil.STATUS_ZOMBIE
        return process if not zombie and know(process) == known else None
    return None


def _started(process: psutil.Process) -> float:
    """Its start time, by a clock that is the same for all processes of this host."""
    try:
        stat = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8", errors="replace")
        # In ticks since the boot. psutil adds the boot time, which each process reads once: two
        # processes get different sums if the clock was set in between.
        return float(stat.rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return float(process.create_time())


def job_of(pid: int, minion: int) -> int:
    """
    The process that ends with the job: the child of *minion* above *pid* (a parallel state has a
    process of its own below it); *pid* itself in ``salt-call``.
    """
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for parent in process.parents():
            if parent.pid == minion:
                return int(process.pid)
            process = parent
    return pid


def running(pidfile: str, bus: str | int, ended: int | None) -> int | None:
    """The process of the minion; None if there is none but *ended*."""
    pid = tcp_links.minion_pid(pidfile, bus, caller=True, forks=True)
    return None if pid == ended else pid
