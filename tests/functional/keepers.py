"""Keepers over real key folders and real replica files, and steps that happen to their keys."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from saltext_ha.common.errors import StoreError
from saltext_ha.keystore import minion_key
from saltext_ha.keystore.base import Change, Outcome
from saltext_ha.keystore.files import FileStore
from saltext_ha.keystore.folders import FOLDERS, Folders
from saltext_ha.reconciler.hints import Hint, tasks
from saltext_ha.reconciler.keeper import Keeper
from saltext_ha.reconciler.merging import Merged
from saltext_ha.reconciler.write_mode import WriteMode
from saltext_ha.replica.replica import Replica
from saltext_ha.replication.guard import RevocationGuard
from saltext_ha.replication.record import ACCEPTED, DELETED, DENIED, PENDING, Record
from tests.keys import JUNK, public_key

KEYS = [public_key(number) for number in range(7)]
PRINTS = [minion_key.fingerprint(text) for text in KEYS]


Follow = Callable[["Master", Iterable[Record]], None]


class Crash(Exception):
    """The process was killed here."""


class _Folders(Folders):
    """Tells when new entries or removals were made durable."""

    synced: Callable[[], None]

    def sync(self, states: Iterable[str]) -> None:
        super().sync(states)
        self.synced()


class Store(FileStore):
    """Key folders; with *fuse* set, the process dies after that many more steps of an apply."""

    fuse: int | None = None
    before: Callable[[], None] | None = None
    """An act of somebody else when an apply is about to write."""
    copying: bool | None = False
    """Whether somebody is putting keys in the store's place; None: as the folders tell."""
    between: Callable[[], None] | None = None
    """An act of somebody else after the new entries of an apply, before the old ones go."""

    def __init__(self, root: Path, pending_first: bool = False) -> None:
        super().__init__(root, pending_first=pending_first)
        self._folders = _Folders(*self._folders)
        self._folders.synced = self._was_synced

    def _was_synced(self) -> None:
        act, self.between = self.between, None
        if act:
            act()

    def at_rest(self) -> bool:
        return super().at_rest() if self.copying is None else not self.copying

    crash_after = False
    """Die after the next apply."""
    broken = False
    """Fail all writes."""

    def apply(self, changes: Sequence[Change]) -> Outcome:
        if self.broken:
            raise StoreError("the disk is full")
        act, self.before = self.before, None
        if act:
            act()
        if self.crash_after:
            super().apply(changes)
            raise Crash
        if self.fuse is None:
            return super().apply(changes)
        outcome = Outcome(set(), {}, set())
        for new in (True, False):
            for change in changes:
                for step in change.steps:
                    if (step.action in ("put", "deny")) is new:
                        if self.fuse == 0:
                            raise Crash
                        self.fuse -= 1
                        made = super().apply([change._replace(steps=[step])])
                        outcome.missing.update(made.missing)
                        outcome.taken.update(made.taken)
        return outcome


