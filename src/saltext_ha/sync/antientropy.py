"""
Anti-entropy: two masters find what differs between their replicas, and exchange just that.

The caller drives; the peer answers by :mod:`.answers`. If both are in sync, this costs one request
of a few dozen bytes, for any number of keys. Otherwise the caller asks for the branches that
differ, then for their buckets, then both exchange the records.

Strangers can fill a bucket, but no message grows with it: a large bucket is compared in parts, with
a fresh salt (:func:`.part_of`), and a full answer says where to continue.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from saltext_ha.common.batches import batches
from saltext_ha.common.errors import InvalidRecord, MessageTooLarge
from saltext_ha.replica.replica import Replica
from saltext_ha.replication.digest import (
    FANOUT,
    SALT,
    SHORT,
    DigestTree,
    part_of,
    parts_for,
)
from saltext_ha.replication.record import Record
from saltext_ha.sync.answers import Position, digests_in_parts, position
from saltext_ha.sync.contact import Asking
from saltext_ha.sync.messages import BYTES_PER_MESSAGE, read_records
from saltext_ha.sync.repair_leases import SHARED
from saltext_ha.transport import wire

RECORDS_PER_MESSAGE = 2000
LARGE_BUCKET = 128
"""Ids in a bucket; with 100 000 keys it has two."""

Run = Callable[..., Awaitable[Any]]


@dataclass
class Exchanged:
    """
    One round, and its result: records received and sent (zero if in sync), how many were news, and
    how many more were refused. ``shared``: branches that are being repaired with another peer are
    left out, and what the peer refuses is only noted. ``left``: more differ, but are being repaired
    with others, or pushed.
    """

    shared: bool = False
    received: int = 0
    sent: int = 0
    learned: int = 0
    refused: int = 0
    left: bool = False


def differing(ours: bytes, theirs: Any) -> list[int]:
    """
    The positions at which two answers of :meth:`.DigestTree.children` differ.

    :raises InvalidRecord: *theirs*, which a peer sent, is not as many bytes.
    """
    if type(theirs) is not bytes or len(theirs) != len(ours):
        raise InvalidRecord(f"malformed digests: {len(ours)} bytes were expected")
    return [
        i // SHORT
        for i in range(0, len(ours), SHORT)
        if ours[i : i + SHORT] != theirs[i : i + SHORT]
    ]


async def differing_branches(tree: DigestTree, name: str, peer: Asking) -> dict[int, bytes]:
    """
    The branches in which *tree* differs from the peer's tree *name* → the peer's short digests.

    :raises PeerError: *peer* cannot be asked. :raises InvalidRecord: its answer makes no sense.
    """
    answer = await peer.call("digest", {"tree": name, "root": tree.root})
    if answer.get("same"):
        return {}
    theirs = wire.field(answer, "children", bytes)
    branches = differing(tree.children(), theirs)
    return {branch: theirs[branch * SHORT : (branch + 1) * SHORT] for branch in branches}


async def differing_below(
    tree: DigestTree,
    name: str,
    branches: Sequence[int],
    peer: Asking,
    done: Exchanged,
) -> list[int]:
    """
    The buckets below *branches* in which *tree* differs; raises as :func:`differing_branches`.

    :param done: if the round is shared, the peer may leave out branches that it is repairing with
        others; ``done.left`` says so.
    """
    asked = {"tree": name, "branches": branches, SHARED: done.shared}
    answer = await peer.call("branches", asked)
    children = wire.row(answer.get("children"), "digests", *[object] * len(branches))
    done.left |= done.shared and None in children
    return [
        branch * FANOUT + position
        for branch, theirs in zip(branches, children, strict=True)
        if theirs is not None or not done.shared
        for position in differing(tree.children(branch), theirs)
    ]


async def differing_buckets(tree: DigestTree, name: str, peer: Asking) -> list[int]:
    """The buckets in which *tree* differs from the peer's; raises as :func:`differing_branches`."""
    branches = list(await differing_branches(tree, name, peer))
    return await differing_below(tree, name, branches, peer, Exchanged()) if branches else []


class Asked(NamedTuple):
    """A question about the first *taken* of some buckets, or of some parts of one bucket."""

    entries: list[Any]
    """What we have there."""
    taken: int
    large: Sequence[tuple[int, int]] = ()
    """(bucket, its ids here): ask about it in parts instead."""


def question(replica: Replica, buckets: Sequence[int], most: int = BYTES_PER_MESSAGE) -> Asked:
    """
    The question to :func:`.answer_compare` about *buckets*, up to *most* bytes; without large ones.
    """
    entries: list[Any] = []
    large: list[tuple[int, int]] = []
    size = count = taken = 0
    for bucket in buckets:
        known = replica.digests_in(bucket)
        if len(known) > LARGE_BUCKET:
            large.append((bucket, len(known)))
            taken += 1
            continue
        size += sum(map(_size_of_pair, known)) + 8
        count += max(1, len(known))
        if entries and (size > most or count > RECORDS_PER_MESSAGE):
            break
        entries.append([bucket, _shortened(known.items())])
        taken += 1
    return Asked(entries, taken, large)


