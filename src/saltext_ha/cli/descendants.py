"""The processes of a command: the command, and all that it has started, whoever their parent is."""

from __future__ import annotations

import ctypes
import os
import subprocess  # nosec B404
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

from saltext_ha.common.processes import is_alive

TURN = 0.05  # seconds between two looks
KILLING = 5.0
"""Seconds to try to kill them; one that waits for a disk ends when that answers."""
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def adopt() -> set[psutil.Process]:
    """
    Become the parent of each process below this one whose own parent ends (prctl(2), Linux 3.4):
    otherwise nobody could tell any more who has started it. Call it before the command starts.

    :return: the processes that are below this one already: after ``exec > >(logger)``, say, a shell
        became this program.
    """
    with suppress(OSError, AttributeError):  # another system; then such processes are not found
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return _below(psutil.Process())


class Descendants:
    """
    All processes below this one that a command has started.

    :param command: the only process that this one has started itself.
    :param others: processes below this one that are not of the command; see :func:`adopt`.
    """

    def __init__(self, command: subprocess.Popen[bytes], others: set[psutil.Process]) -> None:
        self._command = command
        self._others = others
        self._known: set[psutil.Process] = set()

    def reap(self) -> bool:
        """Forget children that have ended; returns whether any child is left."""
        if not hasattr(os, "waitid"):  # macOS, with a Python before 3.13
            return self._command.poll() is None
        try:
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if ended.si_pid == self._command.pid:
                    self._command.poll()  # it keeps the exit code
                else:
                    os.waitpid(ended.si_pid, 0)
        except ChildProcessError:
            return False
        return True

    def end(self, left: Callable[[], float]) -> list[int]:
        """
        End all of them: those of now by SIGTERM, and at the end of the time by SIGKILL those that
        are left or were started meanwhile.

        :param left: seconds until that end.
        :return: the ids of those that could not be killed.
        """
        for each in self._found():
            with suppress(psutil.Error):
                each.terminate()
        while self._any() and (seconds := left()) > 0:
            time.sleep(min(TURN, seconds))
        end = time.monotonic() + KILLING
        while self._any() and time.monotonic() < end:
            for each in self._found():
                with suppress(psutil.Error):
                    each.kill()
            time.sleep(TURN)
        return sorted(each.pid for each in self._found() if is_alive(each)) if self._any() else []

    def _any(self) -> bool:
        children = self.reap()
        if any(map(is_alive, self._others)):
            return any(map(is_alive, self._found()))
        return children or any(map(is_alive, self._known))

    def _found(self) -> set[psutil.Process]:
        self._known |= _below(psutil.Process()).difference(self._others, *map(_below, self._others))
        return self._known


def _below(process: psutil.Process) -> set[psutil.Process]:
    try:
        return {*process.children(recursive=True)}
    except psutil.Error:
        return set()
