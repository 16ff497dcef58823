"""What happens to a group, and the cost until all masters know all again."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median

from proving.simulation.group import Group, Master, Settings
from proving.simulation.keys import Keys
from proving.simulation.network import Conditions, Traffic
from proving.simulation.stage import on
from saltext_ha.replication.record import ACCEPTED, REJECTED

# All other requests go on whatever happens: they compare digests, and tell who the members are.
CAUSED = ("hello", "branches", "compare", "push", "dropped")
LIMIT = 86_400.0


@dataclass(frozen=True)
class Case:
    """The group of a scenario, made anew each time."""

    keys: Keys
    settings: Settings
    conditions: Conditions
    seed: int

    @contextlib.contextmanager
    def group(self) -> Iterator[Group]:
        """A group that has been running for a while and is level."""
        group = Group(self.keys, self.settings, self.conditions, self.seed)
        with on(group.kernel, group.random):
            group.start()
            try:
                yield group
            finally:
                for master in group.masters:
                    master.stop()


@dataclass
class Outcome:
    """
    The result of a scenario.

    :param each: seconds until a master knew, one for every master (and change).
    :param last: seconds until all knew, one for every repetition.
    :param messages: requests that it caused; ``bytes`` of these and their answers.
    """

    name: str
    what: str
    each: list[float] = field(default_factory=list)
    last: list[float] = field(default_factory=list)
    messages: int = 0
    bytes: int = 0

    def data(self) -> dict[str, object]:
        """Plain data; times in seconds."""
        return {
            "name": self.name,
            "what": self.what,
            "median_s": rounded(median(self.each)),
            "p99_s": rounded(p99(self.each)),
            "all_median_s": rounded(median(self.last)),
            "all_worst_s": rounded(max(self.last)),
            "messages": self.messages,
            "bytes": self.bytes,
        }


@dataclass(frozen=True)
class Steady:
    """What a master sends and receives in a second while nothing happens."""

    masters: int
    interval: float
    requests: float
    round_bytes: float
    member_bytes: float

    def data(self) -> dict[str, float]:
        return {
            "masters": self.masters,
            "sync_interval": self.interval,
            "requests_made_per_s": rounded(self.requests),
            "anti_entropy_bytes_per_s": rounded(self.round_bytes),
            "membership_bytes_per_s": rounded(self.member_bytes),
        }


def steady(case: Case, seconds: float = 60.0) -> Steady:
    """Nothing happens: all are in sync."""
    with case.group() as group:
        group.run(seconds)
        traffic = group.network.traffic
    parts = case.settings.masters * seconds
    # Each byte is sent by one master and received by another.
    digest = 2 * traffic.bytes["digest"] / parts
    members = 2 * (sum(traffic.bytes.values()) - traffic.bytes["digest"]) / parts
    made = sum(traffic.requests.values()) / parts
    return Steady(case.settings.masters, case.settings.interval, made, digest, members)


def accept(case: Case, samples: int = 200) -> Outcome:
    """A key accepted on some master, again and again."""
    outcome = Outcome("accept", f"one accept ({samples} times)")
    with case.group() as group:
        keys = case.keys.pending(samples)
        for index in keys:
            minion_id = case.keys.minion_id(index)
            group.watched = {minion_id}
            began = group.kernel.now
            writer = group.random.choice(group.masters)
            writer.decide([(index, ACCEPTED)])
            group.until_level(LIMIT)
            others = [master for master in group.masters if master is not writer]
            outcome.each += [master.reached.pop(minion_id) - began for master in others]
            outcome.last.append(group.kernel.now - began)
            group.run(1.0 + group.random.random())
        _cost(outcome, group.network.traffic, repetitions=len(keys))
    return outcome


def burst(case: Case, size: int = 10_000) -> Outcome:
    """Many keys accepted on one master by one command."""
    keys = case.keys.pending(size)
    with case.group() as group:
        began = group.kernel.now
        group.masters[0].decide((index, ACCEPTED) for index in keys)
        group.until_level(LIMIT)
        return _leveled("burst", f"{len(keys)} accepts at once", group, began)


def partition(
    case: Case, seconds: float = 600.0, changes: int = 500, contested: int = 20
) -> Outcome:
    """A region is cut off, and there are changes on both sides; some of them contradict."""
    keys = case.keys.pending(2 * changes)
    disputed, keys = keys[:contested], keys[contested:]
    with case.group() as group:
        inside = [master for master in group.masters if master.region == 0]
        outside = [master for master in group.masters if master.region != 0]
        group.network.cut = frozenset({0})
        planned = [(inside, index, ACCEPTED) for index in (*disputed, *keys[::2])]
        planned += [(outside, index, ACCEPTED) for index in keys[1::2]]
        planned += [(outside, index, REJECTED) for index in disputed]
        began = group.kernel.now
        for side, index, state in planned:
            when = began + seconds * 0.98 * group.random.random()
            group.kernel.at(when, group.random.choice(side).decide, [(index, state)])
        group.run(seconds)
        if group.level():
            raise AssertionError("the partition lets changes through")
        group.network.cut = frozenset()
        group.network.traffic = Traffic()
        began = group.kernel.now
        group.until_level(LIMIT)
        for index in disputed:
            if group.states(index) != {REJECTED: len(group.masters)}:
                raise AssertionError(f"{index} is not rejected everywhere: {group.states(index)}")
        what = f"a region cut off for {seconds / 60:g} min, {len(planned)} changes: once it is back"
        return _leveled("partition", what, group, began)


def away(case: Case, changes: int = 2_000) -> Outcome:
    """
    A master comes back after a day.

    The day itself is not simulated: what was decided in it is simply known to all others.
    """
    with case.group() as group:
        gone = group.masters[-1]
        gone.stop()
        others = group.masters[:-1]
        keys = case.keys.pending(changes)
        for index in keys:
            writer = group.random.choice(others)
            writer.decide([(index, ACCEPTED)], push=False)
            record = writer.replica.get(case.keys.minion_id(index))[case.keys.fingerprint(index)]
            for master in others:
                master.learn([record])
        group.run(120.0)  # until the others have lost patience with it
        return _returns("away", f"a master back after a day, {len(keys)} changes", group, gone)


def cold(case: Case) -> Outcome:
    """A new master, which knows no key at all."""
    with case.group() as group:
        new = group.add(empty=True)
        for master in group.masters[:-1]:
            master.link_to_new(new)
        return _returns("cold", f"a new master, {case.keys.count} keys", group, new)


def churn(case: Case, seconds: float = 600.0, share: float = 0.1) -> Outcome:
    """At any time a *share* of the masters is down; a key is accepted every second."""
    outcome = Outcome("churn", f"one accept, {share:.0%} of the masters down at any time")
    down = 30.0
    up = down * (1 - share) / share
    with case.group() as group:
        started = dict.fromkeys(group.masters, 0.0)
        over = group.kernel.now + seconds

        def fall(master: Master) -> None:
            if group.kernel.now < over:
                master.stop()
                wait = group.random.expovariate(1 / down)
                group.kernel.at(group.kernel.now + wait, rise, master)

        def rise(master: Master) -> None:
            master.start()
            started[master] = group.kernel.now
            wait = group.random.expovariate(1 / up)
            group.kernel.at(group.kernel.now + wait, fall, master)

        for master in group.masters:
            if group.random.random() < share:
                fall(master)
            else:
                wait = group.random.expovariate(1 / up)
                group.kernel.at(group.kernel.now + wait, fall, master)
        written: list[tuple[str, float, Master]] = []
        keys = case.keys.pending(int(seconds))
        for index in keys:
            writer = group.random.choice([master for master in group.masters if master.is_up])
            minion_id = case.keys.minion_id(index)
            group.watched.add(minion_id)
            written.append((minion_id, group.kernel.now, writer))
            writer.decide([(index, ACCEPTED)])
            group.run(seconds / len(keys))
        _cost(outcome, group.network.traffic, repetitions=len(keys))
        group.run(20 * down, lambda: all(master.is_up for master in group.masters))
        group.until_level(LIMIT)
        for minion_id, began, writer in written:
            times = [
                master.reached[minion_id] - began
                for master in group.masters
                if master is not writer and started[master] <= began
            ]
            # Masters that were down then, or since, do not tell how fast news travels.
            outcome.each += times
            outcome.last.append(max(times, default=0.0))
    return outcome


SCENARIOS: dict[str, Callable[[Case], Outcome]] = {
    "accept": accept,
    "burst": burst,
    "partition": partition,
    "away": away,
    "churn": churn,
    "cold": cold,
}


def p99(values: list[float]) -> float:
    """The value that 99 of 100 do not exceed."""
    return sorted(values)[math.ceil(len(values) * 0.99) - 1]


def rounded(value: float) -> float:
    """*value* with four significant digits."""
    return float(f"{value:.4g}")


def _returns(name: str, what: str, group: Group, master: Master) -> Outcome:
    group.network.traffic = Traffic()
    began = group.kernel.now
    master.start()
    group.until_level(LIMIT)
    outcome = _leveled(name, what, group, began)
    outcome.each = list(outcome.last)
    return outcome


def _leveled(name: str, what: str, group: Group, began: float) -> Outcome:
    times = [(master.level_since or began) - began for master in group.masters]
    outcome = Outcome(name, what, [time for time in times if time > 0], [max(times)])
    _cost(outcome, group.network.traffic)
    return outcome


def _cost(outcome: Outcome, traffic: Traffic, repetitions: int = 1) -> None:
    outcome.messages = round(sum(traffic.requests[m] for m in CAUSED) / repetitions)
    outcome.bytes = round(sum(traffic.bytes[m] for m in CAUSED) / repetitions)
