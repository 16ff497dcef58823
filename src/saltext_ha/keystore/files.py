"""
Minion keys as files: ``minions``, ``minions_pre``, ``minions_rejected`` and ``minions_denied``.

The layout of 3006 and 3007, and of 3008's ``localfs_key`` driver (``salt/cache/localfs_key.py``).
We do not go through that driver: its ``store`` removes the old file before it writes the new one,
so that a crash in between loses the key.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import pwd
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from saltext_ha import minion_key
from saltext_ha.errors import InvalidRecord, StoreError
from saltext_ha.faults import point
from saltext_ha.keystore import reading, signature, writing
from saltext_ha.keystore.base import Change, Content, Outcome
from saltext_ha.replication.placement import ABSENT, Stored
from saltext_ha.replication.plan import DENY, PUT, REMOVE, Step
from saltext_ha.replication.record import ACCEPTED, DENIED, PENDING, REJECTED

FOLDERS = {
    ACCEPTED: "minions",
    PENDING: "minions_pre",
    REJECTED: "minions_rejected",
    DENIED: "minions_denied",
}
# What is wrong with one file only, and must not hold up the others.
ONE_FILE = (errno.EACCES, errno.EPERM, errno.EISDIR, errno.ELOOP, errno.EIO, errno.ENAMETOOLONG)
PLACES = {state: number for number, state in enumerate(FOLDERS, 1)}


class Part(NamedTuple):
    """The steps of one change that are to be taken now."""

    change: Change
    steps: Sequence[Step]


class Taken(NamedTuple):
    """The steps of one change that were taken."""

    change: Change
    states: set[str]
    """In whose folders something changed."""
    links: list[tuple[Step, writing.Linked]]
    """New entries that are the old file yet, by another name."""
    lacked: bool
    """An entry that was to be removed or replaced was gone already."""
    reason: str
    """Why the rest of them could not be taken; empty when there is no rest."""


class FileStore:
    """
    The key folders below *root*.

    :param user: owner of files that are written; left as it is when unknown or not permitted.
    :param group_readable: ``permissive_pki_access`` of the master.
    :param pending_first: where an id is both pending and accepted, Salt takes it as pending.
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
        self._root = root
        self._mode = 0o640 if group_readable else 0o600
        self._uid = _uid(user)
        self._precedence = (
            (REJECTED, PENDING, ACCEPTED) if pending_first else (REJECTED, ACCEPTED, PENDING)
        )
        self._folders = {state: f"{root}/{name}" for state, name in FOLDERS.items()}
        # One number an id instead of its files' stats: 100 000 keys stay a few MB.
        self._seen: dict[str, int] = {}
        self._times: dict[str, int] = {}

    def changed(self) -> Iterable[str]:
        """See :meth:`KeyStore.changed`: one ``scandir`` pass, nothing is read."""
        found: dict[str, int] = {}
        for state in FOLDERS:
            for name, mark in self._scan(state):
                found[name] = found.get(name, 0) ^ mark
        ids = {name for name, mark in found.items() if self._seen.get(name) != mark}
        ids.update(name for name in tuple(self._seen) if name not in found)
        return ids

    def recall(self, marks: Iterable[tuple[str, int]]) -> None:
        """See :meth:`KeyStore.recall`."""
        self._seen.update(marks)

    def touched(self) -> bool:
        """See :meth:`KeyStore.touched`: by the folders' times of change."""
        times = {}
        for state, folder in self._folders.items():
            with contextlib.suppress(OSError):
                times[state] = os.stat(folder).st_mtime_ns
        changed = times != self._times
        self._times = times
        return changed

    def read(self, minion_id: str, certain: bool = False) -> Content | None:
        """See :meth:`KeyStore.read`; what cannot be an id has no key."""
        if not _may_be_id(minion_id):  # an event may name any path
            return Content(ABSENT, {})
        keys: dict[bytes, str] = {}
        found: dict[str, bytes] = {}
        mark, slot_mark, junk = 0, 0, False
        for state, folder in self._folders.items():
            path = f"{folder}/{minion_id}"
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
            entry_mark = _mark(state, info)
            mark ^= entry_mark
            if state != DENIED:
                slot_mark ^= entry_mark
            if text is None:
                # Salt writes whatever was sent there: it must not stop a revocation.
                junk |= state == PENDING
                continue
            found[state] = minion_key.fingerprint(text)
            keys[found[state]] = text
        if mark:
            self._seen[minion_id] = mark
        else:
            self._seen.pop(minion_id, None)
        return Content(self._stored(found), keys, mark, junk, slot_mark)

    def has_junk(self, minion_id: str) -> bool:
        """See :meth:`KeyStore.has_junk`."""
        path = f"{self._folders[PENDING]}/{minion_id}"
        try:
            info = os.lstat(path)
            # Salt writes in place: it may be half a key yet.
            settled = abs(time.time() - info.st_mtime) > writing.SETTLED
            return stat.S_ISREG(info.st_mode) and settled and not reading.holds_key(path)
        except OSError:
            return False

    def discard_junk(self, minion_id: str) -> None:
        """See :meth:`KeyStore.discard_junk`."""
        if self.has_junk(minion_id):
            with contextlib.suppress(OSError):
                os.unlink(f"{self._folders[PENDING]}/{minion_id}")

    def signature(self, owner: str) -> str | None:
        """See :meth:`KeyStore.signature`; it stands among the accepted keys."""
        try:
            return signature.read(self._folders[ACCEPTED], owner)
        except OSError as exc:
            raise StoreError(f"{self._folders[ACCEPTED]}: cannot be read: {exc}") from exc

    def sign(self, owner: str, token: str | None) -> None:
        """See :meth:`KeyStore.sign`."""
        try:
            self._make_folder(self._folders[ACCEPTED])
            signature.write(self._folders[ACCEPTED], owner, token)
        except OSError as exc:
            raise StoreError(f"{self._folders[ACCEPTED]}: cannot be written: {exc}") from exc

    def sweep(self) -> None:
        """See :meth:`KeyStore.sweep`."""
        writing.sweep(self._folders.values())

    def apply(self, changes: Sequence[Change]) -> Outcome:
        """See :meth:`KeyStore.apply`."""
        missing: set[str] = set()
        failed: dict[str, str] = {}
        links: list[tuple[Change, Step, writing.Linked]] = []
        try:
            for new in (True, False):
                parts = [_part(change, new) for change in changes if change.minion_id not in failed]
                touched: set[str] = set()
                for taken in writing.spread(self._take, [part for part in parts if part.steps]):
                    touched |= taken.states
                    links += [(taken.change, *link) for link in taken.links]
                    if taken.lacked:
                        missing.add(taken.change.minion_id)
                    if taken.reason:
                        failed[taken.change.minion_id] = taken.reason
                self._sync(touched)
            self._sync(
                {put.state for change, put, linked in links if self._mend(change, put, linked)}
            )
        except OSError as exc:
            raise StoreError(f"{self._root}: key folders cannot be written: {exc}") from exc
        return Outcome(missing, failed)

    def _take(self, part: Part, writer: int) -> Taken:
        minion_id, _, keys, shown = part.change
        there = {state for state, _ in shown.entries}
        taken = Taken(part.change, set(), [], False, "")
        try:
            for step in part.steps:
                state = step.state or DENIED
                if step.action in (PUT, DENY):
                    moved = self._link(part.change, step, writer)
                    if moved:
                        linked, replaced = moved
                        taken.links.append((step, linked))
                    else:
                        replaced = self._write(state, minion_id, keys[step.key], writer)
                    lacked = state in there and not replaced
                else:
                    # Denied keys push each other out.
                    lacked = not self._remove(state, minion_id, step.key) and state != DENIED
                taken = taken._replace(lacked=taken.lacked or lacked)
                taken.states.add(state)
        except OSError as exc:
            if exc.errno not in ONE_FILE:
                raise
            return taken._replace(reason=str(exc))
        return taken

    def _stored(self, found: dict[str, bytes]) -> Stored:
        slots = [(state, found[state]) for state in self._precedence if state in found]
        denied = frozenset({found[DENIED]}) if DENIED in found else frozenset()
        if not slots:
            return Stored(denied=denied)
        return Stored(*slots[0], denied=denied, extra=frozenset(slots[1:]))

    def _scan(self, state: str) -> Iterator[tuple[str, int]]:
        folder = self._folders[state]
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    if entry.name not in self._seen and not _may_be_id(entry.name):
                        continue
                    try:
                        info = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    if stat.S_ISREG(info.st_mode):
                        yield entry.name, _mark(state, info)
        except FileNotFoundError:
            return
        except OSError as exc:
            raise StoreError(f"{folder}: cannot be listed: {exc}") from exc

    def _write(self, state: str, minion_id: str, text: str, writer: int) -> bool:
        folder = self._folders[state]
        # Never a second name for the same file: Salt 3006 and 3007 write pending and denied keys in
        # place, and would then write into an accepted one.
        write = functools.partial(
            writing.write_whole,
            writing.temporary(folder, writer),
            f"{folder}/{minion_id}",
            text,
            mode=self._mode,
            uid=self._uid,
        )
        try:
            return write()
        except FileNotFoundError:
            self._make_folder(folder)
            return write()

    def _link(self, change: Change, put: Step, writer: int) -> tuple[writing.Linked, bool] | None:
        """A key that is only to go to another folder need not be written again."""
        for step in change.steps:
            if (put.action, step.action, step.key) == (PUT, REMOVE, put.key):
                folder = self._folders[put.state]
                return writing.link_whole(
                    f"{self._folders[step.state]}/{change.minion_id}",
                    writing.temporary(folder, writer),
                    f"{folder}/{change.minion_id}",
                    change.keys[put.key],
                    mode=self._mode,
                    uid=self._uid,
                )
        return None

    def _mend(self, change: Change, put: Step, linked: writing.Linked) -> bool:
        """Write a key after all, when somebody else wrote to its file; whether that was so."""
        minion_id = change.minion_id
        spoilt = writing.is_spoilt(f"{self._folders[put.state]}/{minion_id}", linked)
        if spoilt:
            self._write(put.state, minion_id, change.keys[put.key], 0)
        return spoilt

    def _make_folder(self, folder: str) -> None:
        os.makedirs(folder, mode=0o750 if self._mode == 0o640 else 0o700, exist_ok=True)

    def _remove(self, state: str, minion_id: str, key: bytes) -> bool:
        path = f"{self._folders[state]}/{minion_id}"
        try:
            text = reading.read_key(path)
            if text is None or minion_key.fingerprint(text) != key:
                return False
            point("store.remove")
            os.unlink(path)
        except FileNotFoundError:
            return False
        return True

    def _sync(self, states: set[str]) -> None:
        for state in states:
            writing.sync_folder(self._folders[state])


def _part(change: Change, new: bool) -> Part:
    """The steps of *change* that write something new, or those that remove."""
    return Part(change, [s for s in change.steps if (s.action in (PUT, DENY)) is new])


def _mark(state: str, info: os.stat_result) -> int:
    # The hash of a tuple of numbers is the same in every process; that of a text is not.
    place = PLACES[state]
    return hash((place, info.st_ino, info.st_mtime_ns, info.st_ctime_ns, info.st_size))


@functools.lru_cache(maxsize=4096)  # an id is looked at several times while it is worked on
def _may_be_id(name: str) -> bool:
    try:
        minion_key.check_id(name)
    except InvalidRecord:
        return False
    return True


def _uid(user: str | None) -> int:
    try:
        return pwd.getpwnam(user).pw_uid if user else -1
    except KeyError:
        return -1
