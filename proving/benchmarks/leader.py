"""How long until all masters know of a new leader: by store, and by how the last leader ended."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import mean

from lab import etcd
from lab.engines import EngineProcess, Place, befriend
from lab.wait import wait_for
from proving.benchmarks.processors import used
from proving.benchmarks.report import Budget, Row
from saltext_ha.commands.once.once import RUN
from saltext_ha.config.leader import ETCD, GROUP, LeaderSettings
from saltext_ha.once.etcd_leader import TURN

MASTERS = ("m1", "m2", "m3")
MEMBERS = 3
FAULTS = {
    "leader killed": signal.SIGKILL,
    "leader stopped by SIGSTOP": signal.SIGSTOP,
    "orderly end": signal.SIGTERM,
}
LEASE = 1000.0 * (LeaderSettings().ttl + 3 * TURN)
"""A lease that was just prolonged runs out; etcd ends it, one master sees that, then the other."""
BUDGETS: Mapping[str, Mapping[str, float]] = {
    GROUP: dict.fromkeys(FAULTS, 10_000.0),
    ETCD: {**dict.fromkeys(FAULTS, LEASE), "orderly end": 3000.0 * TURN},
}
POLL = 0.01
LIMIT = 60.0


def measure(root: Path, store: str, runs: int) -> list[Row]:
    """
    Three engines, a process each, whose leader goes away *runs* times in each way.

    With etcd (three members) it is an error if two masters ever lead at once. The number of masters
    is in the column of keys.
    """
    with ExitStack() as stack:
        leader: dict[str, object] = {"store": store}
        if store == ETCD:
            members = stack.enter_context(etcd.cluster(root / "etcd", MEMBERS))
            leader["endpoints"] = [member.endpoint for member in members]
        places = [Place(root, name, {"leader": leader}) for name in MASTERS]
        befriend(*places)
        group = Group(stack.enter_context(EngineProcess(place)) for place in places)
        took = {
            fault: [group.without_leader(number) for _ in range(runs)]
            for fault, number in FAULTS.items()
        }
    if group.twice:
        raise AssertionError(f"{group.twice} answers of masters that led beside another one")
    return [
        Row(
            f"new leader, {fault} ({store})",
            len(MASTERS),
            [ms for ms, _ in rounds],
            budget=Budget(worst=BUDGETS[store][fault]),
            cpu=mean(work for _, work in rounds),
        )
        for fault, rounds in took.items()
    ]


class Group:
    """
    Running engines, and who leads, by the answers that ``ha.once`` gets on each of them.

    :ivar twice: how many answers said that a master leads after another one led with a greater
        fencing number.
    """

    def __init__(self, engines: Iterable[EngineProcess]) -> None:
        self._engines = {engine.place.name: engine for engine in engines}
        self._fence = 0
        self.twice = 0

    def without_leader(self, number: signal.Signals) -> tuple[float, float]:
        """
        Send signal *number* to the leader, and start or continue it when another one leads.

        :return: milliseconds until all others knew that, and of processor time of the others.
        """
        last = wait_for(self._level, LIMIT, "all masters follow one")
        others = [name for name in MASTERS if name != last]
        engine = self._engines[last]
        going_on = [self._engines[name] for name in others]
        time.sleep(random.uniform(0, 2 * TURN))  # masters look in turns
        before, began = used(*going_on), time.monotonic()
        os.kill(engine.pid, number)
        try:
            wait_for(lambda: self.followed(others) in others, LIMIT, "another one leads", POLL)
            return (time.monotonic() - began) * 1000, used(*going_on) - before
        finally:
            if number == signal.SIGSTOP:
                os.kill(engine.pid, signal.SIGCONT)
            else:
                engine.wait_ended()
                engine.start()

    def followed(self, names: Iterable[str]) -> str:
        """The master that all of *names* name, and that itself says that it leads; else empty."""
        named, leading = set(), set()
        for name in names:
            leader, leads = self._ask(name)
            named.add(leader)
            leading |= {name} if leads else set()
        return named.pop() if len(named) == 1 and named == leading else ""

    def _level(self) -> str:
        """The leader, when all follow it and each reaches all others."""
        answers = [engine.control("leader") for engine in self._engines.values()]
        reached = not any(answer["apart"] or answer["unknown"] for answer in answers)
        return self.followed(MASTERS) if reached else ""

    def _ask(self, name: str) -> tuple[str, bool]:
        """Whom *name* follows, and whether it leads; a run without a name is not recorded."""
        asked = {"function": "test.ping", "pid": os.getpid()}
        answer = self._engines[name].control("once", asked)
        leads = answer["do"] == RUN
        if leads and answer["fence"] is not None:
            self.twice += answer["fence"] < self._fence
            self._fence = max(self._fence, answer["fence"])
        return str(answer["leader"] or ""), leads
