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
from typing import NamedTuple, TypeVar

from saltext_ha.faults import point
from saltext_ha.keystore import reading

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


def write_whole(temporary: str, target: str, text: str, *, mode: int, uid: int) -> bool:
    """
    Have *target* hold *text*, or what it held before; the folder is still to be made durable.

    :param uid: the owner; -1, or one that may not be given, leaves this process's.
    :return: whether it took the place of another file.
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
        return _rename(temporary, target)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    finally:
        os.close(descriptor)


def _rename(temporary: str, target: str) -> bool:
    """Rename; whether that took the place of another file."""
    point("store.rename")
    # As late as can be: who removes *target* later removes the new one, and that is seen.
    replaced = os.path.lexists(target)
    os.rename(temporary, target)
    return replaced


class Linked(NamedTuple):
    """What is known of a file that got a second name."""

    inode: int
    written: int
    size: int
    mode: int


def link_whole(
    source: str, temporary: str, target: str, text: str, *, mode: int, uid: int
) -> tuple[Linked, bool] | None:
    """
    Give the file *source* the name *target*, too, where that comes to the same as
    :func:`write_whole`, with a fraction of the work. Group and access list are those it has.

    Salt 3006 and 3007 write keys in place, in rare cases to a file that is there. So *source* is to
    be removed next, and then :func:`is_spoilt` asked.

    :param source: to be removed, and not written by anybody for a while; else nothing is done.
    :return: what is known of the file, and whether it took the place of another; None when *target*
        is to be written, also where there are no such names.
    """
    try:
        descriptor = reading.open_file(source)
    except OSError:
        return None
    try:
        before = os.fstat(descriptor)
        raw = text.encode()
        alone = stat.S_ISREG(before.st_mode) and before.st_nlink == 1
        # One from the future, by whosever clock, has no age: it is written anew.
        settled = time.time() - before.st_mtime > SETTLED
        if not (alone and settled) or os.read(descriptor, len(raw) + 1) != raw:
            return None
        if stat.S_IMODE(before.st_mode) != mode:
            os.fchmod(descriptor, mode)
        if uid not in (-1, before.st_uid):
            os.fchown(descriptor, uid, -1)
        os.fsync(descriptor)
        linked = _linked(before)._replace(mode=stat.S_IFREG | mode)
        os.link(source, temporary)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    try:
        # It may have been written to, or another key may have come there, since it was read.
        if _linked(os.lstat(temporary)) != linked:
            os.unlink(temporary)
            return None
        return linked, _rename(temporary, target)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        return None


def is_spoilt(target: str, linked: Linked) -> bool:
    """Whether somebody wrote to the file of *target* by its other name, which is gone now."""
    try:
        now = _linked(os.lstat(target))
    except FileNotFoundError:
        return False
    return now.inode == linked.inode and now != linked


def _linked(info: os.stat_result) -> Linked:
    return Linked(info.st_ino, info.st_mtime_ns, info.st_size, info.st_mode)


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
