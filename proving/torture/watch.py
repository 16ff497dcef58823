"""
Watches all key folders and rotate files of a history from outside, as often as it can.

It acts like a salt-master: it removes a rotate file, as after making a new AES key, and caches the
grains of accepted minions.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from proving.torture.keys import ACCEPTED, Entry, Folders, slot_of
from proving.torture.member import Member

PAUSE = 0.025
ROTATE = ".dfn"


@dataclass
class Change:
    """Between two looks, *since* and *at* (monotonic seconds), an id's files changed."""

    on: str
    minion_id: str
    before: Entry
    after: Entry
    since: float
    at: float


@dataclass
class _Watched:
    member: Member
    folders: Folders
    rotate: Path
    shown: dict[str, Entry]
    looked: float


class Watcher(threading.Thread):
    """Runs until :meth:`stop`."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.changes: list[Change] = []
        self.rotations: dict[str, list[float]] = {}
        self._watched: list[_Watched] = []
        self._over = threading.Event()
        self._lock = threading.Lock()

    def add(self, member: Member) -> None:
        rotate = member.place.folder / "cache" / ROTATE
        watched = _Watched(member, Folders(member.place.pki_dir), rotate, {}, time.monotonic())
        watched.shown = watched.folders.look()
        with self._lock:
            self.rotations[member.name] = []
            self._watched.append(watched)
            for minion_id in watched.shown:
                self._hear(watched, minion_id)

    def stop(self) -> None:
        """Look once more, and end."""
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(PAUSE):
            with self._lock:
                for watched in self._watched:
                    self.look(watched)

    def look(self, watched: _Watched) -> None:
        member, begun = watched.member, time.monotonic()
        with contextlib.suppress(FileNotFoundError):
            watched.rotate.unlink()
            self.rotations[member.name].append(begun)
        shown = watched.folders.look()
        if shown != watched.shown:
            at = time.monotonic()
            for minion_id in shown.keys() | watched.shown.keys():
                before, after = watched.shown.get(minion_id, {}), shown.get(minion_id, {})
                if before != after:
                    self.changes.append(
                        Change(member.name, minion_id, before, after, watched.looked, at)
                    )
                    self._hear(watched, minion_id)
        watched.shown, watched.looked = shown, begun

    def _hear(self, watched: _Watched, minion_id: str) -> None:
        """A minion whose key is accepted tells its grains."""
        if watched.folders.accepts(minion_id):
            watched.member.caches.fill(minion_id)
            # A master that removes the key from now on has something to clear.
            if not watched.folders.accepts(minion_id):
                watched.member.caches.clear(minion_id)


@dataclass
class Operation:
    """Somebody's work on an id of a master, from *begun* to *ended* (monotonic seconds)."""

    on: str
    minion_id: str
    begun: float
    ended: float


def by_engines(
    changes: Iterable[Change], operations: Iterable[Operation], blind: dict[str, list[Operation]]
) -> list[Change]:
    """The changes that no operation of people or faults explains."""
    hands: dict[tuple[str, str], list[Operation]] = {}
    for operation in operations:
        hands.setdefault((operation.on, operation.minion_id), []).append(operation)
    return [
        change
        for change in changes
        if not any(
            operation.begun <= change.at and operation.ended >= change.since
            for operation in (
                *hands.get((change.on, change.minion_id), ()),
                *blind.get(change.on, ()),
            )
        )
    ]


def revoked(change: Change, legacy: bool) -> bool:
    """Whether an accepted key lost its place by *change*."""
    before, after = slot_of(change.before, legacy), slot_of(change.after, legacy)
    return before is not None and before[0] == ACCEPTED and before != after
