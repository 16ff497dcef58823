"""
Which process is the minion, which one the job that a state runs in, and is it still the same one?

A number alone goes to another process when the first one is over.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

import psutil

from saltext_ha.minion import binding


class KnownProcess(NamedTuple):
    """A process that is known again by its number and when it was started."""

    pid: int
    started: float


def know(process: psutil.Process) -> KnownProcess:
    """
    *process* to be known again, by other processes, too.

    :raises psutil.Error: there is none, or it must not be looked at.
    """
    return KnownProcess(process.pid, _started(process))


def living(known: KnownProcess) -> psutil.Process | None:
    """That process; None when it is over, even if another has its number now."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(known.pid)
        zombie = process.status() == psutil.STATUS_ZOMBIE
        return process if not zombie and know(process) == known else None
    return None


def _started(process: psutil.Process) -> float:
    """When it was started, by a clock that all processes of this host read alike."""
    try:
        stat = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8", errors="replace")
        # In ticks since the boot. psutil adds the time of the boot as the process that asks has
        # once read it: another one differs from it by all that the clock was set since.
        return float(stat.rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return float(process.create_time())


def job_of(pid: int, minion: int) -> int:
    """
    The process that is over when the job is: the child of *minion* above *pid* (a state that runs
    parallel to others has a process of its own below it); *pid* itself in ``salt-call``.
    """
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for parent in process.parents():
            if parent.pid == minion:
                return int(process.pid)
            process = parent
    return pid


def running(pidfile: str, bus: str | int, ended: int | None) -> int | None:
    """The process of the minion, once it is another than the one that was *ended*."""
    pid = binding.minion_pid(pidfile, bus, caller=True, forks=True)
    return None if pid == ended else pid
