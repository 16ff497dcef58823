"""
Minion keys as files: ``minions``, ``minions_pre``, ``minions_rejected`` and ``minions_denied``.

This is the layout of 3006 and 3007, and of 3008's ``localfs_key`` driver
(``salt/cache/localfs_key.py``). That driver is not used: its ``store`` removes the old file before
it writes the new one, so a crash in between loses the key.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import secrets
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from saltext_ha.common.errors import StoreError, UnlistedStore
from saltext_ha.keystore import minion_key, reading, signature, writing
from saltext_ha.keystore.applying import Applying
from saltext_ha.keystore.base import Change, Content, Outcome
from saltext_ha.keystore.folders import FOLDERS, ONE_FILE, Folders
from saltext_ha.keystore.marks import Marks
from saltext_ha.replication.placement import ABSENT, Stored
from saltext_ha.replication.record import ACCEPTED, DENIED, PENDING, REJECTED

# Seconds until the folders are asked again if they can be written; they may be remote.
ASKED_EVERY = 5.0
SLOTS = (ACCEPTED, PENDING, REJECTED)
PLACES = {state: number for number, state in enumerate(FOLDERS, 1)}


class FileStore:
    """
    The key folders below *root*.

    :param user: owner of written files; not set if *user* is unknown or the change not permitted.
    :param group_readable: ``permissive_pki_access`` of the master.
    :param pending_first: if an id is both pending and accepted, Salt takes it as pending.
    """

    one_denied = True
    watched = True

    def __init__(
        self,
        root: Path,
        user: str | None = None,
        group_readable: bool = False,
        pending_first: bool = False,
    ) -> None:
        mode = 0o640 if group_readable else 0o600
        self._folders = Folders.below(root, mode, _uid(user))
        # Engines on several machines may write in these folders; each has a number of its own.
        self._writer = secrets.randbelow(2**32)
        self._precedence = (
            (REJECTED, PENDING, ACCEPTED) if pending_first else (REJECTED, ACCEPTED, PENDING)
        )
        # One number per id instead of the stats of its files.
        self._seen = Marks()
        self._listed: dict[str, tuple[str, int]] = {}
        """Id that was never read → the only entry that the last pass saw: its state and mark."""
        self._times: dict[str, int] = {}
        self._asked, self._closed = float("-inf"), ""

    def changed(self) -> Iterable[str]:
        """See :meth:`KeyStore.changed`; one ``scandir`` pass that reads no file."""
        if not self._times:
            self.touched()  # otherwise a second pass would follow the first one
        found: dict[str, int] = {}
        only_in: dict[str, str] = {}
        for state in FOLDERS:
            for name, mark in self._scan(state):
                only_in[name] = "" if name in found else state
                found[name] = found.get(name, 0) ^ mark
        changed = {name for name in self._seen.changed(found) if _may_be_id(name)}
        # What is left of *found* was never read.
        self._listed = {
            i: (state, mark) for i, mark in found.items() if (state := only_in[i]) and i in changed
        }
        return changed

    def recall(self, marks: Iterable[tuple[str, int]]) -> None:
        """See :meth:`KeyStore.recall`."""
        self._seen.update(marks)

    def touched(self) -> bool:
        """See :meth:`KeyStore.touched`; compares the folders' modification times."""
        times = {}
        for state, folder in self._folders.paths.items():
            with contextlib.suppress(OSError):
                times[state] = os.stat(folder).st_mtime_ns
        changed = times != self._times
        self._times = times
        return changed

    def at_rest(self) -> bool:
        """See :meth:`KeyStore.at_rest`; a tool that copies a folder cannot set its change time."""
        for state in (ACCEPTED, REJECTED):  # minions that knock change the others
            with contextlib.suppress(OSError):
                changed = os.stat(self._folders.paths[state]).st_ctime
                if abs(time.time() - changed) <= writing.SETTLED:
                    return False
        return True

    def read(self, minion_id: str, certain: bool = False) -> Content | None:
        """See :meth:`KeyStore.read`; a name that is no valid id has no key."""
        place = self._listed.pop(minion_id, None)
        if place and (content := self._read_one(minion_id, *place)):
            return content
        content = self.peek(minion_id, certain)
        if content is not None:
            self._seen[minion_id] = content.mark
        return content

    def peek(self, minion_id: str, certain: bool = False) -> Content | None:
        """See :meth:`KeyStore.peek`; a name that is no valid id has no key."""
        if not _may_be_id(minion_id):
            return Content(ABSENT, {})
        keys: dict[bytes, str] = {}
        found: dict[str, bytes] = {}
        mark, slot_mark, junk = 0, 0, False
        for state, folder in self._folders.paths.items():
            path, info = f"{folder}/{minion_id}", None
            try:
                info = os.lstat(path)
                if not stat.S_ISREG(info.st_mode):
                    continue
                text = reading.read_key(path)
            except FileNotFoundError:
                continue
            except OSError as exc:
                if exc.errno not in ONE_FILE:
                    raise StoreError(f"{path}: cannot be read: {exc}") from exc
                text = None
            if text is None and state != DENIED and not (certain and state == PENDING):
                return None
            entry_mark = _mark(state, info) if info else 0
            mark ^= entry_mark
            if state != DENIED:
                slot_mark ^= entry_mark
            if text is None:
                # Salt writes what a host sent, key or not. Junk must not stop a revocation.
                junk |= state == PENDING
                continue
            found[state] = minion_key.fingerprint(text)
            keys[found[state]] = text
        return Content(self._stored(found), keys, mark, junk, slot_mark)

    def _read_one(self, minion_id: str, state: str, mark: int) -> Content | None:
        """
        Read the entry of an id in one folder, without a look at the others. The mark is older than
        the content: if anything changed in between, the next pass names the id.

        :return: None if no key is there any more.
        """
        try:
            text = reading.read_key(self._folders.path(state, minion_id))
        except OSError:
            return None
        if text is None:
            return None
        self._seen[minion_id] = mark
        key = minion_key.fingerprint(text)
        if state == DENIED:
            return Content(Stored(denied=frozenset({key})), {key: text}, mark)
        return Content(Stored(state, key), {key: text}, mark, slot_mark=mark)

    def junk(self, minion_id: str) -> list[str]:
        """See :meth:`KeyStore.junk`."""
        return [state for state in SLOTS if _is_junk(self._folders.path(state, minion_id))]

    def discard_junk(self, minion_id: str) -> None:
        """See :meth:`KeyStore.discard_junk`."""
        for state in self.junk(minion_id):
            with contextlib.suppress(OSError):
                os.unlink(self._folders.path(state, minion_id))

    def signature(self, owner: str) -> str | None:
        """See :meth:`KeyStore.signature`; it is in the folder of accepted keys."""
        try:
            return signature.read(self._folders.paths[ACCEPTED], owner)
        except OSError as exc:
            raise StoreError(f"{self._folders.paths[ACCEPTED]}: cannot be read: {exc}") from exc

    def sign(self, owner: str, token: str | None) -> None:
        """See :meth:`KeyStore.sign`."""
        try:
            self._folders.make(ACCEPTED)
            signature.write(self._folders.paths[ACCEPTED], owner, token)
        except OSError as exc:
            raise StoreError(f"{self._folders.paths[ACCEPTED]}: cannot be written: {exc}") from exc

    def check_writable(self) -> None:
        """See :meth:`KeyStore.check_writable`; a folder that does not exist yet can be made."""
        if time.monotonic() - self._asked >= ASKED_EVERY:
            closed = [each for each in self._folders.paths.values() if not _is_open(each)]
            self._closed = closed[0] if closed else ""
            self._asked = time.monotonic()
        if self._closed:
            raise StoreError(
                f"{self._closed}: cannot be written; is its file system read-only, or the folder "
                "another user's?"
            )

    def sweep(self) -> None:
        """See :meth:`KeyStore.sweep`."""
        writing.sweep(self._folders.paths.values())

    def apply(self, changes: Sequence[Change]) -> Outcome:
        """See :meth:`KeyStore.apply`."""
        return Applying(self._folders, self._writer).run(changes)

    def _stored(self, found: dict[str, bytes]) -> Stored:
        slots = [(state, found[state]) for state in self._precedence if state in found]
        denied = frozenset({found[DENIED]}) if DENIED in found else frozenset()
        if not slots:
            return Stored(denied=denied)
        return Stored(*slots[0], denied=denied, extra=frozenset(slots[1:]))

    def _scan(self, state: str) -> Iterator[tuple[str, int]]:
        folder = self._folders.paths[state]
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue  # no key: Salt's .key_cache, for instance
                    try:
                        info = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    if stat.S_ISREG(info.st_mode):
                        yield entry.name, _mark(state, info)
        except FileNotFoundError:
            return
        except OSError as exc:
            self._times = {}  # touched() must report the same change again
            raise UnlistedStore(f"{folder}: cannot be listed: {exc}") from exc


def _is_open(folder: str) -> bool:
    # Root may write anywhere, except on a read-only file system.
    return os.access(folder, os.W_OK | os.X_OK) or not os.path.exists(folder)


def _is_junk(path: str) -> bool:
    try:
        info = os.lstat(path)
        # Salt writes in place: the file may be half written.
        settled = abs(time.time() - info.st_mtime) > writing.SETTLED
        return stat.S_ISREG(info.st_mode) and settled and not reading.holds_key(path)
    except OSError:
        return False


def _mark(state: str, info: os.stat_result) -> int:
    # Every process gets the same hash of a tuple of numbers, but not of a text.
    place = PLACES[state]
    return hash((place, info.st_ino, info.st_mtime_ns, info.st_ctime_ns, info.st_size))


# One change checks the same id several times.
_may_be_id = functools.lru_cache(maxsize=4096)(minion_key.is_id)


def _uid(user: str | None) -> int:
    try:
        return pwd.getpwnam(user).pw_uid if user else -1
    except KeyError:
        return -1
