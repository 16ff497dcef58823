"""How keys stand in answers."""

from __future__ import annotations

import pytest

from saltext_ha.replication.placement import ABSENT, Stored
from saltext_ha.replication.record import ACCEPTED, DELETED, PENDING, Dot, Record, Value
from saltext_ha.sync.key_rows import conflict_row, moved_row, text

pytestmark = pytest.mark.core

A, B, C, D = (letter * 32 for letter in (b"a", b"b", b"c", b"d"))


def records(**states: str) -> list[Record]:
    keys = {"a": A, "b": B, "c": C, "d": D}
    values = {name: Value(Dot("n", 1), state, 0.0, "", "") for name, state in states.items()}
    return [Record("db", keys[name], "", (value,), (("n", 1),)) for name, value in values.items()]


def test_what_a_store_shows() -> None:
    assert text(ABSENT) == ""
    assert text(Stored(denied=frozenset({B}))) == "denied 62:62:62:62:…"
    shown = Stored(ACCEPTED, A, frozenset({C, B}))
    assert text(shown) == "accepted 61:61:61:61:…, denied 62:62:62:62:…, denied 63:63:63:63:…"


def test_a_change() -> None:
    row = moved_row("m1", "db", ABSENT, Stored(PENDING, A))
    assert row == {"master": "m1", "id": "db", "from": "absent", "to": "pending 61:61:61:61:…"}
    assert moved_row("m1", "db", Stored(PENDING, A), ABSENT)["to"] == "deleted"


def test_a_conflict_names_every_accepted_key() -> None:
    shown = {"m1": Stored(ACCEPTED, A), "m2": ABSENT}
    row = conflict_row("db", shown, records(a=ACCEPTED, b=ACCEPTED, c=ACCEPTED, d=DELETED))
    assert row == {
        "id": "db",
        "keys": {
            "m1": "accepted 61:61:61:61:…",
            "m2": None,
            "elsewhere": "accepted 62:62:62:62:…, accepted 63:63:63:63:…",
        },
    }
    alone = conflict_row("db", {"m1": Stored(ACCEPTED, A)}, records(a=ACCEPTED, d=DELETED))
    assert alone["keys"] == {"m1": "accepted 61:61:61:61:…"}
