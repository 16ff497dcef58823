"""A Docker Engine with folders and a socket of its own, which ends with the ``with`` block."""

from __future__ import annotations

import json
import os
import shutil
import subprocess  # nosec B404
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from lab.process import Daemon
from lab.wait import wait_for

START, END = 60.0, 60.0
CALL = 600.0  # seconds that one command may take
# The client beside the daemon: the first docker on the path may belong to another one.
DEBIAN = "/usr/sbin:/usr/bin:/sbin:/bin"


class CommandFailed(Exception):
    """A command that did not end with 0; the message is its output."""


def run(command: Sequence[str], env: Mapping[str, str], cwd: Path, timeout: float = CALL) -> str:
    """
    The standard output of *command*.

    :raises CommandFailed: it did not end with 0.
    """
    done = subprocess.run(  # nosec B603
        command,
        env=env,
        cwd=cwd,
        timeout=timeout,
        check=False,
        text=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        said = f"{done.stdout}\n{done.stderr}".strip()
        raise CommandFailed(f"{' '.join(command)}: exit status {done.returncode}: {said}")
    return done.stdout


def program(name: str) -> str:
    """
    The path of Debian's program *name*.

    :raises FileNotFoundError: it is not installed.
    """
    found = shutil.which(name, path=DEBIAN)
    if not found:
        raise FileNotFoundError(f"{name} is not installed: make containers installs it, as root")
    return found


class Docker:
    """The engine, and the client that talks to it."""

    def __init__(self) -> None:
        # Short: a socket's path may have only a hundred letters.
        self.root = Path(tempfile.mkdtemp(prefix="ha-docker-"))
        self.socket = self.root / "docker.sock"
        self.env = {
            "PATH": DEBIAN,
            "HOME": str(self.root),
            "DOCKER_HOST": f"unix://{self.socket}",
            # Debian's compose uses an engine without BuildKit.
            "DOCKER_BUILDKIT": "0",
            "COMPOSE_DOCKER_CLI_BUILD": "0",
        }
        command = [
            program("dockerd"),
            # Leave this host's network alone, and make no bridge before one is needed.
            *("--iptables=false", "--ip6tables=false", "--bridge=none"),
            *("--data-root", str(self.root / "data"), "--exec-root", str(self.root / "run")),
            *("--pidfile", str(self.root / "pid"), "-H", f"unix://{self.socket}"),
        ]
        env = {**os.environ, "TMPDIR": str(self.root)}
        self.log = self.root / "log"
        self._daemon = Daemon(command, env, self.root, self.log)

    def __enter__(self) -> Docker:
        self._daemon.spawn()
        try:
            wait_for(self._answers, START, "the Docker Engine answers", poll=0.2)
        except BaseException:
            print(self.log.read_text()[-4000:])
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _answers(self) -> bool:
        return bool(self("version", "--format", "{{.Server.Version}}").strip())

    def _end(self) -> None:
        try:
            if self._daemon.running:
                names = self("ps", "--all", "--quiet").split()
                if names:
                    self("rm", "--force", "--volumes", *names)
                self("network", "prune", "--force")
        finally:
            self._daemon.stop(END)
            shutil.rmtree(self.root)

    def __call__(self, *arguments: str, timeout: float = CALL) -> str:
        """What ``docker ARGUMENTS`` prints."""
        return run([program("docker"), *arguments], self.env, self.root, timeout)

    def shows(self, name: str) -> dict[str, Any]:
        """The facts about a container by ``docker inspect``."""
        (found,) = json.loads(self("inspect", name))
        return dict(found)

    def logs(self, name: str) -> str:
        """The output of a container so far, on both streams."""
        done = subprocess.run(  # nosec B603
            [program("docker"), "logs", name],
            env=self.env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=CALL,
            check=True,
        )
        return done.stdout
