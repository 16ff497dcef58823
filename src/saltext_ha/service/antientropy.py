"""
Anti-entropy: two masters find what differs between their replicas, and exchange just that.

The caller drives; the peer answers by :func:`answer_digest` and its like. In sync it costs one
request of a few dozen bytes, whatever the number of keys. Otherwise the branches that differ are
asked for, then their buckets, then the records themselves in both directions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from saltext_ha.batches import batches
from saltext_ha.errors import InvalidRecord
from saltext_ha.replica import Replica
from saltext_ha.replication.digest import BUCKETS, FANOUT, SHORT, DigestTree, differing
from saltext_ha.replication.record import Record, record_digest
from saltext_ha.service.claims import SHARED
from saltext_ha.service.codec import from_wire, to_wire

RECORDS = "records"
PLACEMENTS = "placements"
# What one message carries stays far below the limits of a body and of an answer.
RECORDS_PER_MESSAGE = 2000
BYTES_PER_MESSAGE = 2 * 1024 * 1024

Call = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


@dataclass
class Exchanged:
    """
    What one round brought: records received and sent; zero of both when in sync; how many taught
    something, and how many more were refused. ``left``: there is more that differs, which was
    being repaired with others, or pushed.
    """

    received: int = 0
    sent: int = 0
    learned: int = 0
    refused: int = 0
    left: bool = False


def tree_of(replica: Replica, name: Any) -> DigestTree:
    """The digest tree that a peer asks for by *name*."""
    if name == RECORDS:
        return replica.records
    if name == PLACEMENTS:
        return replica.placements
    raise InvalidRecord(f"there is no tree {name!r:.40}")


# -- what the peer answers; all of this runs where the replica lives


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
    ``{tree, branches: [n, …]}`` → ``{children: [bytes, …]}`` in the same order; with ``shared`` it
    is None for records that are repaired with others, that is where not *is_open*.
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
    caller lacks or has otherwise, and the (id, key) of those that are to be sent here.
    """
    records: list[Any] = []
    want: list[Any] = []
    size = 0
    asked: set[int] = set()
    entries = payload.get("buckets")
    if not isinstance(entries, list):
        raise InvalidRecord("buckets is not a list")
    for entry in entries:
        try:
            bucket, theirs = entry
            (bucket,) = _numbers([bucket], BUCKETS)
            known = {(minion_id, key): digest for minion_id, key, digest in theirs}
        except (TypeError, ValueError) as exc:
            raise InvalidRecord(f"malformed bucket: {exc}") from None
        if bucket in asked:
            raise InvalidRecord(f"bucket {bucket} stands twice")
        asked.add(bucket)
        if not all(type(minion_id) is str and type(key) is bytes for minion_id, key in known):
            raise InvalidRecord("malformed bucket: takes id, key and digest")
        ours = {pair: digest[:SHORT] for pair, digest in replica.digests_in(bucket).items()}
        want += [list(pair) for pair, digest in known.items() if ours.get(pair) != digest]
        if all(known.get(pair) == digest for pair, digest in ours.items()):
            continue
        for record in replica.in_buckets([bucket]):
            pair = (record.minion_id, record.fingerprint)
            # What does not fit is found to differ again in the next round.
            if known.get(pair) != ours[pair] and size < BYTES_PER_MESSAGE:
                records.append(to_wire(record))
                size += _size(record)
    return {"records": records, "want": want}


def answer_placed(replica: Replica, payload: dict[str, Any]) -> dict[str, Any]:
    """``{buckets}`` → ``{placed: [[id, state, key], …]}``: what the key store shows."""
    return {
        "placed": [
            [minion_id, stored.state, stored.key]
            for bucket in _numbers(payload.get("buckets"), BUCKETS)
            for minion_id, stored in replica.placed_in(bucket).items()
            if stored.slot
        ]
    }


def _numbers(raw: Any, limit: int) -> list[int]:
    if not isinstance(raw, list) or not all(type(n) is int and 0 <= n < limit for n in raw):
        raise InvalidRecord(f"takes a list of numbers below {limit}")
    # Each is answered at length: a short question must not be worth gigabytes.
    if len(set(raw)) != len(raw):
        raise InvalidRecord("a number stands twice")
    return raw


# -- what the caller does


