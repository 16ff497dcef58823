"""
Finds what differs between two masters without sending what does not.

A hash of the minion id puts items into 65 536 buckets; a node of the tree is the XOR of what lies
below it, so one change costs one XOR a level. Two masters compare the root, then its 256 branches,
then the buckets of branches that differ (Merkle trees as in Dynamo, DeCandia et al., 2007, §4.7).
XOR does not protect against forgery, but only authenticated masters could forge.

Strangers choose ids, and can choose tens of thousands that fall into one bucket. So a large bucket
is divided once more, into parts, by a hash that is keyed with a salt. The asking master draws a new
salt for each comparison, so ids cannot be chosen for it.
"""

from __future__ import annotations

import functools
import hashlib
import struct
from array import array
from collections.abc import Iterable

FANOUT = 256
BUCKETS = FANOUT * FANOUT
SHORT = 8  # bytes of a child's digest on the wire
SALT = 16  # bytes
MAX_PARTS = 8192
PER_PART = 32  # ids, about


@functools.lru_cache(maxsize=4096)  # one change asks for the same id several times
def bucket_of(minion_id: str) -> int:
    """The bucket of an id, 0 … 65 535; the same on every master."""
    return int.from_bytes(hashlib.blake2b(minion_id.encode(), digest_size=2).digest(), "big")


def parts_for(count: int) -> int:
    """Into how many parts a bucket of *count* ids is to be divided; a power of two."""
    return min(MAX_PARTS, 1 << max(0, (count // PER_PART).bit_length()))


def part_of(minion_id: str, salt: bytes, parts: int) -> int:
    """The part of its bucket, 0 … *parts* - 1, into which an id falls with this *salt*."""
    digest = hashlib.blake2b(minion_id.encode(), digest_size=4, key=salt).digest()
    return int.from_bytes(digest, "big") % parts


def digests_of_parts(items: Iterable[tuple[str, bytes]], salt: bytes, parts: int) -> bytes:
    """
    The short digests of all parts of a bucket, in the form of :meth:`DigestTree.children`.

    :param items: the ids of the bucket and their digests.
    """
    nodes = [0] * parts
    for minion_id, digest in items:
        nodes[part_of(minion_id, salt, parts)] ^= int.from_bytes(digest, "big")
    return _short(nodes)


def in_order(ids: Iterable[str]) -> list[str]:
    """
    *ids* sorted by bucket, as replica.db keeps them: reading many in this order touches each page
    once.
    """
    return sorted(ids, key=lambda minion_id: (bucket_of(minion_id), minion_id))


class DigestTree:
    """XOR digests over buckets. All items are 16-byte digests; adding one twice removes it."""

    def __init__(self, items: Iterable[tuple[int, bytes]] = ()) -> None:
        # The short digests suffice for the leaves. Whole digests, as Python's numbers, would take
        # seven times the memory.
        self._leaves = array("Q", bytes(SHORT * BUCKETS))
        self._inner = [0] * FANOUT
        self._root = 0
        for bucket, digest in items:
            self.toggle(bucket, digest)

    @property
    def root(self) -> bytes:
        """16 bytes that stand for everything in the tree."""
        return self._root.to_bytes(16, "big")

    def toggle(self, bucket: int, digest: bytes) -> None:
        """Add an item, or remove it if it is in."""
        number = int.from_bytes(digest, "big")
        self._leaves[bucket] ^= number >> 64
        self._inner[bucket // FANOUT] ^= number
        self._root ^= number

    def short(self, branch: int) -> bytes:
        """The short digest of *branch*, as in :meth:`children`."""
        return self._inner[branch].to_bytes(16, "big")[:SHORT]

    def children(self, branch: int | None = None) -> bytes:
        """
        256 short digests, 8 bytes each: the branches below the root, or the buckets of *branch*.
        """
        if branch is None:
            return _short(self._inner)
        return struct.pack(f">{FANOUT}Q", *self._leaves[branch * FANOUT : (branch + 1) * FANOUT])


def _short(nodes: Iterable[int]) -> bytes:
    highest = [node >> 64 for node in nodes]
    return struct.pack(f">{len(highest)}Q", *highest)
