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
import secrets
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import NamedTuple

from saltext_ha.common.batches import batches
from saltext_ha.common.errors import InvalidRecord, StoreError
from saltext_ha.common.fail_points import point
from saltext_ha.keystore import minion_key, reading, signature, writing
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
ONE_FILE = (
    errno.EACCES,
    errno.EPERM,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.EIO,
    errno.EBADMSG,
    errno.EUCLEAN,
)
# The actions that write something new; the others remove.
NEW = (PUT, DENY)
# Seconds until the folders are asked again; some are far away.
ASKED_EVERY = 5.0
SLOTS = (ACCEPTED, PENDING, REJECTED)
PLACES = {state: number for number, state in enumerate(FOLDERS, 1)}


class NewEntry(NamedTuple):
    """A step that writes something new, and what it is a part of."""

    change: Change
    step: Step

    @property
    def state(self) -> str:
        """In whose folder it writes."""
        return self.step.state or DENIED

    @property
    def replaces(self) -> frozenset[bytes]:
        """The key whose file is to be in its place; none where there is to be no file."""
        shown = self.change.shown.entries
        return frozenset(key for state, key in shown if state == self.state)


class Progress(NamedTuple):
    """What came of some changes so far."""

    touched: set[str]
    """In whose folders there is something new."""
    links: dict[str, tuple[NewEntry, writing.Linked]]
    """By minion id: new entries that are the old file, by another name."""
    missing: set[str]
    failed: dict[str, str]
    taken: set[str]

    def is_left(self, minion_id: str) -> bool:
        """Whether no more is to be done about an id."""
        return minion_id in self.failed or minion_id in self.taken

    @contextlib.contextmanager
    def unless_one_file(self, change: Change) -> Iterator[None]:
        """What is wrong with one file only is why *change* failed, and no more."""
        try:
            yield
        except OSError as exc:
            if exc.errno not in ONE_FILE:
                raise
            self.failed[change.minion_id] = str(exc)


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
        # Another one for each engine, of whatever machine, that writes in these folders.
        self._writer = secrets.randbelow(2**32)
        self._precedence = (
            (REJECTED, PENDING, ACCEPTED) if pending_first else (REJECTED, ACCEPTED, PENDING)
        )
        self._folders = {state: f"{root}/{name}" for state, name in FOLDERS.items()}
        # One number an id instead of its files' stats: 100 000 keys stay a few MB.
        self._seen: dict[str, int] = {}
        self._times: dict[str, int] = {}
        self._asked, self._closed = float("-inf"), ""

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

    def junk(self, minion_id: str) -> list[str]:
        """See :meth:`KeyStore.junk`."""
        return [state for state in SLOTS if _is_junk(f"{self._folders[state]}/{minion_id}")]

    def discard_junk(self, minion_id: str) -> None:
        """See :meth:`KeyStore.discard_junk`."""
        for state in self.junk(minion_id):
            with contextlib.suppress(OSError):
                os.unlink(f"{self._folders[state]}/{minion_id}")

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

    def check_writable(self) -> None:
        """See :meth:`KeyStore.check_writable`; a folder that is not there yet can be made."""
        if time.monotonic() - self._asked >= ASKED_EVERY:
            closed = [each for each in self._folders.values() if not _is_open(each)]
            self._closed = closed[0] if closed else ""
            self._asked = time.monotonic()
        if self._closed:
            raise StoreError(
                f"{self._closed}: cannot be written; is its file system read-only, or the folder "
                "another user's?"
            )

    def sweep(self) -> None:
        """See :meth:`KeyStore.sweep`."""
        writing.sweep(self._folders.values())

    def apply(self, changes: Sequence[Change]) -> Outcome:
        """See :meth:`KeyStore.apply`."""
        done = Progress(set(), {}, set(), {}, set())
        new = [
            NewEntry(each, step) for each in changes for step in each.steps if step.action in NEW
        ]
        try:
            with writing.waiters(len(new)) as waiters:
                self._write_all(new, waiters, done)
                self._sync(done.touched | _staying(changes))
                self._sync(self._remove_old(changes, done))
                spoilt = [
                    entry
                    for entry, linked in done.links.values()
                    if writing.is_spoilt(self._path(entry), linked)
                ]
                self._write_all(spoilt, waiters, done, link=False)
                self._sync({entry.state for entry in spoilt})
        except OSError as exc:
            raise StoreError(f"{self._root}: key folders cannot be written: {exc}") from exc
        return Outcome(done.missing, done.failed, done.taken)

    def _write_all(
        self,
        new: Sequence[NewEntry],
        waiters: Executor | None,
        done: Progress,
        *,
        link: bool = True,
    ) -> None:
        """
        Write *new*, each whole and durable.

        :param link: whether a key that is only to go to another folder is the old file where it can
            be; else all are new ones.
        """
        anew = [
            entry
            for some in batches(new, writing.AT_ONCE)
            for entry in self._write(some, waiters, done, link)
        ]
        if anew and not link:
            raise StoreError(
                f"{self._path(anew[0])}: what is written there is gone before it has its name; "
                "does something clean up that folder?"
            )
        if anew:
            self._write_all(anew, waiters, done, link=False)

    def _write(
        self, new: Sequence[NewEntry], waiters: Executor | None, done: Progress, link: bool
    ) -> list[NewEntry]:
        """Those of *new* that could not be linked, and are to be written; few enough to be open."""
        drafts: list[tuple[NewEntry, writing.Draft]] = []
        anew = []
        try:
            for number, entry in enumerate(new):
                with done.unless_one_file(entry.change):
                    drafts.append((entry, self._draft(entry, number, link)))
            flaws = writing.make_durable([draft for _, draft in drafts], waiters)
            for (entry, draft), flaw in zip(drafts, flaws, strict=True):
                minion_id = entry.change.minion_id
                if done.is_left(minion_id):
                    continue
                with done.unless_one_file(entry.change):
                    if flaw and not draft.linked:
                        raise flaw
                    if self._is_taken(entry, done):
                        done.taken.add(minion_id)
                        continue
                    replaced = None if flaw else writing.name(draft, self._path(entry))
                    if replaced is None:
                        anew.append(entry)
                        continue
                    done.touched.add(entry.state)
                    if draft.linked:
                        done.links[minion_id] = entry, draft.linked
                    if entry.replaces and not replaced:
                        done.missing.add(minion_id)
        finally:
            for _, draft in drafts:
                writing.discard(draft)
        return anew

    def _is_taken(self, entry: NewEntry, done: Progress) -> bool:
        """Whether there is something where *entry* is to go that was not shown, nor put by us."""
        ours, _ = done.links.get(entry.change.minion_id, (None, None))
        if entry.step.action != PUT or ours == entry:
            return False
        path = self._path(entry)
        try:
            if not stat.S_ISREG(os.lstat(path).st_mode):
                return False  # not shown either
            text = reading.read_key(path) if entry.replaces else None
        except FileNotFoundError:
            return False
        return text is None or minion_key.fingerprint(text) not in entry.replaces

    def _draft(self, entry: NewEntry, number: int, link: bool) -> writing.Draft:
        folder, text = self._folders[entry.state], entry.change.keys[entry.step.key]
        temporary = writing.temporary(folder, self._writer, number)
        source = self._source(entry) if link else None
        draft = source and writing.draft_link(
            source, temporary, text, mode=self._mode, uid=self._uid
        )
        if draft:
            return draft
        # Never a second name for the same file: Salt 3006 and 3007 write pending and denied keys in
        # place, and would then write into an accepted one.
        try:
            return writing.draft(temporary, text, mode=self._mode, uid=self._uid)
        except FileNotFoundError:
            self._make_folder(folder)
            return writing.draft(temporary, text, mode=self._mode, uid=self._uid)

    def _source(self, entry: NewEntry) -> str | None:
        """The file of a key that is only to go to another folder."""
        (minion_id, steps, _, _), step = entry
        for old in steps:
            if (step.action, old.action, old.key) == (PUT, REMOVE, step.key):
                return f"{self._folders[old.state]}/{minion_id}"
        return None

    def _remove_old(self, changes: Sequence[Change], done: Progress) -> set[str]:
        """Take the steps that remove something; the states in whose folders that was done."""
        touched = set()
        for change in changes:
            minion_id = change.minion_id
            _, linked = done.links.get(minion_id, (None, None))
            for step in change.steps:
                if step.action in NEW or done.is_left(minion_id):
                    continue
                state = step.state or DENIED
                with done.unless_one_file(change):
                    removed = self._remove(f"{self._folders[state]}/{minion_id}", step.key, linked)
                    if removed:
                        touched.add(state)
                    elif state != DENIED:  # denied keys push each other out
                        done.missing.add(minion_id)
        return touched

    def _path(self, entry: NewEntry) -> str:
        return f"{self._folders[entry.state]}/{entry.change.minion_id}"

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

    def _make_folder(self, folder: str) -> None:
        os.makedirs(folder, mode=0o750 if self._mode == 0o640 else 0o700, exist_ok=True)

    def _remove(self, path: str, key: bytes, linked: writing.Linked | None) -> bool:
        """Remove *path*, if it is that *key* still; it is when it is the *linked* file."""
        try:
            if not (linked and writing.is_still(path, linked)):
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


def _staying(changes: Iterable[Change]) -> set[str]:
    """
    In whose folders there is what stays where something else goes: a crash may have come before
    that was durable.
    """
    return {
        state
        for change in changes
        if any(step.action == REMOVE for step in change.steps)
        for state, key in change.shown.entries
        if Step(REMOVE, state, key) not in change.steps
    }


def _is_open(folder: str) -> bool:
    # Root may write anywhere, but on what is mounted read-only.
    return os.access(folder, os.W_OK | os.X_OK) or not os.path.exists(folder)


def _is_junk(path: str) -> bool:
    try:
        info = os.lstat(path)
        # Salt writes in place: it may be half a key yet.
        settled = abs(time.time() - info.st_mtime) > writing.SETTLED
        return stat.S_ISREG(info.st_mode) and settled and not reading.holds_key(path)
    except OSError:
        return False


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
