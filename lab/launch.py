"""Starts a command in its own session: as a new program, or by a fork server."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from lab.fork_server import ForkServer


class Running(Protocol):
    """A started command; its pid is also the number of its session."""

    @property
    def pid(self) -> int: ...

    @property
    def running(self) -> bool:
        """Whether it has not ended. No other process gets its pid before :meth:`wait`."""

    def wait(self, timeout: float | None = None) -> int:
        """
        Wait for its end; return its exit status, or the signal's number negated.

        :raises subprocess.TimeoutExpired: after *timeout* seconds.
        """

    def release(self) -> None:
        """Leave it to itself."""


class Started:
    """A child of this process."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], cwd: Path, files: Sequence[IO[bytes]]
    ) -> None:
        given, out, errors = files
        self._process = subprocess.Popen(
            command,
            env=dict(env),
            cwd=cwd,
            stdin=given,
            stdout=out,
            stderr=errors,
            start_new_session=True,
        )
        self.pid = self._process.pid

    @property
    def running(self) -> bool:
        # Look without reaping.
        wanted = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.pid, wanted) is None

    def wait(self, timeout: float | None = None) -> int:
        return self._process.wait(timeout)

    def release(self) -> None:
        self._process.returncode = 0  # keeps Popen from warning about a child left running


def start(
    command: Sequence[str],
    env: Mapping[str, str],
    cwd: Path,
    files: Sequence[IO[bytes]],
    server: ForkServer | None = None,
) -> Running:
    """
    Start *command*.

    :param files: its standard input, output and error.
    :param server: forks the command, if it can; otherwise the operating system starts it.
    """
    if server and server.can_run(command, env):
        return server.start(command, env, cwd, files)
    return Started(command, env, cwd, files)
