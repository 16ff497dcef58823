"""How many events a second reach the leader's bus from a master that does not lead."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import salt.config
import salt.utils.event

from lab import Lab, Master
from lab.wait import wait_for
from proving.benchmarks.processors import used
from proving.benchmarks.report import Row
from saltext_ha.salt_bus.announce import Announcer
from saltext_ha.salt_bus.intake import FROM_MINION, HEARD
from saltext_ha.salt_bus.proof import Proofs

EVENTS = 5_000
PATIENCE = 120.0
HOT, OTHER = "web00001", "web00002"
TAG, PLAIN = "site/burst", "plain/burst"
# The work of a reactor is Salt's, and costs as much without us: this one has nothing to do.
CONFIG: dict[str, Any] = {"reactor": [{"site/*": []}]}


def measure(root: Path, runs: int, events: int = EVENTS) -> list[Row]:
    """
    Two real masters, the first of which leads; many events at once, on the second and on both.

    To compare: as many events on the second master's bus alone that no reactor is configured for.
    The number of events is in the column of keys.
    """
    with _site(root / "lab", events) as site:
        works = {
            "events on one bus": site.on_one_bus,
            "events of m2 → on the leader's bus": site.handed_over,
            "events of both, handed over and known": site.known,
        }
        for work in works.values():
            work()  # the first one opens connections
        for spent in site.used:
            spent.clear()
        rows = []
        for name, work in works.items():
            before = sum(site.cpu())
            times = [work() for _ in range(runs)]
            spent_on_one = (sum(site.cpu()) - before) / runs
            rows.append(Row(f"{name}{_rate(events, times)}", events, times, cpu=spent_on_one))
    return [
        *rows,
        Row("event handed over, work of the engine that heard it", events, site.used[0]),
        Row("event handed over, work of the leader's engine", events, site.used[1]),
    ]


def _rate(events: int, times: Iterable[float]) -> str:
    return f" ({events * 1000 / median(times):.0f} a second)"


class Site:
    """
    Two masters whose engines have met, the leader first.

    :ivar used: milliseconds of processor time for each event that was handed over: of the engine
        that heard it, and of the leader's engine.
    """

    def __init__(self, leader: Master, other: Master, events: int) -> None:
        self._leader, self._other, self._events = leader, other, events
        self._opts = {
            master.name: salt.config.master_config(str(master.config_file))
            for master in (leader, other)
        }
        self._announcers = {
            name: Announcer(opts, Proofs(b"key")) for name, opts in self._opts.items()
        }
        self._numbers = count()
        self.used: tuple[list[float], list[float]] = ([], [])
        # So that the leader knows that it hears this minion, too.
        self._announcers[leader.name].fire(f"salt/beacon/{HOT}/load", {"id": HOT})

    def close(self) -> None:
        """End the announcers."""
        for announcer in self._announcers.values():
            announcer.stop()

    def cpu(self) -> list[float]:
        """Milliseconds of processor time: of the engine that hears events, and of the leader's."""
        return [used(self._other), used(self._leader)]

    def on_one_bus(self) -> float:
        """Milliseconds until a listener on the second master's bus has heard all."""
        with self._listening(self._other, PLAIN) as heard:
            began = time.perf_counter()
            self._fire(PLAIN, OTHER, self._other)
            self._until(lambda: heard.count >= self._events)
            return (time.perf_counter() - began) * 1000

    def handed_over(self) -> float:
        """Milliseconds until the leader has fired all events that the other master has heard."""
        with self._listening(self._leader, TAG) as heard:
            before, began = self.cpu(), time.perf_counter()
            self._fire(TAG, OTHER, self._other)
            self._until(lambda: heard.count >= self._events)
            took = time.perf_counter() - began
        for spent, now, then in zip(self.used, self.cpu(), before, strict=True):
            spent.append((now - then) / self._events)
        return took * 1000

    def known(self) -> float:
        """Milliseconds until all events that both heard are handed over; none is fired again."""
        before, began = self._counts(), time.perf_counter()
        self._fire(TAG, HOT, self._leader, self._other)
        self._until(lambda: self._more(before, "handed") >= self._events, 0.02)
        took = time.perf_counter() - began
        if self._more(before, "same") != self._events:
            raise AssertionError(f"not all were known: {before} {self._counts()}")
        return took * 1000

    def _listening(self, master: Master, tag: str) -> Listener:
        return Listener(self._opts[master.name], tag, self._announcers[master.name])

    def _fire(self, tag: str, minion_id: str, *masters: Master) -> None:
        """Fire different events of a minion, each on the buses of all *masters*."""
        for _ in range(self._events):
            said = {"path": "/etc/hosts", "change": "IN_MODIFY", "number": next(self._numbers)}
            for master in masters:
                event = {"id": minion_id, "tag": tag, "cmd": FROM_MINION, "data": said}
                self._announcers[master.name].fire(tag, event)

    def _until(self, condition: Callable[[], bool], poll: float = 0.002) -> None:
        try:
            wait_for(condition, PATIENCE, "all have come", poll)
        except TimeoutError as exc:
            rows = self._other.control("leader")["masters"]
            raise TimeoutError(f"{exc}; {rows}") from None

    def _more(self, before: dict[str, int], name: str) -> int:
        return self._counts()[name] - before[name]

    def _counts(self) -> dict[str, int]:
        """How many events were handed over, and how many of them the leader knew."""
        rows = {row["name"]: row["reactor"] for row in self._other.control("leader")["masters"]}
        handed, same = rows[self._other.name]["handed"], rows[self._leader.name]["same"]
        return {"handed": handed, "same": same}


