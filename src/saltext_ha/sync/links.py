"""One link to every pinned peer, as members come, move, renew their certificates and go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from saltext_ha.common.errors import HaError
from saltext_ha.common.tasks import Tasks
from saltext_ha.replication.record import Record
from saltext_ha.sync.link import Link
from saltext_ha.transport.identity import Identity
from saltext_ha.transport.trust import Peer

if TYPE_CHECKING:
    from saltext_ha.engine.service import Service

log = logging.getLogger(__name__)

MEMBERS_INTERVAL = 60.0
LOOK = 0.5


class Links(Mapping[str, Link]):
    """
    The links of the master that *service* runs on, by the peer's name.

    :param tasks: in which they run.
    """

    def __init__(self, service: Service, tasks: Tasks) -> None:
        self._service = service
        self._tasks = tasks
        self._links: dict[str, Link] = {}
        self._not_rebuilt = ""
        self._seen: tuple[int, Identity] | None = None
        # At once: a crash may have kept a removal from being told.
        self._due = float("-inf")

    def __getitem__(self, name: str) -> Link:
        return self._links[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._links)

    def __len__(self) -> int:
        return len(self._links)

    def push(self, records: Sequence[Record]) -> None:
        """Send records that changed here to every peer."""
        for link in self._links.values():
            link.push(records)

    async def close(self) -> None:
        """Break off all calls."""
        for link in list(self._links.values()):
            await link.close()

    async def run(self) -> None:
        """For as long as the engine runs: follow who is pinned, and tell members of each other."""
        while True:
            try:
                await self._follow()
            except OSError as exc:
                # Such as: no file descriptor is left. Whoever was pinned goes on being asked.
                log.debug("ha members: %s", exc)
            await asyncio.sleep(LOOK)

    async def _follow(self) -> None:
        service = self._service
        now = asyncio.get_running_loop().time()
        pinned = service.trust.generation(), service.identity
        if self._seen != pinned:
            await self._relink()
            self._seen = pinned
        if service.core.keeper.adopting:
            await self._adopt()
        if now >= self._due:
            await service.membership.exchange(brief=True)
            await service.shared_store.check_all()
            self._due = asyncio.get_running_loop().time() + MEMBERS_INTERVAL
        elif service.shared_store.due:
            await service.shared_store.check_all()

    async def _relink(self) -> None:
        """One link to every pinned peer, under its present address and certificate."""
        peers = dict(self._service.trust.peers())
        for name, link in list(self._links.items()):
            if peers.get(name) != link.peer or link.identity is not self._service.identity:
                del self._links[name]
                await link.close()
                self._tasks.cancel(_task(name))
        for name, peer in peers.items():
            if name not in self._links:
                self._links[name] = self._make(peer)
                self._tasks.start(_task(name), self._links[name].run())

    def _make(self, peer: Peer) -> Link:
        service = self._service
        return Link(
            peer,
            service.identity,
            service.core,
            claims=service.claims,
            counters=service.counters,
            greeting=service.greet,
            vouching=service.vouching,
            announce=service.announce,
            met=service.shared_store.check,
            mistrusted=service.certificates.reconcile,
            interval=service.config.sync_interval,
            timeout=service.config.peer_timeout,
        )

    async def _adopt(self) -> None:
        """After a lost replica: first pull from the peers, then take in what the store shows."""
        service = self._service
        links = self._links.values()
        up = [link for link in links if link.up]
        if service.trust.peers() and (not up or not all(link.tried for link in links)):
            return  # nobody answers, or one may know what the others do not
        asked: list[str] = []
        try:
            asked = await self._pull(up)
            await service.core.adopt()
        except HaError as exc:
            if str(exc) != self._not_rebuilt:
                self._not_rebuilt = str(exc)
                log.warning("ha replica: not rebuilt yet: %s", exc)
        if not service.core.keeper.adopting:
            log.info("ha replica: rebuilt from %s and the key store", ", ".join(asked) or "no peer")

    async def _pull(self, links: Sequence[Link]) -> list[str]:
        """
        Learn all that the peers behind *links* know; one of them may have lost its replica, too.

        :return: the names of those that told. :raises HaError: there are some, and none did.
        """
        asked: list[str] = []
        for link in links:
            try:
                await self._service.retention.pull(link)
            except HaError:
                if link is links[-1] and not asked:
                    raise
            else:
                asked.append(link.peer.name)
        return asked


def _task(name: str) -> str:
    return f"link {name}"
