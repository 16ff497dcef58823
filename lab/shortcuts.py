"""
What Salt does over and over, always with the same result, and forked processes of the lab do not.

It takes nearly half of the processor time in which a master and a minion start. Each shortcut
leaves Salt's answer as it is. Processes that the lab starts as programs of their own take none.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
from collections.abc import Hashable
from importlib import metadata
from typing import Any

import salt.config
import salt.crypt
import salt.loader
from salt.loader.lazy import LazyLoader


def take() -> None:
    """Take all shortcuts, in this process and those that it forks."""
    remember_entry_points()
    remember_folders()
    count_no_options()
    believe_keys()


def remember_entry_points() -> None:
    """Salt asks for entry points in each process, which reads the metadata of all packages."""
    metadata.entry_points = functools.cache(metadata.entry_points)  # type: ignore[assignment]


def remember_folders() -> None:
    """
    Look into the folders of Salt's modules, and ours, now.

    Salt looks at each of a thousand files whenever it makes a loader, twice, and a master makes
    dozens of loaders before it serves. A loader that has another folder with files in it, as those
    that were synced to a minion, still looks.
    """
    look = LazyLoader._refresh_file_mapping
    seen: dict[Hashable, tuple[dict[str, Any], list[str], dict[str, Any]]] = {}

    @functools.wraps(look)
    def refresh(loader: Any) -> None:
        asked = _question(loader)
        if asked not in seen:
            look(loader)
            return
        suffix_map, suffix_order, file_mapping = seen[asked]
        loader.suffix_map, loader.suffix_order = dict(suffix_map), list(suffix_order)
        loader.file_mapping = dict(file_mapping)

    for opts in (salt.config.apply_master_config({}), salt.config.apply_minion_config({})):
        for loader in _usual(opts):
            seen[_question(loader)] = loader.suffix_map, loader.suffix_order, loader.file_mapping
    LazyLoader._refresh_file_mapping = refresh


def count_no_options() -> None:
    """To see whether there are any options at all, Salt 3008 counts them, for each loader."""

    def any_there(options: Any) -> bool:
        with options._ensure_lock():
            return any(key in options for key in options._get_all_keys())

    with contextlib.suppress(ImportError):
        importlib.import_module("salt.utils.optsdict").OptsDict.__bool__ = any_there


def believe_keys() -> None:
    """
    Have Salt load private keys without a test of their primes, which takes a twentieth of a second
    in each process of a master that has the key. The lab has just made these keys.
    """
    library = getattr(salt.crypt, "serialization", None)
    if library is not None:  # older releases use another one
        salt.crypt.serialization = Believing(library)


class Believing:
    """``serialization`` of cryptography, for keys that need no test."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def load_pem_private_key(self, *args: Any, **kwargs: Any) -> Any:
        """A private key as it stands in *args*."""
        load = self._library.load_pem_private_key
        return load(*args, unsafe_skip_rsa_key_validation=True, **kwargs)


def _usual(opts: dict[str, Any]) -> list[Any]:
    """Loaders that most processes make."""
    utils = salt.loader.utils(opts)
    modules = salt.loader.minion_mods(opts, utils=utils)
    return [
        utils,
        modules,
        salt.loader.states(opts, modules, utils, {}),
        salt.loader.runner(opts, utils=utils),
        salt.loader.returners(opts, modules),
        salt.loader.cache(opts),
        salt.loader.matchers(opts),
        salt.loader.serializers(opts),
    ]


def _question(loader: Any) -> Hashable:
    """All that the answer depends on."""
    options = ("cython_enable", "enable_zip_modules", "optimization_order")
    return (
        tuple(folder for folder in map(str, loader.module_dirs) if _has_files(folder)),
        tuple(sorted(loader.disabled)),
        tuple(loader.static_modules),
        *(repr(loader.opts.get(option)) for option in options),
    )


def _has_files(folder: str) -> bool:
    try:
        with os.scandir(folder) as found:
            return next(found, None) is not None
    except OSError:
        return False
