"""
Mines and grains in the cache that Salt's master keeps of its minions, where that is in folders.

Up to 3007 a minion has a bank with two files: its mine, and its grains with its pillar. Since 3008
a bank has one kind of data of all minions. Salt does not read what another release has left there.
Pillar is never read from here: where it lies beside the grains, it stays as it is.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgpack
import salt.cache
import salt.payload
from salt.exceptions import SaltDeserializationError

from saltext_ha.common import version
from saltext_ha.common.disk_work import step
from saltext_ha.common.errors import InvalidRecord, StoreError
from saltext_ha.keystore.minion_key import MAX_ID_BYTES, is_id

RELEASE = version.salt_release()[0]
"""Of the Salt that runs this code."""
BY_KIND = 3008
"""Since this release a bank has one kind of data of all minions; before, all data of one minion."""
LOADING = threading.Lock()
"""Two loaders of Salt execute a module's file twice, in the same module: never do so at once."""

MINE, GRAINS = "mine", "grains"
KINDS = (MINE, GRAINS)
_KEYS = {MINE: "mine", GRAINS: "data"}
"""Kind → its key in the bank of a minion, before 3008."""
_EXTENSIONS = (78, 79)
"""What Salt itself stores beyond msgpack: a time, and a constant of its own."""

Name = tuple[str, str]
"""One copy: its kind, and the id of the minion."""


def why_not(opts: Mapping[str, Any]) -> str:
    """Why the cache of the master with *opts* has no copies that can be shared; empty: it has."""
    if not opts.get("minion_data_cache", True):
        return "minion_data_cache is off"
    if (driver := opts.get("cache", "localfs")) != "localfs":
        return f"cache is {driver}, and only localfs has a folder of this master's own"
    return ""


def may_have(minion_id: str) -> bool:
    """Whether each release of Salt can keep a copy of this minion: its file ends in ``.p``."""
    return is_id(minion_id) and len(minion_id.encode()) <= MAX_ID_BYTES - len(".p")


def place(kind: str, minion_id: str, release: int = RELEASE) -> tuple[str, str]:
    """The bank and the key of a copy, in Salt's cache."""
    return (kind, minion_id) if release >= BY_KIND else (f"minions/{minion_id}", _KEYS[kind])


