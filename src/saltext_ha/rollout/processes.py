"""Which process is the job that a state runs in?"""

from __future__ import annotations

import contextlib

import psutil


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
