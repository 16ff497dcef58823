"""
Files of a minion in the folder ``ha`` of its cache folder, which may be open to other users.

A user who creates that folder first could make root append to any file through a link in it, wait
for a pipe, or believe false data. So a folder that is not the minion's own is refused. The checked
descriptor is used, not the name: the name may mean another folder a moment later.

Its modes are 0700 and 0600, with any umask. It belongs to the owner of the cache folder: root may
run ``salt-call`` on a minion of another user.
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
    """Why that folder is refused, and what to do; None if it is not, or does not exist yet."""
    try:
        with _own(Path(cachedir) / FOLDER):
            return None
    except FileNotFoundError:
        return None
    except OSError as exc:
        return f"{exc.filename}: {exc.strerror}"


def read(path: Path) -> str:
    """The text of *path*, in that folder. :raises OSError: it is unreadable, or refused."""
    with _own(path.parent) as folder:
        descriptor = _open(path.name, os.O_RDONLY | os.O_NONBLOCK, folder)
    with os.fdopen(descriptor, "rb") as file:
        return file.read().decode("utf-8", "replace")


def append(path: Path, line: str) -> None:
    """
    Append *line* to *path*, a file in that folder, by one write: two writers do not mix their
    lines.

    :raises OSError: it cannot be written, is no plain file, or is in a folder that is refused.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
    with _own(path.parent, make=True) as folder:
        descriptor = _open(path.name, flags, folder)
    with os.fdopen(descriptor, "ab", buffering=0) as file:
        file.write(line.encode())


def replace(path: Path, text: str) -> None:
    """
    Write *text* to *path*, a file in that folder, completely or not at all; it is durable on
    return.

    :raises OSError: it cannot be written, or is in a folder that is refused.
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
    Open *folder*, which is in the minion's cache folder.

    :param make: create it when it is missing.
    :raises OSError: it does not exist, is a link, belongs to another user, or others may write in
        it.
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
    """Create *folder* if it is missing, under a random name until it belongs to *owner*."""
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
    # A file with a second name may be another user's file elsewhere.
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a plain file", name)
    if found.st_uid == 0 == os.geteuid() != owner and not found.st_size:
        os.fchown(descriptor, owner, -1)
    return descriptor
