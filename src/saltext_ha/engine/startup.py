"""What an engine finds when it starts: replica.db, the key store, and whether it may write that."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saltext_ha.commands.members import OBSERVES, paused
from saltext_ha.common import cluster
from saltext_ha.common.errors import ReplicaDamaged
from saltext_ha.common.files import refuse_link
from saltext_ha.keystore import open_store
from saltext_ha.keystore.revoke import revoke
from saltext_ha.reconciler.keeper import Keeper
from saltext_ha.reconciler.newcomers import Newcomers
from saltext_ha.replica import state_owner
from saltext_ha.replica.replica import REPLICA_FILE, Replica
from saltext_ha.replication.guard import RevocationGuard
from saltext_ha.sync.group import ADOPTING

if TYPE_CHECKING:
    from saltext_ha.engine.service import Service

log = logging.getLogger(__name__)


def open_keeper(service: Service, **parts: Any) -> Keeper:
    """
    The keeper of the master that *service* runs on, and what is to be said about it.

    :param parts: as :class:`.Applier` takes them.
    :raises TrustError: the state folder is another master's. :raises ReplicaError: replica.db
        cannot be used. :raises StoreError: the key store cannot.
    """
    state_owner.check(service.config)
    replica = _open_replica(service, service.config.state_dir / REPLICA_FILE)
    state_owner.move_in(service.config)
    try:
        return _make_keeper(service, replica, **parts)
    except BaseException:
        # Whoever tries again in this process must not find a lock of its own.
        replica.close()
        raise


def _make_keeper(service: Service, replica: Replica, **parts: Any) -> Keeper:
    config, opts = service.config, service.opts
    # Until a peer was asked, and not only at the first start.
    lost = replica.meta.blank and bool(service.trust.peers())
    service.vouching.begin(replica)
    with replica.transaction():
        replica.meta.mode = config.mode
        if not lost:
            replica.meta.blank = False
    member = cluster.of(opts)
    service.in_cluster = member.why_only_reported(config.repair) if member else ""
    service.only_reports = service.in_cluster
    if not service.only_reports:
        members = service.trust.pinned()
        service.only_reports = service.shared_store.recall(
            name for name in replica.meta.shared_with if name in members
        )
    if replica.meta.paused:
        since = replica.meta.paused_by
        observes = config.mode == "observe" and not since
        service.notes["paused"] = OBSERVES if observes else paused(since)
    if lost:
        log.warning("ha %s", ADOPTING)
    store = open_store(opts)
    store.sweep()
    store.recall(replica.marks())
    keeper = Keeper(
        store,
        replica,
        name=config.name,
        guard=RevocationGuard(config.hold_fraction, config.hold_minimum),
        revoke=lambda gone, rotate: _revoke(service, gone, rotate),
        enforce=not service.only_reports,
        newcomers=Newcomers(config.pending_limit, config.pending_rate),
        deleted_by_salt=member is not None and not service.only_reports,
        adopting=lost,
        **parts,
    )
    keeper.name_of = service.vouching.name_of
    return keeper


def _revoke(service: Service, gone: Iterable[str] | None, rotate: bool) -> None:
    revoke(service.opts, gone, rotate)
    service.counters.rotations += bool(rotate and service.opts.get("rotate_aes_key"))


def _open_replica(service: Service, path: Path) -> Replica:
    """The replica; a damaged file is moved aside, and another one begun."""
    for suffix in ("", "-wal", "-shm"):
        refuse_link(path.with_name(path.name + suffix))
    try:
        return Replica(path)
    except ReplicaDamaged as exc:
        aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%S')}")
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                path.with_name(path.name + suffix).rename(f"{aside}{suffix}")
        log.error("ha replica: %s; moved aside to %s", exc, aside)
        service.notes["damaged"] = f"replica.db was damaged; it lies in {aside.name}"
        return Replica(path)
