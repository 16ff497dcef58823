"""Runs Salt's command-line programs with one configuration directory."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from lab.fork_server import ForkServer
from lab.launch import start
from lab.process import kill_session


@dataclass(frozen=True)
class Result:
    """The result of a command. ``data`` is its parsed JSON output, None if that is not JSON."""

    command: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    data: Any = None

    def check(self) -> Result:
        """
        Return this result, if the command succeeded.

        :raises AssertionError: it did not; has all of the output.
        """
        if self.returncode != 0:
            raise AssertionError(str(self))
        return self

    def __str__(self) -> str:
        return f"$ {' '.join(self.command)}\nexit {self.returncode}\n{self.stdout}{self.stderr}"


def arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """
    Python values in the form of Salt's command line: text as it is, the rest as JSON (which Salt
    reads as YAML).
    """

    def text(value: Any) -> str:
        return value if isinstance(value, str) else json.dumps(value)

    return [text(arg) for arg in args] + [f"{key}={text(value)}" for key, value in kwargs.items()]


def run(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    timeout: float,
    parse: bool = True,
    stdin: str = "",
    server: ForkServer | None = None,
) -> Result:
    """
    Run *command* to its end.

    :param parse: read the output as JSON into ``data``.
    :param stdin: the command's standard input.
    :param server: forks the command; None: an interpreter is started for it.
    :raises TimeoutError: after *timeout* seconds; the command and its children are killed, and the
        error has their output.
    """
    # Files, not pipes: processes in the background do not hold us up.
    with TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as errors:
        given.write(stdin.encode())
        given.seek(0)
        process = start(command, env, cwd, (given, out, errors), server)
        late = False
        try:
            returncode = process.wait(timeout)
        except BaseException as exc:
            kill_session(process.pid)
            returncode = process.wait()
            late = isinstance(exc, subprocess.TimeoutExpired)
            if not late:
                raise
        stdout, stderr = _text(out), _text(errors)
    if late:
        raise TimeoutError(f"not within {timeout:g} s: {' '.join(command)}\n{stdout}{stderr}")
    data = None
    if parse:
        try:
            data = json.loads(stdout)
        except ValueError:
            data = None
    return Result(tuple(command), returncode, stdout, stderr, data)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
