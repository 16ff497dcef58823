"""An attacker who has the state folder of a member of the group, and sends what he likes."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from saltext_ha.keystore import minion_key
from saltext_ha.replication.digest import bucket_of
from saltext_ha.replication.record import Dot, Record, Value, decide
from saltext_ha.replication.vouching import Vouch
from saltext_ha.sync.codec import from_wire, to_wire
from saltext_ha.transport import identity
from saltext_ha.transport.client import call_once
from saltext_ha.transport.peer import Peer, make_peer

YEAR = 365 * 86400.0


class Turned:
    """
    An attacker who has *state*, the state folder of the master *name*.

    :param node: the attacker writes under it.
    """

    def __init__(self, state: Path, name: str, node: str = "e" * 16) -> None:
        self.name = name
        self.identity = identity.load_or_create(state, name)
        self._writes = (Dot(node, counter) for counter in itertools.count(1))

    async def tell(self, peer: Peer, method: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Call *peer* as that master."""
        return await call_once(self.identity, peer, method, payload, 20.0)

    async def introduce(self, peer: Peer, other: Turned, url: str) -> None:
        """Vouch for *other* at *peer*."""
        told = make_peer(other.name, url, other.identity.certificate)
        member = {"name": told.name, "url": told.url, "certificate": told.certificate}
        await self.tell(peer, "members", {"members": [member]})

    async def known(self, peer: Peer, minion_id: str) -> dict[bytes, Record]:
        """The records of an id, as *peer* has them."""
        answer = await self.tell(peer, "compare", {"buckets": [[bucket_of(minion_id), []]]})
        records = [from_wire(raw) for raw in answer["records"]]
        return {r.fingerprint: r for r in records if r.minion_id == minion_id}

    async def decide(
        self,
        peer: Peer,
        minion_id: str,
        state: str,
        key: str,
        *,
        at: float,
        by: str = "alice",
        on: str = "m1",
    ) -> Record:
        """Decide about *key*, in another's name, with the causal context of *peer*'s record."""
        print_ = minion_key.fingerprint(key)
        known = (await self.known(peer, minion_id)).get(print_, Record(minion_id, print_, key))
        value = Value(next(self._writes), state, at, by, on)
        record = decide(known, dict(known.context), value)
        await self.push(peer, record)
        return record

    def signed(self, word: Vouch) -> Vouch:
        """*word*, signed with that master's key."""
        key = serialization.load_pem_private_key(self.identity.key_file.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return word._replace(proof=key.sign(word.statement, ec.ECDSA(hashes.SHA256())))

    async def push(self, peer: Peer, *records: Record) -> dict[str, Any]:
        return await self.tell(peer, "push", {"records": [to_wire(record) for record in records]})
