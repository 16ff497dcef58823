"""
Random histories of real leaders, in a time that jumps: masters that part, hang, are stopped as by
SIGSTOP, end and begin, answer slowly; an etcd that loses its quorum or what it is asked, or that
does it late.

``store: group``: where nothing changes any more, one master leads in each half, and all there know
it. ``store: etcd``: never do two lead, and when all is well, one does.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
)

from saltext_ha.common.errors import EtcdError, LeadsNoMore
from saltext_ha.config.leader import ETCD, LeaderSettings
from saltext_ha.once import election, etcd_leader, group_leader
from saltext_ha.once.candidate import Candidate
from saltext_ha.once.election import FRESH, Election, MasterView
from saltext_ha.once.etcd_client import KeyHolder
from saltext_ha.once.etcd_leader import EtcdLeader
from saltext_ha.once.group_leader import ANSWER_WITHIN, TURN, GroupLeader
from tests.loop import in_a_loop
from tests.unit.once.etcd_world import ENDPOINTS, GOOD, Etcd, ModelClient, Ways
from tests.unit.once.virtual_time import Process, VirtualLoop
from tests.unit.once.world import Contact, World

NAMES = ("m1", "m2", "m3", "m4", "m5")
SOON = FRESH + ANSWER_WITHIN + TURN
"""Seconds after which those that reach each other know who leads; docs/once.md says 10."""
HOP = 2 * TURN
"""Seconds more for each master that is between two others."""

LONGEST_WAY = 1.4
"""Seconds that a message may take for the masters not to take each other for lost."""

some = st.integers(0, len(NAMES) - 1)
waits = st.sampled_from([0.0, 0.2, 0.7, 1.5, 3.0, 6.0, 16.0, 16.0])
sides = st.lists(st.booleans(), min_size=len(NAMES), max_size=len(NAMES))


RATES = (0.98, 1.02)
"""How fast clocks go."""
APART = 2.0
"""Seconds by which what the clocks of masters show differs at most."""
WITHIN = 20.0
BUSY = 12
PATHS = ("lease/grant", "lease/keepalive", "lease/revoke", "kv/range", "kv/txn")
WAYS = (
    GOOD,
    Ways(lost=1.0),
    Ways(late=1.0),
    Ways(answer_late=1.0),
    Ways(lost=0.3, answer_lost=0.3),
    Ways(lost=0.1, late=0.3, answer_lost=0.1, answer_late=0.3),
)
long_waits = st.sampled_from([0.0, 0.3, 1.0, 2.5, 5.0, 10.0, 30.0, 30.0])
members = st.sets(st.sampled_from(ENDPOINTS), max_size=2)


def running(task: asyncio.Task[Any]) -> None:
    """:raises RuntimeError: it has ended; nothing that a model asserts."""
    if task.done():
        raise RuntimeError("a leader has ended") from task.exception()


class NotedContact(Contact):
    """One of which it is known when it was tried last."""

    def __init__(self, world: Masters, me: str, to: str) -> None:
        super().__init__(world, me, to)
        self._masters = world

    async def call(
        self, method: str, payload: Mapping[str, Any] | None, timeout: float | None
    ) -> dict[str, Any]:
        asked = self._masters.loop.time()
        try:
            return await super().call(method, payload, timeout)
        finally:
            self._masters.tried[self._me, self._to] = asked


class Masters(World):
    """Masters of ``store: group``, each a process of its own in a time that jumps."""

    def __init__(
        self, loop: VirtualLoop, names: Iterable[str], order: tuple[str, ...], seed: int
    ) -> None:
        self.loop, self.random = loop, random.Random(seed)
        self.processes: dict[str, Process] = {}
        self.all: list[Process] = []
        """Those of earlier starts, too."""
        self.slow: dict[frozenset[str], float] = {}
        """Pairs of masters → seconds that a message takes."""
        self.begun: dict[str, float] = {}
        """When each master began, or went on after it was stopped."""
        self.stopped: dict[str, float] = {}
        self.tried: dict[tuple[str, str], float] = {}
        """One that asked, whom → when, of the last time that it was answered or failed."""
        super().__init__(names, order)

    def contact(self, me: str, to: str) -> Contact:
        return NotedContact(self, me, to)

    def clock(self, name: str) -> Callable[[], float]:
        ahead, rate = self.random.uniform(0, 1e6), self.random.uniform(0.999, 1.001)
        return lambda: ahead + rate * self.loop.time()

    def begin(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self.processes[name] = Process(self.loop)
        self.all.append(self.processes[name])
        self.begun[name] = self.loop.time()
        return self.processes[name].start(work)

    async def at(self, name: str, work: Coroutine[Any, Any, Any]) -> Any:
        return await asyncio.shield(self.processes[name].start(work))

    async def way(self, one: str, other: str) -> None:
        slow = self.slow.get(frozenset({one, other}), 0.0)
        await asyncio.sleep(self.random.uniform(0.001, 0.02) + slow * self.random.uniform(0.8, 1))
        await super().way(one, other)

    def stop(self, name: str) -> None:
        super().stop(name)
        self.processes[name].stopped = True

    @property
    def running(self) -> list[str]:
        return [n for n in self.names if n not in self.down and not self.processes[n].stopped]

    def reach(self, one: str, other: str) -> bool:
        """Whether each is answered by the other."""
        return not {one, other} & self.hung and not {(one, other), (other, one)} & self.cut

    def stop_or_go_on(self, name: str) -> None:
        process, now = self.processes[name], self.loop.time()
        if process.stopped:
            if now - self.stopped[name] > FRESH * 1.002:
                self.begun[name] = now
            process.go_on()
        else:
            process.stopped = True
            self.stopped[name] = now

    def halves(self) -> Iterator[tuple[frozenset[str], int]]:
        """Masters that reach each other, and how many of them are at most between two."""
        left = set(self.running)
        while left:
            first = min(left)
            half = set(self.far(first, left))
            yield frozenset(half), max(max(self.far(each, half).values()) for each in half)
            left -= half

    def far(self, name: str, among: Iterable[str]) -> dict[str, int]:
        """Those that *name* reaches, and over how many others."""
        found, ahead = {name: 0}, [name]
        for here in ahead:
            for each in sorted(among):
                if each not in found and self.reach(here, each):
                    found[each] = found[here] + 1
                    ahead.append(each)
        return {each: max(0, far - 1) for each, far in found.items()}


class LeaderMachine(RuleBasedStateMachine):
    """Masters, and what a model of either store does with them."""

    group: Masters | EtcdMasters

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.changed = 0.0
        self.stays = ""
        """The master that leads, and goes on while nothing changes."""

    def teardown(self) -> None:
        for process in self.group.all:
            process.go_on()
        self.loop.end()

    def name(self, number: int) -> str:
        return self.group.names[number % len(self.group.names)]

    def sleep(self, seconds: float) -> None:
        end = self.loop.time() + seconds
        while (left := end - self.loop.time()) > 0.001:
            self.loop.pass_by(min(left, 0.25))

    def change(self, name: str = "") -> None:
        """Something has changed; only with the master *name*, if one is named."""
        self.changed = self.loop.time()
        if not name or self.stays == name:
            self.stays = ""

    def drain(self, number: int, seconds: float) -> None:
        """Take a master out of service, or back."""
        name = self.name(number)
        self.group.unfit[name] = "" if self.group.unfit.get(name) else "drained"
        self.change(name)
        self.sleep(seconds)


class GroupMachine(LeaderMachine):
    """Up to five masters of ``store: group``."""

    group: Masters

    def __init__(self) -> None:
        super().__init__()
        self.halves: list[tuple[frozenset[str], int]] = []

    @initialize(count=st.integers(2, len(NAMES)), order=st.permutations(NAMES), seed=st.integers())
    def begin(self, count: int, order: Sequence[str], seed: int) -> None:
        names = NAMES[:count]
        order = tuple(order)[: seed % 3]
        self.group = Masters(self.loop, names, order, seed)
        self.change()
        self.loop.look = self.look
        self.sleep(seed % 13)

    def change(self, name: str = "") -> None:
        super().change(name)
        self.halves = list(self.group.halves())

    # -- what is true at any moment

    def look(self) -> None:
        for name in self.group.running:
            task = self.group.tasks[name]
            running(task)
        leading = self.group.leading()
        self.nobody_leads_that_may_not(leading)
        self.nobody_leads_that_has_not_asked(leading)
        assert not self.stays or leading & set(self.group.running) == {self.stays}
        for half, between in self.halves:
            if self.loop.time() - self.changed > SOON + between * HOP:
                self.one_leads(half, leading)

    def nobody_leads_that_may_not(self, leading: set[str]) -> None:
        assert not [name for name in leading if self.group.unfit.get(name)]

    def nobody_leads_that_has_not_asked(self, leading: set[str]) -> None:
        for name in leading & set(self.group.running):
            for other in self.group.names:
                if other != name:
                    asked = self.group.tried.get((name, other), float("-inf"))
                    assert asked >= self.group.begun[name], f"{name} has not asked {other}"

    def one_leads(self, half: frozenset[str], leading: set[str]) -> None:
        fit = [name for name in half if not self.group.unfit.get(name)]
        assert len(leading & half) == bool(fit), (half, leading)
        (leader,) = leading & half or {""}
        for name in half:
            known = self.group.masters[name].standing
            assert known.leader == leader
            assert bool(known.why) != bool(leader)
        if leader and not self.group.cut and not self.group.hung:
            self.stays = leader

    # -- what happens

    @rule(seconds=waits)
    def time_goes_by(self, seconds: float) -> None:
        self.sleep(seconds)

    @rule(one=some, other=some, seconds=waits)
    def part_or_join(self, one: int, other: int, seconds: float) -> None:
        self.group.cut ^= {(self.name(one), self.name(other)), (self.name(other), self.name(one))}
        self.change()
        self.sleep(seconds)

    @rule(one=some, other=some, seconds=waits)
    def part_or_join_one_way(self, one: int, other: int, seconds: float) -> None:
        """As by a firewall: the other one still asks, and is answered."""
        self.group.cut ^= {(self.name(one), self.name(other))}
        self.change()
        self.sleep(seconds)

    @rule(side=sides, seconds=waits)
    def partition(self, side: list[bool], seconds: float) -> None:
        """On one side of it are those that are True; all on one: it heals."""
        where = dict(zip(NAMES, side, strict=True))
        pairs = itertools.permutations(self.group.names, 2)
        self.group.cut = {(a, b) for a, b in pairs if where[a] != where[b]}
        self.change()
        self.sleep(seconds)

    @rule(seconds=waits)
    def heal(self, seconds: float) -> None:
        for name in self.group.names:
            if self.group.processes[name].stopped and name not in self.group.down:
                self.group.stop_or_go_on(name)
        self.group.cut.clear()
        self.group.hung.clear()
        self.change()
        self.sleep(seconds)

    @rule(number=some, seconds=waits)
    def hang_or_not(self, number: int, seconds: float) -> None:
        """Nothing that it sends arrives, and nothing that is sent to it."""
        self.group.hung ^= {self.name(number)}
        self.change()
        self.sleep(seconds)

    @rule(number=some, seconds=waits)
    def stop_or_go_on(self, number: int, seconds: float) -> None:
        if (name := self.name(number)) not in self.group.down:
            self.group.stop_or_go_on(name)
            self.change(name)
        self.sleep(seconds)

    @rule(number=some, seconds=waits)
    def end_or_begin(self, number: int, seconds: float) -> None:
        name = self.name(number)
        if name in self.group.down:
            self.group.start(name)
        else:
            self.group.stop(name)
        self.change(name)
        self.sleep(seconds)

    @rule(number=some, seconds=waits)
    def drain_or_not(self, number: int, seconds: float) -> None:
        self.drain(number, seconds)

    @precondition(lambda self: self.stays)
    @rule(number=some, ends=st.booleans(), seconds=waits, then=waits)
    def another_goes_and_comes(self, number: int, ends: bool, seconds: float, then: float) -> None:
        if self.name(number) != self.stays:
            for wait in (seconds, then):
                (self.end_or_begin if ends else self.stop_or_go_on)(number, wait)

    @rule(one=some, other=some, slow=st.sampled_from([0.0, LONGEST_WAY]), seconds=waits)
    def slow_down(self, one: int, other: int, slow: float, seconds: float) -> None:
        """That is no change: all goes on as it did."""
        self.group.slow[frozenset({self.name(one), self.name(other)})] = slow
        self.sleep(seconds)


class EtcdMasters:
    """Masters of ``store: etcd``, each a process of its own, with a clock that goes wrong."""

    def __init__(self, loop: VirtualLoop, names: Sequence[str], ttl: int, seed: int) -> None:
        self.loop, self.names, self.random = loop, list(names), random.Random(seed)
        self.etcd = Etcd(loop, self.random, self.random.choice(RATES))
        self.etcd.sent = self.sent
        self.settings = LeaderSettings(ETCD, endpoints=ENDPOINTS, ttl=ttl)
        self.unfit = dict.fromkeys(names, "")
        self.down: set[str] = set()
        self.clocks = {name: self.clock() for name in names}
        self.walls = {name: self.random.uniform(0, APART) for name in names}
        self.masters: dict[str, EtcdLeader] = {}
        self.processes: dict[str, Process] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.starts: list[EtcdLeader] = []
        self.all: list[Process] = []
        self.trap = ("", "")
        """A master, and the request of which the answer finds it stopped."""
        self.trapped: Callable[[str], None] = lambda name: None
        for name in names:
            self.start(name)
            loop.pass_by(self.random.uniform(0, 1))

    def clock(self) -> Callable[[], float]:
        ahead, rate = self.random.uniform(0, 1e6), self.random.choice(RATES)
        return lambda: ahead + rate * self.loop.time()

    def wall(self) -> float:
        """What the clock of the master shows that runs just now."""
        found = [name for name, each in self.processes.items() if each is Process.current()]
        return 1.8e9 + self.loop.time() + (self.walls[found[0]] if found else 0.0)

    def start(self, name: str) -> None:
        me = Candidate(name, lambda: self.unfit[name], lambda tag, data: None)
        leader = EtcdLeader(me, "g", self.settings, self.names.__contains__, self.clocks[name])
        leader.client = ModelClient(self.etcd, name, self.settings, leader.client._timeout)
        self.masters[name], self.processes[name] = leader, Process(self.loop)
        self.starts.append(leader)
        self.all.append(self.processes[name])
        self.tasks[name] = self.processes[name].start(leader.run())
        self.down.discard(name)

    def stop(self, name: str) -> None:
        """As an engine ends: it gives the key back."""
        self.tasks[name].cancel()
        self.down.add(name)

    def kill(self, name: str) -> None:
        self.processes[name].stopped = True
        self.down.add(name)

    def sent(self, name: str, path: str) -> None:
        if (name, path) == self.trap:
            self.processes[name].stopped = True
            self.trapped(name)

    @property
    def running(self) -> list[str]:
        return [n for n in self.names if n not in self.down and not self.processes[n].stopped]


class EtcdMachine(LeaderMachine):
    """Up to four masters of ``store: etcd``."""

    group: EtcdMasters

    def __init__(self) -> None:
        super().__init__()
        self.last: tuple[EtcdLeader | None, int] = None, 0
        """The start of a master that led last, and its fencing number."""
        self.granted: list[float] = []
        self.claims: set[asyncio.Task[None]] = set()

    @initialize(count=st.integers(2, 4), ttl=st.sampled_from([4, 8]), seed=st.integers())
    def begin(self, count: int, ttl: int, seed: int) -> None:
        self.group = EtcdMasters(self.loop, NAMES[:count], ttl, seed)
        self.patched = mock.patch.object(etcd_leader, "time", SimpleNamespace(time=self.group.wall))
        self.patched.start()
        self.loop.look, self.group.trapped = self.look, self.change
        self.sleep(seed % 7)

    def teardown(self) -> None:
        self.patched.stop()
        self.group.trap = "", ""
        super().teardown()

    # -- what is true at any moment

    def look(self) -> None:
        group = self.group
        for name in group.running:
            running(group.tasks[name])
        for claim in self.claims:
            assert not claim.done() or claim.exception() is None
        leading = [each for each in group.starts if each.standing.leads]
        assert len(leading) <= 1, "two lead"
        for each in leading:
            self.its_number_is_greater(each)
        etcd = group.etcd
        if not etcd.quorum or etcd.under_way > BUSY or any(w != GOOD for w in etcd.ways.values()):
            self.change()
        if self.loop.time() - self.changed > 3 * group.settings.ttl:
            self.one_leads()
        if self.stays:
            assert [group.masters[self.stays]] == leading

    def its_number_is_greater(self, leader: EtcdLeader) -> None:
        fence = leader.standing.fence
        assert fence is not None
        if self.last != (leader, fence):
            assert fence > self.last[1]
            self.last = leader, fence

    def one_leads(self) -> None:
        running = self.group.running
        fit = [name for name in running if not self.group.unfit[name]]
        known = {self.group.masters[name].standing.leader for name in running}
        leading = [name for name in running if self.group.masters[name].standing.leads]
        assert len(leading) == bool(fit)
        assert known <= {*(leading or [""])}
        self.stays = leading[0] if leading else ""

    # -- what happens

    @rule(seconds=long_waits)
    def time_goes_by(self, seconds: float) -> None:
        self.sleep(seconds)

    @rule(number=some, ways=st.sampled_from(WAYS), seconds=long_waits)
    def ways_change(self, number: int, ways: Ways, seconds: float) -> None:
        self.group.etcd.ways[self.name(number)] = ways
        self.change()
        self.sleep(seconds)

    @rule(ways=st.sampled_from(WAYS), seconds=long_waits)
    def all_ways_change(self, ways: Ways, seconds: float) -> None:
        self.group.etcd.ways = dict.fromkeys(self.group.names, ways)
        self.change()
        self.sleep(seconds)

    @rule(hung=members, off=members, seconds=long_waits)
    def members_fail(self, hung: set[str], off: set[str], seconds: float) -> None:
        """Of three: who leads may change, unless one of them hangs or ends, and the TTL is long."""
        self.group.etcd.change(hung, off - hung)
        if len(hung | off) > 1 or self.group.settings.ttl < 8:
            self.change()
        self.sleep(seconds)

    @rule(number=some, seconds=long_waits)
    def stop_or_go_on(self, number: int, seconds: float) -> None:
        process = self.group.processes[name := self.name(number)]
        if name not in self.group.down:
            if process.stopped:
                process.go_on()
            else:
                process.stopped = True
            self.change(name)
        self.sleep(seconds)

    @rule(number=some, path=st.sampled_from(PATHS), seconds=long_waits, then=long_waits)
    def stopped_as_it_asks(self, number: int, path: str, seconds: float, then: float) -> None:
        """The answer is there when it goes on."""
        name = self.name(number)
        self.group.trap = name, path
        self.sleep(1.5)
        self.group.trap = "", ""
        self.sleep(seconds)
        if self.group.processes[name].stopped:
            self.stop_or_go_on(number, then)

    @rule(number=some, kill=st.booleans(), seconds=long_waits)
    def end_or_begin(self, number: int, kill: bool, seconds: float) -> None:
        name = self.name(number)
        if name in self.group.down:
            self.group.start(name)
        elif kill or self.group.processes[name].stopped:
            self.group.kill(name)
        else:
            self.group.stop(name)
        self.change(name)
        self.sleep(seconds)

    @rule(number=some, seconds=long_waits)
    def drain_or_not(self, number: int, seconds: float) -> None:
        self.drain(number, seconds)

    @rule(seconds=long_waits)
    def heal(self, seconds: float) -> None:
        for name, process in self.group.processes.items():
            if process.stopped and name not in self.group.down:
                process.go_on()
        self.group.etcd.ways = {}
        self.group.etcd.change(set(), set())
        self.change()
        self.sleep(seconds)

    @rule(numbers=st.lists(some, min_size=1, max_size=3), seconds=long_waits)
    def claim(self, numbers: list[int], seconds: float) -> None:
        """What is due, on some masters, begins on one of them."""
        for name in map(self.name, numbers):
            self.sleep(0.01)
            if name in self.group.running:
                work = self.claimed(self.group.masters[name])
                self.claims.add(self.group.processes[name].start(work))
        self.sleep(seconds)

    async def claimed(self, leader: EtcdLeader) -> None:
        asked = self.loop.time()
        with contextlib.suppress(EtcdError, LeadsNoMore):
            if not await leader.claim("nightly", WITHIN):
                for other in self.granted:
                    assert abs(asked - other) > WITHIN - APART - 0.01, "it runs twice"
                self.granted.append(asked)


def searched(examples: int) -> settings:
    """The same histories in each run."""
    return settings(
        max_examples=examples,
        stateful_step_count=20,
        # Each is readable enough; to make it shorter takes minutes.
        phases=(Phase.explicit, Phase.generate),
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


TestGroup = GroupMachine.TestCase
TestGroup.settings = searched(40)
TestEtcd = EtcdMachine.TestCase
TestEtcd.settings = searched(60)


# -- guards that are taken out: a model that does not miss them proves nothing


def nobody_is_unasked(
    me: MasterView, others: Mapping[str, MasterView], now: float, unasked: object, new: bool
) -> Election:
    return election.decide(me, others, now, (), new)


def nobody_is_new(
    me: MasterView, others: Mapping[str, MasterView], now: float, unasked: Iterable[str], new: bool
) -> Election:
    return election.decide(me, others, now, unasked, False)


async def of_itself_only(self: GroupLeader, peer: object, payload: object) -> dict[str, Any]:
    now = self._clock()
    return {"view": group_leader.to_row(self._own(now), now), "others": []}


def for_ever(self: EtcdLeader, asked: float, ttl: int) -> None:
    self._until = float("inf")


def all_begin(machine: GroupMachine) -> None:
    machine.sleep(20)


def one_comes_back(machine: GroupMachine) -> None:
    machine.sleep(20)
    machine.another_goes_and_comes(NAMES.index(machine.stays) + 1, True, 6.0, 6.0)


def the_leader_is_stopped(machine: GroupMachine) -> None:
    machine.sleep(20)
    leader = NAMES.index(machine.stays)
    machine.stop_or_go_on(leader, 16.0)
    machine.stop_or_go_on(leader, 16.0)


def two_do_not_reach_each_other(machine: GroupMachine) -> None:
    machine.part_or_join(0, 2, 30.0)


def the_leader_is_alone(machine: EtcdMachine) -> None:
    machine.sleep(30)
    machine.ways_change(NAMES.index(machine.stays), Ways(lost=1.0), 30.0)


Guarded = tuple[Callable[[Any], None], object, str, object]
GUARDED: list[Guarded] = [
    (all_begin, group_leader, "decide", nobody_is_unasked),
    (one_comes_back, group_leader, "decide", nobody_is_new),
    (the_leader_is_stopped, GroupLeader, "standing", property(lambda self: self._known)),
    (two_do_not_reach_each_other, GroupLeader, "_answer", of_itself_only),
    (the_leader_is_alone, etcd_leader, "EARLIER", 0.0),
    (the_leader_is_alone, EtcdLeader, "_lasts", for_ever),
]


@pytest.mark.parametrize(("history", "where", "guard", "without"), GUARDED)
def test_what_is_guarded_against_happens_without(
    history: Callable[[Any], None],
    where: object,
    guard: str,
    without: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def play(seed: int) -> None:
        machine: EtcdMachine | GroupMachine
        if history is the_leader_is_alone:
            machine = EtcdMachine()
            machine.begin(4, 8, seed)
        else:
            machine = GroupMachine()
            machine.begin(3, NAMES, seed)
        try:
            history(machine)
        finally:
            machine.teardown()

    def play_all(seeds: int) -> None:
        for seed in range(seeds):
            play(seed)

    play_all(3)
    monkeypatch.setattr(where, guard, without)
    with pytest.raises(AssertionError):
        play_all(100)


# -- what the model has found


def etcd_master(client: Any, clock: Callable[[], float]) -> EtcdLeader:
    me = Candidate("m1", lambda: "", lambda tag, data: None)
    settings = LeaderSettings(ETCD, endpoints=ENDPOINTS, ttl=8)
    leader = EtcdLeader(me, "g", settings, {"m2"}.__contains__, clock)
    leader.client = client
    return leader


@in_a_loop
async def test_a_key_under_an_earlier_lease_is_not_led_by() -> None:
    """It took effect late. Nobody prolongs that lease, so another master takes the key soon."""
    now = 0.0
    put: list[str] = []

    async def take(key: str, value: str, lease: str) -> KeyHolder:
        put.append(value)
        if lease == "1":
            raise EtcdError("timed out")
        return KeyHolder(put[0], 5, 5)

    client = mock.AsyncMock(take=take)
    client.get.return_value = None
    client.grant.side_effect = [("1", 8), ("2", 8)]
    client.revoke.side_effect = EtcdError("timed out")
    leader = etcd_master(client, lambda: now)

    for _ in range(2):
        with pytest.raises(EtcdError):
            await leader._prolong_or_seek()
        now += 8
    await leader._prolong_or_seek()
    assert leader._lease == "2"
    assert not leader.standing.leads


@in_a_loop
async def test_what_could_not_be_given_back_is_given_back_when_etcd_answers() -> None:
    """Without a quorum its lease does not end, and begins anew after that."""
    now = 0.0
    key: list[KeyHolder] = []

    async def take(name: str, value: str, lease: str) -> KeyHolder:
        key.append(KeyHolder(value, len(lease), 1))
        return key[0]

    async def revoke(lease: str) -> None:
        if away:
            raise EtcdError("timed out")
        key.clear()

    async def get(name: str) -> KeyHolder | None:
        if away:
            raise EtcdError("timed out")
        return key[0] if key else None

    client = mock.AsyncMock(take=take, revoke=revoke, get=get)
    client.grant.side_effect = [("1", 8), ("2", 8)]
    leader = etcd_master(client, lambda: now)
    away = False
    await leader._prolong_or_seek()
    assert leader.standing.leads
    now, away = 9.0, True
    for _ in range(2):
        with pytest.raises(EtcdError):
            await leader._prolong_or_seek()
    away = False
    assert await leader._prolong_or_seek() == ""
    assert (leader._lease, leader.standing.leads) == ("2", True)


def test_one_that_ends_does_not_wait_long_for_an_etcd_that_hangs() -> None:
    loop = VirtualLoop()
    client = mock.AsyncMock()
    client.get.return_value = None
    client.grant.return_value = "1", 8
    client.take.return_value = KeyHolder("m2 0 7", 5, 5)

    async def hangs(lease: str) -> None:
        await asyncio.sleep(3600)

    client.revoke = hangs
    task = loop.create_task(etcd_master(client, loop.time).run())
    loop.pass_by(0.5)
    task.cancel()
    loop.pass_by(1.5)
    assert task.cancelled()
    client.close.assert_awaited_once()
    assert asyncio.all_tasks(loop) == set()
    loop.end()
