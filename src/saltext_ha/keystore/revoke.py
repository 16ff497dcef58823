"""
Revoking by Salt's own means.

Removing a key file does not revoke: a minion that has authenticated goes on with the master's AES
key. What ``salt-key -d`` and ``-r`` do besides is to drop a rotate file, on which the master makes
a new AES key and every minion authenticates anew, and to clean the caches of ids without a key
(``salt.key.Key.delete_key`` and ``reject``; the same calls on 3006, 3007 and 3008).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import salt.crypt
import salt.key

from saltext_ha.errors import StoreError
from saltext_ha.faults import point


def revoke(opts: Mapping[str, Any]) -> None:
    """
    Rotate the AES key and clean minion caches, as the master's configuration says.

    ``rotate_aes_key: False`` and ``preserve_minion_cache: True`` are respected. Once a batch is
    enough, however many keys went.

    :raises StoreError: when either did not work; to be tried again.
    """
    options = dict(opts)
    try:
        # First what takes the access away; the caches can wait.
        point("revoke.rotate")
        if options.get("rotate_aes_key"):
            arguments = [options["cachedir"], options.get("user")]
            # 3008 writes the master's id into the file.
            if "master_id" in inspect.signature(salt.crypt.dropfile).parameters:
                arguments.append(options["id"])
            salt.crypt.dropfile(*arguments)
        point("revoke.clean")
        key = salt.key.get_key(options)
        try:
            key.check_minion_cache()
        finally:
            key.event.destroy()
    except Exception as exc:
        # Cache drivers raise what they like.
        raise StoreError(f"revoking did not work, and is tried again: {exc!r}") from exc
