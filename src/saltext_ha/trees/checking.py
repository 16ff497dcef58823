"""The command ``check:`` of a tree, run on a staged version."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
from pathlib import Path

from saltext_ha.common.errors import HaError, reason_of
from saltext_ha.config.trees import Tree

MOST_OUTPUT = 4000  # characters of a check's output
MOST_READ = 64 * 1024


async def check(tree: Tree, folder: Path) -> None:
    """
    Run ``check:`` of *tree* on a version of it.

    :raises HaError: it failed, or took too long; has its output, unless the tree is secret.
    """
    if not tree.check:
        return
    command = [part.replace("{tree}", str(folder)) for part in shlex.split(tree.check)]
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as exc:
        raise HaError(f"check: {tree.check}: {reason_of(exc)}") from None
    try:
        said, code = await asyncio.wait_for(_ended(process), tree.check_timeout)
    except (asyncio.TimeoutError, asyncio.CancelledError) as exc:  # cancelled: the engine stops
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # also processes that it has started
        await process.wait()
        if isinstance(exc, asyncio.CancelledError):
            raise
        raise HaError(f"check: {tree.check}: not within {tree.check_timeout:g} s") from None
    if code != 0:
        shown = "run it there to see why (the tree is secret)" if tree.secret else said
        raise HaError(f"check: {tree.check}: exit code {code}: {shown}")


async def _ended(process: asyncio.subprocess.Process) -> tuple[str, int]:
    """The end of its output, and its exit code; the whole output may exceed the memory."""
    said = b""
    assert process.stdout is not None  # nosec B101
    while more := await process.stdout.read(MOST_READ):
        said = (said + more)[-MOST_OUTPUT:]
    return said.decode(errors="replace").strip(), await process.wait()
