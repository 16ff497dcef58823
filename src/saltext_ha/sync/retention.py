"""
Drops tombstones that no master needs any more.

A tombstone keeps a deleted key from coming back with an old copy of a replica. It may be dropped
when every master has it. From time to time the master whose name comes first asks the others
whether they know exactly what it knows. If all say so (so all must be up), every master drops
tombstones of a certain age, and remembers the writes that all masters have as the horizon. A record
within the horizon that is not here was dropped: if an old copy of a replica offers such a record,
it is told so (``Tombstones.dropped_elsewhere``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from typing import Any

from saltext_ha.common.errors import HaError, InvalidRecord
from saltext_ha.reconciler.core import Core
from saltext_ha.reconciler.dropping import Dropping
from saltext_ha.replication.record import join
from saltext_ha.replication.vouching import bounded
from saltext_ha.sync.codec import read_context
from saltext_ha.sync.contact import Contact
from saltext_ha.sync.link import Link
from saltext_ha.transport import wire
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.peer import Peer
from saltext_ha.transport.pins import Pins

log = logging.getLogger(__name__)

INTERVAL = 3600.0
FIRST = 60.0
DAY = 86400.0
PORTION = 5000
MAX_EPOCH = 2**53
MAX_MISSED = 1_000_000  # droppings in a hundred years
ATTEMPTS = 10  # if keys change all the time, masters are level only for moments


class Retention:
    """
    This master's part in dropping old tombstones.

    :param name: this master's name.
    :param keep: days for which a tombstone is kept.
    :param pause: seconds to wait for masters to be level (to know the same) again.
    """

    def __init__(
        self,
        name: str,
        core: Core,
        pins: Pins,
        contacts: Mapping[str, Contact],
        *,
        keep: float,
        pause: float,
    ) -> None:
        self._name, self._core = name, core
        self._pins, self._contacts = pins, contacts
        self._keep, self._pause = keep, pause

    def for_peers(self) -> dict[str, Handler]:
        """The methods for the master that drops."""

        async def level(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            level, epoch = await self._core.run(self._level, payload.get("root"))
            return {"level": level, "epoch": epoch}

        async def drop(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            dropping = _read(payload)
            if not await self._is_epoch(dropping.epoch):
                raise InvalidRecord("the epoch is of another time")
            root = wire.field(payload, "root", bytes)
            return {
                "dropped": await self._core.run(self._core.keeper.tombstones.drop, root, dropping)
            }

        async def horizon(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            dropped = self._core.replica.dropped
            seen, epoch = await self._core.run(lambda: (dropped.horizon(), dropped.epoch))
            rows = [list(entry) for entry in seen.items()]
            return {"horizon": rows, "epoch": epoch, "lost": self._core.mode.lost}

        return {"level": level, "drop": drop, "horizon": horizon}

    async def pull(self, link: Link) -> bool:
        """
        Pull all that a peer knows, its records and its horizon, after this replica was lost.

        :return: whether the peer itself has all that the group knows.
        :raises HaError: the peer cannot be asked; what was pulled so far is valid.
        """
        # The horizon first: records pulled later contain all that every master had then.
        answer = await link.contact.call("horizon", {})
        horizon, epoch = await self._horizon(answer)
        # The size of messages limits one round. A record that comes again and again, because this
        # master refuses it and the peer does not drop it, is no news.
        while (done := await link.exchange()).learned:
            pass
        # A refused record is missing here, but was not dropped.
        await self._core.run(self._raise, {} if done.refused else horizon, epoch)
        return not wire.field(answer, "lost", bool)

    async def _horizon(self, answer: Mapping[str, Any]) -> tuple[dict[str, int], int]:
        """The horizon and the epoch (how often the group has dropped) in a peer's answer."""
        if not await self._is_epoch(answer.get("epoch")):
            return {}, 0
        return read_context(answer.get("horizon")), answer["epoch"]

    def _raise(self, horizon: dict[str, int], epoch: int) -> None:
        replica = self._core.replica
        highs = replica.vouched.highs
        # All that the peer knows was taken in, so a write that is missing here was dropped.
        horizon = bounded(horizon, join(replica.nodes.seen(), highs), highs)
        with replica.transaction():
            replica.dropped.raise_horizon(horizon, epoch)

    async def run(self) -> None:
        """Drop old tombstones regularly, until cancelled."""
        await asyncio.sleep(FIRST)
        while True:
            try:
                await self.drop_old()
            except HaError as exc:
                log.info("ha tombstones are kept for now: %s", exc)
            await asyncio.sleep(INTERVAL)

    def others(self) -> list[str]:
        """The other masters of the group; all of them must agree."""
        return sorted(self._pins.peers())

    async def drop_old(self) -> int:
        """
        Drop tombstones that are old enough, if this master's name comes first.

        :return: how many were dropped here.
        :raises HaError: they are kept for now; says why.
        """
        if any(name < self._name for name in self.others()):
            return 0
        before = time.time() - self._keep * DAY
        count, after = 0, ""
        while True:
            keys, after = await self._core.run(self._old, before, after)
            if keys:
                count += await self._drop(keys)
            if not after:
                break
        if not count:
            await self._tell_horizon()
        return count

    def _old(self, before: float, after: str) -> tuple[list[tuple[str, bytes]], str]:
        """The next tombstones written before *before*; and where to continue, empty at the end."""
        records = self._core.replica.tombstones(after, PORTION)
        old = [
            (record.minion_id, record.fingerprint)
            for record in records
            if max(value.at for value in record.values) < before
        ]
        return old, records[-1].minion_id if len(records) == PORTION else ""

    async def _drop(self, keys: list[tuple[str, bytes]]) -> int:
        core = self._core
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(self._pause)
            root = core.replica.records.root
            try:
                epochs = await self._all_level(root)
            except HaError:
                if attempt == ATTEMPTS - 1:
                    raise
                continue
            dropping = await core.run(self._dropping, keys, max(epochs.values()) + 1)
            if await core.run(core.keeper.tombstones.drop, root, dropping):
                break
        else:
            raise HaError("keys change all the time")
        # A master that cannot be told now offers the tombstones again, and is told then.
        await self._tell(root, dropping)
        log.info("ha tombstones dropped: keys=%d", len(keys))
        return len(keys)

    async def _tell(self, root: bytes, dropping: Dropping) -> None:
        payload = {
            "root": root,
            "keys": [list(key) for key in dropping.keys],
            "horizon": [list(seen) for seen in dropping.horizon.items()],
            "epoch": dropping.epoch,
        }
        for name, contact in list(self._contacts.items()):
            try:
                await contact.call("drop", payload)
            except HaError as exc:
                log.info("ha tombstones: %s drops them later: %s", name, exc)

    async def _tell_horizon(self) -> None:
        """
        Give all masters the same horizon. A master may lack it because it was busy when the others
        dropped, or because its replica is an old copy. If masters are not level now, try later.
        """
        core = self._core
        root = core.replica.records.root
        with contextlib.suppress(HaError):
            epochs = await self._all_level(root)
            most = max(epochs, key=lambda name: epochs[name])
            if epochs[most] == min(epochs.values()):
                return
            dropping = await core.run(self._dropping, [], epochs[most])
            if most in self._contacts:
                theirs, _ = await self._horizon(await self._contacts[most].call("horizon", {}))
                dropping = dropping._replace(horizon=join(dropping.horizon, theirs))
            if await core.run(core.keeper.tombstones.drop, root, dropping):
                await self._tell(root, dropping)

    def _dropping(self, keys: list[tuple[str, bytes]], epoch: int) -> Dropping:
        replica = self._core.replica
        return Dropping(keys, join(replica.dropped.horizon(), replica.nodes.seen()), epoch)

    async def _all_level(self, root: bytes) -> dict[str, int]:
        """
        Master → how often it has dropped tombstones, if it says so.

        :raises HaError: a master is down, or is not level.
        """
        level, epoch = await self._core.run(self._level, root)
        epochs = {self._name: epoch}
        if not level:
            raise HaError(f"{self._name} has keys not yet written, or does not write")
        for name in self.others():
            contact = self._contacts.get(name)
            if contact is None or not contact.up:
                raise HaError(f"{name} does not answer; they wait for it, or for ha.remove_peer")
            answer = await contact.call("level", {"root": root})
            if not answer.get("level"):
                raise HaError(f"{name} does not have the same keys yet")
            if await self._is_epoch(answer.get("epoch")):
                epochs[name] = answer["epoch"]
        return epochs

    async def _is_epoch(self, raw: Any) -> bool:
        """
        Whether *raw*, a peer's count of droppings, is valid; it must leave room for more.
        """
        dropped = self._core.replica.dropped
        epoch = await self._core.run(lambda: dropped.epoch)
        return type(raw) is int and 0 <= raw < min(MAX_EPOCH, epoch + MAX_MISSED)

    def _level(self, root: Any) -> tuple[bool, int]:
        """
        Whether the records here have exactly the digest *root* and are applied; and our epoch.
        """
        replica = self._core.replica
        level = self._core.mode.writes and replica.records.root == root and not replica.dirty()
        return level, replica.dropped.epoch


def _read(payload: dict[str, Any]) -> Dropping:
    epoch = wire.field(payload, "epoch", int)
    if not 0 < epoch <= MAX_EPOCH:
        raise InvalidRecord("the epoch is no count")
    keys = wire.rows(payload.get("keys"), "list of keys", str, bytes)
    pairs = [(minion_id, key) for minion_id, key in keys]
    return Dropping(pairs, read_context(payload.get("horizon")), epoch)
