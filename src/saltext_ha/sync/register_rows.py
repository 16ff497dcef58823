"""
The form of registers on the wire and in replica.db (see :mod:`saltext_ha.replication.register`),
checked as if from a stranger. The user of a register reads its values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from saltext_ha.common.errors import InvalidRecord
from saltext_ha.replication import register
from saltext_ha.replication.record import covers
from saltext_ha.replication.register import MOST_VALUES, Seen, Valued
from saltext_ha.replication.vouching import MOST_WRITES
from saltext_ha.sync.codec import MAX_CONTEXT, NODE, read_context
from saltext_ha.transport import wire

V = TypeVar("V", bound=Valued)


def to_rows(values: Iterable[Sequence[Any]], seen: Seen) -> list[Any]:
    """
    ``[[[node, counter, …], …], [[node, counter], …]]``.

    :param values: rows that begin with the dot of the write: node and counter.
    """
    return [[list(value) for value in values], [list(write) for write in seen]]


def from_rows(
    raw: Any, what: str, kinds: Sequence[type], read: Callable[..., V]
) -> tuple[tuple[V, ...], Seen]:
    """
    Values and context of a register.

    :param what: names the register in errors. :param kinds: the types in the row of a value.
    :param read: makes a value of a row; raises InvalidRecord.
    :raises InvalidRecord: it makes no sense; use nothing of it.
    """
    values, context = wire.row(raw, what, list, list)
    if len(values) > MOST_VALUES or len(context) > MAX_CONTEXT:
        raise InvalidRecord(f"a {what} has too many values or writers")
    seen = read_context(context)
    if any(counter > MOST_WRITES for counter in seen.values()):
        raise InvalidRecord(f"a {what} claims a write that nobody made")
    rows = wire.rows(values, what, *kinds)
    if any(not NODE.fullmatch(node) or counter < 1 for node, counter, *_ in rows):
        raise InvalidRecord(f"malformed {what}")
    found = [read(*row) for row in rows]
    sound = all(covers(seen, value.dot) for value in found)
    if not sound or len({value.dot for value in found}) != len(found):
        raise InvalidRecord(f"a {what} is inconsistent")
    return register.in_order(found), tuple(sorted(seen.items()))
