"""Opens replica.db and the key store when an engine starts; decides if it may write the latter."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple

from saltext_ha.common import cluster
from saltext_ha.common.counters import Counters
from saltext_ha.common.errors import ReplicaDamaged
from saltext_ha.common.files import refuse_link
from saltext_ha.config.mapping import HaConfig
from saltext_ha.keystore import open_store
from saltext_ha.keystore.revoke import revoke
from saltext_ha.membership import copied
from saltext_ha.reconciler.keeper import Keeper
from saltext_ha.reconciler.newcomers import Newcomers
from saltext_ha.reconciler.write_mode import WriteMode
from saltext_ha.replica import state_owner
from saltext_ha.replica.meta import Meta
from saltext_ha.replica.opening import files_of
from saltext_ha.replica.replica import REPLICA_FILE, Replica
from saltext_ha.replication.guard import RevocationGuard
from saltext_ha.replication.record import PENDING
from saltext_ha.sync import shared_store
from saltext_ha.sync.vouching import Vouching
from saltext_ha.transport.identity import Identity
from saltext_ha.transport.pins import Pins

log = logging.getLogger(__name__)

DAMAGED = "replica.db was damaged; a new one was made, the old is {}"


class Opened(NamedTuple):
    """``shared_with``: the masters that used the same key store when this one ran last."""

    keeper: Keeper
    vouching: Vouching
    shared_with: list[str]


def open_keeper(
    opts: Mapping[str, Any],
    config: HaConfig,
    pins: Pins,
    identity: Callable[[], Identity],
    *,
    counters: Counters,
    notes: MutableMapping[str, str],
    **parts: Any,
) -> Opened:
    """
    Open replica.db and the key store, and make the keeper of both.

    :param counters: counts new AES keys.
    :param notes: takes the note that a replica was damaged.
    :param parts: as :class:`.Keeper` takes them.
    :raises TrustError: the state folder, or the identity in it, is another master's, or a copy.
    :raises ReplicaError: replica.db cannot be used.
    :raises StoreError: the key store cannot be used.
    """
    state_owner.check(config)
    copied.check(config)
    copied.check_identity(config, identity(), pins.peers().values())
    replica = _open_replica(config.state_dir / REPLICA_FILE, notes)
    state_owner.move_in(config)
    try:
        vouching = Vouching(replica, identity, pins)
        # It counts as lost until a peer was asked, not only at the first start.
        lost = replica.meta.blank and bool(pins.peers() or pins.problems())
        vouching.begin()
        with replica.transaction():
            replica.meta.mode = config.mode
            if not lost:
                replica.meta.blank = replica.meta.adopted = False
        mode, shared_with = _write_mode(opts, config, pins, replica, lost)
        if lost:
            log.warning("ha %s", mode.lost_note)
        store = open_store(opts)
        store.sweep()
        store.recall(replica.marks())

        def revoked(gone: Iterable[str] | None, rotate: bool) -> None:
            revoke(opts, gone, rotate)
            counters.rotations += bool(rotate and opts.get("rotate_aes_key"))

        keeper = Keeper(
            store,
            replica,
            name=config.name,
            guard=RevocationGuard(config.hold_fraction, config.hold_minimum),
            revoke=revoked,
            mode=mode,
            newcomers=Newcomers(
                lambda: replica.counts().get(PENDING, 0), config.pending_limit, config.pending_rate
            ),
            deleted_by_salt=cluster.of(opts) is not None and not mode.never,
            name_of=vouching.name_of,
            **parts,
        )
        return Opened(keeper, vouching, shared_with)
    except BaseException:
        # The next attempt in this process must not meet our own lock.
        replica.close()
        raise


def _write_mode(
    opts: Mapping[str, Any], config: HaConfig, pins: Pins, replica: Replica, lost: bool
) -> tuple[WriteMode, list[str]]:
    """Whether the store may be written, and the masters that shared it."""
    member = cluster.of(opts)
    in_cluster = member.why_only_reported(config.repair) if member else ""
    mode = WriteMode(config.mode, in_cluster, lost, adopted=lost and replica.meta.adopted)
    shared_with = []
    if not mode.never:
        members = pins.pinned()
        shared_with = [name for name in replica.meta.shared_with if name in members]
        mode.shared = shared_store.reason(shared_with)
    if replica.meta.paused:
        mode.pause(replica.meta.paused_by)
    return mode, shared_with


def _open_replica(path: Path, notes: MutableMapping[str, str]) -> Replica:
    """
    Open the replica; a damaged file is moved aside, and a new one is begun. A pause is kept if the
    damaged file still tells of it.
    """
    for file in files_of(path):
        refuse_link(file)
    aside = sorted(path.parent.glob(f"{path.name}.damaged-*[0-9]"))
    # If there is no file, the engine moved it aside when it ended.
    damaged = aside[-1] if aside and not path.exists() else None
    if not damaged:
        try:
            return Replica(path)
        except ReplicaDamaged as exc:
            damaged = move_aside(path, str(exc))
    notes["damaged"] = DAMAGED.format(damaged.name)
    replica = Replica(path)
    if since := _paused_by(damaged):
        with replica.transaction():
            replica.meta.paused = True
            replica.meta.paused_by = since
    return replica


def _paused_by(damaged: Path) -> str:
    """Since when and by whom a master was paused; empty if it was not, or cannot be read."""
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(f"{damaged.as_uri()}?mode=ro", uri=True)) as db,
    ):
        return Meta(db).paused_by
    return ""


def move_aside(path: Path, damage: str) -> Path:
    """Move the replica *path*, which is closed, aside for its *damage*; returns where it is."""
    aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%S')}")
    for file, to in zip(files_of(path), files_of(aside), strict=True):
        with contextlib.suppress(FileNotFoundError):
            file.rename(to)
    log.error("ha replica: %s; moved aside to %s", damage, aside)
    return aside
