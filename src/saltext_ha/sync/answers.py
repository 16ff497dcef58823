"""
Answers peers that compare their records with this master's: see :mod:`.antientropy`.

What reads replica.db runs in the keeper's thread; the digests and branches are read in any thread.
Strangers can fill a bucket, but no answer is larger than a message: a full answer says where it
ends, and the peer asks for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from saltext_ha.common.errors import InvalidRecord
from saltext_ha.replica.replica import Replica
from saltext_ha.replication.digest import (
    BUCKETS,
    FANOUT,
    MAX_PARTS,
    SALT,
    SHORT,
    DigestTree,
    digests_of_parts,
    part_of,
)
from saltext_ha.replication.record import Record
from saltext_ha.sync.codec import to_wire
from saltext_ha.sync.messages import BYTES_PER_MESSAGE, size_of
from saltext_ha.sync.repair_leases import SHARED
from saltext_ha.transport import wire

RECORDS = "records"
PLACEMENTS = "placements"
Position = tuple[int, str, bytes]
"""Bucket, id and key of a record: the order of answers."""


def tree_of(replica: Replica, name: Any) -> DigestTree:
    """The digest tree that a peer asks for by *name*."""
    if name == RECORDS:
        return replica.records
    if name == PLACEMENTS:
        return replica.placements
    raise InvalidRecord(f"there is no tree {name!r:.40}")


def answer_digest(replica: Replica, payload: dict[str, Any]) -> dict[str, Any]:
    """``{tree, root}`` → ``{same: True}`` or ``{same: False, children}``."""
    tree = tree_of(replica, payload.get("tree"))
    if payload.get("root") == tree.root:
        return {"same": True}
    return {"same": False, "children": tree.children()}


def answer_branches(
    replica: Replica, payload: dict[str, Any], is_open: Callable[[int], bool] = lambda branch: True
) -> dict[str, Any]:
    """
    ``{tree, branches: [n, …]}`` → ``{children: [bytes, …]}`` in the same order. With ``shared``
    the entry of a branch that is not *is_open* is None: it is being repaired with another peer.
    """
    name = payload.get("tree")
    tree = tree_of(replica, name)
    branches = _numbers(payload.get("branches"), FANOUT)
    if payload.get(SHARED) is not True or name != RECORDS:
        return {"children": [tree.children(n) for n in branches]}
    return {"children": [tree.children(n) if is_open(n) else None for n in branches]}


def answer_compare(replica: Replica, payload: dict[str, Any]) -> dict[str, Any]:
    """
    ``{buckets: [[bucket, [[id, key, digest], …]], …]}`` → ``{records, want}``: the records that the
    caller lacks or has in another version, and the (id, key) of the records that it is to send.

    ``salt``, ``parts`` and ``only`` limit the question to the ids of some parts of a bucket. If the
    records do not fit into one message, ``next`` says where the answer ends. The same question with
    that position as ``after`` returns the records that follow, and wants nothing.
    """
    is_meant, after = _meant(payload), position(payload.get("after"))
    want: list[Any] = []
    lacks: list[tuple[int, set[tuple[str, bytes]], int]] = []
    for bucket, known in _buckets(payload.get("buckets")):
        digests = replica.digests_in(bucket)
        ours = {pair: digest[:SHORT] for pair, digest in digests.items() if is_meant(pair[0])}
        differ = {pair for pair, digest in ours.items() if known.get(pair) != digest}
        if after is None:
            want += [list(pair) for pair, digest in known.items() if ours.get(pair) != digest]
        else:
            differ = {pair for pair in differ if (bucket, *pair) > after}
        lacks.append((bucket, differ, len(digests)))
    records: list[Any] = []
    size = 0
    last: Position | None = None
    for bucket, pairs, count in lacks:
        for record in _records(replica, bucket, pairs, count):
            size += size_of(record)
            if last and size > BYTES_PER_MESSAGE:
                return {"records": records, "want": want, "next": last}
            records.append(to_wire(record))
            last = bucket, record.minion_id, record.fingerprint
    return {"records": records, "want": want}


def _records(
    replica: Replica, bucket: int, pairs: set[tuple[str, bytes]], count: int
) -> Iterator[Record]:
    """The records of *pairs*, in order; all are in *bucket*, which has *count* records."""
    if len(pairs) > count // 4:
        for record in replica.in_bucket(bucket, (min(pairs)[0], b"")):
            if (record.minion_id, record.fingerprint) in pairs:
                yield record
        return
    for minion_id, key in sorted(pairs):  # a few of a large bucket
        found = replica.get(minion_id).get(key)
        if found:
            yield found


def answer_parts(replica: Replica, payload: dict[str, Any]) -> dict[str, Any]:
    """
    ``{bucket, salt, parts}`` → ``{digests}``: 8 bytes for each of the parts into which the salt
    divides the bucket.
    """
    (bucket,) = _numbers([payload.get("bucket")], BUCKETS)
    return {"digests": digests_in_parts(replica, bucket, *_division(payload))}


def answer_placed(replica: Replica, payload: dict[str, Any]) -> dict[str, Any]:
    """
    ``{buckets, after}`` → ``{placed: [[id, state, key], …]}``: what the key store shows.

    It begins behind ``after`` (bucket, id; at first -1 and an empty id), and ends when a message is
    full: then ``next`` is the ``after`` of the following question.
    """
    start = tuple(wire.row(payload.get("after"), "position", int, str))
    placed: list[list[Any]] = []
    size = 0
    for bucket in sorted(_numbers(payload.get("buckets"), BUCKETS)):
        if bucket < start[0]:
            continue
        for minion_id, stored in sorted(replica.placed_in(bucket).items()):
            if not stored.slot or (bucket, minion_id) <= start[:2]:
                continue
            placed.append([minion_id, stored.state, stored.key])
            size += 4 * len(minion_id) + 64
            if size > BYTES_PER_MESSAGE:
                return {"placed": placed, "next": [bucket, minion_id]}
    return {"placed": placed}


def _buckets(raw: Any) -> Iterator[tuple[int, dict[tuple[str, bytes], bytes]]]:
    """(bucket, what the question says about it), in order."""
    asked: dict[int, dict[tuple[str, bytes], bytes]] = {}
    for bucket, theirs in wire.rows(raw, "buckets", int, list):
        _numbers([bucket], BUCKETS)
        if bucket in asked:
            raise InvalidRecord(f"bucket {bucket} stands twice")
        known = wire.rows(theirs, "bucket", str, bytes, bytes)
        asked[bucket] = {(minion_id, key): digest for minion_id, key, digest in known}
    yield from sorted(asked.items())


def _division(payload: dict[str, Any]) -> tuple[bytes, int]:
    """Salt and number of parts."""
    salt, parts = wire.field(payload, "salt", bytes), wire.field(payload, "parts", int)
    if len(salt) != SALT:
        raise InvalidRecord(f"takes a salt of {SALT} bytes")
    if not 0 < parts <= MAX_PARTS:
        raise InvalidRecord(f"takes up to {MAX_PARTS} parts")
    return salt, parts


def _meant(payload: dict[str, Any]) -> Callable[[str], bool]:
    """A function that says whether the question is about an id."""
    if payload.get("only") is None:
        return lambda minion_id: True
    salt, parts = _division(payload)
    only = set(_numbers(payload["only"], parts))
    return lambda minion_id: part_of(minion_id, salt, parts) in only


def position(raw: Any) -> Position | None:
    if raw is None:
        return None
    bucket, minion_id, key = wire.row(raw, "position", int, str, bytes)
    return bucket, minion_id, key


def _numbers(raw: Any, limit: int) -> list[int]:
    if not isinstance(raw, list) or not all(type(n) is int and 0 <= n < limit for n in raw):
        raise InvalidRecord(f"takes a list of numbers below {limit}")
    # Each number has a long answer, and a short question must not ask for gigabytes.
    if len(set(raw)) != len(raw):
        raise InvalidRecord("a number stands twice")
    return raw


def digests_in_parts(replica: Replica, bucket: int, salt: bytes, parts: int) -> bytes:
    """The digests of the *parts* into which *salt* divides a bucket."""
    items = replica.digests_in(bucket).items()
    return digests_of_parts(((pair[0], digest) for pair, digest in items), salt, parts)
