"""
Locks by name, for people and scripts: one holder at a time in the whole group.

A lock is a lease: the holder prolongs it while its command runs. With ``store: group`` the leader
gives locks, and remembers their holders. A master that has just begun to lead, or has met another
leader, gives none until the locks of that leader have ended, or were prolonged here. In a partition
each half has a leader, so this is best effort. With ``store: etcd`` each lock is a key in etcd with
a lease.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from saltext_ha.common.boot_clock import boot_clock
from saltext_ha.common.errors import HaError, InvalidRecord, LeaseGone
from saltext_ha.common.printable import is_printable
from saltext_ha.config.leader import ETCD, GROUP, LeaderSettings
from saltext_ha.once.etcd_client import EtcdClient
from saltext_ha.once.etcd_leader import EtcdLeader
from saltext_ha.once.leader import Leader
from saltext_ha.once.runs import check
from saltext_ha.sync.contact import Contact
from saltext_ha.transport import wire
from saltext_ha.transport.listener import Handler

TTL = 20.0
"""
Seconds for which a lock of the group holds after it was given or prolonged: so long that its holder
keeps it while another master begins to lead.
"""
ANSWER_WITHIN = 3.0  # for the leader's answer
MOST = 1_000
LONGEST = 100  # characters of the name that a holder gives itself
GONE = "the lock has ended, and somebody else may have it"


@dataclass(frozen=True)
class Wish:
    """
    :ivar by: the name that the holder gives itself. :ivar token: of the lock that it has, or empty.
    """

    name: str
    by: str
    token: str = ""

    def __post_init__(self) -> None:
        check(self.name)
        if not (0 < len(self.by) <= LONGEST and is_printable(self.by) and len(self.token) <= 64):
            raise InvalidRecord("malformed lock: it does not say who wants it")


def has_it(store: str, token: str, seconds: float, fence: int | None = None) -> dict[str, Any]:
    """The answer to a wish: its lock holds for *seconds* from the request on."""
    return {"held": True, "token": token, "seconds": seconds, "fence": fence, "store": store}


def has_not(store: str, why: str) -> dict[str, Any]:
    """The answer to a wish that cannot be fulfilled now."""
    return {"held": False, "why": why, "store": store}


@dataclass
class _Held:
    token: str
    by: str
    since: float
    until: float


class GroupLocks:
    """Locks that the leader gives and remembers; *clock* only grows."""

    def __init__(
        self,
        name: str,
        contacts: Mapping[str, Contact],
        leader: Leader,
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        self._name, self._contacts, self._leader, self._clock = name, contacts, leader, clock
        self._held: dict[str, _Held] = {}

    def for_peers(self) -> dict[str, Handler]:
        return {
            "lock": lambda peer, payload: self._asked(self._give, payload),
            "unlock": lambda peer, payload: self._asked(self._take_back, payload),
        }

    async def hold(self, wish: Wish) -> dict[str, Any]:
        """Take or prolong a lock. :raises HaError: the leader does not say."""
        return await self._at_leader("lock", wish)

    async def release(self, wish: Wish) -> None:
        """Give a lock back. :raises HaError: that failed; the lock ends by itself."""
        await self._at_leader("unlock", wish)

    async def _at_leader(self, method: str, wish: Wish) -> dict[str, Any]:
        standing = self._leader.standing
        if standing.leads:
            return self._give(wish) if method == "lock" else self._take_back(wish)
        if standing.leader not in self._contacts:
            raise HaError(f"nobody leads: {standing.why}" if standing.why else "nobody leads")
        told = {"name": wish.name, "by": wish.by, "token": wish.token}
        return await self._contacts[standing.leader].client.call(method, told, ANSWER_WITHIN)

    async def _asked(
        self, do: Callable[[Wish], dict[str, Any]], payload: Mapping[str, Any]
    ) -> dict[str, Any]:
        if not self._leader.standing.leads:
            raise HaError("this master does not lead")
        return do(Wish(*(wire.field(payload, each, str) for each in ("name", "by", "token"))))

    def _give(self, wish: Wish) -> dict[str, Any]:
        now = self._clock()
        self._held = {name: held for name, held in self._held.items() if held.until > now}
        held = self._held.get(wish.name)
        if why := self._why_not(wish, held, now):
            return has_not(GROUP, why)
        token = wish.token or secrets.token_hex(16)
        self._held[wish.name] = _Held(token, wish.by, held.since if held else now, now + TTL)
        return has_it(GROUP, token, TTL)

    def _why_not(self, wish: Wish, held: _Held | None, now: float) -> str:
        if held:
            others = GONE if wish.token else f"{held.by} has it, for {now - held.since:.0f} s"
            return "" if held.token == wish.token else others
        # At first, take over locks of the other leader that are prolonged, and give no new ones.
        left = TTL - (now - self._leader.standing.began)
        if left > 0 and not wish.token:
            why = "has just begun to lead, or met another leader"
            return f"{self._name} {why}: none yet, for {left:.0f} s"
        if left <= 0 and wish.token:
            return GONE
        return f"{MOST} locks are held" if len(self._held) >= MOST else ""

    def _take_back(self, wish: Wish) -> dict[str, Any]:
        held = self._held.get(wish.name)
        if held and held.token == wish.token:
            del self._held[wish.name]
        return {}


class EtcdLocks:
    """Each lock is a key in etcd, with a lease, whose id is the holder's token."""

    def __init__(self, group: str, settings: LeaderSettings, client: EtcdClient) -> None:
        self._prefix, self._ttl = f"{settings.prefix}/{group}/locks/", settings.ttl
        self._client = client

    def for_peers(self) -> dict[str, Handler]:
        return {}

    async def hold(self, wish: Wish) -> dict[str, Any]:
        """Take or prolong a lock. :raises EtcdError: etcd does not say."""
        key = self._prefix + wish.name
        held = await self._client.get(key)
        if wish.token:
            try:
                ttl = await self._client.keep_alive(wish.token)
            except LeaseGone:
                return has_not(ETCD, GONE)
            if held is None or held.value.partition(" ")[0] != wish.token:
                return has_not(ETCD, GONE)
            return has_it(ETCD, wish.token, ttl, held.revision)
        if held is None:
            lease, ttl = await self._client.grant(self._ttl)
            held = await self._client.take(key, f"{lease} {time.time():.0f} {wish.by}", lease)
            if held and held.value.partition(" ")[0] == lease:
                return has_it(ETCD, lease, ttl, held.revision)
            await self._client.revoke(lease)
        if held is None:
            return has_not(ETCD, "it was given back just now")
        _, _, said = held.value.partition(" ")
        since, _, by = said.partition(" ")
        ago = f", for {time.time() - int(since):.0f} s" if since.isdecimal() else ""
        return has_not(ETCD, f"{by or '?'} has it{ago}")

    async def release(self, wish: Wish) -> None:
        """Give a lock back. :raises EtcdError: that failed; the lock ends by itself."""
        with contextlib.suppress(LeaseGone):
            await self._client.revoke(wish.token)


Locks = GroupLocks | EtcdLocks
"""The locks of the group, as one master gives or asks for them."""


def make(
    name: str,
    group: str,
    settings: LeaderSettings | None,
    contacts: Mapping[str, Contact],
    leader: Leader,
) -> Locks:
    """Make the locks of the store that *settings* name."""
    if settings and isinstance(leader, EtcdLeader):
        return EtcdLocks(group, settings, leader.client)
    return GroupLocks(name, contacts, leader)
