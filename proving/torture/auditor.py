"""
A peer that asks and never decides: every master has pinned it, and its calls bypass the relays.

It sees what each engine believes its key store shows, and it can repeat what an engine said: later,
twice, and in another order. No network could, because TLS keeps messages in order.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proving.torture.engine import AUDITOR
from proving.torture.keys import DENIED, FINGERPRINTS, UNKNOWN, Entry
from proving.torture.member import Member
from proving.torture.proxy import Loop
from saltext_ha.common.errors import PeerError
from saltext_ha.replication.digest import bucket_of
from saltext_ha.transport import identity
from saltext_ha.transport.client import PeerClient
from saltext_ha.transport.peer import Peer, make_peer
from saltext_ha.transport.trust import Trust

TIMEOUT = 6.0


@dataclass
class Report:
    """What one engine tells about itself."""

    root: bytes
    held: int
    dirty: int
    conflicts: list[str]
    notes: list[str]
    shown: dict[str, Entry] = field(default_factory=dict)


class Auditor:
    """
    :param loop: runs its connections.
    :param state_dir: has its identity.
    """

    def __init__(self, loop: Loop, state_dir: Path, address: str, port: int) -> None:
        self._loop = loop
        self._identity = identity.load_or_create(state_dir, AUDITOR)
        self._peer = make_peer(AUDITOR, f"https://{address}:{port}", self._identity.certificate)
        self._clients: dict[str, PeerClient] = {}

    def introduce(self, member: Member) -> None:
        Trust(member.place.config.state_dir).pin(self._peer)

    def ask(self, member: Member, method: str, payload: dict[str, Any]) -> dict[str, Any]:
        """:raises PeerError: it gives no usable answer."""

        async def ask() -> dict[str, Any]:
            if member.name not in self._clients:
                peer: Peer = member.place.peer
                self._clients[member.name] = PeerClient(self._identity, peer, TIMEOUT)
            return await self._clients[member.name].call(method, payload)

        return self._loop.run(ask())

    def report(self, member: Member) -> Report | None:
        """What the engine of *member* believes; None when it does not answer, or not for now."""
        try:
            summary = self.ask(member, "summary", {})
            shown = self.ask(member, "keys", {"glob": "*"})["keys"]
        except PeerError:
            return None
        if summary["busy"]:  # these numbers are old, or there are none
            return None
        table: dict[str, Entry] = {}
        for minion_id, state, key, denied in shown:
            entry: Entry = {state: FINGERPRINTS.get(key, UNKNOWN)} if state else {}
            for other in denied:
                entry[DENIED] = FINGERPRINTS.get(other, UNKNOWN)
            table[minion_id] = entry
        return Report(
            summary["root"],
            summary["held"],
            summary["dirty"],
            summary["conflicts"],
            summary["notes"],
            table,
        )

    def record(self, member: Member, ids: Iterable[str]) -> list[Any]:
        """The records of *ids* as *member* would push them now."""
        buckets = sorted({bucket_of(minion_id) for minion_id in ids})
        question = {"buckets": [[bucket, []] for bucket in buckets]}
        return list(self.ask(member, "compare", question)["records"])

    def replay(self, member: Member, records: list[Any], seed: int) -> int:
        """Push *records* twice, in another order, one message each; return how many messages."""
        again = [*records, *records]
        random.Random(seed).shuffle(again)
        for record in again:
            self.ask(member, "push", {"records": [record]})
        return len(again)

    def close(self) -> None:

        async def close() -> None:
            for client in self._clients.values():
                await client.close()

        self._loop.run(close())
