"""A process that looks like a minion."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil

from lab.wait import wait_for
from saltext_ha.minion import options

SLEEPER = """
import contextlib, os, socket, sys, time
bus = socket.socket(socket.AF_UNIX)
with contextlib.suppress(FileNotFoundError):
    os.unlink(sys.argv[3])
bus.bind(sys.argv[3])
bus.listen()
open(sys.argv[2], 'a').write('started\\n')
time.sleep(600)
"""


class Sleeper:
    """
    The minion web1 below *root*, a short path. It serves its event bus, and does nothing else.

    :ivar process: once :meth:`start` has started it.
    """

    process: psutil.Process

    def __init__(self, root: Path) -> None:
        self.opts = {"id": "web1", "sock_dir": str(root)}
        self._starts = root / "starts"
        bus = str(options.bus(self.opts))
        self.command = [sys.executable, "-c", SLEEPER, "salt-minion", str(self._starts), bus]

    def start(self) -> None:
        self.process = psutil.Popen(self.command, start_new_session=True)
        self.has_started()

    @property
    def starts(self) -> int:
        """How often it was started, by whomever."""
        return self._starts.read_text().count("\n") if self._starts.exists() else 0

    def has_started(self, times: int = 1) -> None:
        wait_for(lambda: self.starts == times, 60, f"it has started {times} times")

    @property
    def lives(self) -> bool:
        return self.process.is_running() and self.process.status() != psutil.STATUS_ZOMBIE

    def close(self) -> None:
        """End it, whoever started it."""
        for each in psutil.process_iter(["cmdline"]):
            if each.info["cmdline"] == self.command:
                each.kill()
