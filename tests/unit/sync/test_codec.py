"""Records on the wire: what leaves comes back the same, and nothing else comes in."""

from __future__ import annotations

import copy
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saltext_ha.common.errors import InvalidRecord
from saltext_ha.keystore import minion_key
from saltext_ha.replication.record import ACCEPTED, STATES, Dot, Record, Value
from saltext_ha.sync.codec import MAX_CONTEXT, MAX_VALUES, from_wire, to_wire
from tests.keys import public_key

pytestmark = pytest.mark.core

KEY = public_key(0)
N1, N2 = "1" * 16, "2" * 16

texts = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=64)
dots = st.tuples(st.sampled_from([N1, N2]), st.integers(1, 2**48))


def wire() -> list[Any]:
    """A good record: one value of two writes seen."""
    return ["web1", KEY, [[N1, 3, ACCEPTED, 1.5, "root", "m1"]], [[N1, 3], [N2, 9]]]


@given(
    st.dictionaries(
        dots,
        st.tuples(st.sampled_from(sorted(STATES)), st.floats(-1e12, 1e12), texts, texts),
        min_size=1,
        max_size=6,
    )
)
def test_what_is_sent_comes_back_the_same(
    values: dict[tuple[str, int], tuple[str, float, str, str]],
) -> None:
    context: dict[str, int] = {}
    for node, counter in values:
        context[node] = max(counter, context.get(node, 0))
    record = Record(
        "web1",
        minion_key.fingerprint(KEY),
        KEY,
        tuple(sorted(Value(Dot(*dot), *rest) for dot, rest in values.items())),
        tuple(sorted(context.items())),
    )
    assert from_wire(msgpack.unpackb(msgpack.packb(to_wire(record)))) == record


def test_a_name_is_taken_in_whichever_unicode_it_is_written() -> None:
    """A master on a newer Python sends what this Python does not know yet."""
    raw = wire()
    raw[0], raw[2][0][4] = "web\U00040000", "bob\U00040000"
    assert from_wire(raw).values[0].by == "bob\U00040000"


def test_fields_that_a_later_release_adds_are_ignored() -> None:
    raw = wire()
    raw[2][0].append("new")
    assert from_wire([*raw, "new"]) == from_wire(wire())


def change(path: tuple[int, ...], value: Any) -> list[Any]:
    raw = copy.deepcopy(wire())
    *above, last = path
    target: Any = raw
    for position in above:
        target = target[position]
    target[last] = value
    return raw


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (None, "a list of"),
        ({}, "a list of"),
        ("abcd", "a list of"),
        (wire()[:3], "a list of"),
        (change((0,), "../web1"), "minion id"),
        (change((0,), ".key_cache"), "minion id"),
        (change((0,), b"web1"), "minion id"),
        (change((0,), None), "minion id"),
        (change((1,), b"key"), "not a text"),
        (change((1,), KEY + "\n"), "normal form"),
        (change((1,), KEY.replace("\n", "\r\n")), "normal form"),
        (change((1,), "garbage"), "not a public key"),
        (change((1,), "\ud800"), "not a public key"),
        (change((2,), []), "no values"),
        (change((2,), None), "malformed"),
        (change((2,), 7), "malformed"),
        (change((2,), [7]), "malformed"),
        (change((2,), [{}]), "malformed"),
        (change((2,), {"a": 1}), "malformed"),
        (change((2,), ["abcdef"]), "malformed"),
        (change((2, 0), [N1, 3, ACCEPTED]), "malformed"),
        (change((2,), wire()[2] * 2), "twice"),
        (change((2,), wire()[2] * (MAX_VALUES + 1)), "too many"),
        (change((2, 0, 0), "m1"), "does not name a node"),
        (
            [*wire()[:2], [[N1 + "\n", 3, ACCEPTED, 1.5, "", ""]], [[N1 + "\n", 3]]],
            "not name a node",
        ),
        (change((2, 0, 0), N1.encode()), "does not name a node"),
        (change((2, 0, 1), 0), "not a counter"),
        (change((2, 0, 1), True), "not a counter"),
        (change((2, 0, 1), 2**53), "not a counter"),
        (change((2, 0, 1), 1.0), "not a counter"),
        (change((2, 0, 1), 4), "not covered"),
        (change((2, 0, 0), "3" * 16), "not covered"),
        (change((2, 0, 2), "root"), "unknown state"),
        (change((2, 0, 2), []), "unknown state"),
        (change((2, 0, 3), "now"), "time"),
        (change((2, 0, 3), float("nan")), "time"),
        (change((2, 0, 3), float("inf")), "time"),
        (change((2, 0, 3), True), "time"),
        (change((2, 0, 3), 10**400), "time"),
        (change((2, 0, 4), "x" * 65), "short text"),
        (change((2, 0, 4), "a\nb"), "short text"),
        (change((2, 0, 5), "\x1b[2J"), "short text"),
        (change((2, 0, 5), None), "short text"),
        (change((3,), []), "no values"),
        (change((3,), [[N1, 3], [N1, 4]]), "twice"),
        (change((3,), [[N1]]), "malformed"),
        (change((3,), [{}]), "malformed"),
        (change((3,), {N1: 3}), "malformed"),
        (change((3,), [[f"{n:016x}", 1] for n in range(MAX_CONTEXT + 1)]), "too many"),
        (change((3, 1, 1), -1), "not a counter"),
    ],
)
def test_what_is_no_record_is_refused_with_its_reason(raw: Any, why: str) -> None:
    with pytest.raises(InvalidRecord, match=why) as caught:
        from_wire(raw)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@settings(max_examples=100)
@given(st.sampled_from([(0,), (1,), (2,), (2, 0), (2, 0, 3), (3,), (3, 0)]), anything)
def test_nothing_that_a_peer_sends_raises_anything_else(path: tuple[int, ...], junk: Any) -> None:
    try:
        record = from_wire(change(path, junk))
    except InvalidRecord:
        return
    assert from_wire(to_wire(record)) == record
