"""Two replicas in memory find and exchange exactly what differs, and little else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from saltext_ha.common.errors import InvalidRecord, MessageTooLarge
from saltext_ha.keystore import minion_key
from saltext_ha.replica.replica import Replica
from saltext_ha.replica.serializers import Applied
from saltext_ha.replication.digest import BUCKETS, bucket_of
from saltext_ha.replication.placement import Stored
from saltext_ha.replication.record import ACCEPTED, REJECTED, Dot, Record, Value, decide, merge
from saltext_ha.replication.vouching import MOST_WRITES
from saltext_ha.sync import answers, antientropy, messages
from saltext_ha.sync.answers import PLACEMENTS, RECORDS
from saltext_ha.sync.antientropy import Comparison, Exchanged
from saltext_ha.sync.codec import to_wire
from saltext_ha.transport.wire import MAX_BODY, pack, unpack
from tests.asking import Answering
from tests.crafted import crafted
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
    "digest": answers.answer_digest,
    "branches": answers.answer_branches,
    "compare": answers.answer_compare,
    "parts": answers.answer_parts,
    "placed": answers.answer_placed,
}


class Peer(Answering):
    """A replica at the other end of a wire whose bytes are counted."""

    def __init__(self, replica: Replica) -> None:
        super().__init__(self._answer)
        self.replica = replica
        self.bytes = 0
        self.largest = 0
        self.takes = MAX_BODY
        self.calls: list[str] = []

    async def _answer(self, name: str, payload: dict[str, Any]) -> dict[str, Any]:
        question = pack(payload)
        if len(question) > self.takes:
            raise MessageTooLarge(f"the body has more than {self.takes} bytes")
        answer = pack(ANSWERS[name](self.replica, unpack(question)))
        self.calls.append(name)
        self.bytes += len(question) + len(answer)
        self.largest = max(self.largest, len(question), len(answer))
        return unpack(answer)


async def here(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def comparison(ours: Replica, peer: Peer) -> Comparison:
    return Comparison(ours, here, peer)


def synchronise(ours: Replica, peer: Peer) -> tuple[set[str], set[str]]:
    """One round; the ids of the records that came and that went."""

    async def round_trip() -> tuple[set[str], set[str]]:
        came: set[str] = set()
        went: set[str] = set()
        buckets = await antientropy.differing_buckets(ours.records, RECORDS, peer)
        async for answer in comparison(ours, peer).answers(buckets):
            records, reasons = messages.read_records(answer["records"])
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
    return [record for bucket in range(BUCKETS) for record in replica.in_bucket(bucket)]


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
        found = await antientropy.differing_buckets(ours.placements, PLACEMENTS, peer)
        return found, [
            entry
            async for answer in antientropy.placed_there(found, peer)
            for entry in answer["placed"]
        ]

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


# -- ids that strangers chose


WIDE = 40  # such records are three messages


def wide(minion_id: str, nodes: int = 4000) -> Record:
    """A record that many nodes have written."""
    dots = [Dot(f"{number:016x}", MOST_WRITES) for number in range(nodes)]
    value = Value(dots[0], ACCEPTED, 1.0, "root" * 16, "m1" * 32)
    return Record(minion_id, KEY, TEXT, (value,), tuple(dots))


def test_ids_that_fall_together_are_compared_in_parts(ours: Replica, peer: Peer) -> None:
    ids = crafted(500)
    assert len({bucket_of(minion_id) for minion_id in ids}) == 1
    put(peer.replica, *ids)
    learn(ours, [record for i in ids for record in peer.replica.get(i).values()])
    put(peer.replica, ids[250], state=REJECTED)
    put(ours, "new-here")
    assert synchronise(ours, peer) == ({ids[250]}, {ids[250], "new-here"})
    # All of them are 150 KB.
    assert peer.bytes < 30_000
    assert synchronise(ours, peer) == (set(), set())


def test_nobody_knows_beforehand_how_ids_are_divided(ours: Replica, peer: Peer) -> None:
    put(peer.replica, *crafted(500))
    learn(ours, [record for i in crafted(500) for record in peer.replica.get(i).values()])
    put(peer.replica, crafted(500)[0], state=REJECTED)
    salts: set[bytes] = set()
    answer = peer.answer

    async def listening(name: str, payload: dict[str, Any]) -> dict[str, Any]:
        if name == "parts":
            salts.add(payload["salt"])
        return await answer(name, payload)

    peer.answer = listening
    for _ in range(2):
        asyncio.run(gather(comparison(ours, peer).answers([bucket_of(crafted(500)[0])])))
    assert len(salts) == 2


async def gather(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


@pytest.mark.parametrize("lacks", ["ours", "theirs"])
def test_one_bucket_of_any_size_comes_in_one_round(
    monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    limit = 64 * 1024
    for module in (answers, messages):
        monkeypatch.setattr(module, "BYTES_PER_MESSAGE", limit)
    ours, peer = Replica(None), Peer(Replica(None))
    put(peer.replica if lacks == "ours" else ours, *crafted(500))
    came, went = synchronise(ours, peer)
    assert came | went == {*crafted(500)}
    assert ours.records.root == peer.replica.records.root
    assert peer.largest <= limit + 10_000


def test_a_peer_that_takes_less_is_asked_less(ours: Replica, peer: Peer) -> None:
    put(ours, *crafted(500))
    peer.takes = 70_000
    put(peer.replica, *(f"other{number}" for number in range(3000)))
    came, went = synchronise(ours, peer)
    assert (len(came), went) == (3000, {*crafted(500)})


def test_a_peer_that_takes_nothing_is_not_asked_for_ever(ours: Replica, peer: Peer) -> None:
    peer.takes = 10
    with pytest.raises(MessageTooLarge):
        asyncio.run(gather(comparison(ours, peer).answers([1, 2, 3])))


def test_what_a_store_shows_comes_in_pages(
    monkeypatch: pytest.MonkeyPatch, ours: Replica, peer: Peer
) -> None:
    put(peer.replica, *crafted(500))
    buckets = [*range(2000), bucket_of(crafted(1)[0])]
    (whole,) = asyncio.run(gather(antientropy.placed_there(buckets, peer)))
    peer.largest = 0
    monkeypatch.setattr(answers, "BYTES_PER_MESSAGE", 10_000)
    pages = asyncio.run(gather(antientropy.placed_there(buckets, peer)))
    assert len(pages) > 10
    assert [entry for page in pages for entry in page["placed"]] == whole["placed"]
    assert peer.largest < 20_000


def test_all_that_is_sent_of_a_record_counts() -> None:
    records = [wide(f"web{number}") for number in range(WIDE)]
    packed = list(messages.packed(records))
    assert [record for message in packed for record in message] == records
    for message in packed:
        size = len(pack({"records": [to_wire(record) for record in message]}))
        assert size <= messages.BYTES_PER_MESSAGE + 100


def test_answers_with_wide_records_are_bounded_too(peer: Peer) -> None:
    learn(peer.replica, [wide(f"web{number}") for number in range(WIDE)])
    empty = Replica(None)
    came, _ = synchronise(empty, peer)
    assert came >= {f"web{number}" for number in range(WIDE)}
    assert peer.largest <= messages.BYTES_PER_MESSAGE + 10_000


def test_a_record_that_is_too_large_alone_goes_alone() -> None:
    small = wide("small", nodes=1)
    records = [small, wide("large"), small]
    assert list(messages.packed(records, 1000)) == [[small], [wide("large")], [small]]


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
    key = {"digest": "tree", "branches": "branches", "parts": "bucket"}.get(name, "buckets")
    payload = {"tree": RECORDS, key: junk}
    with pytest.raises(InvalidRecord):
        ANSWERS[name](few, payload)
    with pytest.raises(InvalidRecord):
        ANSWERS[name](few, {})


@pytest.mark.parametrize("junk", [*NONSENSE, b"", b"x" * 2047, True])
def test_digests_that_make_no_sense_are_refused(few: Replica, junk: Any) -> None:
    peer = Peer(Replica(None))

    def lying(about: str, each: bool) -> Answering:
        @Answering
        async def liar(name: str, payload: dict[str, Any]) -> dict[str, Any]:
            if name != about:
                return await peer.answer(name, payload)
            return {"children": [junk] * len(payload["branches"]) if each else junk}

        return liar

    for about, each in (("digest", False), ("branches", False), ("branches", True)):
        with pytest.raises(InvalidRecord, match="malformed"):
            asyncio.run(antientropy.differing_buckets(few.records, RECORDS, lying(about, each)))


def test_a_peer_may_leave_branches_out_of_a_shared_round_only(few: Replica) -> None:
    @Answering
    async def busy(name: str, payload: dict[str, Any]) -> dict[str, Any]:
        return {"children": [None for _ in payload["branches"]]}

    def ask(done: Exchanged) -> list[int]:
        return asyncio.run(antientropy.differing_below(few.records, RECORDS, [1, 2], busy, done))

    shared = Exchanged(shared=True)
    assert (ask(shared), shared.left) == ([], True)
    with pytest.raises(InvalidRecord, match="malformed digests"):
        ask(Exchanged())


@pytest.mark.parametrize("junk", [None, 7, [7], [["minion1"]], [[7, KEY]], [["minion1", []]]])
def test_a_wish_that_makes_no_sense_is_refused(few: Replica, junk: Any) -> None:
    with pytest.raises(InvalidRecord, match="malformed request"):
        antientropy.wanted(few, junk)


def test_a_wish_for_what_is_not_there_brings_nothing(few: Replica) -> None:
    assert antientropy.wanted(few, [["minion1", b"other"], ["nobody", KEY]]) == []


def test_bad_records_do_not_keep_good_ones_from_coming(few: Replica) -> None:
    good = few.get("minion1")[KEY]
    records, reasons = messages.read_records([None, to_wire(good), ["../x", TEXT, [], []]])
    assert records == [good]
    assert len(reasons) == 2
    with pytest.raises(InvalidRecord):
        messages.read_records({"a": 1})
