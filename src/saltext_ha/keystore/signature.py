"""
Signatures in a folder: by them a master notices that another key store is in the place of its own.

A signature is a dangling symbolic link whose target is the token. No release of Salt takes it for a
key (all check for a regular file), and tools that copy folders copy it unchanged.
"""

from __future__ import annotations

import os

from saltext_ha.common.files import sync_dir

PREFIX = ".ha-"


def read(folder: str, owner: str) -> str | None:
    """
    The token that *owner* left in *folder*; None if the token or the folder does not exist.

    :raises OSError: the folder cannot be read.
    """
    try:
        return os.readlink(f"{folder}/{PREFIX}{owner}")
    except FileNotFoundError:
        return None
    except OSError:
        if os.path.lexists(f"{folder}/{PREFIX}{owner}"):
            return ""  # something else is there
        raise


def write(folder: str, owner: str, token: str | None) -> None:
    """
    Replace the token of *owner* in *folder* by *token*; None removes it. The folder must exist.

    :raises OSError: the folder cannot be written.
    """
    path = f"{folder}/{PREFIX}{owner}"
    if token is None:
        if os.path.lexists(path):
            os.unlink(path)
        return
    # Salt's own temporary names do not begin with a dot. A crash may have left this one.
    temporary = f"{path}.new"
    if os.path.lexists(temporary):
        os.unlink(temporary)
    os.symlink(token, temporary)
    os.rename(temporary, path)
    sync_dir(folder)
