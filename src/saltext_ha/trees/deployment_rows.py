"""Registers of trees between masters and in replica.db, checked as if a stranger had sent them."""

from __future__ import annotations

from typing import Any

from saltext_ha.common.errors import InvalidRecord
from saltext_ha.replication.deployment import KEPT, MOST_NUMBER, Deployment, Entry, Register
from saltext_ha.replication.record import Dot
from saltext_ha.sync import register_rows
from saltext_ha.sync.codec import MAX_TIME
from saltext_ha.transport import wire

LONGEST = 512


def to_rows(register: Register) -> list[Any]:
    """``[[[node, counter, [entry, …]], …], [[node, counter], …]]``."""
    values = ([*value.dot, [list(entry) for entry in value.kept]] for value in register.values)
    return register_rows.to_rows(values, register.context)


def from_rows(raw: Any) -> Register:
    """:raises InvalidRecord: the rows make no sense; none of them may be used."""
    kinds = (str, int, list)
    return Register(*register_rows.from_rows(raw, "register of a tree", kinds, _deployment))


def _deployment(node: str, counter: int, kept: list[Any]) -> Deployment:
    if not 1 <= len(kept) <= KEPT:
        raise InvalidRecord("malformed deployment")
    kinds = (int, bytes, float, str, str, str, str, int, int)
    entries = tuple(Entry(*row) for row in wire.rows(kept, "deployment", *kinds))
    for entry in entries:
        texts = (entry.by, entry.on, entry.source, entry.message)
        if (
            len(entry.version) != 32
            or not 0 <= entry.at <= MAX_TIME
            or not 0 <= entry.number <= MOST_NUMBER
            or min(entry.files, entry.size) < 0
            or any(len(text) > LONGEST for text in texts)
        ):
            raise InvalidRecord("malformed deployment")
    return Deployment(Dot(node, counter), entries)
