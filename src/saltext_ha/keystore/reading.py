"""How key files are read: whatever lies there, and without a trace."""

from __future__ import annotations

import os

from saltext_ha.common.errors import InvalidRecord
from saltext_ha.keystore import minion_key

# A link or a pipe may have taken the place of the file that was seen there.
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
# To have it noted when each of 100 000 files was read takes longer than to read them, and a file
# of which that is noted takes as long to be made durable as a new one.
NO_TRACE = getattr(os, "O_NOATIME", 0)


def open_file(path: str) -> int:
    """The file *path*, open; a link is refused (``ELOOP``), a pipe is not waited for."""
    try:
        return os.open(path, READ | NO_TRACE)
    except PermissionError:  # it is somebody else's
        return os.open(path, READ)


def read_key(path: str) -> str | None:
    """The key in normal form; None when the file is empty, half written or no key."""
    descriptor = open_file(path)
    try:
        raw = os.read(descriptor, minion_key.MAX_LENGTH + 1)
    finally:
        os.close(descriptor)
    try:
        text = minion_key.normalise(raw.decode())
        minion_key.check_shape(text)
    except (UnicodeDecodeError, InvalidRecord):
        return None
    return text


def holds_key(path: str) -> bool:
    """Whether the file *path* is a public key as Salt uses them."""
    try:
        minion_key.check(read_key(path) or "")
    except InvalidRecord:
        return False
    return True
