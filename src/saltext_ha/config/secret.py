"""
The secret by which masters of one group know each other before they have met.

From a file (``ha: secret_file``) or the environment (``SALT_HA_SECRET``). It is read where the
configuration is read, and never shown: not in an error, not in a ``repr``, not in a log.
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

    :raises ValueError: it cannot be used; says why and what to do, and nothing of the secret.
    """
    if path is not None:
        return _usable(content(path))
    value = environ.get(VARIABLE)
    return None if value is None else _usable(value.encode(errors="surrogateescape"))


def content(path: Path, if_seen: str = _MAKE_ONE) -> bytes:
    """
    What the file *path* holds, which must not be open to others.

    :param if_seen: what to do where others could read it.
    :raises ValueError: it cannot be read, or others may; says what to do.
    """
    try:
        with path.open("rb") as file:
            # Of the file that was opened: the name may stand for another one by now.
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(LONGEST + 1)
    except OSError as exc:
        raise ValueError(
            f"cannot be read ({reason_of(exc)}); it must be there, and readable for the user "
            "that salt-master runs as"
        ) from None
    # Its group may read it (Kubernetes hands secrets out that way), nobody else anything.
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise ValueError(
            f"is open to others (mode {stat.S_IMODE(mode):04o}); chmod 600 {path}, and if others "
            f"could read it, {if_seen}"
        )
    return content


def keep_from_core_dumps() -> None:
    """
    Have the kernel write no core of this process, which knows secrets.

    A program that takes cores (``kernel.core_pattern`` with a pipe: systemd-coredump, apport) is
    given them whatever the limit is, 0 included: but for 1, which no core fits into either.
    """
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    with contextlib.suppress(ValueError, OSError):  # where that may not be set
        resource.setrlimit(resource.RLIMIT_CORE, (0 if hard == 0 else 1, hard))


def _usable(content: bytes) -> bytes:
    stripped = content.strip()
    if len(stripped) < SHORTEST:
        raise ValueError(f"has fewer than {SHORTEST} characters; {_MAKE_ONE}")
    if len(stripped) > LONGEST:
        raise ValueError(f"has more than {LONGEST} characters; {_MAKE_ONE}")
    return stripped
