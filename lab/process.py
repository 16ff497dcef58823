"""
One daemon as a tree of processes that can be started, ended, killed and frozen as a whole.

Each daemon leads its own session. Processes that it forks stay in that session even if the leader
is gone, so the session, not the parent, says which processes belong to it. And a Ctrl-C on the
terminal reaches only the lab, which then ends its daemons in order.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from lab.fork_server import ForkServer
from lab.launch import Running, start
from lab.wait import wait_for

# A parent in vfork() waits in the kernel for its child, which may be stopped first. Then the parent
# stops before it runs another instruction.
FROZEN = frozenset({psutil.STATUS_STOPPED, psutil.STATUS_DISK_SLEEP})
GONE = 60.0  # seconds within which processes are stopped or dead that were told so by the kernel


def status(pid: int) -> str:
    """One of psutil's ``STATUS_…``; a process that no longer exists counts as a zombie."""
    try:
        return str(psutil.Process(pid).status())
    except psutil.NoSuchProcess:
        return str(psutil.STATUS_ZOMBIE)


def session_pids(session: int) -> list[int]:
    """The living processes (no zombies) of *session*, the leader first."""
    pids = []
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getsid(pid) == session and not _is_over(pid):
                pids.append(pid)
    return sorted(pids, key=lambda pid: (pid != session, pid))


def _is_over(pid: int) -> bool:
    """Whether it has ended, with all its threads: until then its sockets are taken."""
    if status(pid) != psutil.STATUS_ZOMBIE:
        return False
    try:
        return len(list(Path(f"/proc/{pid}/task").iterdir())) < 2
    except OSError:
        return True


def signal_session(session: int, number: signal.Signals) -> None:
    """Send a signal to every process of *session*."""
    for pid in session_pids(session):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_session(session: int) -> None:
    """
    SIGKILL every process of *session*, again and again until none is left: one may be forking.

    :raises TimeoutError: some survive (stuck in the kernel).
    """

    def none_left() -> bool:
        signal_session(session, signal.SIGKILL)
        return not session_pids(session)

    wait_for(none_left, GONE, f"no process left in session {session}")


class Daemon:
    """
    A command that runs until it is told to end; its output goes to *output*.

    :param server: forks the command; None: an interpreter is started for it.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        output: Path,
        server: ForkServer | None = None,
    ) -> None:
        self.command, self.env, self.cwd, self.output = list(command), dict(env), cwd, output
        self._server = server
        self._process: Running | None = None

    @property
    def session(self) -> int | None:
        """The id of the daemon's session; None if it was not started, or was ended."""
        return self._process.pid if self._process else None

    @property
    def running(self) -> bool:
        """Whether the daemon's first process is alive (a frozen one is)."""
        return self._process is not None and self._process.running

    def pids(self) -> list[int]:
        """All living processes of the daemon, the first one first."""
        return session_pids(self._process.pid) if self._process else []

    def spawn(self) -> None:
        """Start the command, unless it runs already; return at once."""
        if self.running:
            return
        self.kill()  # processes that a crashed leader left behind would hold the ports
        self.output.parent.mkdir(parents=True, exist_ok=True)
        with open(os.devnull, "rb") as nothing, self.output.open("ab") as output:
            files = (nothing, output, output)
            self._process = start(self.command, self.env, self.cwd, files, self._server)

    def stop(self, timeout: float = 20.0) -> bool:
        """
        End the daemon like an init system: SIGTERM to the first process, then SIGKILL to all that
        are left after *timeout* seconds.

        :return: whether all processes ended by themselves.
        """
        if self._process is None:
            return True
        session, clean = self._process.pid, True
        signal_session(session, signal.SIGCONT)
        if self.running:
            os.kill(session, signal.SIGTERM)
        try:
            wait_for(lambda: not self.pids(), timeout, f"session {session} ended")
        except TimeoutError:
            clean = False
        self.kill()
        return clean

    def kill(self) -> None:
        """``kill -9`` for all processes of the daemon at once."""
        if self._process is None:
            return
        kill_session(self._process.pid)
        self._process.wait()
        self._process = None

    def suspend(self) -> None:
        """Freeze all processes (SIGSTOP): they keep sockets and memory and answer nothing."""
        session = self._require()

        def all_stopped() -> bool:
            signal_session(session, signal.SIGSTOP)  # again, as processes may have been forked
            return all(status(pid) in FROZEN for pid in session_pids(session))

        wait_for(all_stopped, GONE, f"all processes of session {session} stopped")

    def resume(self) -> None:
        """Let frozen processes go on (SIGCONT)."""
        signal_session(self._require(), signal.SIGCONT)

    def release(self) -> None:
        """Leave the processes to themselves; this object forgets them."""
        if self._process is not None:
            self._process.release()
            self._process = None

    def _require(self) -> int:
        if self._process is None:
            raise RuntimeError(f"{self.command[0]} is not running")
        return self._process.pid