class MinionCache:
    """The copies of one master, whose Salt has that *release*; all methods block."""

    def __init__(self, opts: Mapping[str, Any], release: int = RELEASE) -> None:
        # Salt's cache in memory would give what is older than the file.
        self._cache = salt.cache.factory({**opts, "memcache_expire_seconds": 0})
        self._folder, self._release = Path(opts["cachedir"]), release

    def marks(self) -> dict[Name, int]:
        """The copies that are here → their marks. :raises StoreError: they cannot be read."""
        try:
            return dict(self._by_kind() if self._release >= BY_KIND else self._by_minion())
        except OSError as exc:
            raise StoreError(f"the cache of minions cannot be read: {exc}") from exc

    def _by_kind(self) -> Iterator[tuple[Name, int]]:
        for kind in KINDS:
            for entry in _entries(self._folder / kind):
                minion_id, dot, ending = entry.name.rpartition(".")
                if (dot, ending) == (".", "p") and may_have(minion_id):
                    try:
                        yield (kind, minion_id), entry.stat().st_mtime_ns
                    except FileNotFoundError:
                        continue

    def _by_minion(self) -> Iterator[tuple[Name, int]]:
        for entry in _entries(self._folder / "minions"):
            if may_have(entry.name):
                for kind in KINDS:
                    if mark := _mark(f"{entry.path}/{_KEYS[kind]}.p"):
                        yield (kind, entry.name), mark

    def mark(self, name: Name) -> int:
        """When a copy was written (Unix time, in ns); 0: never. :raises StoreError: unreadable."""
        try:
            return _mark(str(self._file(name)))
        except OSError as exc:
            raise StoreError(f"the cache of minions cannot be read: {exc}") from exc

    def read(self, name: Name) -> bytes:
        """The content of a copy, packed; empty: there is none. :raises StoreError: unreadable."""
        content = self._fetch(name)
        if name[0] == GRAINS and self._release < BY_KIND:
            content = content.get("grains") if isinstance(content, Mapping) else None
        if not is_content(content):
            return b""
        try:
            packed: bytes = salt.payload.dumps(content, use_bin_type=True)
        except Exception as exc:  # what Salt stored, it can pack; another program may write there
            raise StoreError(f"what is cached of {name[1]} cannot be packed: {exc!r}") from exc
        return packed

    def write(
        self, name: Name, content: Mapping[str, Any], at: float, expected: int
    ) -> tuple[bool, int]:
        """
        Put a copy there, as if it was written at *at* (Unix time), if the one that is there has the
        mark that is *expected*. Returns whether it did so, and the mark of the one that is there.

        :raises StoreError: it cannot be written.
        """
        kept: Mapping[str, Any] = content
        if name[0] == GRAINS and self._release < BY_KIND:
            old = self._fetch(name)
            pillar = old.get("pillar") if isinstance(old, Mapping) else None
            kept = {"grains": content, "pillar": pillar or {}}
        file = self._file(name)
        try:
            packed = salt.payload.dumps(kept, use_bin_type=True)
            file.parent.mkdir(parents=True, exist_ok=True)
            # As Salt does; but it has its age before anybody sees it.
            fd, made = tempfile.mkstemp(dir=file.parent)
            new = Path(made)
            try:
                with os.fdopen(fd, "wb") as there:
                    there.write(packed)
                os.utime(made, (at, at))
                mark = _mark(made)
                if (found := self.mark(name)) != expected:  # the minion was here meanwhile
                    return False, found
                new.replace(file)
            finally:
                new.unlink(missing_ok=True)
        except Exception as exc:  # msgpack raises errors of many types
            raise StoreError(f"the cache of minions cannot be written: {exc!r}") from exc
        return True, mark

    def _fetch(self, name: Name) -> Any:
        try:
            with LOADING:
                self._cache.modules[f"{self._cache.driver}.fetch"]
            return self._cache.fetch(*place(*name, self._release))
        except SaltDeserializationError:
            return None  # a damaged file: Salt cannot read it, either
        except Exception as exc:  # a cache driver may raise anything
            raise StoreError(f"the cache of minions cannot be read: {exc!r}") from exc

    def _file(self, name: Name) -> Path:
        bank, key = place(*name, self._release)
        return self._folder / bank / f"{key}.p"


def unpacked(packed: bytes) -> dict[str, Any]:
    """The content of a copy of a peer. :raises InvalidRecord: it is none that Salt would store."""
    try:
        content = msgpack.unpackb(packed, raw=False, strict_map_key=False, ext_hook=_extension)
        # What Salt cannot read ends each mine.get there. In one more map, as grains are.
        salt.payload.loads(
            salt.payload.dumps({GRAINS: content}, use_bin_type=True), encoding="utf-8"
        )
    except Exception as exc:  # msgpack raises errors of many types
        raise InvalidRecord(f"a copy is not valid msgpack: {type(exc).__name__}") from None
    if not is_content(content):
        raise InvalidRecord("a copy is not a map with text keys")
    found: dict[str, Any] = content
    return found


def is_content(content: Any) -> bool:
    """Whether *content* may be a mine, or grains."""
    return isinstance(content, dict) and all(isinstance(key, str) for key in content)


def _extension(code: int, data: bytes) -> msgpack.ExtType:
    """Kept as it is."""
    if code not in _EXTENSIONS:
        raise ValueError("Salt stores no such extension type")
    return msgpack.ExtType(code, data)


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                step()
                yield entry
    except FileNotFoundError:
        return  # Salt makes it for the first minion


def _mark(file: str) -> int:
    try:
        return os.stat(file).st_mtime_ns  # noqa: PTH116  # a Path takes twice as long
    except (FileNotFoundError, NotADirectoryError):
        return 0