async def differing_branches(tree: DigestTree, name: str, call: Call) -> dict[int, bytes]:
    """
    The branches in which *tree* differs from the peer's tree of that *name*, with the peer's short
    digests of them.

    :raises PeerError: as *call* does. :raises InvalidRecord: the answer makes no sense.
    """
    answer = await call("digest", {"tree": name, "root": tree.root})
    if answer.get("same"):
        return {}
    try:
        theirs = answer["children"]
        branches = differing(tree.children(), theirs)
        return {branch: theirs[branch * SHORT : (branch + 1) * SHORT] for branch in branches}
    except (KeyError, TypeError, ValueError) as exc:
        raise InvalidRecord(f"digests make no sense: {exc!r}") from None


async def differing_below(
    tree: DigestTree, name: str, branches: Sequence[int], call: Call, done: Exchanged | None = None
) -> list[int]:
    """
    The buckets below *branches* in which *tree* differs; errors as :func:`differing_branches`.

    :param done: the peer may leave out branches that it repairs with others at this moment; that it
        did is noted there.
    """
    shared = done is not None
    answer = await call("branches", {"tree": name, "branches": branches, SHARED: shared})
    try:
        children = dict(zip(branches, answer["children"], strict=True))
        if done is not None and None in children.values():
            done.left = True
            children = {branch: theirs for branch, theirs in children.items() if theirs is not None}
        return [
            branch * FANOUT + position
            for branch, theirs in children.items()
            for position in differing(tree.children(branch), theirs)
        ]
    except (KeyError, TypeError, ValueError) as exc:
        raise InvalidRecord(f"digests make no sense: {exc!r}") from None


async def differing_buckets(tree: DigestTree, name: str, call: Call) -> list[int]:
    """The buckets in which *tree* differs from the peer's; errors as both of the above."""
    branches = list(await differing_branches(tree, name, call))
    return await differing_below(tree, name, branches, call) if branches else []


def question(replica: Replica, buckets: Iterable[int]) -> dict[str, Any]:
    """What :func:`answer_compare` is asked."""
    return {
        "buckets": [
            [bucket, [[*pair, d[:SHORT]] for pair, d in replica.digests_in(bucket).items()]]
            for bucket in buckets
        ]
    }


def wanted(replica: Replica, want: Any) -> list[Record]:
    """
    The records that a peer's answer asks for.

    :raises InvalidRecord: *want* is no list of (id, key).
    """
    records = []
    try:
        for minion_id, key in want:
            record = replica.get(minion_id).get(key)
            if record:
                records.append(record)
    except (AttributeError, TypeError, ValueError) as exc:
        raise InvalidRecord(f"malformed request for records: {exc}") from None
    return records


def read_records(raw: Any) -> tuple[list[Record], list[str]]:
    """
    Records as a peer sent them: those that are acceptable, and why the others are not.

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


def told(dropped: Iterable[Record]) -> list[Any]:
    """``[id, key, digest]`` of records that a peer offered, and that all masters dropped."""
    return [[r.minion_id, r.fingerprint, record_digest(r)] for r in dropped]


def ids_of(raw: Any) -> list[str]:
    """The ids of the records in a message, whatever else is wrong with them."""
    entries = raw if isinstance(raw, list) else []
    return [
        entry[0] for entry in entries if isinstance(entry, list) and entry and type(entry[0]) is str
    ]


def read_told(raw: Any) -> dict[tuple[str, bytes], bytes]:
    """
    What :func:`told` says, from a peer.

    :raises InvalidRecord: it makes no sense.
    """
    try:
        entries = {(minion_id, key): digest for minion_id, key, digest in raw}
    except (TypeError, ValueError):
        raise InvalidRecord("dropped is no list of id, key and digest") from None
    for (minion_id, key), digest in entries.items():
        if [type(part) for part in (minion_id, key, digest)] != [str, bytes, bytes]:
            raise InvalidRecord("dropped is no list of id, key and digest")
    return entries


def messages(records: Iterable[Record]) -> Iterator[list[Any]]:
    """*records* as they travel, in lists that each fit into one message."""
    message: list[Any] = []
    size = 0
    for record in records:
        if message and (size + _size(record) > BYTES_PER_MESSAGE):
            yield message
            message, size = [], 0
        message.append(to_wire(record))
        size += _size(record)
    if message:
        yield message


def _size(record: Record) -> int:
    """About how many bytes a record takes in a message."""
    return len(record.public_key) + 4 * len(record.minion_id) + 256 * len(record.values) + 256


def portions(buckets: Sequence[int], replica: Replica) -> list[list[int]]:
    """*buckets* in groups whose records fit into one message."""
    sample = buckets[:: max(1, len(buckets) // 16)][:16]
    density = 1 + sum(len(replica.digests_in(bucket)) for bucket in sample) // max(1, len(sample))
    size = max(1, RECORDS_PER_MESSAGE // density)
    return list(batches(buckets, size))
