"""Runs that began, ended and met, on masters that do not always hear of each other."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saltext_ha.common.errors import InvalidRecord
from saltext_ha.once import runs as once_runs
from saltext_ha.replication import runs
from saltext_ha.replication.record import Dot
from saltext_ha.replication.runs import DONE, FAILED, RUNNING, UNFINISHED, Run, RunRegister
from saltext_ha.replication.vouching import MOST_OF_ONE

NODES = {"m1": "a" * 16, "m2": "b" * 16, "m3": "c" * 16}
EMPTY = RunRegister()
NUMBERS = itertools.count(1)


def dot(node: str = NODES["m1"]) -> Dot:
    """A name for a write, as a replica gives it."""
    return Dot(node, next(NUMBERS))


def run(on: str, began: float = 100.0, node: str = "") -> Run:
    start = dot(node or NODES[on])
    return Run(start, RUNNING, on, "root", "f.g", began, 0.0, 0, start)


def begin(
    known: RunRegister, on: str, began: float = 100.0, node: str = ""
) -> tuple[RunRegister, Run]:
    begun = run(on, began, node)
    return known.written(begun.dot, [begun]), begun


def why_not(known: RunRegister, now: float, within: float, reached: set[str]) -> str:
    """What is said of the run that is in the way."""
    found = runs.in_the_way(known, now, within, reached)
    return found.why if found else ""


def test_one_that_runs_is_not_begun_again() -> None:
    known, _ = begin(EMPTY, "m1")
    assert why_not(known, 500, 60, {"m1", "m2"}) == "m1 runs it, since 6 m"
    assert why_not(known, 500, 60, {"m2"}) == "", "m1 is gone, and the period is over"
    assert why_not(known, 110, 60, {"m2"}) == "m1 began it 10 s ago"


@pytest.mark.parametrize(
    ("seconds", "says"),
    [(-1, "0 s"), (59, "59 s"), (60, "1 m"), (3599, "59 m"), (3600, "1 h"), (86400, "1 d")],
)
def test_how_long_ago_it_began(seconds: float, says: str) -> None:
    assert runs.age(run("m1", 100.0), 100.0 + seconds) == says


@pytest.mark.parametrize(
    ("state", "says"),
    [(DONE, "m1 ran it 30 s ago"), (FAILED, "it failed"), (UNFINISHED, "m1 began it 30 s ago")],
)
def test_a_period_has_one_run_however_it_ended(state: str, says: str) -> None:
    known, first = begin(EMPTY, "m1")
    known = runs.end(known, dot(), first.start, state, 120)
    assert says in why_not(known, 130, 60, {"m1"})
    assert why_not(known, 161, 60, {"m1"}) == ""


def test_a_clock_that_was_set_back_skips_nothing() -> None:
    known, first = begin(EMPTY, "m1", 10_000)
    known = runs.end(known, dot(), first.start, DONE, 10_001)
    assert why_not(known, 100, 60, {"m1"}) == ""


def test_two_that_ran_in_two_halves_are_both_seen_until_the_next() -> None:
    one, first = begin(EMPTY, "m1", 100)
    two, _ = begin(EMPTY, "m2", 105)
    one = runs.end(one, dot(), first.start, DONE, 101)
    both = one.merged(two)
    assert {each.on for each in both.values} == {"m1", "m2"}
    after, _ = begin(both, "m3", 300)
    assert [each.on for each in after.merged(both).values] == ["m3"]


def test_of_two_that_begin_at_once_the_first_by_name_goes_on() -> None:
    one, first = begin(EMPTY, "m1")
    two, second = begin(EMPTY, "m2")
    both = one.merged(two)
    assert runs.yields(both, first.start, {"m1", "m2"}) == ""
    assert runs.yields(both, second.start, {"m1", "m2"}) == "m1"
    assert runs.yields(both, second.start, {"m2"}) == "", "m1 is not reached"
    after = runs.withdraw(both, second.start)
    assert both.merged(after) == after
    assert [each.on for each in after.values] == ["m1"]


def test_a_run_that_its_master_has_yet_to_begin_is_hidden_by_nobody() -> None:
    known, first = begin(EMPTY, "m1")
    claimed = replace(known, context=((NODES["m1"], 2**40),))
    counts, reason = claimed.sifted(EMPTY, {NODES["m1"]: first.dot.counter}, {})
    assert str(2**40) in reason
    later, second = begin(known, "m1", 300)
    assert counts.merged(later).last == second


def test_two_that_claim_to_have_replaced_each_other_leave_both() -> None:
    one, first = begin(EMPTY, "m1")
    one, two = runs.end(one, dot(), first.start, DONE, 101), begin(EMPTY, "m2")[0]
    seen = tuple(sorted((*one.context, *two.context)))
    one, two = replace(one, context=seen), replace(two, context=seen)
    assert {each.on for each in one.merged(two).values} == {"m1", "m2"}


def test_two_that_gave_way_to_each_other_are_both_gone() -> None:
    one, first = begin(EMPTY, "m1")
    two, second = begin(EMPTY, "m2")
    both = one.merged(two)
    one, two = runs.withdraw(both, first.start), runs.withdraw(both, second.start)
    assert one.merged(two).values == two.merged(one).values == ()


def test_the_end_of_a_run_that_was_replaced_changes_nothing() -> None:
    known, first = begin(EMPTY, "m1")
    known, _ = begin(known, "m2", 300)
    assert runs.end(known, dot(), first.start, DONE, 310) == known


steps = st.lists(st.tuples(st.sampled_from(list(NODES)), st.integers(0, 3)), max_size=12)


def test_a_peer_takes_the_runs_of_a_master_however_often_it_starts() -> None:
    """Each start has a node of its own; and of one master a peer takes only so many."""
    m1 = m2 = EMPTY
    owners: dict[str, bytes] = {}
    for start in range(MOST_OF_ONE + 200):
        node = f"{start * 7919:016x}"
        owners[node] = b"m1"
        m1, begun = begin(m1, "m1", float(start), node)
        if start % 7:  # else it is told only when the run has ended
            told, reason = m1.sifted(m2, {node: begun.dot.counter}, owners)
            assert reason == "", start
            m2 = m2.merged(told)
        m1 = runs.end(m1, dot(node), begun.start, DONE, start + 0.5)
        told, reason = m1.sifted(m2, {}, owners)
        assert reason == "", start
        m2 = m2.merged(told)
        m1 = m1.merged(m2)
        assert m1.digest == m2.digest, start
        assert [value.dot.node for value in m2.values] == [node]
        assert len(m1.context) <= runs.MOST_SEEN


def test_a_full_register_of_an_older_release_is_taken_and_replaced() -> None:
    old, _ = begin(EMPTY, "m2")
    seen = {f"{number:016x}": 1 for number in range(1020)} | dict(old.context)
    old = replace(old, context=tuple(sorted(seen.items())))
    new, begun = begin(EMPTY.merged(old), "m1")
    assert [value.start for value in new.merged(old).values] == [begun.start]
    # Its peer still has all of it.
    assert [value.start for value in old.merged(new).values] == [begun.start]
    assert new.merged(old).digest == old.merged(new).digest == new.digest


def test_what_a_master_that_was_away_tells_again_is_gone_with_the_next_run() -> None:
    away, first = begin(EMPTY, "m2", node="f" * 16)
    known = away
    for start in range(runs.MOST_SEEN + 5):
        known, _ = begin(known, "m1", node=f"{start:016x}")
    assert ("f" * 16) not in dict(known.context)
    known = known.merged(away)
    assert first in known.values
    assert len(known.values) == 2
    known, last = begin(known, "m1")
    assert known.merged(away).values == (last,)


@given(steps, steps)
def test_merging_is_the_same_in_any_order(one: list, two: list) -> None:  # type: ignore[type-arg]
    def played(script: list[tuple[str, int]], offset: int) -> RunRegister:
        known = EMPTY
        for number, (on, what) in enumerate(script):
            node = NODES[on][:15] + str(offset)
            if what < 2 or not known.values:
                known, _ = begin(known, on, 100.0 + number, node)
            else:
                state = DONE if what == 2 else UNFINISHED
                known = runs.end(known, dot(node), known.values[0].start, state, 200.0)
        return known

    a, b = played(one, 1), played(two, 2)
    both = a.merged(b)
    assert both == b.merged(a)
    assert both.merged(a) == both
    assert both.digest == b.merged(a).digest
    assert (a == b) == (a.digest == b.digest)


def test_times_travel_as_ages() -> None:
    known, first = begin(EMPTY, "m1", 1000.0)
    known = runs.end(known, dot(), first.start, DONE, 1010.0)
    there = once_runs.from_rows(once_runs.to_rows(known, 1050.0), 9_000_050.0)
    assert (there.values[0].began, there.values[0].ended) == (9_000_000, 9_000_010)
    assert there.digest == known.digest
    assert once_runs.from_rows(once_runs.to_rows(known, 0.0), 0.0) == known


WRONG_KIND = (7, "x", *["x" * 200] * 4, "soon", "soon", -1, "x", 0)


@pytest.mark.parametrize("place", range(11))
def test_nonsense_from_a_peer_is_refused(place: int) -> None:
    known, _ = begin(EMPTY, "m1")
    (value,), seen = once_runs.to_rows(known, 200.0)
    for nonsense in (None, [], float("nan"), WRONG_KIND[place]):
        wrong = [*value[:place], nonsense, *value[place + 1 :]]
        with pytest.raises(InvalidRecord):
            once_runs.from_rows([[wrong], seen], 200.0)
