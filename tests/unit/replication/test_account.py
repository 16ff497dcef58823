"""What is told about the records of one id, from before a change to after it."""

from __future__ import annotations

import pytest

from saltext_ha.replica.history_text import sentence
from saltext_ha.replication.account import BEGAN, ENDED, HOLDS, Account, accounts
from saltext_ha.replication.record import (
    ACCEPTED,
    DELETED,
    OBSERVATIONS,
    PENDING,
    REJECTED,
    Dot,
    Record,
    Value,
    decide,
    merge,
    observe,
)

pytestmark = pytest.mark.core

A, B, C = (bytes([number]) * 32 for number in (0xAA, 0xBB, 0xCC))
_counter = iter(range(1, 1000))


def write(record: Record, state: str, by: str, on: str) -> Record:
    """*record* after *by* wrote *state* on *on*, having seen all of it."""
    value = Value(Dot(on, next(_counter)), state, float(next(_counter)), by, on)
    act = observe if state in OBSERVATIONS else decide
    return act(record, dict(record.context), value)


def knocked(key: bytes = A) -> Record:
    return write(Record("web7", key, "key"), PENDING, "minion", "m1")


def told(before: list[Record], after: list[Record]) -> list[Account]:
    return accounts(*({r.fingerprint: r for r in records} for records in (before, after)))


def kinds(before: list[Record], after: list[Record]) -> list[tuple[str, str]]:
    return [(account.kind, account.outcome) for account in told(before, after)]


def test_what_has_met_elsewhere_is_news_where_nothing_was_known() -> None:
    start = knocked()
    both = merge(write(start, ACCEPTED, "alice", "m1"), write(start, DELETED, "bob", "m2"))
    assert kinds([], [both]) == [(HOLDS, DELETED)]
    assert kinds([both], [both]) == []


def test_two_decisions_without_knowing_of_each_other() -> None:
    start = knocked()
    ours = write(start, ACCEPTED, "alice", "m1")
    theirs = write(start, REJECTED, "bob", "m2")
    for mine, other in ((ours, theirs), (theirs, ours)):
        (account,) = told([mine], [merge(mine, other)])
        assert account.kind == HOLDS
        assert sentence(account) == (
            "rejected on m2 by bob and accepted on m1 by alice, neither knowing of the other:"
            " rejected holds"
        )
    # A third master that hears of both at once is told, too; who has heard it, not again.
    assert kinds([start], [merge(ours, theirs)]) == [(HOLDS, REJECTED)]
    both = merge(ours, theirs)
    assert told([both], [merge(both, theirs)]) == []
    assert told([both], [write(both, PENDING, "minion", "m2")]) == []


def test_what_holds_is_what_the_rules_say() -> None:
    start = knocked()
    accepted = write(start, ACCEPTED, "alice", "m1")
    deleted = write(start, DELETED, "bob", "m2")
    rejected = write(start, REJECTED, "carol", "m3")
    assert kinds([accepted], [merge(accepted, deleted)]) == [(HOLDS, DELETED)]
    assert kinds([deleted], [merge(deleted, rejected)]) == [(HOLDS, REJECTED)]
    both = merge(accepted, deleted)
    (account,) = told([both], [merge(both, rejected)])
    assert sentence(account) == (
        "rejected on m3 by carol, accepted on m1 by alice and deleted on m2 by bob,"
        " none knowing of the others: rejected holds"
    )


def test_who_decided_knowing_all_or_the_same_needs_no_explanation() -> None:
    start = knocked()
    ours = write(start, ACCEPTED, "alice", "m1")
    assert told([start], [ours]) == []
    assert told([ours], [write(ours, REJECTED, "bob", "m2")]) == []
    again = write(start, ACCEPTED, "bob", "m2")
    assert told([ours], [merge(ours, again)]) == []
    # A knock beside a tombstone is no decision that met it.
    gone = write(ours, DELETED, "bob", "m2")
    assert told([gone], [write(gone, PENDING, "minion", "m1")]) == []


