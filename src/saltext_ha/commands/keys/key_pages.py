"""
One master's records in pages, for a plan of what joining would do.

Public keys are not sent: a plan names fingerprints. Otherwise the whole record is sent, not only
its visible state: masters that were one group before share writes, and only the causal contexts say
which of them the other side had seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack

from saltext_ha.common.errors import NO_SENSE, InvalidRecord
from saltext_ha.keystore import minion_key
from saltext_ha.membership import handover
from saltext_ha.membership.invites import Invite
from saltext_ha.reconciler.core import Core
from saltext_ha.replica.replica import Replica
from saltext_ha.replication.digest import BUCKETS
from saltext_ha.replication.placement import Stored
from saltext_ha.replication.preview import SideKnowledge
from saltext_ha.replication.record import DENIED, STATES, Dot, Record, Value
from saltext_ha.transport import wire

# A page is far smaller than a message may be, and blocks the keeper only for a moment.
ROWS = 4000
BYTES = 2 * 1024 * 1024

FIRST = b""
_BEGIN = (-1, "", b"")


def page(replica: Replica, after: bytes = FIRST) -> bytes:
    """
    One page on the wire; *after* is what :func:`collect` returned.

    Packed is ``{rows: [[id, key, values, context, shown], …], next: [bucket, id, key]}``: a value
    is [node, counter, state]; ``shown`` is what the key store shows of that key: a state, or nil;
    ``next`` is nil in the last page.

    :raises InvalidRecord: there is no such page.
    """
    rows: list[Any] = []
    size = 0
    shown: tuple[str, Stored] | None = None
    where = _cursor(after)
    for bucket, record in replica.records_after(where, ROWS):
        if shown is None or shown[0] != record.minion_id:
            shown = (record.minion_id, replica.applied(record.minion_id).stored)
        rows.append(_row(record, shown[1]))
        where = (bucket, record.minion_id, record.fingerprint)
        size += 4 * len(record.minion_id) + 64 * len(record.values) + 32 * len(record.context) + 64
        if size > BYTES:
            break
    more = len(rows) == ROWS or size > BYTES
    packed: bytes = msgpack.packb({"rows": rows, "next": where if more else None})
    return packed


async def offer(
    core: Core, opts: Mapping[str, Any], invite: Invite, after: bytes
) -> dict[str, Any]:
    """
    The answer to a master with *invite* that asks what joining would do: states of keys, no keys.
    """
    if not after:
        await core.scan()
    return {
        **side(core),
        "public": handover.show(opts),
        "shares": list(invite.shares),
        "page": await core.run(page, core.replica, after),
    }


def side(core: Core) -> dict[str, Any]:
    """What decides how much of a plan this master carries out, beside what it knows of keys."""
    return {
        "writes_not": core.mode.why_not,
        "lost": core.mode.lost,
        "one_denied": core.keeper.store.one_denied,
    }


def collect(known: dict[str, SideKnowledge], packed: Any) -> bytes:
    """
    Add the rows of one page to *known*.

    :return: the *after* of the next page; empty if this was the last.
    :raises InvalidRecord: that is no page.
    """
    try:
        found = wire.unpack(packed)
        for minion_id, key, values, context, shown in found["rows"]:
            minion_id = minion_key.check_id(minion_id)
            if not isinstance(key, bytes) or len(key) != 32 or not (shown in STATES or not shown):
                raise InvalidRecord("a row has no fingerprint or an unknown state")
            read = tuple(Value(Dot(n, c), state, 0.0, "", "") for n, c, state in values)
            if any(value.state not in STATES for value in read):
                raise InvalidRecord("a row has an unknown state")
            seen = tuple((str(node), int(counter)) for node, counter in context)
            entry = known.get(minion_id, SideKnowledge({}, Stored()))
            record = Record(minion_id, key, "", read, seen)
            known[minion_id] = SideKnowledge(
                {**entry.records, key: record}, _with(entry.shown, key, shown)
            )
        rest: bytes = msgpack.packb(found["next"]) if found["next"] and found["rows"] else FIRST
        return rest
    except NO_SENSE as exc:
        raise InvalidRecord(f"what a master knows of keys came malformed: {exc!r}") from None


def everything(replica: Replica) -> dict[str, SideKnowledge]:
    """All that *replica* knows."""
    known: dict[str, SideKnowledge] = {}
    after = collect(known, page(replica))
    while after:
        after = collect(known, page(replica, after))
    return known


def _row(record: Record, stored: Stored) -> list[Any]:
    return [
        record.minion_id,
        record.fingerprint,
        [[*value.dot, value.state] for value in record.values],
        [list(seen) for seen in record.context],
        stored.state_of(record.fingerprint),
    ]


def _with(stored: Stored, key: bytes, state: str | None) -> Stored:
    if state is None:
        return stored
    if state == DENIED:
        return Stored(stored.state, stored.key, stored.denied | {key})
    return Stored(state, key, stored.denied)


def _cursor(after: bytes) -> tuple[int, str, bytes]:
    if not after:
        return _BEGIN
    try:
        bucket, minion_id, key = msgpack.unpackb(after)
    except (ValueError, TypeError, msgpack.UnpackException):
        bucket = minion_id = key = None
    whole = type(bucket) is int and 0 <= bucket < BUCKETS
    if not whole or not isinstance(minion_id, str) or not isinstance(key, bytes):
        raise InvalidRecord("no page ends there")
    return bucket, minion_id, key
