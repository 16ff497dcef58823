"""Files that are either there whole or not at all, also after a power loss."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def private_dir(path: Path) -> Path:
    """Create *path* (and its parents) when missing, and close it to everyone but its owner."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_mode & 0o077:
        path.chmod(0o700)
    return path


def write_whole(
    path: Path, data: bytes, mode: int = 0o600, owner: tuple[int, int] | None = None
) -> None:
    """
    Put *data* at *path*, replacing what is there; a crash leaves the old or the new file.

    :param owner: user and group that it is to belong to, when not to this process's.
    """
    temporary = _write_temporary(path, data, mode, owner)
    try:
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_dir(path.parent)


def create_whole(path: Path, data: bytes, mode: int = 0o600) -> bool:
    """
    Put *data* at *path* unless something is there; of many who race, exactly one succeeds.

    :return: whether it was this call that created the file.
    """
    temporary = _write_temporary(path, data, mode)
    try:
        # Unlike rename, link fails when the name is taken.
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    sync_dir(path.parent)
    return True


def sync_dir(path: Path) -> None:
    """Make creations, renames and removals inside *path* survive a power loss."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write_temporary(
    path: Path, data: bytes, mode: int, owner: tuple[int, int] | None = None
) -> Path:
    # The leading dot keeps a temporary left by a crash from being read as one of the folder's
    # files; mkstemp creates it 0600, so a secret is never readable in between.
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            if owner is not None:
                os.fchown(file.fileno(), *owner)
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return Path(name)
