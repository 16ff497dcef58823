"""What peers may ask about keys: the other side of :mod:`.link`."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from saltext_ha.peering.refusals import Allowance
from saltext_ha.peering.trust import Peer
from saltext_ha.service import antientropy
from saltext_ha.service.group import PeerHandler

if TYPE_CHECKING:
    from saltext_ha.service.service import Service

log = logging.getLogger(__name__)


class SyncServer:
    """Of the master that *service* runs on."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lines = Allowance()

    def for_peers(self) -> dict[str, PeerHandler]:
        """Method → its handler."""
        handlers: dict[str, PeerHandler] = {
            "hello": self._hello,
            "digest": self._digest,
            "branches": self._branches,
            "compare": self._compare,
            "placed": self._placed,
            "push": self._push,
            "dropped": self._dropped,
        }
        return {name: self._heard(handler) for name, handler in handlers.items()}

    def _heard(self, handler: PeerHandler) -> PeerHandler:
        """Who asks is there: that is noted before anything else."""

        async def heard(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            if peer.name in self._service.links:
                self._service.links[peer.name].heard()
            return await handler(peer, payload)

        return heard

    async def _hello(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        self._service.membership.moved(peer, payload)
        return self._service.describe()

    # The digest trees may be read from any thread: these two never wait for the keeper.

    async def _digest(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        return antientropy.answer_digest(self._service.core.replica, payload)

    async def _branches(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        claims, now = self._service.claims, time.monotonic()
        return antientropy.answer_branches(
            self._service.core.replica,
            payload,
            lambda branch: claims.open_to(branch, peer.name, now),
        )

    async def _compare(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        core, claims = self._service.core, self._service.claims
        question, taken = claims.admit(payload, peer.name, time.monotonic())
        answer = await core.run(antientropy.answer_compare, core.replica, question)
        claims.answered(taken, answer, peer.name)
        return answer

    async def _placed(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        core = self._service.core
        return await core.run(antientropy.answer_placed, core.replica, payload)

    async def _push(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        records, reasons = antientropy.read_records(payload.get("records"))
        for reason in reasons[:3]:
            if not self._lines.take():
                break
            log.warning("ha refused: peer=%s reason=%s", peer.name, reason)
        claims = self._service.claims
        with claims.receiving(len(records), time.monotonic):
            merged = await self._service.core.learn(records)
        # Those that are refused, too: they will not come in any better state.
        claims.received(antientropy.ids_of(payload.get("records")), peer.name)
        return {
            "learned": merged.learned,
            "refused": reasons[:10],
            "dropped": antientropy.told(merged.dropped),
        }

    async def _dropped(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        told = antientropy.read_told(payload.get("dropped"))
        await self._service.core.dropped_elsewhere(told)
        return {}
