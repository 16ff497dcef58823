"""
What a minion keeps in the folder ``ha`` of its cache folder, where that may be open to others.

Who can make that folder first could have root append to any file through a link in it, wait for
a pipe, or believe what is told there. So it counts only when it is the minion's own; and what was
looked at is what is used: its name may stand for another folder a moment later.

All of it is its owner's alone (0700 and 0600), whatever the umask, and it belongs to whom the cache
folder does: root may run ``salt-call`` on a minion of another user.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

FOLDER = "ha"


def problem(cachedir: str | Path) -> str | None:
    """Why that folder does not count, and what helps; None where it does, or is not there yet."""
    try:
        with _own(Path(cachedir) / FOLDER):
            return None
    except FileNotFoundError:
        return None
    except OSError as exc:
        return f"{exc.filename}: {exc.strerror}"


def read(path: Path) -> str:
    """
    The text of *path*, a file in that folder.

    :raises OSError: it cannot be read, is no plain file, or is in a folder that does not count.
    """
    with _own(path.parent) as folder:
        descriptor = _open(path.name, os.O_RDONLY | os.O_NONBLOCK, folder)
    with os.fdopen(descriptor, "rb") as file:
        return file.read().decode("utf-8", "replace")


def append(path: Path, line: str) -> None:
    """
    Add *line* to *path*, a file in that folder, by one write: two writers do not mix their lines.

    :raises OSError: it cannot be written, is no plain file, or is in a folder that does not count.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
    with _own(path.parent, make=True) as folder:
        descriptor = _open(path.name, flags, folder)
    with os.fdopen(descriptor, "ab", buffering=0) as file:
        file.write(line.encode())


def replace(path: Path, text: str) -> None:
    """
    Put *text* at *path*, a file in that folder, whole or not at all; it is on disk then.

    :raises OSError: it cannot be written, or is in a folder that does not count.
    """
    new = f".{path.name}.{secrets.token_hex(8)}"
    with _own(path.parent, make=True) as folder:
        descriptor = _open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(new, dir_fd=folder)
            raise
        os.fsync(folder)


@contextlib.contextmanager
def _own(folder: Path, make: bool = False) -> Iterator[int]:
    """
    *folder*, which lies in the minion's cache folder, open.

    :param make: create it when it is missing.
    :raises OSError: it is not there, is a link, belongs to another user than the cache folder, or
        others may write in it.
    """
    if make:
        folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    owner = folder.parent.stat().st_uid
    try:
        if make:
            _make(folder, owner)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as exc:
        if exc.errno in (errno.ENOTDIR, errno.ELOOP):
            raise _refused(folder) from None
        raise
    try:
        found = os.fstat(descriptor)
        if found.st_uid not in (os.geteuid(), owner) or found.st_mode & 0o022:
            raise _refused(folder)
        yield descriptor
    finally:
        os.close(descriptor)


def _make(folder: Path, owner: int) -> None:
    """Make it when it is missing: under a name that nobody can guess, until it is *owner*'s."""
    if os.path.lexists(folder):
        return
    new = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}")
    new.mkdir(mode=0o700)
    try:
        if os.geteuid() == 0 != owner:
            _give(new, owner)
        new.rename(folder)
    except OSError as exc:
        with contextlib.suppress(OSError):
            new.rmdir()
        if exc.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise


def _give(folder: Path, owner: int) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(descriptor).st_uid == 0:
            os.fchown(descriptor, owner, -1)
    finally:
        os.close(descriptor)


def _refused(folder: Path) -> PermissionError:
    what = "is a link, another user's, or open to others: remove it"
    return PermissionError(errno.EPERM, what, str(folder))


def _open(name: str, flags: int, folder: int) -> int:
    descriptor = os.open(name, flags | os.O_NOFOLLOW, 0o600, dir_fd=folder)
    found, owner = os.fstat(descriptor), os.fstat(folder).st_uid
    # A second name of a file may be that of one elsewhere, which is not the owner's.
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a plain file", name)
    if found.st_uid == 0 == os.geteuid() != owner and not found.st_size:
        os.fchown(descriptor, owner, -1)
    return descriptor
