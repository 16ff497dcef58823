"""
Do two masters have one key store between them: a shared folder, or a shared database?

Then there is nothing to replicate, and nothing is ever written by us. A peer's signature in our
store may also be there because the folder was copied; so the peer is asked to sign anew.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from saltext_ha.peering.trust import Peer
from saltext_ha.service.group import PeerHandler
from saltext_ha.service.link import Link

if TYPE_CHECKING:
    from saltext_ha.service.service import Service

log = logging.getLogger(__name__)


class Sharing:
    """Finds out whether a peer's store is this master's own."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def for_peers(self) -> dict[str, PeerHandler]:
        """What a peer that suspects it may ask."""

        async def sign(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            return {"signature": await self._service.core.run(self._sign)}

        return {"sign": sign}

    async def check(self, link: Link) -> None:
        """
        Called with every peer that is met: stop writing when its store is ours.

        :raises HaError: the store cannot be read, or the peer does not answer.
        """
        service, name = self._service, link.peer.name
        store = service.core.keeper.store
        told = link.info.get("signature")
        if not told or await service.core.run(store.signature, name) != told:
            return
        answer = await link.call("sign", {})
        if await service.core.run(store.signature, name) != answer.get("signature"):
            return
        reason = f"its key store is that of {name} too"
        if reason != service.only_reports:
            log.warning("ha only reports: %s", reason)
        service.only_report(f"{reason}; a shared store is never written to")

    def _sign(self) -> str:
        keeper = self._service.core.keeper
        if keeper.enforce and not keeper.holds.doubt:
            keeper.holds.standing.sign()
        return keeper.holds.standing.token
