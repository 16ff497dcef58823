"""Digest first: what is asked for, and what is made of the answer."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saltext_ha.common.errors import InvalidRecord
from saltext_ha.consistency import facts
from saltext_ha.consistency.facts import BUCKETS, SIZE, Facts, Told

NONCE = b"n" * 32

_PATHS = st.text(max_size=8)
_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text(max_size=4),
    st.binary(max_size=4),
    st.lists(st.text(max_size=3), max_size=3), st.just({"absent": True}),
)  # fmt: skip
_FACTS = st.builds(
    Facts,
    st.dictionaries(_PATHS, _VALUES, max_size=20),
    st.dictionaries(_PATHS, st.text(max_size=4), max_size=2),
    st.lists(st.text(max_size=4), max_size=3).map(tuple),
)


def travelled(part: Any) -> Any:
    return msgpack.unpackb(msgpack.packb(part, use_bin_type=True), strict_map_key=False)


@settings(max_examples=60)
@given(_FACTS, _FACTS)
def test_who_asks_knows_all_that_the_other_knows(mine: Facts, theirs: Facts) -> None:
    asking, asked = Told(mine, NONCE), Told(theirs, NONCE)
    if asking.digest == asked.digest:
        assert (mine.leaves, mine.unknown) == (theirs.leaves, theirs.unknown)
    answer = travelled(asked.answer(asking.buckets))
    assert mine.completed(answer) == theirs


@settings(max_examples=60)
@given(_FACTS)
def test_the_same_facts_have_the_same_digest_and_nothing_to_send(one: Facts) -> None:
    shuffled = Facts(dict(reversed([*one.leaves.items()])), one.unknown, one.covers)
    told = Told(shuffled, NONCE)
    assert told.digest == Told(one, NONCE).digest
    assert told.digest != Told(one, b"m" * 32).digest
    assert told.answer(Told(one, NONCE).buckets)["leaves"] == {}


def test_only_what_differs_travels() -> None:
    many = {f"file_roots:base:{number}": b"x" * 32 for number in range(20_000)}
    mine = Told(Facts(many), NONCE)
    theirs = Told(Facts({**many, "file_roots:base:7": b"y" * 32}), NONCE)
    answer = theirs.answer(mine.buckets)
    assert len(answer["buckets"]) == 1
    assert len(msgpack.packb(answer)) < 10_000
    assert mine.facts.completed(travelled(answer)) == theirs.facts


def test_masters_that_have_nothing_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "MAX_SENT", 100)
    mine = Facts({f"a{number}": 1 for number in range(1000)})
    theirs = Told(Facts({f"b{number}": 1 for number in range(1000)}), NONCE)
    answer = travelled(theirs.answer(Told(mine, NONCE).buckets))
    assert len(answer["leaves"]) == 100
    made = mine.completed(answer)
    # What was left out is neither absent nor the same.
    assert facts.MORE in made.unknown.values()


@pytest.mark.parametrize(
    "raw",
    [
        None, [], {}, {"leaves": [], "unknown": {}, "covers": [], "buckets": []},
        {"leaves": {}, "unknown": {}, "covers": [], "buckets": ["1"]},
        {"leaves": {}, "unknown": {}, "covers": []},
        {"leaves": {"a": {b"k": 1}}, "unknown": {}, "covers": [], "buckets": []},
        {"leaves": {"a": [b"x"]}, "unknown": {}, "covers": [], "buckets": []},
        {"leaves": {1: 2}, "unknown": {}, "covers": [], "buckets": []},
        {"leaves": {}, "unknown": {"a": 1}, "covers": [], "buckets": []},
        {"leaves": {}, "unknown": {}, "covers": [3], "buckets": []},
    ],
)  # fmt: skip
def test_an_answer_that_is_none(raw: Any) -> None:
    with pytest.raises(InvalidRecord):
        Facts().completed(raw)


@pytest.mark.parametrize("raw", [None, b"", b"x" * (BUCKETS * SIZE - 1), "x" * BUCKETS * SIZE, []])
def test_a_question_that_is_none(raw: Any) -> None:
    with pytest.raises(InvalidRecord):
        Told(Facts(), NONCE).answer(raw)
