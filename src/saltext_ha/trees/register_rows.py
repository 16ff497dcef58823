"""Registers of trees between masters and in replica.db, checked as if a stranger had sent them."""

from __future__ import annotations

from typing import Any

import msgpack

from saltext_ha.common.errors import InvalidRecord
from saltext_ha.replication.deployment import KEPT, Deployment, Entry, Register
from saltext_ha.replication.record import Dot, covers
from saltext_ha.replication.vouching import MOST_WRITES
from saltext_ha.sync.codec import MAX_TIME, NODE, read_context
from saltext_ha.transport import wire

MOST_VALUES = 64
MOST_NODES = 4096
LONGEST = 512


def to_rows(register: Register) -> list[Any]:
    """``[[[node, counter, [entry, …]], …], [[node, counter], …]]``."""
    return [
        [[*value.dot, [list(entry) for entry in value.kept]] for value in register.values],
        [list(seen) for seen in register.context],
    ]


def from_rows(raw: Any) -> Register:
    """:raises InvalidRecord: it makes no sense; nothing of it may be used."""
    values, context = wire.row(raw, "register of a tree", list, list)
    if len(values) > MOST_VALUES or len(context) > MOST_NODES:
        raise InvalidRecord("a register of a tree has too many values or writers")
    seen = read_context(context)
    if any(counter > MOST_WRITES for counter in seen.values()):
        raise InvalidRecord("a register of a tree claims a write that nobody made")
    found = [_deployment(*each) for each in wire.rows(values, "deployment", str, int, list)]
    sound = all(covers(seen, value.dot) for value in found)
    if not sound or len({value.dot for value in found}) != len(found):
        raise InvalidRecord("a register of a tree does not hang together")
    return Register(tuple(sorted(found)), tuple(sorted(seen.items())))


def _deployment(node: str, counter: int, kept: list[Any]) -> Deployment:
    if not NODE.fullmatch(node) or counter < 1 or not 1 <= len(kept) <= KEPT:
        raise InvalidRecord("malformed deployment")
    kinds = (int, bytes, float, str, str, str, str, int, int)
    entries = tuple(Entry(*row) for row in wire.rows(kept, "deployment", *kinds))
    for entry in entries:
        texts = (entry.by, entry.on, entry.source, entry.message)
        if (
            len(entry.version) != 32
            or not 0 <= entry.at <= MAX_TIME
            or not 0 <= entry.number <= MOST_WRITES
            or min(entry.files, entry.size) < 0
            or any(len(text) > LONGEST for text in texts)
        ):
            raise InvalidRecord("malformed deployment")
    return Deployment(Dot(node, counter), entries)


def pack(register: Register) -> bytes:
    """As it is kept."""
    packed: bytes = msgpack.packb(to_rows(register), use_bin_type=True)
    return packed


def unpack(body: bytes) -> Register:
    """:raises InvalidRecord: it is damaged."""
    try:
        return from_rows(msgpack.unpackb(body, raw=False))
    except (ValueError, TypeError, msgpack.UnpackException) as exc:
        raise InvalidRecord(f"damaged register of a tree: {exc}") from None
