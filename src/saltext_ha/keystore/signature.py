"""
Signatures in a folder: how a master tells its key store from another one in the same place.

A signature is a symbolic link that leads nowhere; its target is the token. No release of Salt takes
that for a key (all ask whether it is a file), and tools that copy folders copy it as it is.
"""

from __future__ import annotations

import os

PREFIX = ".ha-"


def read(folder: str, owner: str) -> str | None:
    """
    The token that *owner* left in *folder*; None when there is none, or no such folder.

    :raises OSError: the folder cannot be read.
    """
    try:
        return os.readlink(f"{folder}/{PREFIX}{owner}")
    except FileNotFoundError:
        return None
    except OSError:
        if os.path.lexists(f"{folder}/{PREFIX}{owner}"):
            return ""  # something else stands there
        raise


def write(folder: str, owner: str, token: str | None) -> None:
    """
    Replace what *owner* left in *folder* by *token*; None takes it out. The folder is there.

    :raises OSError: the folder cannot be written.
    """
    path = f"{folder}/{PREFIX}{owner}"
    if token is None:
        if os.path.lexists(path):
            os.unlink(path)
        return
    # Salt's own temporary names do not begin with a dot; what a crash leaves is replaced here.
    temporary = f"{path}.new"
    if os.path.lexists(temporary):
        os.unlink(temporary)
    os.symlink(token, temporary)
    os.rename(temporary, path)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
