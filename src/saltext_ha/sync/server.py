"""Answers what peers ask about keys: the other side of :mod:`.link`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from saltext_ha.common.errors import HaError, StoreError
from saltext_ha.reconciler.core import Core
from saltext_ha.sync import answers, messages
from saltext_ha.sync.hello import Hello
from saltext_ha.sync.links import Links
from saltext_ha.sync.repair_leases import RepairLeases
from saltext_ha.sync.vouching import Vouching, nodes_of
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.peer import Peer


class SyncServer:
    """
    Answers the peers of one master.

    :param moved: called with what a peer says in ``hello``: its address may have changed.
    """

    def __init__(
        self,
        core: Core,
        links: Links,
        hello: Hello,
        vouching: Vouching,
        leases: RepairLeases,
        moved: Callable[[Peer, Any], Coroutine[Any, Any, None]],
    ) -> None:
        self._core, self._links = core, links
        self._own_hello, self._moved = hello, moved
        self._vouching, self._leases = vouching, leases

    def for_peers(self) -> dict[str, Handler]:
        """What peers may ask."""
        handlers: dict[str, Handler] = {
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

    def _heard(self, handler: Handler) -> Handler:
        """A handler that first notes that the calling peer is up."""

        async def heard(peer: Peer, payload: dict[str, Any]) -> Mapping[str, Any]:
            if peer.name in self._links:
                self._links[peer.name].heard()
            return await handler(peer, payload)

        return heard

    async def _hello(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        # Do not wait for either: the caller has little time. The disk may hang, and the keeper be
        # busy. The vouches are still taken before anything that this peer sends after the answer.
        self._core.start(self._moved(peer, payload))
        self._core.start(self._met(peer, payload.get("vouched")))
        return {**self._own_hello.greet(), "caller": peer.name}

    async def _met(self, peer: Peer, vouched: Any) -> None:
        with contextlib.suppress(HaError):  # vouches count already; the status tells of a full disk
            await self._vouching.meet(self._core, peer.name, vouched)

    # Any thread may read the digest trees, so these two methods never wait for the keeper.

    async def _digest(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        if payload.get("tree") == answers.PLACEMENTS and (unseen := self._core.unseen):
            raise StoreError(unseen)
        return answers.answer_digest(self._core.replica, payload)

    async def _branches(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        leases, now = self._leases, time.monotonic()
        return answers.answer_branches(
            self._core.replica,
            payload,
            lambda branch: leases.open_to(branch, peer.name, now),
        )

    async def _compare(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        core, leases = self._core, self._leases
        question, taken = leases.admit(payload, peer.name, time.monotonic())
        answer = await core.run(answers.answer_compare, core.replica, question)
        leases.answered(taken, answer, peer.name)
        vouched = self._vouching.of(nodes_of(answer["records"]))
        return {**answer, "vouched": vouched}

    async def _parts(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        core = self._core
        return await core.run(answers.answer_parts, core.replica, payload)

    async def _placed(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        core = self._core
        return await core.run(answers.answer_placed, core.replica, payload)

    async def _push(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        records, reasons = messages.read_records(payload.get("records"))
        leases, vouched = self._leases, payload.get("vouched")
        with leases.receiving(len(records), time.monotonic):
            merged = await self._vouching.learn(self._core, peer.name, vouched, records, reasons)
        # Count refused records, too: sent again, they would be no better.
        leases.received(messages.ids_of(payload.get("records")), peer.name)
        return {
            "learned": merged.learned,
            "refused": [*reasons, *merged.refused][:10],
            "dropped": messages.rows_of_dropped(merged.dropped),
        }

    async def _dropped(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        told = messages.read_dropped(payload.get("dropped"))
        await self._core.dropped_elsewhere(told)
        return {}
