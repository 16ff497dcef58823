"""
How is this minion restarted?

Salt's own ``minion.restart`` runs in the minion that it ends, and does not start a minion that ran
in the foreground. So: ``minion_restart_command`` if that is configured; systemd if it runs the
minion; otherwise the minion is ended, and if no supervisor (supervisord, runit, a loop) has started
it again, it is started by its own command line.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess  # nosec B404
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from saltext_ha.common import validators
from saltext_ha.common.errors import HaError
from saltext_ha.minion.restarting.processes import KnownProcess, know, living

UNIT = "salt-minion.service"
# KillMode=: all processes end with the main one. Salt's packages have had mixed since 2026.
KILLS_ALL = ("control-group", "mixed")
SCOPE = ("systemd-run", "--scope")
ENDS = 20.0  # seconds for a minion to end by itself
SUPERVISED = 10.0  # seconds in which a supervisor may start it again
FIRST = 1
# As the first process of a container, each of these ends with the process that it has started.
INITS = ("tini", "tini-static", "docker-init", "dumb-init", "catatonit", "podman-init")


@dataclass(frozen=True)
class Way:
    """
    The way to restart one minion.

    ``ends`` are the processes to end before ``command`` is run. The first gets SIGTERM; a later
    process with one of their ids is left alone. With ``wait`` the command is run only if no
    supervisor has started the minion within that many seconds.
    """

    command: tuple[str, ...]
    ends: tuple[KnownProcess, ...] = ()
    wait: float = 0.0
    cwd: str = "/"


def read(fields: Mapping[str, Any]) -> Way:
    """The :class:`Way` with *fields*, as :func:`dataclasses.asdict` and JSON made of it."""
    ends = tuple(KnownProcess(*known) for known in fields["ends"])
    return Way(tuple(fields["command"]), ends, fields["wait"], fields["cwd"])


@contextlib.contextmanager
def _looking() -> Iterator[None]:
    try:
        yield
    except psutil.Error as exc:
        raise HaError(f"the minion cannot be looked at: {exc}; run this again") from None


@_looking()
def way(minion: int, opts: Mapping[str, Any], *, outlived: bool = True) -> Way:
    """
    How the minion with the process *minion* is restarted.

    :param outlived: not by the end of its container, which something else may start again.
    :raises HaError: no way would leave a process that can put the old file back; or the minion has
        ended.
    """
    process = psutil.Process(minion)
    top = _top(process)
    if top.pid == FIRST or (outlived and _is_child_of_init(top)):
        raise HaError(
            "its container ends with the minion, and so does what could start it again or put an "
            "old file back. Write the file into the image, or restart the container"
        )
    ends = know(top), know(process)
    command = opts.get("minion_restart_command")
    if command:
        try:
            return Way(_words(command), ends)
        except ValueError as exc:
            raise HaError(validators.wrong("minion_restart_command", command, exc)) from None
    if unit := _service(top.pid):
        return Way(("systemctl", "restart", unit))
    if top.uids().real != os.getuid():
        # Its id came from a file: a user who can write this file could make root run anything.
        raise HaError(
            f"the minion (process {top.pid}) is another user's, whose command line is not run by "
            "this one: set minion_restart_command in its configuration"
        )
    words = top.cmdline()
    if not words or not (shutil.which(words[0]) or Path(words[0]).is_file()):
        raise HaError(
            f"the command line of the minion (process {top.pid}) does not say how it was started: "
            "set minion_restart_command in its configuration"
        )
    return Way(tuple(words), ends, SUPERVISED, top.cwd())


@_looking()
def outside(minion: int) -> tuple[str, ...]:
    """
    The words before a command that is to outlive a restart of the *minion*: systemd may end all
    processes of a unit with its main one, so the command gets a unit of its own.

    :raises HaError: the minion cannot be looked at.
    """
    unit = _service(_top(psutil.Process(minion)).pid)
    return SCOPE if unit and _property(unit, "KillMode") in KILLS_ALL else ()


def beside(found: Way, minion: int) -> tuple[str, ...]:
    """
    The words before the command of a process that restarts the *minion* in the way *found*, and
    does nothing afterwards: systemd itself restarts a minion also when it has ended that process.
    """
    return outside(minion) if found.ends else ()


def _words(command: Any) -> tuple[str, ...]:
    """The words of a configured command. :raises ValueError: it is none."""
    words = validators.words(command) if isinstance(command, str) else command
    if not words or not isinstance(words, list):
        raise ValueError("takes a command as one text, or a list of its words")
    return tuple(map(str, words))


def restart(found: Way, running: Callable[[], int | None]) -> None:
    """Restart the minion; *running* returns its process, if it runs. :raises HaError: it failed."""
    _end(found.ends)
    deadline = time.monotonic() + found.wait
    while found.wait and time.monotonic() < deadline:
        if running() is not None:
            return
        time.sleep(0.2)
    try:
        # In a new session: the minion continues when this process ends.
        process = subprocess.Popen(  # nosec B603
            found.command,
            cwd=found.cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as exc:
        raise HaError(f"{shlex.join(found.command)}: {exc.strerror}") from None
    try:
        status = process.wait(2.0)
    except subprocess.TimeoutExpired:
        return  # a minion in the foreground
    if status:
        raise HaError(f"{shlex.join(found.command)} ended with {status}")


def _top(process: psutil.Process) -> psutil.Process:
    """
    The topmost process of the minion. Salt keeps a parent that restarts its child, a fork with the
    same command line, to which setproctitle may have added something. A supervisor is another
    program, or has other arguments.
    """
    with contextlib.suppress(psutil.Error):
        for parent in process.parents():
            if parent.exe() != process.exe() or not _line(process).startswith(_line(parent)):
                break
            process = parent
    return process


def _is_child_of_init(top: psutil.Process) -> bool:
    """Whether the container that this process runs in ends with *top*, though that is not first."""
    # Another user may not be shown the first process.
    with contextlib.suppress(psutil.Error):
        first = psutil.Process(FIRST)
        if top.ppid() == FIRST and first.name() in INITS:
            # Others came to it when their parents had ended.
            oldest = min(first.children(), key=lambda each: (each.create_time(), each.pid))
            return bool(top == oldest)
    return False


def _line(process: psutil.Process) -> str:
    return " ".join(process.cmdline()).strip()


def _unit(pid: int) -> str:
    """The systemd service that *pid* belongs to; empty without one."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii").splitlines()
    except OSError:
        return ""
    for line in lines:
        last = os.path.basename(line.rpartition(":")[2])  # noqa: PTH119
        if last.endswith(".service"):
            return last
    return ""


def _service(top: int) -> str:
    """The systemd service that is this minion, of which *top* is the topmost process; or empty."""
    unit = _unit(top)
    # When the main process of a unit ends, all of the unit ends, including the one that would
    # restart it.
    managed = unit == UNIT or (unit and _property(unit, "MainPID") == str(top))
    return unit if managed else ""


def _property(unit: str, name: str) -> str:
    """A property of the service by systemd; empty if unknown."""
    command = ["systemctl", "show", f"--property={name}", "--value", unit]
    try:
        done = subprocess.run(command, capture_output=True, timeout=10, check=False)  # nosec B603
        return done.stdout.decode(errors="replace").strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _end(ends: tuple[KnownProcess, ...]) -> None:
    """
    End the minion's processes, but no running jobs, as systemd's KillMode=process does. Salt 3008
    then ends its jobs itself (``MinionManager.stop_async``).
    """
    processes = [found for known in dict.fromkeys(ends) if (found := living(known))]
    for process in processes[:1]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    for process in psutil.wait_procs(processes, ENDS)[1]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, ENDS)
