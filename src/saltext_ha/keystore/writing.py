"""
Writes key files: each is whole and durable before it gets its name, and many are written at once.

A disk takes a millisecond to make a file durable, and hardly longer for several if their writers
wait at the same time: the file system commits its journal once for all. Only these waits use
several threads. One thread does the rest: calls as short as those to a local disk take several
times as long if threads contend for the interpreter.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from saltext_ha.common.batches import batches
from saltext_ha.common.fail_points import point
from saltext_ha.keystore import reading

AT_ONCE = 96
"""
How many files become durable side by side. As many more are open meanwhile.
"""
WAITERS = 8
# For fewer files, threads take longer to start than they save.
FEW = 16
SETTLED = 2.0  # seconds after its last change for which a key file may still be half written
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL
LEFTOVER = re.compile(r"\.[0-9]+(\.[0-9]+)?\.ha")


class Linked(NamedTuple):
    """The state, when it was read, of a file that gets a second name."""

    inode: int
    written: int
    size: int
    mode: int


@dataclass
class Draft:
    """A file that :func:`name` will give its name; always call :func:`discard` afterwards."""

    descriptor: int
    temporary: str
    source: str = ""
    """The other name, if the draft is a link to an existing file."""
    linked: Linked | None = None
    """The state of that file when it was read."""
    gone: bool = False
    """Whether the name :attr:`temporary` is gone."""


def temporary(folder: str, writer: int, number: int) -> str:
    """The *number*-th name under which *writer* writes in *folder*; Salt skips dot files."""
    return f"{folder}/.{writer}.{number}.ha"


def sweep(folders: Iterable[str]) -> None:
    """
    Remove files in *folders* that killed processes left half written.

    If another master is writing in the same folder at this moment, it finds its file gone, and
    writes it again.
    """
    for folder in folders:
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):
                if LEFTOVER.fullmatch(name):
                    os.unlink(f"{folder}/{name}")


def draft(temporary: str, text: str, *, mode: int, uid: int) -> Draft:
    """
    Draft a new file that holds *text*.

    :param uid: the owner; -1, or if this process may not change it: the user of this process.
    """
    point("store.write")
    raw = text.encode()
    try:
        descriptor = os.open(temporary, NEW_FILE, mode)
    except FileExistsError:
        # A crash left it, or another user put it there: never write through a link.
        os.unlink(temporary)
        descriptor = os.open(temporary, NEW_FILE, mode)
    made = Draft(descriptor, temporary)
    try:
        _write_all(descriptor, raw)
        os.fchmod(descriptor, mode)
        if uid not in (-1, os.geteuid()):
            with contextlib.suppress(PermissionError):
                os.fchown(descriptor, uid, -1)
    except OSError:
        discard(made)
        raise
    return made


def draft_link(source: str, temporary: str, text: str, *, mode: int, uid: int) -> Draft | None:
    """
    Draft a second name for the file *source*, if the result is the same as from :func:`draft`, for
    a fraction of the work. Group and access list stay as they are.

    Salt 3006 and 3007 write keys in place, in rare cases into an existing file. So remove *source*
    once the draft has its name, then ask :func:`is_spoilt`.

    :param source: a file that was written lately is not linked.
    :return: None if a new file must be written.
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
        # A time in the future gives no age: write a new file.
        settled = time.time() - before.st_mtime > SETTLED
        if alone and settled and os.read(descriptor, len(raw) + 1) == raw:
            if stat.S_IMODE(before.st_mode) != mode:
                os.fchmod(descriptor, mode)
            if uid not in (-1, before.st_uid):
                os.fchown(descriptor, uid, -1)
            linked = _linked(before)._replace(mode=stat.S_IFREG | mode)
            made.linked = linked
            return made
    except OSError:
        pass  # writing a new file fails in the same way, and shows why
    discard(made)
    return None


def waiters(number: int) -> contextlib.AbstractContextManager[Executor | None]:
    """Threads that wait for *number* files to become durable; None if they are too few for that."""
    if number < FEW:
        return contextlib.nullcontext()
    return ThreadPoolExecutor(WAITERS, thread_name_prefix="ha-writer")


def make_durable(drafts: Sequence[Draft], waiters: Executor | None) -> Iterator[OSError | None]:
    """
    Make the content of *drafts* durable; yield for each, once that has ended, why it failed, or
    None. With *waiters* all begin at once; without, each begins when the caller asks for it.
    """
    if waiters is None:
        return map(_sync, drafts)
    # One share per thread: handing over a file costs about as much as waiting for it.
    shares = batches(drafts, -(-len(drafts) // WAITERS) or 1)
    return chain.from_iterable(waiters.map(_sync_all, shares))


def _sync_all(drafts: Iterable[Draft]) -> list[OSError | None]:
    return [_sync(draft) for draft in drafts]


def _sync(draft: Draft) -> OSError | None:
    try:
        os.fsync(draft.descriptor)
    except OSError as exc:
        return exc
    return None


def name(draft: Draft, target: str, replaces: bool) -> bool | None:
    """
    Give the durable *draft* the name *target*; the folder must still be made durable.

    :param replaces: whether a file is expected at *target*.
    :return: whether there was one. None if a new file must be written: the linked file has changed,
        or cannot have two names, or *target* is taken, or the draft was removed.
    """
    point("store.rename")
    if draft.linked:
        try:
            # The file may have been written to, moved, or replaced by another since it was read.
            if not is_still(draft.source, draft.linked):
                return None
            _link(draft.descriptor, draft.temporary if replaces else target)
        except OSError:
            return None
        if not replaces:  # then a rename would only cost time
            draft.gone = True
            return False
    # Look as late as possible: a *target* removed later is the new file, and its loss is noticed.
    replaced = replaces and os.path.lexists(target)
    try:
        os.rename(draft.temporary, target)
    except FileNotFoundError:
        return None
    # If *target* was the same file already, rename keeps both names.
    draft.gone = not draft.linked
    return replaced


def _link(descriptor: int, path: str) -> None:
    """
    Give an open file the name *path*, which nothing may have. The file's other name may lead to
    another file by now.

    :raises OSError: it cannot have it; everywhere but on Linux.
    """
    # Only with a descriptor, which it ignores here, does os.link follow the link in /proc.
    os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor)


def discard(draft: Draft) -> None:
    """Close *draft*, and remove it if it did not get its name."""
    with contextlib.suppress(OSError):
        os.close(draft.descriptor)
    if not draft.gone:
        with contextlib.suppress(OSError):
            os.unlink(draft.temporary)


def is_still(path: str, linked: Linked) -> bool:
    """Whether *path* still is the file that got a second name, unchanged."""
    return _linked(os.lstat(path)) == linked


def is_spoilt(target: str, linked: Linked) -> bool:
    """Whether the file *target* was written to under its other name, which is gone now."""
    try:
        now = _linked(os.lstat(target))
    except FileNotFoundError:
        return False
    return now.inode == linked.inode and now != linked


def _linked(info: os.stat_result) -> Linked:
    return Linked(info.st_ino, info.st_mtime_ns, info.st_size, info.st_mode)


def _write_all(descriptor: int, data: bytes) -> None:
    # On a nearly full disk the first write is short, and only the next one fails.
    while data:
        data = data[os.write(descriptor, data) :]
