"""
Digests of files, without reading unchanged files again.

``digests.db`` in the state folder remembers for each file its SHA-256, times, size and inode. The
inode's change time counts, too: copying tools set the modification time back.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgpack

from saltext_ha.common.errors import HaError, StillReading
from saltext_ha.common.files import private_dir, read_plain, write_whole
from saltext_ha.consistency.tree import Seen

FILE = "digests.db"
FORMAT = 1
# A file changed so recently may change again within one tick of its file system's clock.
YOUNG = 2_000_000_000
BLOCK = 1 << 20

Mark = tuple[int, int, int, int, int]
Known = dict[str, tuple[Mark, bytes]]


class Digests:
    """
    The digests of files, kept in *folder*.

    :param patience: seconds that reading may take per call.
    :param stop: raises when reading must be given up.
    :ivar read: how many files were read, because they were new or had changed.
    """

    def __init__(
        self, folder: Path, patience: float = 20.0, stop: Callable[[], None] = lambda: None
    ) -> None:
        self._path = folder / FILE
        self._patience, self._stop = patience, stop
        self.read = 0

    def of(self, files: Mapping[str, Seen]) -> tuple[dict[str, bytes], dict[str, str]]:
        """
        Name in *files* → SHA-256; and for the others, why they could not be read.

        Files that are not in *files* are forgotten.

        :raises StillReading: it would take too long.
        """
        with _locks.setdefault(self._path, threading.Lock()):
            return self._of(files)

    def _of(self, files: Mapping[str, Seen]) -> tuple[dict[str, bytes], dict[str, str]]:
        known = self._load()
        fresh: Known = {}
        digests: dict[str, bytes] = {}
        missed: dict[str, str] = {}
        read = 0
        end = time.monotonic() + self._patience
        for name, seen in files.items():
            if seen.stat is None:
                missed[name] = seen.why
                continue
            mark = mark_of(seen.stat)
            before = known.get(seen.path)
            if before is not None and before[0] == mark:
                fresh[seen.path] = before
                digests[name] = before[1]
                continue
            if time.monotonic() > end:
                self._save({**known, **fresh})
                raise StillReading(
                    f"{len(digests)} of {len(files)} files were read so far; ask again"
                )
            try:
                content, after = _read(seen.path, self._stop)
            except FileNotFoundError:
                continue
            except HaError:
                self._save({**known, **fresh})
                raise
            except OSError as exc:
                missed[name] = (exc.strerror or type(exc).__name__).lower()
                continue
            read += 1
            digests[name] = content
            if time.time_ns() - max(after[:2]) > YOUNG:
                fresh[seen.path] = (after, content)
        self.read += read
        if fresh != known:
            self._save(fresh)
        return digests, missed

    def _load(self) -> Known:
        try:
            raw = msgpack.unpackb(read_plain(self._path), use_list=False, **_AS_BYTES)
            if raw["format"] != FORMAT:
                return {}
            return {path: (mark, digest) for path, mark, digest in raw["files"]}
        except (OSError, ValueError, TypeError, KeyError, msgpack.UnpackException):
            return {}  # it will be made again

    def _save(self, known: Known) -> None:
        rows = [(path, mark, digest) for path, (mark, digest) in known.items()]
        # Without it, files are read again: no reason to fail.
        with contextlib.suppress(OSError):
            private_dir(self._path.parent)
            write_whole(self._path, msgpack.packb({"format": FORMAT, "files": rows}, **_AS_BYTES))


# Names of files may be any bytes; Python has them as str with surrogates.
_AS_BYTES = {"unicode_errors": "surrogateescape"}
# Two checks at a time would read the same files, and one would overwrite the other's results.
_locks: dict[Path, threading.Lock] = {}


def mark_of(status: os.stat_result) -> Mark:
    """A mark that changes whenever the content does."""
    return (
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_size,
        status.st_ino,
        status.st_dev,
    )


def _read(path: str, stop: Callable[[], None]) -> tuple[bytes, Mark]:
    """Content and mark of one and the same file."""
    found = hashlib.sha256()
    # A pipe in its place must not block us.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        before = mark_of(os.fstat(file.fileno()))
        while block := file.read(BLOCK):
            found.update(block)
            stop()
    return found.digest(), before
