"""Serializes records, and what the key store shows, for the columns of replica.db."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgpack

from saltext_ha.common.errors import NO_SENSE, ReplicaDamaged
from saltext_ha.replication.placement import ABSENT, Stored
from saltext_ha.replication.record import SHOWN, STATES, Dot, Record, Value

Known = Mapping[bytes, Mapping[str, int]]


class Applied(NamedTuple):
    """
    What was last seen or applied for an id; its journal entry.

    ``known``: the contexts of the id's records when the store last agreed with them, which is what
    an operator who looks at this store can know; None if it agrees with them now. ``aims``: all
    that the store may show meanwhile because of our own moves (:func:`.plan.aims`).
    """

    stored: Stored
    known: Known | None = None
    aims: frozenset[tuple[str, bytes]] = frozenset()

    @property
    def dirty(self) -> bool:
        """Whether the store still differs from the records."""
        return self.known is not None


NEVER = Applied(ABSENT)


def placement_digest(minion_id: str, stored: Stored) -> bytes:
    """
    16 bytes that stand for an id's slot in the store; empty if the slot is empty.

    Denied keys are left out: Salt's files keep one per id, the last that knocked there.
    """
    if not stored.slot:
        return b""
    state, key = stored.slot
    return hashlib.blake2b(f"{minion_id}\n{state}\n".encode() + key, digest_size=16).digest()


def of_record(record: Record) -> bytes:
    """The body of a record: its values and its context."""
    return bytes(msgpack.packb([record.values, record.context]))


def record(minion_id: str, key: bytes, pub: str, body: bytes) -> Record:
    """
    The record of a row.

    :raises ReplicaDamaged: the row makes no sense; SQLite does not notice that, without checksums.
    """
    try:
        rows, context = msgpack.unpackb(body)
        values = tuple(Value(Dot(*dot), *rest) for dot, *rest in rows)
        if not STATES.issuperset([value.state for value in values]):
            raise ValueError("there is no such state")
        return Record(
            minion_id, key, pub, values, tuple((node, counter) for node, counter in context)
        )
    except NO_SENSE as exc:
        raise damage(exc) from exc


def of_stored(shown: Stored) -> bytes:
    """The body of what a store shows for an id."""
    return bytes(msgpack.packb([shown.state, shown.key, sorted(shown.denied)]))


def stored(body: bytes) -> Stored:
    """The inverse of :func:`of_stored`; raises as :func:`record`."""
    try:
        state, key, denied = msgpack.unpackb(body)
        if state not in (None, *SHOWN):
            raise ValueError("there is no such state")
        return Stored(state, key, frozenset(denied))
    except NO_SENSE as exc:
        raise damage(exc) from exc


def of_doing(known: Known | None, aims: Iterable[tuple[str, bytes]]) -> bytes:
    """The body of the work in progress on a dirty id; see :class:`Applied`."""
    return bytes(msgpack.packb([known, sorted(aims)]))


def doing(body: bytes | None) -> tuple[Known | None, frozenset[tuple[str, bytes]]]:
    """
    The inverse of :func:`of_doing`; no body means that nothing is in progress. Raises as
    :func:`record`.
    """
    if body is None:
        return None, frozenset()
    try:
        known, aims = msgpack.unpackb(body, strict_map_key=False)
        return known, frozenset((state, key) for state, key in aims)
    except NO_SENSE as exc:
        raise damage(exc) from exc


def damage(exc: Exception) -> ReplicaDamaged:
    """The error that a row makes no sense."""
    return ReplicaDamaged(f"replica.db: a row makes no sense: {exc!r:.100}")
