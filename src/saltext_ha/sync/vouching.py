"""
Signs this master's vouches, and checks those of others: see ``replication/vouching.py``.

Each vouch is ``[owner, nonce, high, proof]`` on the wire. A master makes the proof with the key of
its certificate, and others check it against the pinned certificates, so any sender may pass it on.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from saltext_ha.common.errors import InvalidRecord
from saltext_ha.common.files import read_plain
from saltext_ha.common.printable import harmless
from saltext_ha.common.refusals import Allowance
from saltext_ha.reconciler.core import Core
from saltext_ha.reconciler.merging import Merged
from saltext_ha.replica.replica import Replica
from saltext_ha.replication.record import Record
from saltext_ha.replication.register import SharedRegister
from saltext_ha.replication.vouching import MOST_WRITES, Vouch
from saltext_ha.transport import fingerprints, wire
from saltext_ha.transport.identity import Identity
from saltext_ha.transport.pins import RECENT, Pins

log = logging.getLogger(__name__)

MOST = 1000
"""Most proofs that are checked per message: a tenth of a second. The next message has the rest."""
SHOWN = 3600.0
"""For so many seconds the status shows that something a peer sent, or refused, did not count."""

R = TypeVar("R", bound=SharedRegister[Any])

_ECDSA = ec.ECDSA(hashes.SHA256())


class Claiming(Protocol):
    """A record or a register: it claims to have seen writes, as (node, counter)."""

    @property
    def context(self) -> tuple[tuple[str, int], ...]: ...


class _Noted(NamedTuple):
    peer: str
    reason: str
    at: float


class Vouching:
    """
    Signs one master's vouches, and checks those of others.

    :param replica: says how far this master has written.
    :param identity: returns its present identity.
    :param pins: says which masters belong to the group.
    """

    def __init__(self, replica: Replica, identity: Callable[[], Identity], pins: Pins) -> None:
        self._replica, self._identity, self._pins = replica, identity, pins
        self._seen: object = None
        self._keys: dict[bytes, list[ec.EllipticCurvePublicKey]] = {}
        self._signed: Vouch | None = None
        self._key: tuple[str, ec.EllipticCurvePrivateKey] | None = None
        self._lines = Allowance()
        self._noted: dict[str, _Noted] = {}

    # -- what this master says

    def begin(self) -> None:
        """
        Vouch for the present node for the last time, and take a new node. Call this in the
        replica's thread.
        """
        replica, identity = self._replica, self._identity()
        vouch = replica.own_vouch()
        own = _certificates(identity.chain)
        if vouch and vouch.high and vouch.owner in own:
            replica.vouched.take([self._sign(vouch)])
        replica.take_node(fingerprints.digest(identity.fingerprint))
        self._follow()

    def own(self) -> list[list[Any]]:
        """The vouches for ``hello``: the present node first, then those of former starts."""
        replica, own = self._replica, _certificates(self._identity().chain)
        present = self._present()
        former = replica.vouched.all_of(frozenset(own))
        return [list(vouch) for vouch in ([present] if present else []) + former]

    def of(self, nodes: Iterable[str]) -> list[list[Any]]:
        """The vouches to send with records whose contexts have these *nodes*."""
        replica = self._replica
        said = (
            self._present() if node == replica.node else replica.vouched.get(node) for node in nodes
        )
        return [list(vouch) for vouch in said if vouch]

    def _present(self) -> Vouch | None:
        vouch = self._replica.own_vouch()
        if vouch is None:
            return None
        if self._signed is None or self._signed._replace(proof=b"") != vouch:
            self._signed = self._sign(vouch)
        return self._signed

    def _sign(self, vouch: Vouch) -> Vouch:
        own = self._identity()
        if self._key is None or self._key[0] != own.fingerprint:
            key = serialization.load_pem_private_key(read_plain(own.key_file), password=None)
            assert isinstance(key, ec.EllipticCurvePrivateKey)  # any other key makes no identity
            self._key = own.fingerprint, key
        return vouch._replace(proof=self._key[1].sign(vouch.statement, _ECDSA))

    # -- what others say

    async def meet(
        self, core: Core, sender: str, raw: Any, claiming: Iterable[Claiming] | None = None
    ) -> None:
        """
        Take in what the peer *sender* vouches for, before anything that it sends is merged.

        :param raw: the vouches in its message.
        :param claiming: the registers in it; only vouches that they need are looked at.
        :raises HaError: as :meth:`.Core.meet`.
        """
        self._disowned(await core.meet(self._read(raw, claiming), sender))

    async def learn(
        self, core: Core, sender: str, raw: Any, records: Sequence[Record], unread: Sequence[str]
    ) -> Merged:
        """
        Merge *records* of the peer *sender*, as far as they count; the rest is noted.

        :param raw: the vouches in its message.
        :param unread: why other records in it cannot be read; they are noted, too.
        :raises HaError: as :meth:`.Core.learn`.
        """
        merged = await core.learn(records, sender, vouched=self._read(raw, records))
        self.note(sender, [*unread, *merged.refused])
        self._disowned(merged.disowned)
        return merged

    def news(
        self, ours: Mapping[str, R], theirs: Mapping[str, R], what: str, sender: str
    ) -> dict[str, R]:
        """
        Those of the registers *ours* that change as *sender* tells *theirs*; what does not count of
        it is noted.

        :param what: names, with the name of the register, one of them in that note.
        """
        known, found = self._replica.vouched, {}
        for name, told in theirs.items():
            own = ours.get(name, type(told)()).disclaimed(known.highs)
            sound, reason = told.sifted(own, known.highs, known.owners)
            if reason:
                self.note(sender, [f"{what} {name}: {reason}"])
            merged = own.merged(sound)
            if merged != ours.get(name):
                found[name] = merged
        return found

    def _read(self, raw: Any, claiming: Iterable[Claiming] | None) -> list[Vouch]:
        """
        The vouches in a message that are proven and news; malformed vouches, and those of
        non-members, are ignored.

        :param claiming: as for :meth:`meet`.
        """
        self._follow()
        if not isinstance(raw, list):
            return []
        needed = None if claiming is None else writers(claiming)
        found: list[Vouch] = []
        tried = 0
        for entry in raw:
            vouch = _read(entry)
            if vouch is None or vouch.owner not in self._keys:
                continue
            node = vouch.node
            if (needed is not None and node not in needed) or self._known(node) >= vouch.high:
                continue
            tried += 1
            if tried > MOST:
                break
            if any(_proves(key, vouch) for key in self._keys[vouch.owner]):
                found.append(vouch)
        return found

    def _known(self, node: str) -> int:
        replica = self._replica
        if node == replica.node:
            return replica.vouched.highs.get(node, -1)
        known = replica.vouched.get(node)
        return known.high if known else -1

    def _follow(self) -> None:
        """Update the certificates of all members."""
        pins, own = self._pins, self._identity()
        seen = pins.generation(RECENT), own
        if seen == self._seen:
            return
        masters = [own.chain, *((*p.former, p.certificate) for p in pins.pinned().values())]
        self._keys = {
            fingerprint: list(keys.values())
            for keys in map(_certificates, masters)
            for fingerprint in keys
        }
        self._replica.vouched.members(frozenset(self._keys))
        self._seen = seen

    def name_of(self, owner: bytes) -> str:
        """The name of the peer with the certificate *owner*; empty if no peer has it."""
        peers = self._pins.peers().values()
        wanted = owner.hex(":")
        return next((peer.name for peer in peers if wanted in peer.fingerprints), "")

    # -- what did not count

    def note(self, peer: str, reasons: Sequence[str]) -> None:
        """Note, for the log and the status, why something that *peer* sent does not count."""
        self._note(f"not taken from {peer}", peer, reasons)

    def _disowned(self, reasons: Mapping[str, Sequence[str]]) -> None:
        """Note false claims: master → what is wrong with records that claim writes in its name."""
        for name, what in reasons.items():
            self.note(name, what)

    def refused(self, peer: str, reasons: Any) -> None:
        """Note why *peer* refused something that this master sent."""
        if isinstance(reasons, list):
            self._note(f"not taken by {peer}", peer, [_said(reason) for reason in reasons])

    def _note(self, what: str, peer: str, reasons: Sequence[str]) -> None:
        if not reasons:
            return
        said = self._noted.get(what)
        if (said is None or said.reason != reasons[0]) and self._lines.take():
            log.warning("ha %s: records=%d reason=%s", what, len(reasons), reasons[0])
        self._noted[what] = _Noted(peer, reasons[0], time.monotonic())

    def notes(self) -> list[str]:
        """The notes for the status; only about peers that are in the group."""
        members, now = self._pins.peers(), time.monotonic()
        return [
            f"{what}: {noted.reason}"
            for what, noted in self._noted.items()
            if noted.peer in members and now - noted.at < SHOWN
        ]


def writers(claiming: Iterable[Claiming]) -> set[str]:
    """The nodes in the contexts of records or registers."""
    return {node for each in claiming for node, _ in each.context}


def nodes_of(records: Iterable[Any]) -> set[str]:
    """The nodes in the contexts of *records*, in their form on the wire (``sync/codec.py``)."""
    return {node for record in records for context in record[3:4] for node, _ in context}


def _certificates(chain: Sequence[str]) -> dict[bytes, ec.EllipticCurvePublicKey]:
    """Fingerprint of each PEM certificate in *chain* → its public key."""
    keys = {}
    for pem in chain:
        certificate = x509.load_pem_x509_certificate(pem.encode("ascii"))
        key = certificate.public_key()
        if isinstance(key, ec.EllipticCurvePublicKey):
            keys[certificate.fingerprint(hashes.SHA256())] = key
    return keys


def _read(entry: Any) -> Vouch | None:
    with contextlib.suppress(InvalidRecord):
        owner, nonce, high, proof = wire.row(entry, "vouch", bytes, bytes, int, bytes)
        if (len(owner), len(nonce)) == (32, 8) and 0 <= high <= MOST_WRITES and len(proof) < 100:
            return Vouch(owner, nonce, high, proof)
    return None


def _proves(key: ec.EllipticCurvePublicKey, vouch: Vouch) -> bool:
    try:
        key.verify(vouch.proof, vouch.statement, _ECDSA)
    except InvalidSignature:
        return False
    return True


def _said(reason: Any) -> str:
    return harmless(reason[:300]) if isinstance(reason, str) else "without a reason"
