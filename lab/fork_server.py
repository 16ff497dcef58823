"""
Starts Salt's programs and daemons in a fraction of the time: forks a process that imported Salt.

A program spends most of its time on imports, and the tests run more than a thousand programs. The
forked process executes the program's own file to its end, like an interpreter that was started for
it; only the modules are there already. The demo and tests of the package do not use this.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import selectors
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

from setproctitle import setproctitle

ROOT = Path(__file__).parent.parent
# Modules that the programs import sooner or later; an older Salt lacks some.
PRELOADED = (
    "cherrypy",
    "git",
    "salt.auth",
    "salt.channel.client",
    "salt.channel.server",
    "salt.cli.api",
    "salt.cli.call",
    "salt.cli.daemons",
    "salt.cli.key",
    "salt.cli.run",
    "salt.cli.salt",
    "salt.client",
    "salt.client.ssh",
    "salt.cloud",
    "salt.grains.core",
    "salt.key",
    "salt.master",
    "salt.minion",
    "salt.modules.cmdmod",
    "salt.modules.file",
    "salt.modules.network",
    "salt.netapi",
    "salt.pillar.git_pillar",
    "salt.runner",
    "salt.runners.winrepo",
    "salt.scripts",
    "salt.transport.zeromq",
    "salt.utils.gitfs",
    "salt.utils.reactor",
    "salt.wheel",
    "saltext_ha.cli",
    "saltext_ha.engine.main",
    "saltext_ha.output.ha",
    "saltext_ha.runners.ha",
    "saltfactories.utils.saltext",
)
# Not by -m: the package imports this module, and would have it twice.
START = "from lab.fork_server import main; main()"
LARGEST = 1 << 17  # bytes of an order, mostly the environment


class Forked:
    """A forked command; see :class:`lab.launch.Running`."""

    def __init__(self, pid: int, report: socket.socket) -> None:
        self.pid = pid
        self._report = report
        self._status: int | None = None

    @property
    def running(self) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._hear(0)
        return self._status is None

    def wait(self, timeout: float | None = None) -> int:
        status = self._hear(timeout)
        self._report.close()  # from now on another process may get its pid
        return status

    def release(self) -> None:
        self._report.close()

    def _hear(self, timeout: float | None) -> int:
        """
        :raises subprocess.TimeoutExpired: it still runs.
        :raises RuntimeError: the fork server ended.
        """
        if self._status is None:
            self._report.settimeout(timeout)
            try:
                said = self._report.recv(16)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0) from None
            if not said:
                raise RuntimeError("the fork server ended")
            self._status = int(said)
        return self._status


class ForkServer:
    """
    Forks the programs of one interpreter. It ends with this process.

    :param python: the interpreter, in a folder with Salt's programs.
    """

    def __init__(self, python: Path) -> None:
        self._bin = python.parent
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [python, "-c", START, str(theirs.fileno())],
                cwd=ROOT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # a Ctrl-C on the terminal must not end it
            )

    def can_run(self, command: Sequence[str], env: Mapping[str, str]) -> bool:
        """
        Whether a forked process would be the same as a started one: *command* is a program of this
        interpreter, and finds modules where this process does.
        """
        if env.get("PYTHONPATH") != os.environ.get("PYTHONPATH"):
            return False
        program = Path(command[0])
        if program.is_absolute() and command[1:2] != ["-m"]:
            with program.open("rb") as file:
                first = file.readline(256).decode(errors="replace")
            program = Path(first.removeprefix("#!").strip())
        return program.parent == self._bin and program.name.startswith("python")

    def start(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        files: Sequence[IO[bytes]],
    ) -> Forked:
        """
        Run *command*, which :meth:`can_run`.

        :param files: its standard input, output and error.
        :raises RuntimeError: the fork server ended.
        """
        order = json.dumps({"command": list(command), "env": dict(env), "cwd": str(cwd)})
        report, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            descriptors = [*(file.fileno() for file in files), theirs.fileno()]
            try:
                socket.send_fds(self._orders, [order.encode()], descriptors)
            except OSError:
                raise RuntimeError("the fork server ended") from None
        pid = report.recv(16)
        if not pid:
            raise RuntimeError("the fork server ended")
        return Forked(int(pid), report)


@functools.cache
def server_of(python: Path) -> ForkServer:
    """The fork server of *python* in this process."""
    return ForkServer(python)


@dataclass(frozen=True)
class Order:
    """The command that this process, just forked, has to become."""

    command: list[str]
    env: dict[str, str]
    cwd: str
    descriptors: list[int]

    def become(self) -> None:
        """Run the command; return, or raise SystemExit, where an interpreter would end."""
        os.setsid()
        for number, descriptor in enumerate(self.descriptors[:3]):
            os.dup2(descriptor, number)
            os.close(descriptor)
        # Not earlier: others may end this session as soon as they know its number.
        with socket.socket(fileno=self.descriptors[3]) as report:
            _say(report, os.getpid())
        os.chdir(self.cwd)
        os.environ.clear()
        os.environ.update(self.env)
        program, *arguments = self.command
        is_module = arguments[:1] == ["-m"]
        # To the title Salt appends what each of its processes does.
        setproctitle(" ".join([*([] if is_module else [sys.executable]), *self.command]))
        if is_module:
            sys.argv, sys.path[0] = arguments[1:], self.cwd
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv, sys.path[0] = self.command, str(Path(program).parent)
            runpy.run_path(program, run_name="__main__")


def serve(orders: socket.socket) -> Order | None:
    """Fork for each order. Return it in the forked process; here, None when no more orders come."""
    running: dict[int, tuple[int, socket.socket]] = {}
    ended: dict[socket.socket, int] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(orders, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is orders:
                    message, descriptors, *_ = socket.recv_fds(orders, LARGEST, 4)
                    if not message:
                        return None
                    pid = os.fork()
                    if pid == 0:
                        orders.close()
                        for each in (*ended, *(report for _, report in running.values())):
                            each.close()
                        for watch in running:
                            os.close(watch)
                        return Order(**json.loads(message), descriptors=descriptors)
                    for descriptor in descriptors[:3]:
                        os.close(descriptor)
                    report, watch = socket.socket(fileno=descriptors[3]), os.pidfd_open(pid)
                    running[watch] = pid, report
                    selector.register(watch, selectors.EVENT_READ)
                    continue
                selector.unregister(key.fileobj)
                if key.fd in running:
                    pid, report = running.pop(key.fd)
                    os.close(key.fd)
                    # Look without reaping: as long as the zombie stays, the kernel gives its pid,
                    # which is also the number of the session, to no other process.
                    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
                    assert found is not None
                    exited = found.si_code == os.CLD_EXITED
                    _say(report, found.si_status if exited else -found.si_status)
                    ended[report] = pid
                    selector.register(report, selectors.EVENT_READ)
                else:  # the process that gave the order has closed the connection
                    report = next(each for each in ended if each is key.fileobj)
                    os.waitpid(ended.pop(report), 0)
                    report.close()


def _say(report: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more
        report.send(str(number).encode())


def main() -> None:
    """Serve orders; in a forked process, run its command."""
    # Before any code touches the environment: titles are written in its place.
    setproctitle("fork server of the lab")
    gc.disable()  # what is imported stays
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    importlib.import_module("lab.shortcuts").take()
    gc.freeze()  # forked processes inherit it: a collection there would copy all shared memory
    gc.enable()
    order = serve(socket.socket(fileno=int(sys.argv[1])))
    if order is None:
        return
    code: object = None
    try:
        order.become()
    except SystemExit as exc:
        code = exc.code
    end(code)


def end(code: object) -> NoReturn:
    """
    End this process with *code* as an interpreter does, but leave its memory to the kernel: to tear
    down all modules takes longer than most programs run.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if not (code is None or isinstance(code, int)):
        print(code, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF if isinstance(code, int) else int(code is not None))
