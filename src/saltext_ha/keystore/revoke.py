"""
Revokes access by Salt's own means.

To remove a key file is not enough: a minion that has authenticated keeps using the master's AES
key. ``salt-key -d`` and ``-r`` also drop a rotate file, so that the master makes a new AES key and
every minion authenticates again, and clean the caches of ids without a key
(``salt.key.Key.delete_key`` and ``reject``; the same calls on 3006, 3007 and 3008).

To clean the caches, Salt reads every key there is: a second for every 14 000 on 3008.3. So Salt is
asked only if we do not know which ids lost their key. Otherwise we flush the caches of those ids
directly, the same caches that Salt would flush.
"""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import salt.cache
import salt.crypt
import salt.key
import salt.version

from saltext_ha.common.errors import StoreError, UncleanCaches
from saltext_ha.common.fail_points import point

MINIONS = "minions"
"""
3006 and 3007 have a bank for each minion, and a folder of the same name. 3008 does not delete that
folder: files that minions sent by ``cp.push`` stay.
"""
GRAINS, PILLAR = "grains", "pillar"
"""3008 has an entry for each minion; for pillar one more per environment, ``id:env``."""


def revoke(opts: Mapping[str, Any], gone: Iterable[str] | None, rotate: bool = True) -> None:
    """
    Rotate the AES key and clean minion caches, as the master's configuration says.

    ``rotate_aes_key: False`` and ``preserve_minion_cache: True`` are respected. One call per batch
    is enough.

    :param gone: the ids that have no key any more; iterated only after the rotation. None if they
        are not known.
    :param rotate: False if no accepted key was revoked: there is no access to take away.
    :raises UncleanCaches: the AES key is rotated; only the cleaning is to be tried again.
    :raises StoreError: the rotation failed; all is to be tried again.
    """
    options = dict(opts)
    try:
        # The access is urgent; the caches can wait.
        point("revoke.rotate")
        if rotate and options.get("rotate_aes_key"):
            _rotate(options)
    except Exception as exc:
        raise StoreError(
            "keys are revoked, but the AES key could not be rotated, and a revoked minion may "
            f"still hear jobs; tried again: {exc!r}"
        ) from exc
    try:  # cache drivers raise exceptions of any kind
        point("revoke.clean")
        if not options.get("preserve_minion_cache"):
            if gone is None:
                _clean_all(options)
            elif ids := set(gone):
                _clean(options, ids)
    except Exception as exc:
        raise UncleanCaches(
            "keys are revoked, but the caches of their minions could not be cleaned; tried again: "
            f"{exc!r}"
        ) from exc


def _rotate(options: Mapping[str, Any]) -> None:
    arguments = [options["cachedir"], options.get("user")]
    # 3007 and 3008 write the master's id into the file.
    if "master_id" in inspect.signature(salt.crypt.dropfile).parameters:
        arguments.append(options["id"])
    salt.crypt.dropfile(*arguments)


def _clean_all(options: dict[str, Any]) -> None:
    key = salt.key.get_key(options)
    try:
        key.check_minion_cache()
    finally:
        key.event.destroy()


def _clean(options: Mapping[str, Any], gone: Collection[str]) -> None:
    """Flush what ``check_minion_cache`` would flush if only *gone* had no key."""
    cache = salt.cache.factory(options)
    if salt.version.__saltstack_version__.major >= 3008:
        for minion_id in gone:
            if cache.contains(GRAINS, minion_id):
                cache.flush(GRAINS, minion_id)
        for entry in cache.list(PILLAR):
            if entry in gone or entry.rpartition(":")[0] in gone:  # an id may be a MAC address
                cache.flush(PILLAR, entry)
        return
    for minion_id in gone:
        shutil.rmtree(Path(options["cachedir"], MINIONS, minion_id), ignore_errors=True)
        bank = f"{MINIONS}/{minion_id}"
        if cache.list(bank):
            cache.flush(bank)
