"""
Do two masters have one key store between them: a shared folder, or a shared database?

Then there is nothing to replicate, and nothing is ever written by us. A peer's signature in our
store may also be there because the folder was copied; so the peer is asked to sign anew.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from saltext_ha.errors import HaError
from saltext_ha.peering.trust import Peer
from saltext_ha.service.group import PeerHandler
from saltext_ha.service.link import Link

if TYPE_CHECKING:
    from saltext_ha.service.service import Service

FOUND = "found"

log = logging.getLogger(__name__)


class Sharing:
    """Finds out whose store is this master's own, too; ``names`` are those masters."""

    def __init__(self, service: Service) -> None:
        self.names: set[str] = set()
        self._service = service

    def for_peers(self) -> dict[str, PeerHandler]:
        """What a peer that suspects it may ask."""

        async def signature(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            anew = payload.get("anew") is True
            token = await self._service.core.run(self._signature, anew)
            return {"signature": token, "shared": peer.name in self.names}

        return {"signature": signature}

    async def check_all(self) -> None:
        """Look at every peer; those that cannot be asked are looked at another time."""
        for link in list(self._service.links.values()):
            try:
                await self.check(link)
            except HaError as exc:
                log.debug("sharing with %s is not known: %s", link.peer.name, exc)

    async def check(self, link: Link) -> None:
        """
        Stop writing when the peer's store is ours.

        :raises HaError: the store cannot be read, or the peer does not answer.
        """
        service, name = self._service, link.peer.name
        if name in self.names or not await self._same(link):
            return
        self.names.add(name)
        reason = f"its key store is that of {name}, too; a shared store is never written to"
        log.warning("ha only reports: %s", reason)
        service.only_report(reason)

    async def _same(self, link: Link) -> bool:
        # It may just be signed anew for the peer's own check: then it is to be looked at again.
        first = await self._shown(link) or await self._shown(link)
        if not first:
            return False
        again = await self._shown(link, anew=True)
        return again == FOUND or bool(again and again != first)

    async def _shown(self, link: Link, anew: bool = False) -> str:
        """The peer's signature, when our store shows the same; FOUND when the peer found that."""
        answer = await link.call("signature", {"anew": anew})
        if answer.get("shared") is True:
            return FOUND
        store = self._service.core.keeper.store
        there = await self._service.core.run(store.signature, link.peer.name)
        return there if there and there == answer.get("signature") else ""

    def _signature(self, anew: bool) -> str:
        keeper = self._service.core.keeper
        if anew and keeper.enforce and not keeper.holds.doubt:
            keeper.holds.provenance.sign()
        return keeper.holds.provenance.token
