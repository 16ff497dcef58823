"""The only code that knows how Salt stores minion keys, and how Salt revokes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from saltext_ha.common import cluster
from saltext_ha.keystore.base import KeyStore
from saltext_ha.keystore.cache import CacheStore
from saltext_ha.keystore.files import FileStore

FILE_DRIVER = "localfs_key"


def open_store(opts: Mapping[str, Any]) -> KeyStore:
    """
    The key store of the master that *opts* configure.

    Files on 3006 and 3007, and with 3008's default driver; with any other ``keys.cache_driver`` of
    3008, through ``salt.cache``.
    """
    driver = opts.get("keys.cache_driver", FILE_DRIVER)
    if driver != FILE_DRIVER:
        return CacheStore(opts, driver)
    member = cluster.of(opts)
    # 3008 (which introduced the driver option) reads a pending file before an accepted one.
    pending_first = "keys.cache_driver" in opts
    return FileStore(
        member.key_dir if member else Path(opts["pki_dir"]),
        user=opts.get("user"),
        group_readable=bool(opts.get("permissive_pki_access")),
        pending_first=pending_first,
    )
