"""
How key files are written: each whole and durable before it gets its name, many at once.

A disk takes a millisecond to make a file durable, and hardly longer for several whose writers wait
side by side: their waits become one commit of the file system's journal.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from saltext_ha.faults import point

WRITERS = 8
SETTLED = 2.0  # seconds after which nobody writes a key file any more
# For fewer files threads are not worth their start.
FEW = 16
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL
LEFTOVER = re.compile(r"\.[0-9]+(\.[0-9]+)?\.ha")

T = TypeVar("T")
R = TypeVar("R")


def temporary(folder: str, writer: int) -> str:
    """Under which name *writer* of this process writes in *folder*; Salt skips dot files."""
    return f"{folder}/.{os.getpid()}.{writer}.ha"


def sweep(folders: Iterable[str]) -> None:
    """
    Remove what processes that were killed while they wrote left in *folders*.

    Another master on the same folder that writes at this moment finds its file gone, and writes it
    again.
    """
    for folder in folders:
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):
                if LEFTOVER.fullmatch(name):
                    os.unlink(f"{folder}/{name}")


def spread(work: Callable[[T, int], R], items: Sequence[T]) -> list[R]:
    """
    ``work(item, writer)`` for every item, in any order; no two at a time have one writer's number.

    :return: what came of them, in any order.
    :raises: the error of one, when nobody works any more; any others may be done or not.
    """
    if len(items) < FEW:
        return [work(item, 0) for item in items]
    with ThreadPoolExecutor(WRITERS, thread_name_prefix="ha-writer") as pool:
        shares = [
            pool.submit(lambda writer: [work(item, writer) for item in items[writer::WRITERS]], n)
            for n in range(WRITERS)
        ]
    return [result for share in shares for result in share.result()]


def write_whole(temporary: str, target: str, text: str, *, mode: int, uid: int) -> None:
    """
    Have *target* hold *text*, or what it held before; its folder is to be made durable yet.

    :param uid: the owner; -1, or one that may not be given, leaves this process's.
    """
    point("store.write")
    try:
        descriptor = os.open(temporary, NEW_FILE, mode)
    except FileExistsError:
        # What a crash left, or somebody put there: a link would be written through.
        os.unlink(temporary)
        descriptor = os.open(temporary, NEW_FILE, mode)
    try:
        _write_all(descriptor, text.encode())
        os.fchmod(descriptor, mode)
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, uid, -1)
        os.fsync(descriptor)
        point("store.rename")
        os.rename(temporary, target)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    finally:
        os.close(descriptor)


def move_whole(source: str, target: str, text: str, *, mode: int, uid: int) -> bool:
    """
    Rename *source* to *target* where that comes to the same as :func:`write_whole`, with a fifth of
    the work; their folders are to be made durable yet.

    Salt 3006 and 3007 write pending keys in place, and must not do so under the new name. Who opens
    a file to write it empties it first: that shows before the rename, or else after it.

    :return: False when *target* is to be written, whatever it holds.
    """
    try:
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        before = os.fstat(descriptor)
        alone = stat.S_ISREG(before.st_mode) and before.st_nlink == 1
        raw = text.encode()
        if not alone or not is_settled(before) or os.read(descriptor, len(raw) + 1) != raw:
            return False
        if stat.S_IMODE(before.st_mode) != mode:
            os.fchmod(descriptor, mode)
        if uid not in (-1, before.st_uid):
            os.fchown(descriptor, uid, -1)
        os.fsync(descriptor)
        point("store.rename")
        os.rename(source, target)
        after = os.fstat(descriptor)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return (after.st_mtime_ns, after.st_size) == (before.st_mtime_ns, before.st_size)


def is_settled(info: os.stat_result) -> bool:
    """Whether a file with this *info* was last written so long ago that nobody is at it."""
    return abs(time.time() - info.st_mtime) > SETTLED


def sync_folder(folder: str) -> None:
    """Make durable which names *folder* holds."""
    point("store.sync")
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    # On a disk that is nearly full the first write is short, and only the next one fails.
    while data:
        data = data[os.write(descriptor, data) :]
