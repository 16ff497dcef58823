"""What would be shown when all is known: denied keys, deletions, conflicts, one side's silence."""

from __future__ import annotations

import pytest

from saltext_ha.replication.placement import ABSENT, Stored
from saltext_ha.replication.preview import SideKnowledge, meeting
from saltext_ha.replication.record import Dot, Record, Value
from saltext_ha.sync.key_rows import moved_row

pytestmark = pytest.mark.core

A, B = b"a" * 32, b"b" * 32
Row = dict[str, str]


def side(node: str, shown: Stored, **states: str) -> dict[str, SideKnowledge]:
    """What a master knows of id ``web``: states by key, written by itself."""
    records = {}
    for number, (name, state) in enumerate(sorted(states.items()), 1):
        key = {"A": A, "B": B}[name]
        value = Value(Dot(node, number), state, 0.0, "", "")
        records[key] = Record("web", key, "", (value,), ((node, number),))
    return {"web": SideKnowledge(records, shown)}


def rows(*sides: dict[str, SideKnowledge]) -> list[tuple[str, str, str]]:
    named = {f"m{number}": known for number, known in enumerate(sides, 1)}
    changes, _ = meeting(named, dict.fromkeys(named, True))
    made = [moved_row(c.side, c.minion_id, c.before, c.after) for c in changes]
    words = [
        (
            row["master"],
            row["from"].replace("61:61:61:61:…", "A").replace("62:62:62:62:…", "B"),
            row["to"].replace("61:61:61:61:…", "A").replace("62:62:62:62:…", "B"),
        )
        for row in made
    ]
    return words


ACCEPTED_A = side("1", Stored("accepted", A), A="accepted")
PENDING_B = side("2", Stored("pending", B), B="pending")
DENIED_B = side("2", Stored("accepted", A, frozenset({B})), A="accepted", B="denied")


def test_new_to_the_other() -> None:
    assert rows(ACCEPTED_A, {}) == [("m2", "absent", "accepted A")]


def test_a_pending_key_beside_an_accepted_one_is_denied_on_both() -> None:
    assert rows(ACCEPTED_A, PENDING_B) == [
        ("m1", "accepted A", "accepted A, denied B"),
        ("m2", "pending B", "accepted A, denied B"),
    ]


def test_a_change_of_denied_keys_alone_is_named() -> None:
    assert rows(ACCEPTED_A, DENIED_B) == [("m1", "accepted A", "accepted A, denied B")]


def test_a_tombstone_deletes() -> None:
    gone = side("2", ABSENT, A="deleted")
    assert rows(ACCEPTED_A, gone) == [("m1", "accepted A", "deleted")]


def test_a_rejection_wins() -> None:
    no = side("2", Stored("rejected", A), A="rejected")
    assert rows(ACCEPTED_A, no) == [("m1", "accepted A", "rejected A")]


def test_a_conflict_changes_nothing() -> None:
    other = side("2", Stored("accepted", B), B="accepted")
    changes, conflicts = meeting({"m1": ACCEPTED_A, "m2": other}, {"m1": True, "m2": True})
    assert (changes, conflicts) == ([], ["web"])


def test_what_a_side_had_seen_is_not_news_to_it() -> None:
    """m1 accepted again what it knew to be deleted; m2 has the deletion only."""
    deleted = Value(Dot("2", 1), "deleted", 0.0, "", "")
    accepted = Value(Dot("1", 1), "accepted", 0.0, "", "")
    old = Record("web", A, "", (deleted,), (("2", 1),))
    new = Record("web", A, "", (accepted,), (("1", 1), ("2", 1)))
    one = {"web": SideKnowledge({A: new}, Stored("accepted", A))}
    two = {"web": SideKnowledge({A: old}, ABSENT)}
    assert rows(one, two) == [("m2", "absent", "accepted A")]
