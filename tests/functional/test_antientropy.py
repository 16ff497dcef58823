"""Two replicas in memory find and exchange exactly what differs, and little else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from saltext_ha import minion_key
from saltext_ha.columns import Applied
from saltext_ha.errors import InvalidRecord
from saltext_ha.peering.wire import pack, unpack
from saltext_ha.replica import Replica
from saltext_ha.replication.digest import BUCKETS, bucket_of
from saltext_ha.replication.placement import Stored
from saltext_ha.replication.record import (
    ACCEPTED,
    REJECTED,
    Record,
    Value,
    decide,
    merge,
)
from saltext_ha.service import antientropy
from saltext_ha.service.antientropy import PLACEMENTS, RECORDS, Call
from saltext_ha.service.codec import to_wire
from tests.keys import public_key

pytestmark = pytest.mark.core

TEXT = public_key(0)
KEY = minion_key.fingerprint(TEXT)
COUNT = 3000


def put(replica: Replica, *ids: str, state: str = ACCEPTED) -> None:
    with replica.transaction():
        for minion_id in ids:
            record = replica.get(minion_id).get(KEY, Record(minion_id, KEY, TEXT))
            value = Value(replica.next_dot(), state, 1.0, "root", "m1")
            replica.put(decide(record, dict(record.context), value))
            replica.set_applied(minion_id, Applied(Stored(state, KEY)))


def learn(replica: Replica, records: list[Record]) -> None:
    with replica.transaction():
        for theirs in records:
            ours = replica.get(theirs.minion_id).get(theirs.fingerprint)
            merged = merge(ours, theirs) if ours else theirs
            replica.put(merged)
            if merged.state in (ACCEPTED, REJECTED):
                replica.set_applied(
                    theirs.minion_id, Applied(Stored(merged.state, merged.fingerprint))
                )


ANSWERS = {
    "digest": antientropy.answer_digest,
    "branches": antientropy.answer_branches,
    "compare": antientropy.answer_compare,
    "placed": antientropy.answer_placed,
}


class Peer:
    """A replica at the other end of a wire whose bytes are counted."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.bytes = 0
        self.calls: list[str] = []

    async def call(self, name: str, payload: dict[str, Any]) -> dict[str, Any]:
        question = pack(payload)
        answer = pack(ANSWERS[name](self.replica, unpack(question)))
        self.calls.append(name)
        self.bytes += len(question) + len(answer)
        return unpack(answer)


def synchronise(ours: Replica, peer: Peer) -> tuple[set[str], set[str]]:
    """One round; the ids of the records that came and that went."""

    async def round_trip() -> tuple[set[str], set[str]]:
        came: set[str] = set()
        went: set[str] = set()
        buckets = await antientropy.differing_buckets(ours.records, RECORDS, peer.call)
        for portion in list(antientropy.portions(buckets, ours)):
            answer = await peer.call("compare", antientropy.question(ours, portion))
            records, reasons = antientropy.read_records(answer["records"])
            assert reasons == []
            sent = antientropy.wanted(ours, answer["want"])
            learn(ours, records)
            learn(peer.replica, sent)
            came |= {record.minion_id for record in records}
            went |= {record.minion_id for record in sent}
        return came, went

    return asyncio.run(round_trip())


@pytest.fixture(scope="module")
def base() -> list[Record]:
    replica = Replica(None)
    put(replica, *(f"minion{number}" for number in range(COUNT)))
    return [record for bucket in range(BUCKETS) for record in replica.in_buckets([bucket])]


@pytest.fixture
def ours(base: list[Record]) -> Replica:
    replica = Replica(None)
    learn(replica, base)
    return replica


@pytest.fixture
def peer(base: list[Record]) -> Peer:
    replica = Replica(None)
    learn(replica, base)
    return Peer(replica)


def test_in_sync_costs_one_small_question(ours: Replica, peer: Peer) -> None:
    assert synchronise(ours, peer) == (set(), set())
    assert peer.calls == ["digest"]
    assert peer.bytes < 100


def test_exactly_what_differs_is_exchanged(ours: Replica, peer: Peer) -> None:
    put(ours, "new-here", "minion7")
    put(peer.replica, "new-there", "minion8", state=REJECTED)
    put(ours, "minion9")
    put(peer.replica, "minion9", state=REJECTED)
    came, went = synchronise(ours, peer)
    # Digests do not tell who is behind: what both know otherwise goes both ways.
    both = {"minion7", "minion8", "minion9"}
    assert came == {"new-there", *both}
    assert went == {"new-here", *both}
    assert ours.records.root == peer.replica.records.root
    assert ours.placements.root == peer.replica.placements.root
    assert ours.get("minion9")[KEY].state == REJECTED
    assert synchronise(ours, peer) == (set(), set())


