"""What peers may ask about keys: the other side of :mod:`.link`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from saltext_ha.common.errors import HaError
from saltext_ha.replication.vouching import Vouch
from saltext_ha.sync import answers, antientropy
from saltext_ha.sync.group import PeerHandler
from saltext_ha.sync.vouching import nodes_of
from saltext_ha.transport.trust import Peer

if TYPE_CHECKING:
    from saltext_ha.engine.service import Service


class SyncServer:
    """Of the master that *service* runs on."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def for_peers(self) -> dict[str, PeerHandler]:
        """Method → its handler."""
        handlers: dict[str, PeerHandler] = {
            "hello": self._hello,
            "digest": self._digest,
            "branches": self._branches,
            "compare": self._compare,
            "parts": self._parts,
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
        service = self._service
        service.membership.moved(peer, payload)
        vouched = service.vouching.read(payload.get("vouched"))
        if vouched:
            # Not waited for: who asks has little time, and the keeper may be busy. It comes before
            # anything that this peer sends after the answer.
            service.core.start(self._met(peer, vouched))
        return service.greet()

    async def _met(self, peer: Peer, vouched: Sequence[Vouch]) -> None:
        with contextlib.suppress(HaError):  # it is believed; a full disk is told of elsewhere
            self._service.vouching.disowned(await self._service.core.meet(vouched, peer.name))

    # The digest trees may be read from any thread: these two never wait for the keeper.

    async def _digest(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        return answers.answer_digest(self._service.core.replica, payload)

    async def _branches(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        claims, now = self._service.claims, time.monotonic()
        return answers.answer_branches(
            self._service.core.replica,
            payload,
            lambda branch: claims.open_to(branch, peer.name, now),
        )

    async def _compare(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        core, claims = self._service.core, self._service.claims
        question, taken = claims.admit(payload, peer.name, time.monotonic())
        answer = await core.run(answers.answer_compare, core.replica, question)
        claims.answered(taken, answer, peer.name)
        vouched = self._service.vouching.of(nodes_of(answer["records"]))
        return {**answer, "vouched": vouched}

    async def _parts(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        core = self._service.core
        return await core.run(answers.answer_parts, core.replica, payload)

    async def _placed(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        core = self._service.core
        return await core.run(answers.answer_placed, core.replica, payload)

    async def _push(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        records, reasons = antientropy.read_records(payload.get("records"))
        vouching, claims = self._service.vouching, self._service.claims
        vouched = vouching.read(payload.get("vouched"), records)
        with claims.receiving(len(records), time.monotonic):
            merged = await self._service.core.learn(records, peer.name, vouched=vouched)
        reasons += merged.refused
        vouching.note(peer.name, reasons)
        vouching.disowned(merged.disowned)
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
