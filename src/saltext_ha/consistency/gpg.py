"""Which secret keys the renderer ``gpg`` has for decrypting pillar."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

OPTION = "gpg_keydir"
HELD = "secret key"
_FILE = re.compile(r"([0-9A-F]{40})\.key")


def keys(opts: Mapping[str, Any]) -> dict[str, str]:
    """
    ``gpg_keydir:KEYGRIP`` for each secret key of this master, where ``salt/renderers/gpg.py`` (3006
    to 3008) has gpg look for it. A keygrip is a hash of the public key; GnuPG 2.1 and later names
    the file of the secret key by it. gpg itself is not run: it would leave an agent behind.

    :raises OSError: the folder, or a key in it, cannot be read, such as one that root has imported.
    """
    folder = opts.get(OPTION) or Path(str(opts.get("conf_file") or "")).parent / "gpgkeys"
    try:
        files = list((Path(folder) / "private-keys-v1.d").iterdir())
    except FileNotFoundError:
        return {}
    grips: dict[str, str] = {}
    for file in files:
        if found := _FILE.fullmatch(file.name):
            if not os.access(file, os.R_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))
            grips[f"{OPTION}:{found[1]}"] = HELD
    return grips
