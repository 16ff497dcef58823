"""The steps that a process takes on its disk; a test may have it end between any two of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from saltext_ha.trees import live_path, store

# All calls that change something on a disk, except writing into a file.
STEPS = (
    "chmod", "fsync", "link", "mkdir", "rename", "replace", "rmdir", "symlink", "sync", "unlink",
    "utime",
)  # fmt: skip
# These show only after a power cut, and take most of the time.
LEFT_OUT = {"fsync", "sync"}

Files = dict[str, str]


class Crash(BaseException):
    """Nothing catches it: as after a kill, only the steps done before it remain."""


@contextlib.contextmanager
def watched(before: Callable[[str], None]) -> Iterator[None]:
    """Call *before* with the name of each step; it may raise instead of the step."""

    def stepping(name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        def taken(*args: Any, **kwargs: Any) -> Any:
            before(name)
            return None if name in LEFT_OUT else step(*args, **kwargs)

        return taken

    with contextlib.ExitStack() as stack:
        for name in STEPS:
            stack.enter_context(patch.object(os, name, stepping(name, getattr(os, name))))
        exchange = stepping("exchange", live_path.exchange)
        for module in (live_path, store):
            stack.enter_context(patch.object(module, "exchange", exchange))
        yield


@contextlib.contextmanager
def crashing(after: int) -> Iterator[None]:
    """The process dies *after* so many steps, before the next one."""
    left = after

    def burn(name: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Crash

    with contextlib.suppress(Crash), watched(burn):
        yield


def free_space(
    monkeypatch: pytest.MonkeyPatch, free: Callable[[Path], int | None], blocks: int = 1
) -> None:
    """
    Have disks be full.

    :param free: takes a path there; returns how many bytes are free, or None: as many as are.
    :param blocks: the size of the disk in bytes.
    """
    statvfs = os.statvfs

    def told(path: Path) -> Any:
        real, bytes_free = statvfs(path), free(Path(path))
        if bytes_free is None:
            return real
        return SimpleNamespace(f_bavail=bytes_free, f_frsize=1, f_blocks=blocks)

    monkeypatch.setattr(os, "statvfs", told)


def empty_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all of each disk be free, however full those of this machine are."""
    statvfs = os.statvfs

    def told(path: Path) -> Any:
        real = statvfs(path)
        known = {name: getattr(real, name) for name in dir(real) if name.startswith("f_")}
        return SimpleNamespace(**{**known, "f_bavail": real.f_blocks})

    monkeypatch.setattr(os, "statvfs", told)


def put(folder: Path, files: Files) -> None:
    """Write *files* below *folder*, beside what is there."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def read(top: Path) -> Files:
    """Path → text of all files below *top*; does not follow links."""
    paths = (path for path in top.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(top)): path.read_text(errors="replace") for path in paths}