def question_about_parts(
    replica: Replica, bucket: int, salt: bytes, parts: int, left: Sequence[int], most: int
) -> Asked:
    """The same about the first of the parts *left* of one bucket."""
    known: dict[int, list[tuple[tuple[str, bytes], bytes]]] = {part: [] for part in left}
    for pair, digest in replica.digests_in(bucket).items():
        part = part_of(pair[0], salt, parts)
        if part in known:
            known[part].append((pair, digest))
    entries: list[Any] = []
    size = taken = 0
    for items in known.values():
        size += sum(_size_of_pair(pair) for pair, _ in items)
        if taken and (size > most or len(entries) + len(items) > RECORDS_PER_MESSAGE):
            break
        entries += _shortened(items)
        taken += 1
    return Asked([[bucket, entries]], taken)


class Comparison:
    """
    Compares buckets with the peer's buckets.

    :param run: runs a function in the replica's thread.
    :param more: further fields of each question.
    """

    def __init__(
        self,
        replica: Replica,
        run: Run,
        peer: Asking,
        *,
        more: dict[str, Any] | None = None,
    ) -> None:
        self._replica = replica
        self._run = run
        self._peer = peer
        self._limit = peer.limit
        self._more = more or {}

    async def answers(self, buckets: Sequence[int]) -> AsyncIterator[dict[str, Any]]:
        """
        The peer's answers about *buckets*, in as many messages as needed.

        :raises PeerError: the peer cannot be asked.
        :raises InvalidRecord: an answer makes no sense.
        """
        left = sorted(buckets)
        refused: MessageTooLarge | None = None
        while left:
            asked = await self._run(question, self._replica, left, self._limit.most)
            try:
                if asked.entries:
                    async for answer in self._pages({"buckets": asked.entries}):
                        yield answer
            except MessageTooLarge as exc:
                if len(asked.entries) == 1:
                    refused = exc  # one bucket, which cannot be divided; ask for the others
                elif self._limit.halve():
                    continue
                else:
                    raise
            left = left[asked.taken :]
            for bucket, count in asked.large:
                async for answer in self._divided(bucket, parts_for(count)):
                    yield answer
        if refused:
            raise refused

    async def _divided(self, bucket: int, parts: int) -> AsyncIterator[dict[str, Any]]:
        salt = secrets.token_bytes(SALT)
        division = {"salt": salt, "parts": parts}
        answer = await self._peer.call_large("parts", {"bucket": bucket, **division})
        ours = await self._run(digests_in_parts, self._replica, bucket, salt, parts)
        left = differing(ours, answer.get("digests"))
        while left:
            asked = await self._run(
                question_about_parts, self._replica, bucket, salt, parts, left, self._limit.most
            )
            about = {"buckets": asked.entries, **division, "only": left[: asked.taken]}
            try:
                async for answer in self._pages(about):
                    yield answer
            except MessageTooLarge:
                if not self._limit.halve():
                    raise
                continue
            left = left[asked.taken :]

    async def _pages(self, asked: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        after: Position | None = None
        while True:
            where = {} if after is None else {"after": list(after)}
            answer = await self._peer.call_large("compare", {**asked, **self._more, **where})
            yield answer
            before, after = after, position(answer.get("next"))
            if after is None:
                return
            if before and after <= before:
                raise InvalidRecord("an answer ends where it began")


async def placed_there(buckets: Sequence[int], peer: Asking) -> AsyncIterator[dict[str, Any]]:
    """The peer's answers about what its key store shows in *buckets*; raises as the above."""
    after: list[Any] = [-1, ""]
    while True:
        answer = await peer.call_large("placed", {"buckets": list(buckets), "after": after})
        yield answer
        where = answer.get("next")
        if where is None:
            return
        bucket, minion_id = wire.row(where, "end of an answer", int, str)
        if [bucket, minion_id] <= after:
            raise InvalidRecord("an answer ends where it began")
        after = [bucket, minion_id]


def _shortened(items: Iterable[tuple[tuple[str, bytes], bytes]]) -> list[Any]:
    return [[*pair, digest[:SHORT]] for pair, digest in items]


def _size_of_pair(pair: tuple[str, bytes]) -> int:
    """The size of a record in a question, in bytes, roughly."""
    return 4 * len(pair[0]) + 64


def wanted(replica: Replica, want: Any) -> list[Record]:
    """
    The records that a peer's answer asks for.

    :raises InvalidRecord: *want* is no list of (id, key).
    """
    pairs = wire.rows(want, "request for records", str, bytes)
    found = (replica.get(minion_id).get(key) for minion_id, key in pairs)
    return [record for record in found if record]


class Answer(NamedTuple):
    """A peer's answer about some buckets, with checked records: see :mod:`.answers`."""

    records: list[Record]
    reasons: list[str]
    """Why other records do not count."""
    vouched: Any
    want: Any


def read_answer(raw: dict[str, Any]) -> Answer:
    """
    A peer's answer to ``compare``.

    :raises InvalidRecord: it makes no sense.
    """
    return Answer(*read_records(raw.get("records")), raw.get("vouched"), raw.get("want"))


def portions(buckets: Sequence[int], replica: Replica) -> list[list[int]]:
    """*buckets* in groups whose records fit into one message."""
    sample = buckets[:: max(1, len(buckets) // 16)][:16]
    density = 1 + sum(len(replica.digests_in(bucket)) for bucket in sample) // max(1, len(sample))
    size = max(1, RECORDS_PER_MESSAGE // density)
    return list(batches(buckets, size))
