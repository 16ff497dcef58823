"""The keys that all masters have in common at the start, in 60 bytes each."""

from __future__ import annotations

import array
import base64
import functools
import hashlib
from collections.abc import Iterator

from saltext_ha.keystore import minion_key
from saltext_ha.replication.digest import BUCKETS, DigestTree, bucket_of
from saltext_ha.replication.record import (
    ACCEPTED,
    PENDING,
    Dot,
    Record,
    Value,
    decide,
    observe,
    record_digest,
)

EVERY_PENDING = 10  # every tenth key is pending, so that there is something to accept
AT = 1_700_000_000.0
# SubjectPublicKeyInfo of a 2048-bit RSA key, up to its modulus and after it.
BEFORE = bytes.fromhex("30820122300d06092a864886f70d01010105000382010f003082010a0282010100")
AFTER = bytes.fromhex("0203010001")


def node(number: int) -> str:
    """The name under which master *number* writes."""
    return f"{number + 1:016x}"


class Keys:
    """
    *count* records. A record is made whenever it is looked at; only digests are kept.

    :param masters: how many masters wrote them.
    """

    def __init__(self, seed: int, count: int, masters: int) -> None:
        self.count = count
        self._seed = seed
        self._masters = masters
        self.record = functools.lru_cache(maxsize=20_000)(self._record)
        self._digests = bytearray()
        self._fingerprints = bytearray()
        buckets = array.array("H")
        for index in range(count):
            record = self._record(index)
            self._digests += record_digest(record)
            self._fingerprints += record.fingerprint
            buckets.append(bucket_of(record.minion_id))
        self._order = array.array("I", sorted(range(count), key=buckets.__getitem__))
        self._starts = array.array("I", bytes(4 * (BUCKETS + 1)))
        for bucket in buckets:
            self._starts[bucket + 1] += 1
        for bucket in range(BUCKETS):
            self._starts[bucket + 1] += self._starts[bucket]
        self.tree = DigestTree((bucket, self.digest(i)) for i, bucket in enumerate(buckets))

    def minion_id(self, index: int) -> str:
        return f"web{index:08}.prod.example.com"

    def index(self, minion_id: str) -> int | None:
        """The index of the key with that id."""
        number = minion_id[3:11]
        index = int(number) if number.isdigit() else self.count
        return index if index < self.count and self.minion_id(index) == minion_id else None

    def digest(self, index: int) -> bytes:
        """The digest of its record."""
        return bytes(self._digests[16 * index : 16 * index + 16])

    def fingerprint(self, index: int) -> bytes:
        return bytes(self._fingerprints[32 * index : 32 * index + 32])

    def in_bucket(self, bucket: int) -> Iterator[int]:
        """The keys whose id falls into *bucket*."""
        return iter(self._order[self._starts[bucket] : self._starts[bucket + 1]])

    def pending(self, limit: int) -> list[int]:
        """Up to *limit* keys that are pending at the start."""
        return list(range(0, self.count, EVERY_PENDING))[:limit]

    def _record(self, index: int) -> Record:
        text = public_key(f"{self._seed}:{index}")
        minion_id = self.minion_id(index)
        record = Record(minion_id, minion_key.fingerprint(text), text)
        first, second = index % self._masters, (index + 1) % self._masters
        knock = Value(Dot(node(first), index + 1), PENDING, AT, "", f"m{first + 1}")
        record = observe(record, {}, knock)
        if index % EVERY_PENDING:
            decision = Value(Dot(node(second), index + 1), ACCEPTED, AT, "root", f"m{second + 1}")
            record = decide(record, dict(record.context), decision)
        return record


def public_key(seed: str) -> str:
    """
    A public key as Salt writes it, always the same for a *seed*.

    Its modulus is a random odd number of 2048 bits, so nobody has the private half.
    """
    modulus = bytearray(hashlib.shake_256(seed.encode()).digest(256))
    modulus[0] |= 0x80
    modulus[-1] |= 1
    text = base64.b64encode(BEFORE + modulus + AFTER).decode()
    lines = [text[start : start + 64] for start in range(0, len(text), 64)]
    return "\n".join(["-----BEGIN PUBLIC KEY-----", *lines, "-----END PUBLIC KEY-----"])
