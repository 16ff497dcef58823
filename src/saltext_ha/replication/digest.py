"""
Finding what differs between two masters without sending what does not.

Items hang in 65 536 buckets by a hash of their minion id; a node of the tree is the XOR of what
lies below it, so that one change costs one XOR a level. Two masters compare the root, then the
256 children that differ, then buckets (Merkle trees as in Dynamo, DeCandia et al., 2007, §4.7).
The XOR is no defence against a forger: those who could forge are authenticated masters.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable

FANOUT = 256
BUCKETS = FANOUT * FANOUT
SHORT = 8  # bytes of a child's digest on the wire


@functools.lru_cache(maxsize=4096)  # each id is asked for several times while it is worked on
def bucket_of(minion_id: str) -> int:
    """The bucket of an id, 0 … 65 535; the same on every master."""
    return int.from_bytes(hashlib.blake2b(minion_id.encode(), digest_size=2).digest(), "big")


def in_order(ids: Iterable[str]) -> list[str]:
    """
    *ids* sorted by bucket, as replica.db keeps them: who goes through many in this order touches
    each page of it once.
    """
    return sorted(ids, key=lambda minion_id: (bucket_of(minion_id), minion_id))


class DigestTree:
    """XOR digests over buckets. All items are 16-byte digests; adding one twice takes it out."""

    def __init__(self, items: Iterable[tuple[int, bytes]] = ()) -> None:
        self._leaves = [0] * BUCKETS
        for bucket, digest in items:
            self._leaves[bucket] ^= int.from_bytes(digest, "big")
        self._inner = [0] * FANOUT
        for bucket, leaf in enumerate(self._leaves):
            self._inner[bucket // FANOUT] ^= leaf
        self._root = 0
        for inner in self._inner:
            self._root ^= inner

    @property
    def root(self) -> bytes:
        """16 bytes that stand for everything in the tree."""
        return self._root.to_bytes(16, "big")

    def toggle(self, bucket: int, digest: bytes) -> None:
        """Put an item in, or take it out when it is in."""
        number = int.from_bytes(digest, "big")
        self._leaves[bucket] ^= number
        self._inner[bucket // FANOUT] ^= number
        self._root ^= number

    def short(self, branch: int) -> bytes:
        """The short digest of *branch*, as :meth:`children` has it."""
        return self._inner[branch].to_bytes(16, "big")[:SHORT]

    def children(self, branch: int | None = None) -> bytes:
        """
        256 short digests, 8 bytes each: the branches below the root, or the buckets of *branch*.
        """
        nodes = (
            self._inner if branch is None else self._leaves[branch * FANOUT : (branch + 1) * FANOUT]
        )
        return b"".join(node.to_bytes(16, "big")[:SHORT] for node in nodes)


def differing(ours: bytes, theirs: bytes) -> list[int]:
    """
    The positions at which two answers of :meth:`DigestTree.children` differ.

    :raises ValueError: when *theirs* is not of the right length.
    """
    if len(theirs) != len(ours):
        raise ValueError(f"expected {len(ours)} bytes of digests, got {len(theirs)}")
    return [
        i // SHORT
        for i in range(0, len(ours), SHORT)
        if ours[i : i + SHORT] != theirs[i : i + SHORT]
    ]
