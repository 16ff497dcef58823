"""What masters and minions of the lab have in common: a configuration and a daemon."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.cli import Result, arguments, run
from lab.fork_server import ForkServer
from lab.process import Daemon

# A start on two idle cores takes a few seconds; this is enough where much else runs beside.
START_TIMEOUT = 180.0
# So long may a program run, which takes one second or two there.
LIMIT = 120.0
# So many lines of a log say what went wrong.
TROUBLES = 40

LOG_LINE = re.compile(r"\[\d{4}-[^\]]*\]\[[^\]]*\]\[(?P<level>[A-Z]+)")


class Node:
    """
    One daemon of the lab, not started yet.

    :param opts: the configuration as Salt read it from the file.
    :param python: the interpreter whose Salt this node runs.
    :param server: forks its daemon and programs; None: an interpreter is started for each.
    """

    program: str

    def __init__(
        self,
        name: str,
        opts: Mapping[str, Any],
        python: Path,
        server: ForkServer | None = None,
    ) -> None:
        self.name = name
        self.opts = dict(opts)
        self.config_file = Path(opts["conf_file"])
        self.config_dir = self.config_file.parent
        self.root = Path(opts["root_dir"])
        self.pki_dir = Path(opts["pki_dir"])
        self.sock_dir = Path(opts["sock_dir"])
        self.log_file = Path(opts["log_file"])
        self.bin = python.parent
        self.server = server
        self.env = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self.daemon = Daemon(
            [*self.command(self.program), "-l", "quiet"],  # the log file has everything
            self.env,
            self.root,
            self.root / "logs" / f"{self.program}.out",
            server,
        )

    def __repr__(self) -> str:
        return f"<{self.program} {self.name} {'running' if self.running else 'stopped'}>"

    @property
    def running(self) -> bool:
        """Whether the daemon's first process is alive."""
        return self.daemon.running

    def pids(self) -> list[int]:
        """All living processes of this node, the first one first."""
        return self.daemon.pids()

    def launch(self) -> None:
        """Start the daemon and return at once; :meth:`wait_ready` waits for it."""
        self.daemon.spawn()

    def stop(self, timeout: float = 20.0) -> bool:
        """
        Send SIGTERM, and SIGKILL to processes that are left after *timeout* seconds.

        :return: whether the daemon ended by itself.
        """
        return self.daemon.stop(timeout)

    def kill(self) -> None:
        """``kill -9`` for the whole process tree; it can be started again afterwards."""
        self.daemon.kill()

    def suspend(self) -> None:
        """Freeze all its processes (SIGSTOP)."""
        self.daemon.suspend()

    def resume(self) -> None:
        """Let its processes go on (SIGCONT)."""
        self.daemon.resume()

    def command(self, program: str) -> list[str]:
        """The start of a command line: *program* with this node's configuration."""
        words = [str(self.bin / program)]
        if program == "salt-ha":  # works also if the package is only on the path
            words = [str(self.bin / "python"), "-m", "saltext_ha.cli"]
        return [*words, "-c", str(self.config_dir)]

    def shell(self, program: str, *args: str) -> str:
        """A whole command line, to paste into a shell."""
        return shlex.join([*self.command(program), *args])

    def cli(
        self,
        program: str,
        *args: Any,
        out: str | None = "json",
        timeout: float = LIMIT,
        stdin: str = "",
        **kwargs: Any,
    ) -> Result:
        """
        Run one of Salt's programs with this node's configuration.

        :param args: arguments; values that are not text are passed as JSON.
        :param out: the outputter; None: the program's own choice.
        :param timeout: seconds until the program is killed.
        :param stdin: the program's standard input.
        :param kwargs: passed as ``key=value``.
        :raises TimeoutError: the program was killed.
        """
        command = self.command(program)
        if out is not None:
            command.append(f"--out={out}")
        command += arguments(args, kwargs)
        return run(
            command,
            env=self.env,
            cwd=self.root,
            timeout=timeout,
            parse=out == "json",
            stdin=stdin,
            server=self.server,
        )

    def troubles(self) -> str:
        """
        What went wrong: the last lines of the log that are warnings, errors or tracebacks; and
        the daemon's output, if it is dead or printed a traceback.
        """
        parts = []
        logged = _troubles(_read(self.log_file))
        if logged:
            parts += [f"--- {self.name}: {self.log_file}", *logged[-TROUBLES:]]
        printed = _read(self.daemon.output)
        if printed and (not self.running or "Traceback" in printed):
            parts += [f"--- {self.name}: {self.daemon.output}", *printed.splitlines()[-TROUBLES:]]
        return "\n".join(parts) or f"--- {self.name}: nothing logged at WARNING or above"


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _troubles(log: str) -> list[str]:
    kept, keeping = [], False
    for line in log.splitlines():
        # A line without a time belongs to the line before it.
        if match := LOG_LINE.match(line):
            keeping = match["level"] in ("WARNING", "ERROR", "CRITICAL")
        if keeping:
            kept.append(line)
    return kept


def interpreter(python: str | Path | None) -> Path:
    """
    The interpreter that runs Salt; its ``bin`` folder must have Salt's programs.

    :raises FileNotFoundError: it has none.
    """
    path = Path(python or sys.executable).absolute()  # not resolved: a venv's is a symlink
    if not (path.parent / "salt-master").exists():
        raise FileNotFoundError(
            f"{path.parent} has no salt-master; give the python of an environment with Salt in it"
        )
    return path
