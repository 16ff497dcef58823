"""Who leads: every case, and random histories of masters that fail, come back and part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from saltext_ha.once.election import FRESH, Election, MasterView, decide

NOW = 1000.0
ALL = ("m1", "m2", "m3")


def view(name: str, *, sees: Iterable[str] = ALL, unfit: str = "", **more: object) -> MasterView:
    rest = {"at": NOW, **more}
    return MasterView(name, unfit, frozenset(sees) - {name}, **rest)  # type: ignore[arg-type]


def decided(me: str, *views: MasterView, unasked: Iterable[str] = ()) -> Election:
    by_name: Mapping[str, MasterView] = {each.name: each for each in views}
    others = {name: each for name, each in by_name.items() if name != me}
    return decide(by_name[me], others, NOW, unasked)


def test_the_first_by_name_leads() -> None:
    three = view("m1"), view("m2"), view("m3")
    first = decided("m1", *three)
    assert (first.leader, first.lead, first.half) == ("m1", True, frozenset(ALL))
    waits = decided("m2", *three)
    assert (waits.leader, waits.lead, waits.why) == ("", False, "m1 is about to lead")


def test_who_leads_goes_on() -> None:
    three = view("m1"), view("m2", leads=True), view("m3")
    for name in ALL:
        found = decided(name, *three)
        assert (found.leader, found.lead) == ("m2", name == "m2")


def test_of_two_that_lead_the_first_goes_on() -> None:
    three = view("m1"), view("m2", leads=True), view("m3", leads=True)
    assert [decided(name, *three).leader for name in ALL] == ["m2"] * 3
    assert not decided("m3", *three).lead


def test_the_configured_order_comes_before_names() -> None:
    order = ("m3", "m2")
    three = [view(name, order=order) for name in ALL]
    assert decided("m3", *three).lead
    assert not decided("m1", *three).lead


def test_an_order_that_only_one_has_counts_for_all() -> None:
    three = view("m1"), view("m2", order=("m2",)), view("m3")
    assert [decided(name, *three).lead for name in ALL] == [False, True, False]


def test_where_orders_differ_all_take_the_same() -> None:
    three = view("m1", order=("m1",)), view("m2", order=("m2",)), view("m3")
    assert sum(decided(name, *three).lead for name in ALL) == 1


def test_one_that_may_not_lead_is_passed_over() -> None:
    three = view("m1", unfit="drained", leads=True), view("m2"), view("m3")
    assert decided("m2", *three).lead
    assert not decided("m1", *three).lead


def test_nobody_leads_where_nobody_may() -> None:
    found = decided("m1", view("m1", unfit="drained"), view("m2", unfit="hangs"))
    assert (found.leader, found.lead) == ("", False)
    assert "m1: drained; m2: hangs" in found.why


def test_what_is_old_does_not_count() -> None:
    old = view("m2", leads=True, at=NOW - FRESH - 0.1)
    assert decided("m1", view("m1"), old).half == {"m1"}
    assert decided("m1", view("m1"), old).lead


def test_nobody_begins_to_lead_before_all_were_asked() -> None:
    found = decided("m1", view("m1", sees=["m3"]), view("m3", sees=["m1"]), unasked=["m2"])
    assert (found.lead, found.why) == (False, "not yet met: m2")
    leads = view("m3", sees=["m1"], leads=True)
    assert decided("m1", view("m1", sees=["m3"]), leads, unasked=["m2"]).leader == "m3"


def test_one_that_comes_back_waits_until_the_others_see_it() -> None:
    """Else it would be a half of its own, and take over from the one that leads."""
    leads = view("m2", sees=["m3"], leads=True)
    found = decide(view("m1", sees=["m2"]), {"m2": leads}, NOW, (), new=True)
    assert (found.lead, found.why) == (False, "not yet met: m2")
    assert decide(view("m1", sees=["m2"]), {"m2": leads}, NOW, ()).lead
    # One that is seen by all it sees, and has heard nothing yet of a third, waits for nobody.
    assert decide(view("m1"), {"m2": view("m2")}, NOW, (), new=True).lead


def test_a_master_that_does_not_see_this_one_is_in_another_half() -> None:
    deaf = view("m2", sees=["m3"], leads=True)
    found = decided("m1", view("m1"), deaf, view("m3", sees=[]))
    assert (found.lead, found.half) == (True, frozenset({"m1"}))


def test_masters_that_see_each_other_by_way_of_a_third_are_one_half() -> None:
    chain = view("m1", sees=["m2"]), view("m2"), view("m3", sees=["m2"], leads=True)
    assert [decided(name, *chain).leader for name in ALL] == ["m3"] * 3


@pytest.mark.parametrize("unfit", [(), ("m1",), ("m1", "m2")])
def test_exactly_one_of_all_that_may(unfit: tuple[str, ...]) -> None:
    three = [view(name, unfit="drained" if name in unfit else "") for name in ALL]
    assert sum(decided(name, *three).lead for name in ALL) == 1


class Leading(RuleBasedStateMachine):
    """
    Masters that tell each other what they see, each in its own time.

    Whatever happens, in each half that keeps still there is one leader soon, and it stays.
    """

    names = ("m1", "m2", "m3", "m4")

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.cut: set[frozenset[str]] = set()
        self.down: set[str] = set()
        self.unfit: set[str] = set()
        self.views: dict[str, dict[str, MasterView]] = {name: {} for name in self.names}
        self.direct: dict[str, dict[str, float]] = {name: {} for name in self.names}
        self.asked: dict[str, set[str]] = {name: set() for name in self.names}
        self.since = dict.fromkeys(self.names, 0.0)
        self.leads = dict.fromkeys(self.names, False)

    def own(self, name: str) -> MasterView:
        sees = {p for p, at in self.direct[name].items() if self.now - at <= FRESH}
        unfit = "drained" if name in self.unfit else ""
        return MasterView(
            name, unfit, frozenset(sees), self.leads[name] and not unfit, (), self.now
        )

    def turn(self, name: str) -> None:
        """One master asks all others, and decides."""
        if name in self.down:
            return
        for other in self.names:
            if other == name:
                continue
            self.asked[name].add(other)
            if other in self.down or frozenset({name, other}) in self.cut:
                continue
            sees = self.own(name).sees
            told = [self.own(other)]
            told += [v for n, v in self.views[other].items() if n not in sees and n != name]
            for each in told:
                before = self.views[name].get(each.name)
                if before is None or before.at < each.at:
                    self.views[name][each.name] = each
            self.direct[name][other] = self.now
        unasked = set(self.names) - {name} - self.asked[name]
        new = self.now - self.since[name] < FRESH
        found = decide(self.own(name), self.views[name], self.now, unasked, new)
        self.leads[name] = found.lead

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.now += 1.5
            for name in self.names:
                self.turn(name)

    @rule(name=st.sampled_from(names))
    def one_looks(self, name: str) -> None:
        self.now += 0.4
        self.turn(name)

    @rule(pair=st.sets(st.sampled_from(names), min_size=2, max_size=2))
    def part(self, pair: set[str]) -> None:
        self.cut ^= {frozenset(pair)}

    @rule(side=st.sets(st.sampled_from(names), min_size=1, max_size=3))
    def partition(self, side: set[str]) -> None:
        self.cut = {frozenset({a, b}) for a in side for b in set(self.names) - side}

    @rule(name=st.sampled_from(names))
    def stop_or_start(self, name: str) -> None:
        self.down ^= {name}
        self.leads[name] = False
        self.forget(name)

    def forget(self, name: str) -> None:
        self.since[name] = self.now
        self.views[name], self.direct[name], self.asked[name] = {}, {}, set()

    @rule(name=st.sampled_from(names))
    def drain_or_not(self, name: str) -> None:
        self.unfit ^= {name}

    @rule()
    def keep_still(self) -> None:
        self.turns(8)
        leaders = {name for name in self.names if self.leads[name]}
        for half in self.halves():
            expected = bool(half - self.unfit)
            assert len(leaders & half) == expected, (half, leaders)
        self.turns(3)
        assert leaders == {name for name in self.names if self.leads[name]}, "it flaps"

    @rule(name=st.sampled_from(names))
    def one_that_comes_back_takes_nothing_over(self, name: str) -> None:
        self.cut, self.down, self.unfit = set(), {name}, set()
        self.leads[name] = False
        self.turns(8)
        before = {other for other in self.names if self.leads[other]}
        self.down = set()
        self.forget(name)
        self.turns(4)
        assert len(before) == 1
        assert before == {other for other in self.names if self.leads[other]}

    def halves(self) -> list[set[str]]:
        left, found = set(self.names) - self.down, []
        while left:
            half, ahead = set(), {left.pop()}
            while ahead:
                one = ahead.pop()
                half.add(one)
                near = {n for n in left if frozenset({one, n}) not in self.cut}
                left -= near
                ahead |= near
            found.append(half)
        return found

    @invariant()
    def nobody_leads_that_may_not(self) -> None:
        assert not any(self.own(name).leads for name in self.down | self.unfit)


TestLeading = Leading.TestCase
TestLeading.settings = settings(max_examples=150, stateful_step_count=30)
