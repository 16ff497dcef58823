"""
``store: etcd``: the master that holds the group's key in etcd leads; at most one does.

The key has a lease, which its master prolongs. A master leads for less time than etcd lets the
lease live: it counts from before its request, ends a tenth of the TTL earlier, and goes by a clock
that runs on while the process is stopped or the machine suspended. So it has ceased before another
master can begin. The revision that created the key is the fencing number: the next leader's is
greater.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Iterator

from saltext_ha.common.beat import rest
from saltext_ha.common.boot_clock import boot_clock
from saltext_ha.common.errors import EtcdError, LeadsNoMore, LeaseGone
from saltext_ha.config.leader import ETCD, LeaderSettings
from saltext_ha.once.candidate import Candidate, refusing
from saltext_ha.once.etcd_client import EtcdClient, KeyHolder
from saltext_ha.once.leadership import NO_MORE, QUIET, Leadership
from saltext_ha.transport.listener import Handler

TURN = 1.0
"""Seconds between two looks at the key."""
STRANGER = (
    "{0} has the key {1} in etcd, and is no master of this group; if it is one of another group, "
    "give one of the two another  prefix:"
)
EARLIER_LEASE = (
    "an earlier lease of this master has not ended yet; if that stays so, another group of this "
    "name has a master of this name: give one of the two groups another  prefix:"
)
EARLIER = 0.1  # of the TTL
GIVING_BACK = 1.0  # seconds for which the end of the engine waits for etcd


class EtcdLeader:
    """
    The part of one master.

    :param group: its name is part of the key.
    :param is_member: whether a name is that of a master of the group.
    :param clock: seconds that only grow, also while this process is stopped.
    :ivar client: asks etcd, until :meth:`run` ends.
    """

    def __init__(
        self,
        me: Candidate,
        group: str,
        settings: LeaderSettings,
        is_member: Callable[[str], bool],
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        self._me, self._name, self._unfit = me, me.name, me.unfit
        self._settings, self._is_member, self._clock = settings, is_member, clock
        self._start = f"{me.name} {secrets.token_hex(8)}"
        self._prefix = f"{settings.prefix}/{group}"
        self._key = f"{self._prefix}/leader"
        # Two members that do not answer must not cost the lease.
        self.client = EtcdClient(settings, max(0.5, settings.ttl / 6))
        self._lease = self._former = ""
        """This master's lease; and one that it has given up, but could not revoke yet."""
        self._until = float("-inf")
        """Until when the lease certainly holds."""
        self._held: KeyHolder | None = None
        self._seen = float("-inf")
        self._problem = "etcd is being asked"
        self._shown = ""
        self._since = time.time()

    @property
    def _own(self) -> str:
        """The value that this start of this master puts at the key, under its present lease."""
        return f"{self._start} {self._lease}"

    # -- what others ask

    def for_peers(self) -> dict[str, Handler]:
        """Method → its handler, for peers: tells a peer with another store so."""
        return refusing("ha: leader: store: etcd there")

    @property
    def standing(self) -> Leadership:
        held = self._held
        leads = (
            held is not None
            and held.value == self._own
            and self._clock() < self._until
            and not self._unfit()
        )
        known = held if held and self._clock() - self._seen <= self._settings.ttl else None
        if known is None or (_name(known) == self._name and not leads):
            why = self._problem or self._unfit() or NO_MORE
        elif _name(known) != self._name and not self._is_member(_name(known)):
            why = STRANGER.format(_name(known), self._key)
        else:
            return Leadership(ETCD, _name(known), leads, "", self._since, {}, known.revision)
        return Leadership(ETCD, why=why, since=self._since)

    def notes(self) -> Iterator[str]:
        known = self.standing
        if self._problem and self._clock() - self._seen > QUIET:
            yield f"leader: {self._problem}"
        elif not known.leader and time.time() - known.since > QUIET:
            yield f"nobody leads: {known.why}"

    async def claim(self, name: str, within: float) -> str:
        """
        Note in etcd that this leader runs *name* now, unless it ran *within* so many seconds. So
        masters that do not reach each other know of it, too.

        :return: why it must not run; or empty.
        :raises EtcdError: etcd does not say whether it ran. :raises LeadsNoMore: it leads no more.
        """
        held = self._held
        if held is None or not self.standing.leads:
            raise LeadsNoMore(NO_MORE)
        key, now = f"{self._prefix}/runs/{name}", time.time()
        last = await self.client.get(key)
        said = last.value if last else ""
        began, _, master = said.partition(" ")
        try:
            ago = now - float(began or "-inf")
        except ValueError:
            raise EtcdError(f"{key}: {said[:100]!a} was written by somebody else") from None
        # A clock that was ahead leaves runs in the future; those far ahead do not count.
        if abs(ago) < within:
            return f"{master} has begun it {max(0.0, ago):.0f} s ago, as etcd knows"
        note = f"{now:.3f} {self._name}"
        seen = last.written if last else 0
        if await self.client.write(key, note, seen, (self._key, held.revision)):
            return ""
        # The answer of an endpoint may have been lost, so that the next one found this very note.
        now_there = await self.client.get(key)
        if now_there is None or now_there.value != note:
            raise LeadsNoMore(NO_MORE)
        return ""

    # -- looking

    async def run(self) -> None:
        """Prolong or seek the lease until cancelled; then give the key back."""
        try:
            while True:
                try:
                    self._problem = await self._prolong_or_seek()
                except EtcdError as exc:
                    self._problem = str(exc)
                self._tell()
                await rest(TURN)
        finally:
            with contextlib.suppress(EtcdError, asyncio.CancelledError, asyncio.TimeoutError):
                await asyncio.wait_for(self._give_up(), GIVING_BACK)
            await self.client.close()

    async def _prolong_or_seek(self) -> str:
        """Prolong, take, or give up the lease; returns why no master leads, or empty."""
        with contextlib.suppress(EtcdError):
            await self._give_back()
        if why := self._unfit():
            await self._give_up()
            held = await self.client.get(self._key)
            self._note(held)
            return "" if held else f"no master has taken it, and this one may not lead: {why}"
        if self._lease:
            await self._prolong()
        held = await self.client.get(self._key) or await self._take()
        self._note(held)
        if held and _name(held) == self._name and held.value != self._own:
            return EARLIER_LEASE
        return ""

    async def _prolong(self) -> None:
        asked = self._clock()
        if asked >= self._until:
            await self._give_up()  # it may still hold; revoked, another master may take the key
            return
        try:
            ttl = await self.client.keep_alive(self._lease)
        except LeaseGone:
            self._lease, self._until = "", float("-inf")
            return
        self._lasts(asked, ttl)

    async def _take(self) -> KeyHolder | None:
        self._held = None  # a new lease does not cover a key held under an earlier one
        if not self._lease:
            asked = self._clock()
            self._lease, ttl = await self.client.grant(self._settings.ttl)
            self._lasts(asked, ttl)
        return await self.client.take(self._key, self._own, self._lease)

    def _lasts(self, asked: float, ttl: int) -> None:
        """Note that the lease holds for *ttl* seconds after *asked*, at most the configured TTL."""
        self._until = asked + min(ttl, self._settings.ttl) * (1 - EARLIER)

    async def _give_up(self) -> None:
        self._former, self._lease = self._lease or self._former, ""
        self._until = float("-inf")
        await self._give_back()

    async def _give_back(self) -> None:
        """Revoke the given-up lease: an etcd that was away would keep it for a whole TTL more."""
        if self._former:
            with contextlib.suppress(LeaseGone):
                await self.client.revoke(self._former)
            self._former = ""

    def _note(self, held: KeyHolder | None) -> None:
        self._held, self._seen = held, self._clock()

    def _tell(self) -> None:
        """Log and announce the leader, if it has changed."""
        now = self.standing.leader
        if now != self._shown:
            self._me.tell(self._shown, now)
            self._shown, self._since = now, time.time()


def _name(held: KeyHolder) -> str:
    """The name of the master that holds the key."""
    return held.value.partition(" ")[0]
