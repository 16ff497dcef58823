"""
A group of masters in memory: real keepers and replicas over key stores that are plain dicts.

The stores behave as Salt's files do, and a crash can be set to strike at any of their operations
or at either end of any transaction.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from saltext_ha.keystore import minion_key
from saltext_ha.keystore.base import Change, Content, KeyStore, Outcome
from saltext_ha.reconciler.keeper import Keeper
from saltext_ha.reconciler.write_mode import WriteMode
from saltext_ha.replica.replica import Replica
from saltext_ha.replication.guard import RevocationGuard
from saltext_ha.replication.placement import Stored
from saltext_ha.replication.plan import DENY, PUT, REMOVE
from saltext_ha.replication.record import ACCEPTED, DECISIONS, PENDING, REJECTED
from tests.keys import public_keys

KEYS = {minion_key.fingerprint(text): text for text in public_keys(4)}


class Crash(Exception):
    """The process was killed here."""


class Fuse:
    """Burns down by one at each tick, and crashes when it is through."""

    def __init__(self) -> None:
        self.left: int | None = None

    def tick(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise Crash


class MemoryStore(KeyStore):
    """Key folders as dicts: state → id → fingerprint."""

    one_denied = True

    def __init__(self, fuse: Fuse) -> None:
        self.folders: dict[str, dict[str, bytes]] = {
            state: {} for state in (ACCEPTED, PENDING, REJECTED, "denied")
        }
        self.signatures: dict[str, str] = {}
        self.fuse = fuse
        self.writes = 0
        self.replaced: list[tuple[str, bytes]] = []

    def changed(self) -> list[str]:
        self.fuse.tick()
        return sorted(set(itertools.chain.from_iterable(self.folders.values())) | IDS)

    def recall(self, marks: Iterable[tuple[str, int]]) -> None:
        pass

    def signature(self, owner: str) -> str | None:
        self.fuse.tick()
        return self.signatures.get(owner)

    def sign(self, owner: str, token: str | None) -> None:
        self.fuse.tick()
        if token is None:
            self.signatures.pop(owner, None)
        else:
            self.signatures[owner] = token

    def read(self, minion_id: str, certain: bool = False) -> Content:
        return self.peek(minion_id, certain)

    def peek(self, minion_id: str, certain: bool = False) -> Content:
        self.fuse.tick()
        slots = [
            (state, self.folders[state][minion_id])
            for state in (REJECTED, PENDING, ACCEPTED)
            if minion_id in self.folders[state]
        ]
        denied = self.folders["denied"].get(minion_id)
        refused = frozenset({denied} if denied else ())
        if not slots:
            return Content(Stored(denied=refused), KEYS)
        return Content(Stored(*slots[0], refused, frozenset(slots[1:])), KEYS)

    def apply(self, changes: Sequence[Change]) -> Outcome:
        missing = set()
        for first in (True, False):
            for change in changes:
                for step in change.steps:
                    if (step.action in (PUT, DENY)) is not first:
                        continue
                    self.fuse.tick()
                    self.writes += 1
                    folder = self.folders[step.state or "denied"]
                    if first:
                        old = folder.get(change.minion_id)
                        if step.state == ACCEPTED and old not in (None, step.key):
                            self.replaced.append((change.minion_id, old))
                        folder[change.minion_id] = step.key
                    elif folder.get(change.minion_id) == step.key:
                        del folder[change.minion_id]
                    elif step.action == REMOVE:
                        missing.add(change.minion_id)
        return Outcome(missing, {}, set())

    def slot(self, minion_id: str) -> tuple[str, bytes] | None:
        return self.stored(minion_id).slot

    def stored(self, minion_id: str) -> Stored:
        """As :meth:`read`, by somebody else."""
        fuse, self.fuse = self.fuse, Fuse()
        try:
            return self.read(minion_id).stored
        finally:
            self.fuse = fuse


IDS = frozenset({"web1", "db1"})


class CrashingReplica(Replica):
    """A replica whose transactions may be struck before they begin and after they committed."""

    fuse: Fuse

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        self.fuse.tick()
        with super().transaction():
            yield
            self.fuse.tick()
        self.fuse.tick()

    def copy(self) -> CrashingReplica:
        """The same content, in a file of its own."""
        copy = CrashingReplica(None)
        self._db.backup(copy._db)
        copy.node = copy.meta.get("node")
        copy.counter = copy.nodes.seen().get(copy.node, 0)
        copy._load()
        return copy


class Backup(NamedTuple):
    """A copy of a master's replica and of its key folders."""

    replica: CrashingReplica
    folders: dict[str, dict[str, bytes]]
    signatures: dict[str, str]


