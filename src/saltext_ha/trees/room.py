"""Makes room on a disk for a version that is put together there."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from saltext_ha.trees.pristine import Pristine
from saltext_ha.trees.staging import Staging


def make_room(
    folder: Path, staging: Staging, removable: Iterable[Callable[[], None]], copies: Pristine
) -> None:
    """
    Have room in *folder* for what *staging* is missing: remove what is removable, then copies that
    it does not need, until it fits.

    :param removable: each removes something; no more of them are taken than needed.
    :raises OSError: ENOSPC, before the disk is filled by a part of the version.
    """
    needed = staging.needed()
    if needed > _free(folder):
        for remove in removable:
            remove()
            if needed <= _free(folder):
                break
    if needed > _free(folder):
        _drop_copies(folder, needed, copies, staging.missing.keys())
    if needed > (free := _free(folder)):
        words = f"new files need {_megabytes(needed)}, and {_megabytes(free)} are free"
        raise OSError(errno.ENOSPC, words, str(folder.parent))


def _drop_copies(folder: Path, needed: int, copies: Pristine, missing: Collection[bytes]) -> None:
    """Drop the largest copies until *needed* bytes are free, if they can be."""
    sizes = copies.sizes()
    # A copy of what is missing may be the last: it is not dropped.
    droppable = sorted(sizes.keys() - missing, key=sizes.__getitem__)
    if needed > _free(folder) + sum(map(sizes.__getitem__, droppable)):
        return
    while droppable and needed > _free(folder):  # clones free nothing
        copies.forget(droppable.pop())


def _free(folder: Path) -> int:
    there = os.statvfs(folder)
    return there.f_bavail * there.f_frsize


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
