"""
One master's facts for one section, exchanged with as few bytes as possible.

Facts are leaves (path → value). Masters first exchange one digest per section. If these differ, the
asking master sends the digests of its 256 buckets of paths, and gets the leaves of those that
differ; the rest is the same on both. All digests are keyed by the nonce of the check.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from saltext_ha.common.errors import InvalidRecord
from saltext_ha.consistency.values import canonical
from saltext_ha.transport import wire

BUCKETS = 256
SIZE = 8  # bytes of a bucket's digest, which only has to differ
MAX_SENT = 20_000
MORE = "more differs than is listed"


@dataclass(frozen=True)
class Facts:
    """
    The facts of one master.

    :param leaves: path → plain value, or ``bytes`` for the digest of a file.
    :param unknown: what is not known → why.
    :param covers: the options that were read; one of these without leaves is not set.
    """

    leaves: Mapping[str, Any] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    covers: tuple[str, ...] = ()

    def buckets(self, nonce: bytes) -> bytes:
        """:data:`BUCKETS` digests of :data:`SIZE` bytes each, joined."""
        hashes = [hashlib.blake2b(key=nonce[:64], digest_size=SIZE) for _ in range(BUCKETS)]
        for path, value in sorted(self.leaves.items()):
            name = path.encode(errors="replace")
            packed = value if isinstance(value, bytes) else canonical(value).encode()
            # With lengths: two different leaves never give the same bytes.
            head = b"%d %d " % (len(name), len(packed))
            hashes[zlib.crc32(name) % BUCKETS].update(head + name + packed)
        return b"".join(one.digest() for one in hashes)

    def completed(self, raw: Any) -> Facts:
        """
        The facts of a master whose :meth:`answer` to our buckets is *raw*.

        :raises InvalidRecord: it is malformed.
        """
        leaves, unknown, covers = read(raw)
        buckets = wire.field(raw, "buckets", list)
        if any(type(bucket) is not int for bucket in buckets):
            raise InvalidRecord("the buckets of an answer are a list of numbers")
        sent = set(buckets)
        kept = {path: value for path, value in self.leaves.items() if bucket_of(path) not in sent}
        if raw.get("more"):
            # A leaf that was left out is unknown, not absent.
            return Facts({**self.leaves, **leaves}, unknown, covers)
        return Facts({**kept, **leaves}, unknown, covers)


class Told:
    """
    Facts with their digests under *nonce*.

    :ivar buckets: see :meth:`Facts.buckets`.
    :ivar digest: 16 bytes, equal for equal facts.
    """

    def __init__(self, facts: Facts, nonce: bytes) -> None:
        self.facts = facts
        self.buckets = facts.buckets(nonce)
        rest = canonical([sorted(facts.unknown.items()), sorted(facts.covers)])
        found = hashlib.blake2b(self.buckets, key=nonce[:64], digest_size=16)
        found.update(rest.encode(errors="replace"))
        self.digest = found.digest()

    def answer(self, theirs: Any) -> dict[str, Any]:
        """
        The part of these facts that a master with the buckets *theirs* lacks.

        :raises InvalidRecord: these are no buckets.
        """
        if not isinstance(theirs, bytes) or len(theirs) != BUCKETS * SIZE:
            raise InvalidRecord(f"buckets are {BUCKETS * SIZE} bytes")
        differ = [
            number
            for number in range(BUCKETS)
            if _bucket(self.buckets, number) != _bucket(theirs, number)
        ]
        wanted = set(differ)
        paths = [path for path in self.facts.leaves if bucket_of(path) in wanted]
        more = len(paths) > MAX_SENT
        unknown = dict(self.facts.unknown)
        if more:
            unknown["…"] = MORE
        return {
            "buckets": differ,
            "leaves": {path: self.facts.leaves[path] for path in paths[:MAX_SENT]},
            "unknown": unknown,
            "covers": list(self.facts.covers),
            "more": more,
        }


def _bucket(buckets: bytes, number: int) -> bytes:
    return buckets[number * SIZE : (number + 1) * SIZE]


def bucket_of(path: str) -> int:
    """The bucket of the leaf *path*."""
    return zlib.crc32(path.encode(errors="replace")) % BUCKETS


def read(raw: Any) -> tuple[dict[str, Any], dict[str, str], tuple[str, ...]]:
    """
    Leaves, unknown and covers as a peer sent them.

    :raises InvalidRecord: they are malformed.
    """
    if not isinstance(raw, Mapping):
        raise InvalidRecord("facts are a mapping")
    leaves, unknown = wire.field(raw, "leaves", dict), wire.field(raw, "unknown", dict)
    covers = wire.texts(raw, "covers")
    if not all(isinstance(text, str) for text in (*leaves, *unknown, *unknown.values())):
        raise InvalidRecord("paths and reasons of facts are texts")
    if not all(isinstance(value, bytes) or _is_plain(value) for value in leaves.values()):
        raise InvalidRecord("values of facts are as JSON has them, or digests")
    return leaves, unknown, tuple(covers)


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    return value is None or isinstance(value, (bool, int, float, str))