class Master:
    """
    One master's key folders, replica and keeper, and steps that happen to them.

    :param in_memory: the replica is no file, so that nothing waits for a disk.
    """

    def __init__(
        self,
        root: Path,
        name: str,
        *,
        minimum: int = 10,
        in_memory: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.root = root / name
        self.root.mkdir()
        for folder in FOLDERS.values():
            (self.root / folder).mkdir()
        self.name = name
        self.minimum = minimum
        self._database = None if in_memory else self.root / "replica.db"
        self._clock = clock
        self.revoked = 0
        self.gone: list[set[str] | None] = []
        self.revoking: Callable[[], None] = lambda: None
        self.open()

    def open(
        self,
        adopting: bool = False,
        enforce: bool = True,
        deleted_by_salt: bool = False,
        pending_first: bool = False,
        adopted: bool = False,
        mode: WriteMode | None = None,
    ) -> None:
        written = "" if enforce else "another one writes"
        self.store = Store(self.root, pending_first=pending_first)
        self.replica = Replica(self._database)
        self.keeper = Keeper(
            self.store,
            self.replica,
            name=self.name,
            guard=RevocationGuard(0.05, self.minimum),
            revoke=self._revoke,
            mode=mode or WriteMode("enforce", written, adopting, adopted),
            deleted_by_salt=deleted_by_salt,
            clock=self._clock,
        )

    def _revoke(self, gone: Iterable[str] | None, rotate: bool) -> None:
        if rotate:
            self.revoking()
            self.revoked += 1
        self.gone.append(None if gone is None else set(gone))

    def restart(self, **how: Any) -> None:
        self.replica.close()
        self.open(**how)

    def scan(self) -> list[Record]:
        """Observe all changes, with a second look at unsettled ids."""
        return [*self.scan_once(), *self.look_again()]

    def scan_once(self) -> list[Record]:
        """Observe all changes, with one look."""
        return self.keeper.observe({*self.store.changed(), *self.keeper.work.ids()})

    def look_again(self) -> list[Record]:
        """Take a second look, somewhat later."""
        return self.keeper.observe(self.keeper.work.ids(), certain=True)

    def deletion_told(self, ids: Iterable[str], by: str = "operator") -> list[Record]:
        """Salt's events say that *by* deleted *ids*."""
        hints = [Hint(minion_id, by, True) for minion_id in ids]
        return self.keeper.reconcile_all([*self.keeper.work.late(), *tasks(hints)])

    def settle(self) -> None:
        self.scan()
        for _ in range(5):
            self.keeper.reconciler.apply()
            if not self.keeper.work.ids() or self.keeper.mode.doubt:
                return
            self.look_again()
        raise AssertionError("apply does not come to an end")

    def learn(self, records: Iterable[Record]) -> int:
        merged = self.keeper.learn(records)
        self.look_again()
        self.settle()
        return merged.learned

    def hear(self, records: Iterable[Record]) -> Merged:
        """Learn *records*, and leave the key store as it is until the next apply."""
        self.keeper.mode.shared = "another one writes"
        try:
            return self.keeper.learn(records)
        finally:
            self.keeper.mode.shared = ""

    def records(self) -> list[Record]:
        return [r for minion_id in self.replica.ids() for r in self.replica.get(minion_id).values()]

    def state(self, minion_id: str, key: int = 0) -> str | None:
        record = self.replica.get(minion_id).get(PRINTS[key])
        return record.state if record else None

    def file(self, state: str, minion_id: str) -> Path:
        return self.root / FOLDERS[state] / minion_id

    def files(self) -> dict[tuple[str, str], str]:
        return {
            (state, path.name): path.read_text()
            for state, folder in FOLDERS.items()
            for path in (self.root / folder).iterdir()
            if not path.name.startswith(".")
        }

    # -- as minions, operators and Salt do

    def knock(self, minion_id: str, key: int = 0, state: str = PENDING) -> None:
        self.file(state, minion_id).write_text(KEYS[key])

    def junk(self, minion_id: str, state: str, text: str = JUNK) -> None:
        """Put *text* where its key should be; nobody has written it for long."""
        path = self.file(state, minion_id)
        path.write_text(text)
        os.utime(path, (1, 1))

    def move(self, minion_id: str, old: str, new: str) -> None:
        """As ``salt.key.Key`` of 3006 and 3007 does."""
        shutil.move(self.file(old, minion_id), self.file(new, minion_id))

    def remove(self, minion_id: str) -> None:
        for state in FOLDERS:
            self.file(state, minion_id).unlink(missing_ok=True)


def exchange(one: Master, other: Master) -> None:
    for source, target in ((one, other), (other, one), (one, other)):
        source.scan()
        target.learn(source.records())


def shared(one: Master, other: Master, *minion_ids: str, key: int = 0) -> None:
    """Have both masters accept *minion_ids*."""
    for minion_id in minion_ids:
        one.knock(minion_id, key, ACCEPTED)
    exchange(one, other)
    for minion_id in minion_ids:
        assert other.file(ACCEPTED, minion_id).read_text() == KEYS[key]


def decided(one: Master, other: Master, before: str, after: str) -> None:
    """Both have the key of web1 as *before*; *one* makes it *after*, and *other* has not heard."""
    one.knock("web1", 0, before)
    exchange(one, other)
    assert other.file(before, "web1").read_text() == KEYS[0]
    if after == DELETED:
        one.remove("web1")
    else:
        one.move("web1", before, after)
    one.scan()


def crowded(master: Master) -> None:
    """Five undecided keys of web1: the fifth is too many, and has no record."""
    for key in range(1, 6):
        master.knock("web1", key, PENDING if key == 1 else DENIED)
        master.settle()


def lose(master: Master) -> None:
    """Delete the replica.db of *master*; the caller must open it again."""
    master.replica.close()
    for path in master.root.glob("replica.db*"):
        path.unlink()


@contextlib.contextmanager
def reverted(master: Master) -> Iterator[None]:
    """What is done to *master* meanwhile is in its key store, and in the end not in replica.db."""
    master.replica.close()
    shutil.copy2(master.root / "replica.db", master.root / "old.db")
    master.open()
    yield
    master.keeper.holds.provenance.sign()
    master.replica.close()
    (master.root / "old.db").replace(master.root / "replica.db")
    master.open()
    master.store.recall(master.replica.marks())
    master.replica.take_node()


def wipe(master: Master) -> list[Record]:
    shutil.rmtree(master.root / "minions")
    (master.root / "minions").mkdir()
    return master.scan()