def test_a_decision_that_replaces_one_of_two_meets_the_other_anew() -> None:
    start = knocked()
    ours = write(start, ACCEPTED, "alice", "m1")
    theirs = write(start, REJECTED, "bob", "m2")
    both = merge(ours, theirs)
    changed = write(theirs, DELETED, "bob", "m2")
    assert kinds([both], [merge(both, changed)]) == [(HOLDS, DELETED)]
    settled = write(both, ACCEPTED, "carol", "m1")
    assert told([both], [settled]) == []
    assert told([settled], [merge(settled, theirs)]) == []


def test_a_conflict_begins_and_is_ended_by_somebody() -> None:
    ours = write(knocked(A), ACCEPTED, "alice", "m1")
    theirs = write(knocked(B), ACCEPTED, "bob", "m2")
    (began,) = told([ours], [ours, theirs])
    assert began.kind == BEGAN
    assert sentence(began) == (
        "aa:aa:aa:aa:… accepted on m1 by alice and bb:bb:bb:bb:… accepted on m2 by bob,"
        " neither knowing of the other: end it with ha.resolve"
    )
    assert told([ours, theirs], [write(ours, ACCEPTED, "carol", "m3"), theirs]) == []

    right = write(ours, ACCEPTED, "carol via ha.resolve", "m3")
    wrong = write(theirs, DELETED, "carol via ha.resolve", "m3")
    (ended,) = told([ours, theirs], [right, wrong])
    assert ended.kind == ENDED
    assert sentence(ended) == (
        "bb:bb:bb:bb:… deleted on m3 by carol via ha.resolve; aa:aa:aa:aa:… stays"
    )
    neither = write(ours, REJECTED, "", "m1")
    (ended,) = told([ours, theirs], [neither, wrong])
    assert sentence(ended) == (
        "aa:aa:aa:aa:… rejected on m1 and bb:bb:bb:bb:… deleted on m3 by carol via ha.resolve;"
        " no key is accepted now"
    )


def test_a_third_key_is_told_and_one_of_three_that_goes_ends_nothing() -> None:
    a, b, c = (write(knocked(key), ACCEPTED, "alice", "m1") for key in (A, B, C))
    assert kinds([a, b], [a, b, c]) == [(BEGAN, "")]
    assert told([a, b, c], [a, b, write(c, DELETED, "bob", "m2")]) == []


def test_one_accepted_key_after_the_other_is_no_conflict() -> None:
    accepted, knock = write(knocked(A), ACCEPTED, "alice", "m1"), knocked(B)
    deleted = write(accepted, DELETED, "alice", "m1")
    assert told([accepted, knock], [deleted, knock]) == []
    assert told([deleted, knock], [deleted, write(knock, ACCEPTED, "alice", "m1")]) == []


def test_a_knock_beside_an_acceptance_is_no_decision() -> None:
    start, other = knocked(A), write(knocked(B), ACCEPTED, "bob", "m2")
    ours = write(start, ACCEPTED, "alice", "m1")
    knock = write(start, PENDING, "minion", "m3")
    (began,) = told([ours], [merge(ours, knock), other])
    assert [decision.by for decision in began.decisions] == ["alice", "bob"]


def test_a_conflict_that_a_meeting_decisions_ends_names_the_one_that_was_new() -> None:
    start = knocked(A)
    ours = write(start, ACCEPTED, "alice", "m1")
    other = write(knocked(B), ACCEPTED, "bob", "m2")
    theirs = write(start, REJECTED, "carol", "m3")
    met, ended = told([ours, other], [merge(ours, theirs), other])
    assert (met.kind, met.outcome, ended.kind) == (HOLDS, REJECTED, ENDED)
    assert sentence(ended).startswith("aa:aa:aa:aa:… rejected on m3 by carol; bb:bb:bb:bb:… stays")


def test_keys_that_begin_alike_are_shown_whole() -> None:
    like = A[:31] + b"\0"
    a, b = (write(knocked(key), ACCEPTED, "alice", "m1") for key in (A, like))
    (began,) = told([a], [a, b])
    assert "aa:aa:00 accepted" in sentence(began)
    assert "…" not in sentence(began)
