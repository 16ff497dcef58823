"""Which key of an id stands where, as a table."""

from __future__ import annotations

import itertools

import pytest

from saltext_ha.replication.placement import ABSENT, Stored, accepted_keys, place
from saltext_ha.replication.record import (
    ACCEPTED,
    DELETED,
    DENIED,
    PENDING,
    REJECTED,
    Dot,
    Record,
    Value,
)

pytestmark = pytest.mark.core

A, B, C = b"a" * 32, b"b" * 32, b"c" * 32


def record(key: bytes, state: str) -> Record:
    value = Value(Dot("n", 1), state, 0.0, "", "")
    return Record("web1", key, "key", (value,), (("n", 1),))


def stored(state: str, key: bytes, *denied: bytes) -> Stored:
    return Stored(state, key, frozenset(denied))


def test_what_a_store_shows_of_each_key() -> None:
    shown = Stored(ACCEPTED, A, frozenset({B}), frozenset({(PENDING, C)}))
    assert shown.keys == {A, B}
    assert [shown.state_of(key) for key in (A, B, C)] == [ACCEPTED, DENIED, None]
    assert ABSENT.keys == frozenset()
    assert ABSENT.state_of(A) is None


def wanted(current: Stored = ABSENT, **states: str) -> Stored:
    keys = {"a": A, "b": B, "c": C}
    answers = {
        place(order, current)
        for order in itertools.permutations([record(keys[k], s) for k, s in states.items()])
    }
    assert len(answers) == 1, "the order of records must not matter"
    return answers.pop()


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ({}, ABSENT),
        ({"a": ACCEPTED}, stored(ACCEPTED, A)),
        ({"a": DELETED}, ABSENT),
        ({"a": DENIED}, Stored(denied=frozenset({A}))),
        ({"b": PENDING, "a": PENDING}, stored(PENDING, A, B)),
        ({"a": PENDING, "b": ACCEPTED}, stored(ACCEPTED, B, A)),
        ({"a": PENDING, "b": REJECTED}, stored(REJECTED, B, A)),
        ({"a": REJECTED, "b": ACCEPTED}, stored(ACCEPTED, B)),
        ({"a": DENIED, "b": DELETED, "c": ACCEPTED}, stored(ACCEPTED, C, A)),
        ({"b": REJECTED, "a": REJECTED}, stored(REJECTED, A)),
        ({"a": DELETED, "b": DELETED}, ABSENT),
    ],
)
def test_without_a_conflict_the_store_is_a_function_of_the_records(
    states: dict[str, str], expected: Stored
) -> None:
    for current in (ABSENT, stored(ACCEPTED, A), stored(PENDING, B), stored(REJECTED, C)):
        assert wanted(current, **states) == expected


@pytest.mark.parametrize(
    ("current", "slot"),
    [
        (stored(ACCEPTED, A), (ACCEPTED, A)),
        (stored(ACCEPTED, B), (ACCEPTED, B)),
        (ABSENT, None),
        (stored(PENDING, C), None),
    ],
)
def test_in_a_conflict_every_master_keeps_what_it_has(
    current: Stored, slot: tuple[str, bytes] | None
) -> None:
    assert wanted(current, a=ACCEPTED, b=ACCEPTED, c=DELETED).slot == slot


def test_in_a_conflict_what_was_revoked_goes_all_the_same() -> None:
    assert wanted(stored(ACCEPTED, C), a=ACCEPTED, b=ACCEPTED, c=DELETED).slot is None
    rejected = wanted(stored(ACCEPTED, C), a=ACCEPTED, b=ACCEPTED, c=REJECTED)
    assert rejected.slot == (REJECTED, C)


def test_accepted_keys_counts_what_is_visible() -> None:
    records = [record(B, ACCEPTED), record(A, ACCEPTED), record(C, DELETED)]
    assert accepted_keys(records) == [A, B]


def test_entries_are_the_slot_and_what_was_left_behind() -> None:
    both = Stored(REJECTED, A, extra=frozenset({(ACCEPTED, A)}))
    assert both.entries == {(REJECTED, A), (ACCEPTED, A)}
    assert ABSENT.entries == frozenset()
    assert ABSENT.slot is None