def test_one_difference_costs_little(ours: Replica, peer: Peer) -> None:
    put(peer.replica, "minion42", state=REJECTED)
    assert synchronise(ours, peer) == ({"minion42"}, {"minion42"})
    assert peer.calls == ["digest", "branches", "compare"]
    assert peer.bytes < 10_000


def test_two_ids_of_one_bucket_are_told_apart(ours: Replica, peer: Peer) -> None:
    twin = next(
        f"other{number}"
        for number in range(1_000_000)
        if bucket_of(f"other{number}") == bucket_of("minion1")
    )
    put(peer.replica, twin)
    assert synchronise(ours, peer) == ({twin}, set())


def test_all_comes_to_an_empty_replica(peer: Peer) -> None:
    empty = Replica(None)
    came, went = synchronise(empty, peer)
    assert (len(came), went) == (COUNT, set())
    assert empty.records.root == peer.replica.records.root


def test_all_goes_to_an_empty_peer(ours: Replica) -> None:
    peer = Peer(Replica(None))
    came, went = synchronise(ours, peer)
    assert (came, len(went)) == (set(), COUNT)
    assert ours.records.root == peer.replica.records.root


def test_placements_that_differ_are_found_by_the_same_walk(ours: Replica, peer: Peer) -> None:
    with peer.replica.transaction():
        peer.replica.set_applied("minion5", Applied(Stored(REJECTED, KEY)))

    async def look() -> tuple[list[int], list[Any]]:
        found = await antientropy.differing_buckets(ours.placements, PLACEMENTS, peer.call)
        return found, (await peer.call("placed", {"buckets": found}))["placed"]

    buckets, placed = asyncio.run(look())
    assert buckets == [bucket_of("minion5")]
    assert ["minion5", REJECTED, KEY] in placed
    assert {bucket_of(entry[0]) for entry in placed} == set(buckets)
    assert synchronise(ours, peer) == (set(), set())


def test_portions_hold_every_bucket_once(ours: Replica) -> None:
    buckets = list(range(0, BUCKETS, 7))
    portions = list(antientropy.portions(buckets, ours))
    assert [bucket for portion in portions for bucket in portion] == buckets
    assert max(map(len, portions)) <= antientropy.RECORDS_PER_MESSAGE
    assert list(antientropy.portions([], ours)) == []


# -- a peer that sends nonsense

NONSENSE: list[Any] = [
    *(None, 7, "text", b"bytes", {"a": 1}),
    *([None], [[7]], [["x", []]], [{}], [[[], []]]),
]


@pytest.fixture
def few() -> Replica:
    replica = Replica(None)
    put(replica, "minion1", "minion2")
    return replica


@pytest.mark.parametrize("junk", [*NONSENSE, [-1], [BUCKETS], [True], [1.0]])
@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_a_question_that_makes_no_sense_is_refused(few: Replica, name: str, junk: Any) -> None:
    key = {"digest": "tree", "branches": "branches"}.get(name, "buckets")
    payload = {"tree": RECORDS, key: junk}
    with pytest.raises(InvalidRecord):
        ANSWERS[name](few, payload)
    with pytest.raises(InvalidRecord):
        ANSWERS[name](few, {})


@pytest.mark.parametrize("junk", [*NONSENSE, b"", b"x" * 2047, True])
def test_digests_that_make_no_sense_are_refused(few: Replica, junk: Any) -> None:
    peer = Peer(Replica(None))

    def lying(about: str) -> Call:
        async def call(name: str, payload: dict[str, Any]) -> dict[str, Any]:
            answer = await peer.call(name, payload)
            return {**answer, "children": junk} if name == about else answer

        return call

    for about in ("digest", "branches"):
        with pytest.raises(InvalidRecord, match="make no sense"):
            asyncio.run(antientropy.differing_buckets(few.records, RECORDS, lying(about)))


@pytest.mark.parametrize("junk", [None, 7, [7], [["minion1"]], [[7, KEY]], [["minion1", []]]])
def test_a_wish_that_makes_no_sense_is_refused(few: Replica, junk: Any) -> None:
    with pytest.raises(InvalidRecord, match="malformed request"):
        antientropy.wanted(few, junk)


def test_a_wish_for_what_is_not_there_brings_nothing(few: Replica) -> None:
    assert antientropy.wanted(few, [["minion1", b"other"], ["nobody", KEY]]) == []


def test_bad_records_do_not_keep_good_ones_from_coming(few: Replica) -> None:
    good = few.get("minion1")[KEY]
    records, reasons = antientropy.read_records([None, to_wire(good), ["../x", TEXT, [], []]])
    assert records == [good]
    assert len(reasons) == 2
    with pytest.raises(InvalidRecord):
        antientropy.read_records({"a": 1})
