"""
How key files are written: each whole and durable before it gets its name, many at once.

A disk takes a millisecond to make a file durable, and hardly longer for several whose writers wait
side by side: their waits become one commit of the file system's journal. So it is only for this
that there are several threads. All else is done by one: calls as short as those to a disk of one's
own take several times as long when threads contend for the interpreter between them.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import NamedTuple

from saltext_ha.common.batches import batches
from saltext_ha.common.fail_points import point
from saltext_ha.keystore import reading

AT_ONCE = 96
"""How many files are open and not durable yet; each takes a descriptor."""
WAITERS = 8
# For fewer files threads are not worth their start.
FEW = 16
SETTLED = 2.0  # seconds after which nobody writes a key file any more
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL
LEFTOVER = re.compile(r"\.[0-9]+(\.[0-9]+)?\.ha")


class Linked(NamedTuple):
    """What is known of a file that gets a second name."""

    inode: int
    written: int
    size: int
    mode: int


class Draft(NamedTuple):
    """A file that :func:`name` will give its name; :func:`discard` is to be called in any case."""

    descriptor: int
    temporary: str
    source: str = ""
    """The name that it has so far, where it is not a new one."""
    linked: Linked | None = None
    """What was known of that one when it was read."""


def temporary(folder: str, writer: int, number: int) -> str:
    """The *number*-th name under which *writer* writes in *folder*; Salt skips dot files."""
    return f"{folder}/.{writer}.{number}.ha"


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


def draft(temporary: str, text: str, *, mode: int, uid: int) -> Draft:
    """
    A new file that holds *text*.

    :param uid: the owner; -1, or one that may not be given, leaves this process's.
    """
    point("store.write")
    raw = text.encode()
    try:
        descriptor = os.open(temporary, NEW_FILE, mode)
    except FileExistsError:
        # What a crash left, or somebody put there: a link would be written through.
        os.unlink(temporary)
        descriptor = os.open(temporary, NEW_FILE, mode)
    made = Draft(descriptor, temporary)
    try:
        _write_all(descriptor, raw)
        os.fchmod(descriptor, mode)
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, uid, -1)
    except OSError:
        discard(made)
        raise
    return made


def draft_link(source: str, temporary: str, text: str, *, mode: int, uid: int) -> Draft | None:
    """
    The file *source*, to get another name, where that comes to the same as :func:`draft`, with a
    fraction of the work. Group and access list are those it has.

    Salt 3006 and 3007 write keys in place, in rare cases to a file that is there. So *source* is to
    be removed once the draft has its name, and then :func:`is_spoilt` asked.

    :param source: not written by anybody for a while; else nothing is done.
    :return: None when it is to be written.
    """
    raw = text.encode()
    try:
        descriptor = reading.open_file(source)
    except OSError:
        return None
    made = Draft(descriptor, temporary, source)
    try:
        before = os.fstat(descriptor)
        alone = stat.S_ISREG(before.st_mode) and before.st_nlink == 1
        # One from the future, by whosever clock, has no age: it is written anew.
        settled = time.time() - before.st_mtime > SETTLED
        if alone and settled and os.read(descriptor, len(raw) + 1) == raw:
            if stat.S_IMODE(before.st_mode) != mode:
                os.fchmod(descriptor, mode)
            if uid not in (-1, before.st_uid):
                os.fchown(descriptor, uid, -1)
            linked = _linked(before)._replace(mode=stat.S_IFREG | mode)
            return made._replace(linked=linked)
    except OSError:
        pass  # that it cannot be done to a new file, either, is to be seen there
    discard(made)
    return None


def waiters(number: int) -> contextlib.AbstractContextManager[Executor | None]:
    """Threads that wait for *number* files; None where these are not worth their start."""
    if number < FEW:
        return contextlib.nullcontext()
    return ThreadPoolExecutor(WAITERS, thread_name_prefix="ha-writer")


def make_durable(drafts: Sequence[Draft], waiters: Executor | None) -> list[OSError | None]:
    """Make what *drafts* hold durable; for each of them why it could not be."""
    if waiters is None:
        return _sync_all(drafts)
    # One share for each thread: to hand over a file costs about as much as to wait for it.
    shares = batches(drafts, -(-len(drafts) // WAITERS) or 1)
    return [flaw for share in waiters.map(_sync_all, shares) for flaw in share]


def _sync_all(drafts: Iterable[Draft]) -> list[OSError | None]:
    return [_sync(draft) for draft in drafts]


def _sync(draft: Draft) -> OSError | None:
    try:
        os.fsync(draft.descriptor)
    except OSError as exc:
        return exc
    return None


def name(draft: Draft, target: str) -> bool | None:
    """
    Have *target* be what *draft* holds, which is durable; the folder is still to be made so.

    :return: whether it took the place of another file; None when it is to be written anew: the file
        that was to get this name, too, is another one by now, or cannot have two, or somebody
        removed the draft.
    """
    if draft.linked:
        try:
            os.link(draft.source, draft.temporary)
            # It may have been written to, or another key may have come there, since it was read.
            if not is_still(draft.temporary, draft.linked):
                return None
        except OSError:
            return None
    point("store.rename")
    # As late as can be: who removes *target* later removes the new one, and that is seen.
    replaced = os.path.lexists(target)
    try:
        os.rename(draft.temporary, target)
    except FileNotFoundError:
        return None
    return replaced


def discard(draft: Draft) -> None:
    """Close *draft*, and leave no trace of what did not get its name."""
    with contextlib.suppress(OSError):
        os.close(draft.descriptor)
    with contextlib.suppress(OSError):
        os.unlink(draft.temporary)


def is_still(path: str, linked: Linked) -> bool:
    """Whether *path* is the file that got a second name, and nobody wrote to it."""
    return _linked(os.lstat(path)) == linked


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
