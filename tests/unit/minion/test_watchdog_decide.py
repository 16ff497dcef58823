"""When a minion is to change its master: the decisions, without clock, network or Salt."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saltext_ha.config.watchdog import WatchdogSettings, jitter_for
from saltext_ha.minion.watchdog import decide, order
from saltext_ha.minion.watchdog.decide import MinionMove, Setup, State, WatchdogLook

pytestmark = pytest.mark.core

MASTERS = ("m1", "m2", "m3")
SETTINGS = WatchdogSettings(interval=5, timeout=2, failures=2, jitter=2, stable=60)


@dataclass
class Run:
    """
    A watchdog in a world where each look takes no time, and a move always succeeds at once.
    ``kept`` is Salt's list of masters; a minion that is with another than the first went there.
    """

    setup: Setup = field(default_factory=lambda: Setup(SETTINGS, MASTERS))
    at: float = 1000.0
    current: str | None = "m1"
    kept: tuple[str, ...] = ()
    pinned: bool = False
    closed: set[str] = field(default_factory=set)
    tried: list[float] = field(default_factory=list)
    state: State = field(default_factory=State)
    moves: list[tuple[float, MinionMove]] = field(default_factory=list)
    note: str | None = None

    def look(
        self, up: set[str], subscribed: bool | None = True, chance: float = 0.0
    ) -> tuple[frozenset[str], float]:
        """One look at masters of which *up* answer; moves on by the time that it asks for."""
        asked = {each: each in up for each in MASTERS}
        here = MASTERS.index(self.current) if self.current else 0
        self.kept = self.kept or MASTERS[here:] + MASTERS[:here]
        turn = order.after(self.kept, MASTERS, self.current)
        look = WatchdogLook(self.at, self.current, subscribed, asked, self.pinned, order=turn)
        self.state, next_ = decide.step(self.setup, self.state, look, chance)
        self.note = next_.note
        if next_.move and next_.move.target in self.closed:
            self.tried.append(self.at)
            assert len(self.tried) < 100, "for ever"
            self.state = decide.refused(self.state, self.at, next_.move.target)
        elif next_.move:
            self.moves.append((self.at, next_.move))
            self.kept = MASTERS if next_.move.failback else turn
            self.current = next_.move.target
            self.state = decide.moved(self.state, self.at, next_.move, self.current)
        self.at += next_.wait
        return next_.ask, next_.wait

    def until(self, at: float, up: set[str], subscribed: bool | None = True) -> None:
        while self.at < at:
            _, wait = self.look(up, subscribed)
            assert wait > 0 or self.moves or self.tried


def test_a_good_master_is_asked_alone_and_kept() -> None:
    run = Run()
    for _ in range(100):
        assert run.look({"m1", "m2", "m3"}) == (frozenset({"m1"}), 5.0)
    assert run.moves == []


def test_a_dead_master_is_left_after_the_second_look() -> None:
    run = Run()
    run.look({"m1", "m2"})
    ask, wait = run.look({"m2"})
    assert (ask, wait) == (frozenset(MASTERS), 1.0)
    assert run.moves == []
    run.look({"m2"})
    ((at, move),) = run.moves
    assert (move.source, move.target, move.failback) == ("m1", "m2", False)
    assert at == 1006.0
    assert "no answer" in move.why


def test_one_failed_look_is_forgotten() -> None:
    run = Run()
    for _ in range(20):
        run.look({"m2"})
        run.look({"m1", "m2"})
    assert run.moves == []


def test_nobody_is_left_for_a_master_that_does_not_answer() -> None:
    run = Run()
    run.until(3000, set())
    assert run.moves == []
    assert run.note == "no other master answers"
    run.look({"m3"})
    assert [move.target for _, move in run.moves] == ["m3"]


def test_the_next_one_is_that_which_salt_tries_next() -> None:
    run = Run(current="m2")
    run.until(1002, {"m1", "m3"})
    assert [move.target for _, move in run.moves] == ["m3"]


def test_who_was_passed_by_is_tried_first_the_next_time() -> None:
    """Salt keeps its list, in which only those that failed go to the end (``order.py``)."""
    run = Run()
    run.until(1005, {"m3"})  # m1 fails while m2 is down
    run.until(2000, set(MASTERS))
    run.until(2010, {"m1", "m2"})
    assert [move.target for _, move in run.moves] == ["m3", "m2"]


def test_a_minion_that_found_the_first_ones_down_tries_them_first() -> None:
    run = Run(current="m3", kept=MASTERS)
    run.until(1002, {"m1", "m2"})
    assert [move.target for _, move in run.moves] == ["m1"]


def test_where_salt_would_come_back_at_once_that_is_no_move_to_another() -> None:
    """Entries with ports: Salt begins with the first one again."""
    look = WatchdogLook(1000, "m1", False, dict.fromkeys(MASTERS, True), order=MASTERS)
    _, next_ = decide.step(Setup(SETTINGS, MASTERS, deaf_after=0), State("m1", bad=9), look, 0)
    assert next_.move is not None
    assert next_.move.target == "m1"


def test_moves_of_an_hour_ago_are_forgotten() -> None:
    run = Run()
    for _ in range(100):
        run.look(set(MASTERS) - {run.current or ""})
    assert len(run.moves) > 3
    run.until(run.at + decide.HOUR, set(MASTERS))
    before = run.at
    for _ in range(40):
        run.look(set(MASTERS) - {run.current or ""})
    first, second = [at - before for at, _ in run.moves if at >= before][:2]
    assert first < 5
    assert second - first < 30  # not the 300 s of the hour before


def test_chance_puts_a_move_off() -> None:
    early, late = Run(), Run()
    for run, chance in ((early, 0.0), (late, 1.0)):
        while not run.moves:
            run.look({"m2"}, chance=chance)
    assert late.moves[0][0] - early.moves[0][0] == pytest.approx(1.0)  # due after 2 s, not after 1


def test_a_missing_subscription_gets_time_to_mend() -> None:
    run = Run()
    run.until(1014.5, {"m1", "m2"}, subscribed=False)
    assert run.moves == []
    run.until(1017, {"m1", "m2"}, subscribed=False)
    assert run.moves[0][1].target == "m2"
    assert "not subscribed" in run.moves[0][1].why


def test_the_only_master_is_connected_again_when_it_works_but_is_not_heard() -> None:
    run = Run(Setup(SETTINGS, ("m1",)))
    run.until(1020, {"m1"}, subscribed=False)
    assert (run.moves[0][1].source, run.moves[0][1].target) == ("m1", "m1")


def test_connections_that_cannot_be_seen_are_no_reason() -> None:
    run = Run()
    run.until(1100, {"m1", "m2"}, subscribed=None)
    assert run.moves == []


def test_between_half_working_masters_it_moves_ever_more_rarely() -> None:
    run = Run()
    for _ in range(5000):  # whichever it is with fails, the others answer
        run.look(set(MASTERS) - {run.current or ""})
        if run.at > 1000 + 3600:
            break
    gaps = [late[0] - early[0] for early, late in zip(run.moves, run.moves[1:], strict=False)]
    # To m3, which has done nothing; then to those that were left before.
    assert gaps[:4] == pytest.approx([6, 40, 80, 160], abs=6)
    assert all(gap >= 300 for gap in gaps[4:])
    assert len(run.moves) < 18


def test_failback_only_when_configured_and_after_it_was_stable() -> None:
    run = Run(current="m2")
    run.until(3000, set(MASTERS))
    assert run.moves == []
    run = Run(Setup(SETTINGS, MASTERS, preferred="m1"), current="m2")
    assert run.look(set(MASTERS))[0] == {"m1", "m2"}
    run.until(1050, set(MASTERS))
    run.look({"m2", "m3"})  # m1 fails once: its time starts anew
    again = run.at
    run.until(again + 60, set(MASTERS))
    assert run.moves == []
    run.look(set(MASTERS))
    assert run.moves[0][1].failback
    assert run.current == "m1"


def test_no_failback_while_the_last_move_is_too_near() -> None:
    settings = replace(SETTINGS, stable=1)
    run = Run(Setup(settings, MASTERS, preferred="m1"))
    for _ in range(3):
        run.until(run.at + 20, {"m2", "m3"})  # m1 fails, and works again at once
        run.until(run.at + 100, set(MASTERS))
    gaps = [late[0] - early[0] for early, late in itertools.pairwise(run.moves)]
    assert [move.failback for _, move in run.moves] == [False, True] * 2 + [False]
    assert all(gaps[n - 1] >= decide.hold(settings, n) for n in (1, 3))


def test_a_master_that_hangs_right_after_a_failback_is_left_as_fast_as_any() -> None:
    """The hold is for moves that nobody needs, and for masters that were bad themselves."""
    run = Run(Setup(SETTINGS, MASTERS, preferred="m1"))
    for _ in range(6):
        hangs = run.at
        while run.current == "m1":
            run.look({"m2", "m3"})
        assert run.moves[-1][0] - hangs <= SETTINGS.interval + SETTINGS.soon
        while run.current == "m2":
            run.look(set(MASTERS))


def test_who_was_left_or_not_reached_is_no_refuge_at_once() -> None:
    run = Run(current="m1")
    run.until(1010, {"m2"})
    assert run.current == "m2"
    left = run.moves[0][0]
    run.until(left + 30, {"m1"})
    assert [at - left for at, _ in run.moves[1:]] == pytest.approx([20], abs=6)
    lost = decide.moved(State("m1", bad=2), 0.0, MinionMove("m1", "m2", ""), "m1")
    assert set(lost.left) == {"m1", "m2"}
    assert lost.moves == (0.0,)
    assert dict(decide.moved(State("m2"), 0.0, MinionMove("m2", "m1", "", True), "m1").left) == {}


def test_who_was_moved_by_hand_is_not_taken_back() -> None:
    run = Run(Setup(SETTINGS, MASTERS, preferred="m1"), current="m2", pinned=True)
    run.until(3000, set(MASTERS))
    assert run.moves == []


def test_a_preferred_master_that_does_not_let_it_in_is_tried_ever_more_rarely() -> None:
    run = Run(Setup(SETTINGS, MASTERS, preferred="m1"), current="m2", closed={"m1"})
    run.until(1600, set(MASTERS))
    assert run.moves == []
    gaps = [late - early for early, late in zip(run.tried, run.tried[1:], strict=False)]
    assert run.tried[0] == 1060.0
    assert gaps[:3] == [10, 20, 40]
    assert set(gaps[3:]) == {60}
    run.closed = set()
    run.until(1700, set(MASTERS))
    assert [move.target for _, move in run.moves] == ["m1"]


def test_nobody_is_moved_to_a_master_that_does_not_let_it_in() -> None:
    run = Run(closed={"m2"})
    run.until(1100, {"m2", "m3"})
    assert run.moves == []
    assert run.note == "m2 answers, and the minion cannot go there"
    gaps = [late - early for early, late in zip(run.tried, run.tried[1:], strict=False)]
    assert gaps == [10, 20, 40]
    run.look(set(MASTERS))
    assert run.note is None  # and is with a good one, as it would not be, had it gone
    run.until(1200, {"m3"})  # the closed one is not even there: the next one in Salt's order
    assert [move.target for _, move in run.moves] == ["m3"]


def test_past_one_that_does_not_let_it_in_it_gets_to_the_first_one_only() -> None:
    run = Run(Setup(SETTINGS, MASTERS, first="m1"), current="m2", closed={"m3"})
    run.until(1020, {"m1", "m3"})
    assert [(move.target, move.failback) for _, move in run.moves] == [("m1", True)]
    # To m3 Salt would go by way of m2.
    run = Run(Setup(SETTINGS, MASTERS, first="m1"), closed={"m2"})
    run.until(1100, {"m2", "m3"})
    assert run.moves == []
    # Nor to a first one that does not let it in either, or that does not answer.
    run = Run(Setup(SETTINGS, MASTERS, first="m1"), current="m2", closed={"m1", "m3"})
    run.until(1100, {"m1", "m3"})
    assert (run.moves, run.note) == ([], "m3 answers, and the minion cannot go there")
    run = Run(Setup(SETTINGS, MASTERS, first="m1"), current="m2", closed={"m3"})
    run.until(1100, {"m3"})
    assert run.moves == []


def test_the_bar_is_lifted_with_the_master_that_the_minion_is_with() -> None:
    run = Run(closed={"m2"})
    run.until(1100, {"m2"})
    run.current, run.closed = "m3", set()
    run.until(1120, {"m2"})
    assert [move.target for _, move in run.moves] == ["m2"]


def test_a_minion_that_is_with_none_is_left_alone() -> None:
    run = Run(current=None)
    run.until(2000, {"m2"})
    assert run.moves == []


def test_a_change_by_others_starts_the_count_anew() -> None:
    run = Run()
    run.look({"m2"})
    run.current = "m3"
    run.look({"m2"})
    assert run.moves == []
    run.look({"m2"})
    assert [move.source for _, move in run.moves] == ["m3"]


@pytest.mark.parametrize("minions", [500, 1_000, 3_000, 10_000])
def test_thousands_of_minions_of_a_dead_master_do_not_arrive_at_once(minions: int) -> None:
    """With the jitter that ``ha.minion_config`` writes for so many; it is 30 for 10 000."""
    arrivals, settings = storm(minions, jitter_for(minions))
    assert max(arrivals.values()) < 400
    assert max(arrivals) <= 1000 + settings.interval + settings.soon + settings.jitter


def test_without_that_jitter_they_do() -> None:
    arrivals, _ = storm(10_000, WatchdogSettings.jitter)
    assert max(arrivals.values()) > 1_500


def storm(minions: int, jitter: float) -> tuple[Counter[int], WatchdogSettings]:
    """How many minions of a master that dies at 1000 move in each second, by its number."""
    chance = random.Random(1)
    settings = replace(SETTINGS, jitter=jitter)
    arrivals: Counter[int] = Counter()
    for _ in range(minions):
        run = Run(Setup(settings, MASTERS), at=1000 + settings.interval * chance.random())
        while not run.moves:
            run.look({"m2", "m3"}, chance=chance.random())
        arrivals[int(run.moves[0][0])] += 1
    return arrivals, settings


looks = st.lists(
    st.tuples(
        st.sets(st.sampled_from(MASTERS)),
        st.sampled_from([True, False, None]),
        st.floats(0, 1),
        st.floats(0, 30),
    ),
    max_size=120,
)


@given(looks, st.booleans(), st.integers(1, 4))
def test_whatever_is_seen_the_promises_hold(
    seen: list[tuple[set[str], bool | None, float, float]], failback: bool, failures: int
) -> None:
    settings = replace(SETTINGS, failures=failures, failback=failback)
    run = Run(Setup(settings, MASTERS, preferred="m1" if failback else None))
    bad, good_since = 0, None
    left: dict[str, float] = {}
    for up, subscribed, chance, extra in seen:
        here, at, count = run.current, run.at, len(run.moves)
        bad = 0 if here in up and subscribed is not False else bad + 1
        good_since = None if here == "m1" or "m1" not in up else (good_since or at)
        run.look(up, subscribed, chance)
        assert run.at >= at
        if len(run.moves) > count:
            move = run.moves[-1][1]
            assert move.target in up
            assert move.source == here
            if move.failback:
                assert good_since is not None
                assert at - good_since >= settings.stable
                assert bad == 0
            else:
                assert bad >= failures
            earlier = [then for then, _ in run.moves[:-1] if at - then < decide.HOUR]
            # Only from a bad master to one that was not bad is it moved without a pause.
            was_bad = at - left.get(move.target, -decide.HOUR) < decide.HOUR
            if earlier and (was_bad or not bad):
                assert at - earlier[-1] >= decide.hold(settings, len(earlier))
            if bad:
                left[move.source] = at
            bad = 0
        run.at += extra
