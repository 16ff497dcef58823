"""Which events of several masters are one."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

from saltext_ha.once import same_event
from saltext_ha.once.same_event import KEPT, WINDOW, Occurrences, key_of

BEACON = {"id": "web1", "cmd": "_minion_event", "tag": "x", "data": {"disk": 91}}


@pytest.mark.parametrize(
    "other",
    [
        {"_stamp": "2026-11-25T02:00:00"},
        {"tok": b"another"},
        {"nonce": "another", "ts": 5},
        {"_ha_heard": {"by": "m2"}},
    ],
)
def test_what_masters_add_makes_no_difference(other: dict[str, Any]) -> None:
    assert key_of("x", BEACON) == key_of("x", {**BEACON, **other})


@pytest.mark.parametrize("other", [{"id": "web2"}, {"data": {"disk": 92}}])
def test_what_the_minion_says_makes_one(other: dict[str, Any]) -> None:
    assert key_of("x", BEACON) != key_of("x", {**BEACON, **other})
    assert key_of("x", BEACON) != key_of("y", BEACON)


def test_the_order_of_what_is_said_makes_no_difference() -> None:
    assert key_of("x", {"a": 1, "b": 2}) == key_of("x", {"b": 2, "a": 1})


def test_starts_of_one_minion_are_one() -> None:
    first, second = ({**BEACON, "data": f"started at {n}"} for n in (1, 2))
    for tag in ("minion_start", "salt/minion/web1/start"):
        assert key_of(tag, first) == key_of(tag, second)
    assert key_of("web1/start", first) != key_of("web1/start", second)


def test_events_of_engines_are_one_though_each_signs_its_own() -> None:
    first = {"peer": "m1", "fired": 1.0, "proof": "a", "_stamp": "1"}
    assert key_of("salt/ha/x", first) == key_of("salt/ha/x", {"peer": "m1", "fired": 2.0})


def test_data_that_is_no_json_has_a_key() -> None:
    assert key_of("x", {"a": b"\xff", 1: "b", "c": {1, 2}})


def test_the_first_copy_of_one_is_the_first_of_the_other() -> None:
    known = Occurrences()
    first = known.note(b"k", "m1", 0.0, 0.0)
    second = known.note(b"k", "m1", 1.0, 1.0)
    assert first is not second
    assert known.note(b"k", "m2", 2.0, 2.0) is first
    assert known.note(b"k", "m2", 2.0, 2.0) is second
    assert known.note(b"k", "m2", 2.0, 2.0) not in (first, second)


def test_copies_far_apart_are_two_events() -> None:
    known = Occurrences()
    at = 1000.0
    first = known.note(b"k", "m1", at, at)
    assert known.note(b"k", "m2", at + WINDOW + 1, at + WINDOW + 1) is not first
    # One that was on its way for long is compared by when it was heard.
    assert known.note(b"k", "m3", at + WINDOW - 1, at + KEPT - 1) is first


def test_what_one_master_tells_late_hides_nothing_that_came_after_it() -> None:
    known = Occurrences()
    for name in ("m1", "m2"):
        known.note(b"k", name, 0.0, 0.0)
    heard = known.note(b"k", "m1", 200.0, 200.0)
    for at in (100.0, 101.0, 102.0):
        assert known.note(b"k", "m2", at, 201.0) is not heard
    assert known.note(b"k", "m2", 200.0, 201.0) is heard


def test_what_is_repeated_without_end_costs_neither_time_nor_memory() -> None:
    known = Occurrences()
    looked = 0

    class Name(str):
        """Counts how often it is looked for."""

        __slots__ = ()

        def __hash__(self) -> int:
            nonlocal looked
            looked += 1
            return super().__hash__()

    found = [
        weakref.ref(known.note(b"k", Name(name), at, at))
        for name, start in (("m1", 0.0), ("m2", 2 * WINDOW))
        for at in (start + number / 1000 for number in range(5_000))
    ]
    assert looked < 100_000
    assert sum(each() is not None for each in found) <= same_event.MOST_ALIKE


def test_what_is_repeated_now_and_then_is_remembered_for_a_while_only() -> None:
    known = Occurrences()
    found = [weakref.ref(known.note(b"k", "m1", at, at)) for at in range(0, 10_000, 100)]
    assert sum(each() is not None for each in found) == KEPT // 100 + 1


def test_the_latest_of_many_alike_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(same_event, "MOST_ALIKE", 3)
    known = Occurrences()
    mine = [known.note(b"k", "m1", n, n) for n in range(5)]
    theirs = [known.note(b"k", "m2", n, 5) for n in range(2, 4)]
    assert [mine.index(each) for each in theirs] == [2, 3]
    known.note(b"k", "m2", 4, 5)
    assert known.note(b"k", "m2", 5, 5) is known.note(b"k", "m1", 5, 5)


def test_data_nested_too_deeply_is_refused() -> None:
    data: dict[str, Any] = {}
    for _ in range(100_000):
        data = {"a": data}
    with pytest.raises(ValueError, match="nested too deeply"):
        key_of("x", data)


def test_what_is_old_is_forgotten_and_there_are_never_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(same_event, "MOST", 3)
    known = Occurrences()
    for number in range(10):
        known.note(bytes([number]), "m1", 0.0, 0.0)
    assert len(known) <= 3
    known.note(b"new", "m1", KEPT + 1, KEPT + 1)
    assert len(known) == 1


def test_what_is_heard_again_is_kept_and_what_is_older_is_forgotten() -> None:
    known = Occurrences()
    start = 1000.0
    for key, at in ((b"a", 0.0), (b"b", 1.0), (b"a", KEPT)):
        known.note(key, "m1", start + at, start + at)
    assert len(known) == 2
    known.note(b"c", "m1", start + KEPT + 2, start + KEPT + 2)
    assert len(known) == 2
    assert known.note(b"a", "m2", start + KEPT, start + KEPT + 2).by == {"m1", "m2"}
