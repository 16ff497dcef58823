"""
Minion keys as files: ``minions``, ``minions_pre``, ``minions_rejected`` and ``minions_denied``.

The layout of 3006 and 3007, and of 3008's ``localfs_key`` driver (``salt/cache/localfs_key.py``).
We do not go through that driver: its ``store`` removes the old file before it writes the new one,
so that a crash in between loses the key.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from saltext_ha import minion_key
from saltext_ha.errors import InvalidRecord, StoreError
from saltext_ha.keystore.base import Change, Content
from saltext_ha.replication.placement import ABSENT, Stored
from saltext_ha.replication.plan import DENY, PUT, Step
from saltext_ha.replication.record import ACCEPTED, DENIED, PENDING, REJECTED

FOLDERS = {
    ACCEPTED: "minions",
    PENDING: "minions_pre",
    REJECTED: "minions_rejected",
    DENIED: "minions_denied",
}


class FileStore:
    """
    The key folders below *root*.

    :param user: owner of files that are written; left as it is when unknown or not permitted.
    :param group_readable: ``permissive_pki_access`` of the master.
    :param pending_first: where an id is both pending and accepted, Salt takes it as pending.
    """

    one_denied = True

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
        # One small number a file instead of its stat: 100 000 keys stay a few MB.
        self._seen: dict[str, dict[str, int]] = {state: {} for state in FOLDERS}
        self._marks: dict[str, int] = {}

    def changed(self) -> Iterable[str]:
        """See :meth:`KeyStore.changed`: one ``scandir`` pass, nothing is read."""
        ids: set[str] = set()
        for state in FOLDERS:
            seen = self._seen[state]
            found: set[str] = set()
            for name, signature in self._scan(state):
                found.add(name)
                if seen.get(name) != signature:
                    ids.add(name)
            ids.update(name for name in tuple(seen) if name not in found)
        return ids

    def touched(self) -> bool:
        """See :meth:`KeyStore.touched`: by the folders' times of change."""
        marks = {}
        for state in FOLDERS:
            with contextlib.suppress(OSError):
                marks[state] = self._folder(state).stat().st_mtime_ns
        changed = marks != self._marks
        self._marks = marks
        return changed

    def read(self, minion_id: str) -> Content | None:
        """See :meth:`KeyStore.read`; what cannot be an id has no key."""
        if not _may_be_id(minion_id):  # an event may name any path
            return Content(ABSENT, {})
        keys: dict[bytes, str] = {}
        found: dict[str, bytes] = {}
        signatures: dict[str, int] = {}
        for state in FOLDERS:
            path = self._path(state, minion_id)
            try:
                info = path.lstat()
                if not stat.S_ISREG(info.st_mode):
                    continue
                text = _read_key(path)
            except FileNotFoundError:
                continue
            except OSError as exc:
                raise StoreError(f"{path}: cannot be read: {exc}") from exc
            if text is None and state != DENIED:
                return None
            signatures[state] = _signature(info)
            if text is None:
                # Salt writes whatever was sent there: it must not stop a revocation.
                continue
            found[state] = minion_key.fingerprint(text)
            keys[found[state]] = text
        for state in FOLDERS:
            if state in signatures:
                self._seen[state][minion_id] = signatures[state]
            else:
                self._seen[state].pop(minion_id, None)
        return Content(self._stored(found), keys)

    def apply(self, changes: Sequence[Change]) -> set[str]:
        """See :meth:`KeyStore.apply`."""
        try:
            touched: set[str] = set()
            for change in changes:
                for step in change.steps:
                    if step.action in (PUT, DENY):
                        touched.add(self._write(change, step))
            self._sync(touched)
            touched, missing = set(), set()
            for change in changes:
                for step in change.steps:
                    if step.action not in (PUT, DENY):
                        state = step.state or DENIED
                        touched.add(state)
                        removed = self._remove(state, change.minion_id, step.key)
                        if step.state and not removed:
                            missing.add(change.minion_id)
            self._sync(touched)
        except OSError as exc:
            raise StoreError(f"{self._root}: key folders cannot be written: {exc}") from exc
        return missing

    def _stored(self, found: dict[str, bytes]) -> Stored:
        slots = [(state, found[state]) for state in self._precedence if state in found]
        denied = frozenset({found[DENIED]}) if DENIED in found else frozenset()
        if not slots:
            return Stored(denied=denied)
        return Stored(*slots[0], denied=denied, extra=frozenset(slots[1:]))

    def _scan(self, state: str) -> Iterator[tuple[str, int]]:
        folder = self._folder(state)
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith(".") or not _may_be_id(entry.name):
                        continue
                    try:
                        info = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    if stat.S_ISREG(info.st_mode):
                        yield entry.name, _signature(info)
        except FileNotFoundError:
            return
        except OSError as exc:
            raise StoreError(f"{folder}: cannot be listed: {exc}") from exc

    def _write(self, change: Change, step: Step) -> str:
        state = step.state or DENIED
        target = self._path(state, change.minion_id)
        target.parent.mkdir(mode=0o750 if self._mode == 0o640 else 0o700, exist_ok=True)
        temporary = target.with_name(f".{os.getpid()}.ha")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, self._mode)
        try:
            _write_all(descriptor, change.keys[step.key].encode())
            os.fchmod(descriptor, self._mode)
            with contextlib.suppress(PermissionError):
                os.fchown(descriptor, self._uid, -1)
            os.fsync(descriptor)
            temporary.rename(target)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
        return state

    def _remove(self, state: str, minion_id: str, key: bytes) -> bool:
        path = self._path(state, minion_id)
        try:
            text = _read_key(path)
            if text is None or minion_key.fingerprint(text) != key:
                return False
            path.unlink()
        except FileNotFoundError:
            return False
        return True

    def _sync(self, states: set[str]) -> None:
        for state in states:
            descriptor = os.open(self._folder(state), os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _folder(self, state: str) -> Path:
        return self._root / FOLDERS[state]

    def _path(self, state: str, minion_id: str) -> Path:
        return self._root / FOLDERS[state] / minion_id


def _read_key(path: Path) -> str | None:
    """The key in normal form; None when the file is empty, half written or no key."""
    with path.open("rb") as stream:
        raw = stream.read(minion_key.MAX_LENGTH + 1)
    try:
        text = minion_key.normalise(raw.decode())
        minion_key.check_shape(text)
    except (UnicodeDecodeError, InvalidRecord):
        return None
    return text


def _write_all(descriptor: int, data: bytes) -> None:
    # On a disk that is nearly full the first write is short, and only the next one fails.
    while data:
        data = data[os.write(descriptor, data) :]


def _signature(info: os.stat_result) -> int:
    return hash((info.st_ino, info.st_mtime_ns, info.st_ctime_ns, info.st_size))


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
