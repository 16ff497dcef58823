"""
Records in messages between peers: packed into messages that a peer takes, and read from them.

The form of one record is in :mod:`.codec`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from saltext_ha.common.errors import InvalidRecord
from saltext_ha.replication.record import Record, record_digest
from saltext_ha.sync.codec import from_wire
from saltext_ha.transport import wire

BYTES_PER_MESSAGE = 2 * 1024 * 1024
"""Most bytes of records in one message: far below the limits of a body and of an answer."""
LEAST = 64 * 1024
"""Bytes of the smallest message; a peer that refuses even that cannot be asked."""


class Limit:
    """The size of messages that a peer takes; another release may take less than ours sends."""

    def __init__(self) -> None:
        self.most = BYTES_PER_MESSAGE

    def halve(self) -> bool:
        """The peer refused a message for its size: halve it; False if that is too small."""
        if self.most <= LEAST:
            return False
        self.most //= 2
        return True


def packed(records: Iterable[Record], most: int = BYTES_PER_MESSAGE) -> Iterator[list[Record]]:
    """*records* in lists, each for one message of *most* bytes; a larger record goes alone."""
    message: list[Record] = []
    size = 0
    for record in records:
        more = size_of(record)
        if message and size + more > most:
            yield message
            message, size = [], 0
        message.append(record)
        size += more
    if message:
        yield message


def size_of(record: Record) -> int:
    """The size of a record in a message, in bytes, or slightly more."""
    texts = sum(len(value.by) + len(value.on) for value in record.values)
    values, nodes = len(record.values), len(record.context)
    return len(record.public_key) + 4 * (len(record.minion_id) + texts) + 64 * values + 28 * nodes


def read_records(raw: Any) -> tuple[list[Record], list[str]]:
    """
    The valid records in what a peer sent, and why others are invalid.

    :raises InvalidRecord: *raw* is no list at all.
    """
    if not isinstance(raw, list):
        raise InvalidRecord("records is not a list")
    records, reasons = [], []
    for entry in raw:
        try:
            records.append(from_wire(entry))
        except InvalidRecord as exc:
            reasons.append(str(exc))
    return records, reasons


def ids_of(raw: Any) -> list[str]:
    """The ids of the records in a message, valid or not."""
    entries = raw if isinstance(raw, list) else []
    return [
        entry[0] for entry in entries if isinstance(entry, list) and entry and type(entry[0]) is str
    ]


def rows_of_dropped(dropped: Iterable[Record]) -> list[Any]:
    """``[id, key, digest]`` of records that a peer offered, but all masters have dropped."""
    return [[r.minion_id, r.fingerprint, record_digest(r)] for r in dropped]


def read_dropped(raw: Any) -> dict[tuple[str, bytes], bytes]:
    """
    A peer's answer of :func:`rows_of_dropped`: (id, key) → digest.

    :raises InvalidRecord: it makes no sense.
    """
    entries = wire.rows(raw, "list of what was dropped", str, bytes, bytes)
    return {(minion_id, key): digest for minion_id, key, digest in entries}
