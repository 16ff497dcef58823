"""The only code that knows how Salt stores minion keys, and how Salt revokes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from saltext_ha.common import cluster, key_driver
from saltext_ha.keystore.base import KeyStore
from saltext_ha.keystore.cache import CacheStore
from saltext_ha.keystore.files import FileStore


def open_store(opts: Mapping[str, Any]) -> KeyStore:
    """
    The key store of the master that *opts* configure.

    Files on 3006 and 3007, and with 3008's default driver; with any other ``keys.cache_driver`` of
    3008, through ``salt.cache``.
    """
    driver = key_driver.of(opts)
    if driver not in ("", key_driver.FILES):
        return CacheStore(opts, driver)
    member = cluster.of(opts)
    return FileStore(
        member.key_dir if member else Path(opts["pki_dir"]),
        user=opts.get("user"),
        group_readable=bool(opts.get("permissive_pki_access")),
        pending_first=bool(driver),  # as 3008 does
    )
