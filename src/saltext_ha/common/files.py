"""Writes files that are there whole or not at all, also after a power loss."""

from __future__ import annotations

import ctypes
import errno
import glob
import os
import stat
import tempfile
from pathlib import Path
from typing import BinaryIO

from saltext_ha.common.errors import TrustError
from saltext_ha.common.fail_points import point


def is_configured(conf_file: str, included: str) -> bool:
    """
    Whether a daemon of Salt has a configuration: it needs no *conf_file* (pip brings none) where
    there are files that match *included*, such as ``master.d/*.conf``.
    """
    beside = os.path.join(os.path.dirname(conf_file), included)  # noqa: PTH118, PTH120
    return bool(conf_file) and (Path(conf_file).is_file() or bool(glob.glob(beside)))  # noqa: PTH207


def private_dir(path: Path) -> Path:
    """
    Create *path* (and its parents) when missing, and close it to everyone but its owner.

    :raises TrustError: it is a link. A user who may write in the folder above could otherwise have
        root, who runs salt-run, close any other folder, and put secrets into it.
    """
    refuse_link(path)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(fd).st_mode & 0o077:
            os.fchmod(fd, 0o700)
    finally:
        os.close(fd)
    return path


def refuse_link(path: Path) -> None:
    """:raises TrustError: *path* is a link, whatever it leads to."""
    if path.is_symlink():
        raise TrustError(
            f"{path}: is a link, and nothing in the state folder may be one; put there what it "
            "leads to, or name another folder in ha: state_dir"
        )


def open_itself(path: Path) -> BinaryIO:
    """Open a file that others may replace, to read it: follows no link, waits for no pipe."""
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")


def read_plain(path: Path) -> bytes:
    """
    The content of *path*, which must be a file itself.

    :raises OSError: it cannot be read, or is a link, a pipe or a device.
    """
    with open_itself(path) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a plain file", str(path))
        return file.read()


def write_whole(
    path: Path, data: bytes, mode: int = 0o600, owner: tuple[int, int] | None = None
) -> None:
    """
    Put *data* at *path*, replacing what is there; a crash leaves the old or the new file.

    :param owner: user and group of the file, if not this process's.
    """
    temporary = _write_temporary(path, data, mode, owner)
    try:
        point("file.rename")
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    point("file.sync")
    sync_dir(path.parent)


def create_whole(path: Path, data: bytes, mode: int = 0o600) -> bool:
    """
    Put *data* at *path* unless something is there; of many concurrent calls, exactly one succeeds.

    :return: whether it was this call that created the file.
    """
    temporary = _write_temporary(path, data, mode)
    try:
        point("file.rename")
        # Unlike rename, link fails when the name is taken.
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    point("file.sync")
    sync_dir(path.parent)
    return True


def as_text(path: str) -> str:
    """*path* as text that can be sent and shown: the name of a file may be any bytes."""
    return path.encode(errors="surrogateescape").decode(errors="backslashreplace")


def sync_dir(path: Path | str) -> None:
    """Make creations, renames and removals inside *path* survive a power loss."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_file_system(path: Path) -> None:
    """
    Make all that was written to the file system of *path* survive a power loss. If the C library
    has syncfs(2), this does not wait for other file systems, which may be unresponsive.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(path, os.O_RDONLY)
    try:
        if libc.syncfs(fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(path))
    except AttributeError:
        os.sync()
    finally:
        os.close(fd)


def _write_temporary(
    path: Path, data: bytes, mode: int, owner: tuple[int, int] | None = None
) -> Path:
    # The leading dot: after a crash, nothing reads the temporary file as one of the folder's files.
    # mkstemp creates it 0600, so a secret is never readable in between.
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            if owner is not None:
                os.fchown(file.fileno(), *owner)
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
    except BaseException as exc:
        Path(name).unlink(missing_ok=True)
        if isinstance(exc, OSError):
            exc.filename = str(path)  # a full disk names no file
        raise
    return Path(name)
