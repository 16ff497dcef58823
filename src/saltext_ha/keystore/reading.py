"""Reads key files: safe against links and pipes, and without changing their access times."""

from __future__ import annotations

import os
import stat

from saltext_ha.common.errors import InvalidRecord
from saltext_ha.keystore import minion_key

# A link or a pipe may have replaced the file that was seen.
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
# To note the access time of 100 000 files takes longer than to read them, and then each takes as
# long to become durable as a new file.
NO_TRACE = getattr(os, "O_NOATIME", 0)


def open_file(path: str) -> int:
    """Open the file *path*; refuse a link (``ELOOP``), and do not wait for a pipe."""
    try:
        return os.open(path, READ | NO_TRACE)
    except PermissionError:  # another user's file
        return os.open(path, READ)


def read_key(path: str) -> str | None:
    """The key in normal form; None if the file is empty, half written, no key or no plain file."""
    descriptor = open_file(path)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
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
