"""What an operator, a minion or Salt did, read from two looks at the store."""

from __future__ import annotations

import pytest

from saltext_ha.replication.interpretation import StateWrite, interpret
from saltext_ha.replication.placement import ABSENT, Stored
from saltext_ha.replication.record import ACCEPTED, DELETED, DENIED, PENDING, REJECTED

pytestmark = pytest.mark.core

A, B, C = b"a" * 32, b"b" * 32, b"c" * 32


def stored(state: str, key: bytes, *denied: bytes) -> Stored:
    return Stored(state, key, frozenset(denied))


def denied(*keys: bytes) -> Stored:
    return Stored(denied=frozenset(keys))


def beside(now: Stored, *others: tuple[str, bytes]) -> Stored:
    return now._replace(extra=frozenset(others))


@pytest.mark.parametrize(
    ("before", "now", "states", "writes"),
    [
        pytest.param(
            stored(ACCEPTED, A),
            beside(stored(PENDING, A), (ACCEPTED, A)),
            {A: ACCEPTED},
            [],
            id="the accepted key is back, and its knock beside it",
        ),
        pytest.param(
            stored(ACCEPTED, A),
            beside(stored(ACCEPTED, A), (PENDING, B)),
            {A: ACCEPTED},
            [(B, PENDING)],
            id="the accepted key is back, and another one beside it, on 3006",
        ),
        pytest.param(
            stored(ACCEPTED, A),
            beside(stored(PENDING, B), (ACCEPTED, A)),
            {A: ACCEPTED},
            [(B, PENDING)],
            id="the accepted key is back, and another one beside it, on 3008",
        ),
        pytest.param(
            stored(ACCEPTED, A),
            beside(stored(PENDING, B), (ACCEPTED, A)),
            {A: ACCEPTED, B: DELETED},
            [],
            id="a deleted key beside it may be what is left of its deletion",
        ),
        pytest.param(
            stored(ACCEPTED, A),
            beside(stored(REJECTED, A), (ACCEPTED, A)),
            {A: ACCEPTED},
            [(A, REJECTED)],
            id="who rejects the key may leave it accepted beside",
        ),
        pytest.param(
            stored(ACCEPTED, A),
            beside(stored(PENDING, A), (ACCEPTED, B)),
            {A: ACCEPTED},
            [(A, DELETED), (A, PENDING)],
            id="another key is accepted beside",
        ),
        pytest.param(ABSENT, stored(PENDING, A), {}, [(A, PENDING)], id="knock"),
        pytest.param(
            stored(PENDING, A), stored(ACCEPTED, A), {A: PENDING}, [(A, ACCEPTED)], id="accept"
        ),
        pytest.param(
            stored(PENDING, A), stored(REJECTED, A), {A: PENDING}, [(A, REJECTED)], id="reject"
        ),
        pytest.param(stored(ACCEPTED, A), ABSENT, {A: ACCEPTED}, [(A, DELETED)], id="delete"),
        pytest.param(ABSENT, stored(ACCEPTED, A), {}, [(A, ACCEPTED)], id="auto-accept"),
        pytest.param(
            stored(ACCEPTED, A),
            stored(ACCEPTED, A, B),
            {A: ACCEPTED},
            [(B, DENIED)],
            id="another key is denied",
        ),
        pytest.param(
            stored(ACCEPTED, A, B),
            stored(ACCEPTED, A, C),
            {A: ACCEPTED, B: DENIED},
            [(C, DENIED)],
            id="a denied key pushes out the one before",
        ),
        pytest.param(
            stored(ACCEPTED, A, B),
            stored(ACCEPTED, A),
            {A: ACCEPTED, B: DENIED},
            [(B, DELETED)],
            id="a denied key is deleted",
        ),
        pytest.param(
            stored(ACCEPTED, A),
            stored(ACCEPTED, B),
            {A: ACCEPTED},
            [(A, DELETED), (B, ACCEPTED)],
            id="one accepted key replaced by another",
        ),
        pytest.param(
            stored(ACCEPTED, A, B),
            stored(ACCEPTED, B),
            {A: ACCEPTED, B: DENIED},
            [(A, DELETED), (B, ACCEPTED)],
            id="accept the denied key",
        ),
        pytest.param(
            stored(ACCEPTED, A),
            stored(PENDING, B),
            {A: ACCEPTED},
            [(A, DELETED), (B, PENDING)],
            id="deleted, and knocked with a new key",
        ),
        pytest.param(
            stored(ACCEPTED, A),
            stored(PENDING, A),
            {A: ACCEPTED},
            [(A, DELETED), (A, PENDING)],
            id="deleted, and knocked with the same key",
        ),
        pytest.param(
            stored(ACCEPTED, A, B),
            denied(B),
            {A: ACCEPTED, B: DENIED},
            [(A, DELETED)],
            id="deleted, a denied key stays",
        ),
        pytest.param(
            stored(ACCEPTED, A),
            stored(REJECTED, A),
            {A: ACCEPTED, B: ACCEPTED},
            [(B, DELETED), (A, REJECTED)],
            id="rejecting an id in conflict means both",
        ),
        pytest.param(
            stored(ACCEPTED, A),
            ABSENT,
            {A: ACCEPTED, B: ACCEPTED},
            [(A, DELETED), (B, DELETED)],
            id="deleting an id in conflict means both",
        ),
        pytest.param(stored(ACCEPTED, A), stored(ACCEPTED, A), {A: ACCEPTED}, [], id="nothing"),
    ],
)
def test_table(
    before: Stored,
    now: Stored,
    states: dict[bytes, str | None],
    writes: list[tuple[bytes, str]],
) -> None:
    assert interpret(before, now, states) == [StateWrite(*write) for write in writes]


def test_the_last_write_of_a_key_says_where_it_is_now() -> None:
    # Deleted and denied at once: the tombstone must not be what remains.
    writes = interpret(stored(ACCEPTED, A), stored(PENDING, B, A), {A: ACCEPTED})
    assert writes == [StateWrite(A, DELETED), StateWrite(A, DENIED), StateWrite(B, PENDING)]


def test_keys_only_others_know_are_not_touched_by_an_acceptance() -> None:
    assert interpret(stored(PENDING, A), stored(ACCEPTED, A), {A: PENDING, B: ACCEPTED}) == [
        StateWrite(A, ACCEPTED)
    ]
