"""Steps of the store: replayed, and interrupted after each of them."""

from __future__ import annotations

import itertools

import pytest

from saltext_ha.replication.placement import ABSENT, Stored
from saltext_ha.replication.plan import DENY, PUT, REMOVE, UNDENY, Step, aims, is_between, steps
from saltext_ha.replication.record import ACCEPTED, PENDING, REJECTED

pytestmark = pytest.mark.core

A, B, X = b"a" * 32, b"b" * 32, b"x" * 32
KNOWN = frozenset({A, B})
SLOTS: list[tuple[str, bytes] | None] = [
    None,
    *itertools.product((ACCEPTED, PENDING, REJECTED), (A, B)),
]
PRECEDENCES = [(REJECTED, ACCEPTED, PENDING), (REJECTED, PENDING, ACCEPTED)]


def with_denied(slot: tuple[str, bytes] | None, denied: frozenset[bytes]) -> Stored:
    return Stored(*slot, denied) if slot else Stored(denied=denied)


ALL = [
    with_denied(slot, denied)
    for slot in SLOTS
    for denied in (frozenset[bytes](), frozenset({A}), frozenset({B}))
    if not slot or slot[1] not in denied
]


class Folders:
    """What files show, with one key a state and one denied key an id."""

    def __init__(self, begin: Stored, precedence: tuple[str, ...]) -> None:
        self.slots = dict(begin.entries)
        self.denied = set(begin.denied)
        self.precedence = precedence

    def take(self, step: Step) -> None:
        if step.action == PUT:
            self.slots[step.state] = step.key
        elif step.action == REMOVE:
            assert self.slots.pop(step.state) == step.key, "removes what it did not mean"
        elif step.action == DENY:
            self.denied = {step.key}
        else:
            assert step.action == UNDENY
            self.denied.remove(step.key)

    def show(self) -> Stored:
        slots = [(s, self.slots[s]) for s in self.precedence if s in self.slots]
        denied = frozenset(self.denied)
        if not slots:
            return Stored(denied=denied)
        return Stored(*slots[0], denied=denied, extra=frozenset(slots[1:]))


@pytest.mark.parametrize("precedence", PRECEDENCES)
def test_every_move_arrives_and_can_be_interrupted_anywhere(precedence: tuple[str, ...]) -> None:
    for before, after in itertools.product(ALL, ALL):
        plan = steps(before, after, KNOWN, one_denied=True)
        for cut in range(len(plan) + 1):
            folders = Folders(before, precedence)
            for step in plan[:cut]:
                folders.take(step)
            seen = folders.show()
            if before.slot and after.slot:
                assert seen.slot, f"no key between {before} and {after}"
            if seen.slot:
                assert seen.slot in (before.slot, after.slot)
                assert is_between(seen, before, aims(after))
            rest = steps(seen, after, KNOWN, one_denied=True)
            for step in rest:
                folders.take(step)
            final = folders.show()
            assert final.slot == after.slot
            assert not final.extra
            again = steps(final, after, KNOWN, one_denied=True)
            assert [step for step in again if step.action in (PUT, REMOVE)] == []


def test_one_known_denied_key_makes_room_for_another_in_one_pass() -> None:
    folders = Folders(Stored(denied=frozenset({A})), PRECEDENCES[0])
    after = Stored(denied=frozenset({B}))
    for step in steps(folders.show(), after, KNOWN, one_denied=True):
        folders.take(step)
    assert folders.show() == after


def test_no_step_when_there_is_nothing_to_do() -> None:
    for state in ALL:
        assert steps(state, state, KNOWN) == steps(state, state, KNOWN, one_denied=True) == []


def test_the_new_entry_comes_before_the_old_one_goes() -> None:
    assert steps(Stored(ACCEPTED, A), Stored(REJECTED, A), KNOWN) == [
        Step(PUT, REJECTED, A),
        Step(REMOVE, ACCEPTED, A),
    ]


def test_an_entry_of_the_same_state_is_replaced_and_not_removed() -> None:
    assert steps(Stored(ACCEPTED, A), Stored(ACCEPTED, B), KNOWN) == [Step(PUT, ACCEPTED, B)]


def test_leftovers_of_an_interrupted_move_are_removed() -> None:
    left = Stored(REJECTED, A, extra=frozenset({(ACCEPTED, A)}))
    assert steps(left, Stored(REJECTED, A), KNOWN) == [Step(REMOVE, ACCEPTED, A)]


def test_denied_keys_that_no_record_knows_are_left_alone() -> None:
    here = Stored(ACCEPTED, A, frozenset({B, X}))
    assert steps(here, Stored(ACCEPTED, A), KNOWN) == [Step(UNDENY, "", B)]


def test_a_store_with_one_denied_key_is_content_with_any() -> None:
    here, there = Stored(denied=frozenset({X})), Stored(denied=frozenset({A, B}))
    assert steps(here, there, KNOWN, one_denied=True) == []
    assert steps(ABSENT, there, KNOWN, one_denied=True) == [Step(DENY, "", A)]
    assert steps(here, there, KNOWN) == [Step(DENY, "", A), Step(DENY, "", B)]


@pytest.mark.parametrize(
    "seen",
    [
        ABSENT,
        Stored(PENDING, A),
        Stored(ACCEPTED, B),
        Stored(REJECTED, A, frozenset({B})),
        Stored(REJECTED, A, extra=frozenset({(PENDING, A)})),
    ],
)
def test_what_somebody_else_did_is_not_taken_for_our_own_move(seen: Stored) -> None:
    assert not is_between(seen, Stored(ACCEPTED, A), aims(Stored(REJECTED, A)))
