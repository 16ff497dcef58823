"""
The secret by which masters of one group recognise each other when they join.

It is in a file (``ha: secret_file``) or in the environment (``SALT_HA_SECRET``), is read with the
configuration, and is never shown: not in an error, not in a ``repr``, not in a log.
"""

from __future__ import annotations

import contextlib
import os
import resource
import stat
from collections.abc import Mapping
from pathlib import Path

from saltext_ha.common.errors import reason_of

VARIABLE = "SALT_HA_SECRET"
SHORTEST = 32
LONGEST = 4096
_MAKE_ONE = "make one with  openssl rand -hex 32"


def read(path: Path | None, environ: Mapping[str, str]) -> bytes | None:
    """
    The secret from the file *path*, or else from the environment; None when neither is set.

    :raises ValueError: it cannot be used; says why and what to do, without the secret.
    """
    if path is not None:
        return _usable(content(path))
    value = environ.get(VARIABLE)
    return None if value is None else _usable(value.encode(errors="surrogateescape"))


def content(path: Path, if_seen: str = _MAKE_ONE) -> bytes:
    """
    The content of the file *path*, which must not be open to others.

    :param if_seen: what to do if others could read it.
    :raises ValueError: it cannot be read, or others may; says what to do.
    """
    try:
        with path.open("rb") as file:
            # Of the open file: its name may mean another file by now.
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(LONGEST + 1)
    except OSError as exc:
        raise ValueError(
            f"cannot be read ({reason_of(exc)}); it must be there, and readable for the user "
            "that salt-master runs as"
        ) from None
    # Its group may read it (as Kubernetes provides secrets), others nothing.
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise ValueError(
            f"is open to others (mode {stat.S_IMODE(mode):04o}); chmod 600 {path}, and if others "
            f"could read it, {if_seen}"
        )
    return content


def keep_from_core_dumps() -> None:
    """
    Keep the kernel from writing a core dump of this process, which knows secrets.

    A program that takes dumps (``kernel.core_pattern`` with a pipe: systemd-coredump, apport) gets
    them under any limit, even 0, except a limit of 1 byte, into which no dump fits.
    """
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    with contextlib.suppress(ValueError, OSError):  # it may not be set here
        resource.setrlimit(resource.RLIMIT_CORE, (0 if hard == 0 else 1, hard))


def _usable(content: bytes) -> bytes:
    stripped = content.strip()
    if len(stripped) < SHORTEST:
        raise ValueError(f"has fewer than {SHORTEST} characters; {_MAKE_ONE}")
    if len(stripped) > LONGEST:
        raise ValueError(f"has more than {LONGEST} characters; {_MAKE_ONE}")
    return stripped


def password(file: Path) -> str:
    """
    The password in the file that ``password_file`` names.

    :raises ValueError: begins with that key; says what is wrong with it.
    """
    try:
        found = content(file).decode().strip()
    except UnicodeDecodeError:
        raise ValueError(f": password_file: {file} is no text") from None
    except ValueError as exc:
        raise ValueError(f": password_file: {file}: {exc}") from None
    if not found:
        raise ValueError(f": password_file: {file} is empty")
    return found
