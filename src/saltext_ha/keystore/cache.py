"""
Minion keys behind a ``keys.cache_driver`` of Salt 3008 that keeps no key files.

The banks are ``keys`` ({"state", "pub"} an id) and ``denied_keys`` (a list an id), as in
``salt.key.Key``. An id has one entry: one call replaces the old state by the new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import salt.cache
from salt.exceptions import SaltCacheError, SaltDeserializationError

from saltext_ha.common.errors import InvalidRecord, StoreError, UnlistedStore
from saltext_ha.common.fail_points import point
from saltext_ha.common.version import salt_release
from saltext_ha.keystore import minion_key, signature
from saltext_ha.keystore.base import Change, Content, KeyStore, Outcome
from saltext_ha.keystore.marks import Marks
from saltext_ha.replication.placement import ABSENT, Stored
from saltext_ha.replication.plan import DENY, PUT, REMOVE, Step
from saltext_ha.replication.record import ACCEPTED, PENDING, REJECTED

KEYS = "keys"
DENIED_KEYS = "denied_keys"
SIGNATURES = "saltext_ha_signatures"
SLOT_STATES = (ACCEPTED, PENDING, REJECTED)
# This driver (salt/cache/mmap_key.py) keeps only the first denied key, and only so many bytes of an
# id, by default: it cuts longer ids silently, so the key of one would become that of another.
MMAP = "mmap_key"
MMAP_ID_SIZE = 64
MMAP_INDEX = ".mmap_keys.idx"
MMAP_SIZES = {"mmap_key_size": 1_000_000, "mmap_key_slot_size": 96}
"""The options whose product is the size of that file, and their defaults."""
# Drivers raise any exception; KeyError means no such driver, or that its libraries are missing.
FAILURES = Exception
# The entry of one id is spoilt: not msgpack, or not in the form that Salt stores.
SPOILT = (InvalidRecord, SaltDeserializationError, AttributeError, TypeError)


class CacheStore(KeyStore):
    """
    The keys that the ``salt.cache`` driver *driver* holds for the master of *opts*. A driver has no
    cheap look, cleans up by itself, and tells only when something is written whether it can be;
    3008 stores only public keys.
    """

    def __init__(self, opts: Mapping[str, Any], driver: str) -> None:
        self._cache = salt.cache.Cache(dict(opts), driver=driver)
        self._driver = driver
        self._seen = Marks()
        # Salt does not promise that two threads may use a driver.
        self._lock = threading.Lock()
        self.one_denied = driver == MMAP
        self._longest = opts.get("mmap_key_id_size", MMAP_ID_SIZE) if driver == MMAP else None
        """How many bytes an id may have; None: any number."""
        self._cut: set[str] = set()
        """Longer ids that an older release wrote."""
        # The mmap_key driver knows only Salt's banks, and keeps them in this folder.
        folder = opts["cluster_pki_dir"] if opts.get("cluster_id") else opts["pki_dir"]
        self._folder = str(folder) if self.one_denied else ""
        sizes = [int(opts.get(name, MMAP_SIZES[name])) for name in MMAP_SIZES]
        known = driver == MMAP and salt_release() < (3009,)
        self._index_size = math.prod(sizes) if known else None
        """Later releases may have indexes of any size."""

    def changed(self) -> Iterable[str]:
        """See :meth:`KeyStore.changed`; lists everything, as these drivers keep no times."""
        try:
            with self._lock:
                self._check_index()
                found = self._everything()
        except FAILURES as exc:
            raise UnlistedStore(
                f"keys.cache_driver {self._driver}: cannot be listed: {exc}"
            ) from exc
        return self._seen.changed(found)

    def recall(self, marks: Iterable[tuple[str, int]]) -> None:
        """See :meth:`KeyStore.recall`."""
        for minion_id, mark in marks:
            self._seen[minion_id] = mark
            if self._is_too_long(minion_id):
                self._cut.add(minion_id)

    def read(self, minion_id: str, certain: bool = False) -> Content | None:
        """See :meth:`KeyStore.read`."""
        content = self.peek(minion_id, certain)
        if content is not None:
            self._seen[minion_id] = content.mark
        return content

    def peek(self, minion_id: str, certain: bool = False) -> Content | None:
        """See :meth:`KeyStore.peek`; a name that is no valid id has no key."""
        try:
            minion_key.check_id(minion_id)  # an event may name any path
        except InvalidRecord:
            return Content(ABSENT, {})
        # One that was written once must not look as if an operator had deleted it.
        if self._is_too_long(minion_id) and minion_id not in self._cut:
            return Content(ABSENT, {})
        try:
            with self._lock:
                entry = self._cache.fetch(KEYS, minion_id) or None
                denied = list(self._cache.fetch(DENIED_KEYS, minion_id) or [])
                if not entry and self._is_hidden(minion_id):
                    return None
            content = _content(entry, denied)
        except SPOILT:
            return None
        except FAILURES as exc:
            raise StoreError(f"keys.cache_driver {self._driver}: {minion_id}: {exc}") from exc
        if not entry and not denied:
            return content
        return content._replace(mark=_mark(entry, denied), slot_mark=_mark(entry, []))

    def signature(self, owner: str) -> str | None:
        """See :meth:`KeyStore.signature`."""
        try:
            with self._lock:
                if self._folder:
                    return signature.read(self._folder, owner)
                entry = self._cache.fetch(SIGNATURES, owner)
        except FAILURES as exc:
            raise StoreError(f"keys.cache_driver {self._driver}: cannot be read: {exc}") from exc
        return str(entry.get("token", "")) if entry else None

    def sign(self, owner: str, token: str | None) -> None:
        """See :meth:`KeyStore.sign`."""
        try:
            with self._lock:
                if self._folder:
                    signature.write(self._folder, owner, token)
                elif token is None:
                    self._cache.flush(SIGNATURES, owner)
                else:
                    self._cache.store(SIGNATURES, owner, {"token": token})
        except FAILURES as exc:
            raise StoreError(f"keys.cache_driver {self._driver}: cannot be written: {exc}") from exc

    def apply(self, changes: Sequence[Change]) -> Outcome:
        """See :meth:`KeyStore.apply`."""
        missing: set[str] = set()
        taken: set[str] = set()
        failed: dict[str, str] = {}
        try:
            for change in changes:
                if self._is_too_long(change.minion_id):
                    failed[change.minion_id] = (
                        f"the {self._driver} driver keeps only {self._longest} bytes of an id "
                        "(mmap_key_id_size)"
                    )
                    continue
                with self._lock:
                    if self._is_taken(change):
                        taken.add(change.minion_id)
                        continue
                    done = [self._take(change, step) for step in change.steps]
                if not all(done):
                    missing.add(change.minion_id)
        except FAILURES as exc:
            raise StoreError(f"keys.cache_driver {self._driver}: cannot be written: {exc}") from exc
        return Outcome(missing, failed, taken)

    def _is_hidden(self, minion_id: str) -> bool:
        """
        Whether an id has an entry of which mmap_key says that there is none, as its checksum is
        wrong. Raises as :meth:`_check_index`.
        """
        self._check_index()
        return self._driver == MMAP and self._cache.updated(KEYS, minion_id) is not None

    def _check_index(self) -> None:
        """
        mmap_key says of an index that it cannot open that there is no key.

        :raises OSError: it cannot be opened. :raises SaltCacheError: it has another size.
        """
        if self._index_size is None:
            return
        with contextlib.suppress(FileNotFoundError), Path(self._folder, MMAP_INDEX).open() as index:
            size = os.fstat(index.fileno()).st_size
            if size != self._index_size:
                raise SaltCacheError(
                    f"{index.name} has {size} bytes, and {' × '.join(MMAP_SIZES)} is "
                    f"{self._index_size}: set them to what they were"
                )

    def _is_too_long(self, minion_id: str) -> bool:
        return self._longest is not None and len(minion_id.encode()) > self._longest

    def _is_taken(self, change: Change) -> bool:
        """Whether *change* is to put an entry where an entry is that was not shown."""
        if not any(step.action == PUT for step in change.steps):
            return False
        entry = self._cache.fetch(KEYS, change.minion_id)
        try:
            return bool(entry) and _content(entry, []).stored.slot != change.shown.slot
        except InvalidRecord:
            return True

    def _take(self, change: Change, step: Step) -> bool:
        minion_id = change.minion_id
        if step.action == PUT:
            entry = {"state": step.state, "pub": change.keys[step.key]}
            point("store.write")
            there = not change.shown.slot or bool(self._cache.fetch(KEYS, minion_id))
            self._cache.store(KEYS, minion_id, entry)
            return there
        if step.action == REMOVE:
            # A put of the same change has replaced this entry.
            if any(other.action == PUT for other in change.steps):
                return True
            entry = self._cache.fetch(KEYS, minion_id)
            if not entry or entry.get("state") != step.state:
                return False
            if minion_key.fingerprint(entry.get("pub") or "") != step.key:
                return False
            point("store.remove")
            self._cache.flush(KEYS, minion_id)
            return True
        denied = [
            minion_key.normalise(text) for text in self._cache.fetch(DENIED_KEYS, minion_id) or []
        ]
        others = [text for text in denied if minion_key.fingerprint(text) != step.key]
        if step.action == DENY:
            self._cache.store(DENIED_KEYS, minion_id, [*others, change.keys[step.key]])
        elif others:
            self._cache.store(DENIED_KEYS, minion_id, others)
        else:
            self._cache.flush(DENIED_KEYS, minion_id)
        return True

    def _everything(self) -> dict[str, int]:
        entries = self._list(KEYS)
        denied = self._list(DENIED_KEYS)
        return {
            name: _mark(entries.get(name), denied.get(name) or [])
            for name in {*entries, *denied}
            if not name.startswith(".")
        }

    def _list(self, bank: str) -> dict[str, Any]:
        try:
            return dict(self._cache.list_all(bank, include_data=True))
        except (AttributeError, SaltCacheError, TypeError):
            # Most drivers cannot do this; salt.key.Key also falls back to one fetch per key.
            return {name: self._fetch_any(bank, name) for name in self._cache.list(bank)}

    def _fetch_any(self, bank: str, name: str) -> Any:
        """An entry; for a spoilt one the error, so that each pass names it and the others."""
        try:
            return self._cache.fetch(bank, name)
        except SaltDeserializationError as exc:
            return str(exc)


def _content(entry: Mapping[str, str] | None, denied: Sequence[str]) -> Content:
    keys: dict[bytes, str] = {}

    def add(text: str) -> bytes:
        text = minion_key.normalise(text)
        minion_key.check_shape(text)
        key = minion_key.fingerprint(text)
        keys[key] = text
        return key

    refused = set()
    for text in denied:
        # Salt keeps what a host sent, key or not. Junk must not stop a revocation.
        with contextlib.suppress(InvalidRecord):
            refused.add(add(text))
    if not entry or entry.get("state") not in SLOT_STATES:
        return Content(Stored(denied=frozenset(refused)), keys)
    return Content(Stored(entry["state"], add(entry.get("pub") or ""), frozenset(refused)), keys)


def _mark(entry: Any, denied: Sequence[str]) -> int:
    slot = [entry.get("state"), entry.get("pub")] if isinstance(entry, Mapping) and entry else []
    digest = hashlib.blake2b(repr((slot, list(denied))).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