class Listener:
    """
    Counts the events with *tag* on a master's bus; for :data:`TAG` only those handed over.

    :param announcer: fires on that bus.
    :ivar count: how many have come.
    """

    def __init__(self, opts: dict[str, Any], tag: str, announcer: Announcer) -> None:
        self._opts, self._tag, self._announcer = opts, tag, announcer
        self.count = 0
        self._ready, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._listen)

    def __enter__(self) -> Listener:
        self._thread.start()
        wait_for(self._hears, PATIENCE, "the bus is heard", poll=0.1)
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _hears(self) -> bool:
        # The bus may accept a connection later than it takes the next event.
        self._announcer.fire(self._tag, {HEARD: {}})
        return self._ready.is_set()

    def _listen(self) -> None:
        with salt.utils.event.get_event(
            "master", sock_dir=self._opts["sock_dir"], opts=self._opts, listen=True
        ) as bus:
            while not self._over.is_set():
                data = bus.get_event(wait=0.2, tag=self._tag)
                if not data:
                    continue
                if "id" not in data:
                    self._ready.set()
                elif HEARD in data or self._tag == PLAIN:
                    self.count += 1


@contextmanager
def _site(root: Path, events: int) -> Iterator[Site]:
    with Lab(root) as lab, ExitStack() as stack:
        ha = {"leader": {"order": ["m1", "m2"]}, "once": {"reactor": True}}
        m1, m2 = (lab.add_master(name, ha=ha, config=CONFIG) for name in ("m1", "m2"))
        m1.share_master_key(m2)
        for master in (m1, m2):
            for minion_id in (HOT, OTHER):
                master.plant("minions", minion_id, lab.key_pair()[1])
        lab.start_all()
        lab.form_group()
        leader, other = wait_for(lambda: _leading(m1, m2), PATIENCE, "one reacts, one does not")
        site = Site(leader, other, events)
        stack.callback(site.close)
        yield site


def _leading(first: Master, second: Master) -> tuple[Master, ...]:
    """The leader, whose reactor reacts, and the other master, whose does not; empty: not yet."""
    rows = {row["name"]: row for row in first.control("leader")["masters"]}
    reacts = [rows[master.name]["reactor"]["reacts"] for master in (first, second)]
    if reacts != [rows[master.name]["leads"] for master in (first, second)] or sum(reacts) != 1:
        return ()
    return (first, second) if reacts[0] else (second, first)
