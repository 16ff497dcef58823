"""
Where Salt keeps keys: ``keys.cache_driver`` came with 3008.

3006 and 3007 ignore it and keep files, also where masters of several releases share a
configuration file that sets it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import salt.config

OPTION = "keys.cache_driver"
FILES = "localfs_key"
"""The driver that keeps keys in the files of 3006 and 3007; the default."""
# The settings that this release of Salt knows.
KNOWN: Container[str] = salt.config.DEFAULT_MASTER_OPTS


def of(opts: Mapping[str, Any], known: Container[str] = KNOWN) -> str:
    """
    The driver that a master with *opts* keeps its keys with; empty: this release has no drivers.

    :param known: the settings that this release of Salt knows.
    """
    if OPTION not in known or OPTION not in opts:
        return ""
    return str(opts[OPTION] or opts.get("cache") or "localfs")  # as salt.cache chooses