class Master:
    """One master of the model; its clock is off by *skew* seconds."""

    def __init__(self, name: str, skew: float = 0.0) -> None:
        self.name = name
        self.skew = skew
        self.fuse = Fuse()
        self.store = MemoryStore(self.fuse)
        self.unmounted: dict[str, dict[str, bytes]] = {}
        """The decided slots that :meth:`unmount` took away."""
        self.rotations = 0
        self.lose_replica()
        with self.replica.transaction():
            self.replica.meta.blank = False  # it is in no group yet
        self.start()

    def start(self) -> None:
        """Start, or start again after a crash: nothing is kept but the store and the replica."""
        self.replica.take_node()
        self.keeper = Keeper(
            self.store,
            self.replica,
            name=self.name,
            guard=RevocationGuard(1.0, 1000),
            revoke=self._rotate,
            mode=WriteMode(lost=self.replica.meta.blank),
            clock=lambda: self.skew,
        )

    def lose_replica(self) -> None:
        """replica.db is gone, and begun anew; takes effect with the next start."""
        self.replica = CrashingReplica(None)
        self.replica.fuse = self.fuse

    def backup(self) -> Backup:
        """What a backup of this master holds."""
        folders = {state: dict(folder) for state, folder in self.store.folders.items()}
        return Backup(self.replica.copy(), folders, dict(self.store.signatures))

    def restore(self, backup: Backup, folders: bool) -> None:
        """Put a backup back, with its key folders or without; and start."""
        self.replica = backup.replica.copy()
        self.replica.fuse = self.fuse
        # Of this very hour: that a replica is older than its key store is noticed otherwise, and it
        # then counts as lost.
        self.store.signatures = dict(backup.signatures)
        if folders:
            for state, folder in backup.folders.items():
                self.store.folders[state] = dict(folder)
        self.start()

    def adopt(self, peer: Master) -> None:
        """Start after the replica was lost: first pull from *peer*, then take the store in."""
        self.start()
        pull(peer, self, at_once=True)
        self.keeper.reconciler.rebuilt()
        self.settle()

    def unmount(self) -> None:
        """Every key vanishes at once; what was decided is more than is believed."""
        folders = self.store.folders
        self.unmounted = {
            minion_id: {
                state: keys[minion_id] for state, keys in folders.items() if minion_id in keys
            }
            for minion_id in IDS
            if self.store.stored(minion_id).state in DECISIONS
        }
        for folder in self.store.folders.values():
            folder.clear()
        self.keeper.holds._guard = RevocationGuard(0.0, 0)
        self.settle()
        self.keeper.holds._guard = RevocationGuard(1.0, 1000)

    def mount(self) -> None:
        """What is still held comes back as it was."""
        for minion_id in self.replica.held.all():
            for folder in self.store.folders.values():
                folder.pop(minion_id, None)
            for state, key in self.unmounted[minion_id].items():
                self.store.folders[state][minion_id] = key
        self.settle()

    def _rotate(self, gone: Iterable[str] | None, rotate: bool) -> None:
        self.fuse.tick()
        assert not any(self.store.read(name).stored.entries for name in gone or ())
        self.rotations += rotate

    def settle(self) -> None:
        """Record what the store shows, certain of what is absent, and apply what is due."""
        self.keeper.observe(self.store.changed(), certain=True)
        for _ in range(10):
            self.keeper.reconciler.apply()
            if not self.keeper.work.ids():
                return
            self.keeper.observe(self.keeper.work.ids(), certain=True)
        raise AssertionError("apply does not come to an end")

    # -- what operators and minions do to the store, as Salt would

    def knock(self, minion_id: str, key: bytes) -> None:
        folders = self.store.folders
        slot = self.store.slot(minion_id)
        if slot is None:
            folders[PENDING][minion_id] = key
        elif slot[0] != REJECTED and slot[1] != key:
            folders["denied"][minion_id] = key

    def accept(self, minion_id: str) -> bytes | None:
        key = self.store.folders[PENDING].pop(minion_id, None)
        if key:
            self.store.folders[ACCEPTED][minion_id] = key
        return key

    def accept_denied(self, minion_id: str) -> bytes | None:
        key = self.store.folders["denied"].pop(minion_id, None)
        if key:
            for state in (PENDING, REJECTED):
                self.store.folders[state].pop(minion_id, None)
            self.store.folders[ACCEPTED][minion_id] = key
        return key

    def reject(self, minion_id: str) -> bytes | None:
        slot = self.store.slot(minion_id)
        if not slot or slot[0] == REJECTED:
            return None
        for state in (PENDING, ACCEPTED):
            self.store.folders[state].pop(minion_id, None)
        self.store.folders[REJECTED][minion_id] = slot[1]
        return slot[1]

    def delete(self, minion_id: str) -> set[bytes]:
        keys = {folder.pop(minion_id, None) for folder in self.store.folders.values()}
        return {key for key in keys if key}


def exchange(one: Master, other: Master, at_once: bool) -> None:
    """Both learn what the other knows, as anti-entropy does; see :meth:`Keeper.learn`."""
    for source, target in ((one, other), (other, one)):
        pull(source, target, at_once)
        target.settle()


def pull(source: Master, target: Master, at_once: bool) -> None:
    """*target* learns what *source* knows, and writes it down."""
    source.keeper.observe(source.store.changed(), certain=True)
    records = [r for minion_id in IDS for r in source.replica.get(minion_id).values()]
    target.keeper.mode.shared = "" if at_once else "tried"
    target.keeper.learn(records)
    target.keeper.mode.shared = ""
