"""The command ``check:`` of a tree, run on a staged version."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import psutil

from saltext_ha.common.errors import HaError, reason_of
from saltext_ha.config.trees import Tree

MOST_OUTPUT = 4000  # bytes of a check's output
MOST_READ = 64 * 1024  # what a pipe holds
KILLED = 5.0  # seconds in which a process that gets SIGKILL ends


def look(tree: Tree, folder: Path) -> None:
    """
    Open the *folder*, and the program of ``check:``. To start a process takes both, and waits
    for the disk: look in a thread first, so that the event loop does not hang with it.
    """
    program = _command(tree, folder)[0]
    if "/" not in program:
        program = shutil.which(program) or ""
    with suppress(OSError), os.scandir(folder) as found:
        next(found, None)
    with suppress(OSError), (folder / program).open("rb") as file:
        file.read(1)


async def check(tree: Tree, folder: Path) -> None:
    """Run ``check:`` on a version of *tree*, in *folder*. :raises HaError: it failed."""
    said, code = await _run(tree, folder)
    if code != 0:
        shown = "run it there to see why (the tree is secret)" if tree.secret else said
        mend = "mend the files, or the check"
        raise HaError(f"check: {tree.check}: exit code {code}; {mend}: {shown}")


async def _run(tree: Tree, folder: Path) -> tuple[str, int]:
    """The end of its output, and its exit code. Nothing that it has started goes on after it."""
    command = _command(tree, folder)
    output = _Output()
    try:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=folder,
                # Checks in Python would write __pycache__ into the version.
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output.write_end,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as exc:
            raise HaError(f"check: {tree.check}: {reason_of(exc)}") from None
        output.begin()
        try:
            # Not for the end of its output: a process that it has left may have that open.
            code = await asyncio.wait_for(process.wait(), tree.check_timeout)
        except asyncio.TimeoutError:
            more = "" if await _ended(process) else f"; process {process.pid} cannot be ended"
            raise HaError(
                f"check: {tree.check}: not within {tree.check_timeout:g} s{more}"
            ) from None
        except asyncio.CancelledError:  # the engine stops
            await _ended(process)
            raise
        _kill(process)
        return output.end(), code
    finally:
        output.close()


def _command(tree: Tree, folder: Path) -> list[str]:
    return [part.replace("{tree}", str(folder)) for part in shlex.split(tree.check)]


async def _ended(process: asyncio.subprocess.Process) -> bool:
    """End it, and what it has started; returns whether it has ended: another user's may go on."""
    _kill(process)
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(process.wait(), KILLED)
    return process.returncode is not None


def _kill(process: asyncio.subprocess.Process) -> None:
    """Also those in another process group (setsid), as long as their parents live."""
    if process.returncode is None:
        with suppress(psutil.Error):
            for each in psutil.Process(process.pid).children(recursive=True):
                with suppress(psutil.Error):
                    each.kill()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


class _Output:
    """The end of what is written to a pipe; the whole may exceed the memory."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._said = b""

    def begin(self) -> None:
        """Close the end that the process has by now, and read what it says."""
        os.close(self.write_end)
        self.write_end = -1
        self._loop.add_reader(self._read_end, self._more)

    def _more(self) -> None:
        with suppress(BlockingIOError):
            more = os.read(self._read_end, MOST_READ)
            self._said = (self._said + more)[-MOST_OUTPUT:]
            if not more:
                self._loop.remove_reader(self._read_end)

    def end(self) -> str:
        """The end of what was written by now."""
        self._more()
        return self._said.decode(errors="replace").strip()

    def close(self) -> None:
        self._loop.remove_reader(self._read_end)
        for each in (self._read_end, self.write_end):
            if each >= 0:
                os.close(each)
