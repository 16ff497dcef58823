"""What must happen once in a history: events for reactors, and calls of ``ha.once``."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proving.torture import once_book
from proving.torture.bus import TAG
from proving.torture.history import Step
from proving.torture.member import Member
from proving.torture.once_book import Half, OnceBook
from proving.torture.proxy import OPEN, SLOW
from proving.torture.world import Violation, World, components
from saltext_ha.commands.once import once_runner
from saltext_ha.common.errors import HaError, PeerError

LEVEL = 120.0
"""Seconds for a half to agree on who leads."""
POLL = 0.05
WAIT = 6.0
"""Seconds for which a master that does not lead waits until the leader has begun."""
FUNCTION = "torture.run"
MINION = "hot1"
"""Nobody decides about a key of this minion."""


class OnceActs:
    """Acts on the masters of *world*, and keeps a book of the results."""

    def __init__(self, world: World) -> None:
        self._world, self.book = world, OnceBook()
        self._numbers = 0

    # -- faults

    @contextlib.contextmanager
    def trouble(self) -> Iterator[None]:
        """Note that a fault happens inside the block."""
        begun = time.monotonic()
        before = {name: member.pid for name, member in self._world.members.items()}
        self.book.calm = []
        try:
            yield
        finally:
            now = time.monotonic()
            self.book.troubles.append((begun, now))
            for name, member in self._world.members.items():
                if member.gone or member.pid != before.get(name, member.pid):
                    self.book.ended.setdefault(name, []).append(now)

    # -- acts

    def event(self, step: Step) -> bool:
        """A minion that is connected to the masters ``on`` sends one event to those that listen."""
        self._numbers += 1
        known = {"tag": "salt/auth", "data": {"act": "accept", "id": MINION, "result": True}}
        data = {"cmd": "_minion_event", "id": MINION, "data": {"number": self._numbers}}
        event = {"tag": f"{TAG}{self._numbers}", "data": data}
        now = time.monotonic()
        there = [member for member in self._there(step["on"]) if member.tell([known])]
        heard = frozenset(m.name for m in there if m.tell([event], patient=True))
        halves = self.book.halves_of(heard)
        event_of = once_book.Event(self._numbers, heard, now, halves, self.book.since)
        self.book.events.append(event_of)
        return bool(heard)

    def once(self, step: Step) -> bool:
        """
        Every master calls ``ha.once``, as if by cron; ``kill`` names one to kill meanwhile.

        :raises Violation: L2.
        """
        name, halves, since = step["name"], list(self.book.calm), self.book.since
        members = self._there(list(self._world.members))
        ran: list[str] = []

        def call(member: Member) -> None:
            functions = once_runner.Functions({}, {FUNCTION: lambda: ran.append(member.name)}, {})

            def ask(command: str, payload: Mapping[str, Any]) -> dict[str, Any]:
                return member.control(command, **payload)

            with contextlib.suppress(HaError):
                once_runner.run(ask, functions, FUNCTION, (), {}, name=name, within="1d", wait=WAIT)

        threads = [threading.Thread(target=call, args=(member,)) for member in members]
        for thread in threads:
            thread.start()
        if victim := step.get("kill"):
            time.sleep(step["after"])
            with self.trouble():
                self._world.members[victim].kill()
        for thread in threads:
            thread.join()
        earlier = self.book.ran.setdefault(name, [])
        self._hear_of_changes()
        as_promised = not victim and not self.book.changed(since, time.monotonic())
        for half in halves if as_promised else ():
            here = [m for m in ran if m in half]
            begun = name in self.book.cut_off
            flaw = once_book.wrong_runs(name, half, here, earlier, begun)
            if flaw:
                raise Violation(flaw)
        earlier += ran
        if victim:
            self.book.cut_off.add(name)
        return bool(ran)

    def _hear_of_changes(self) -> None:
        told = (event for member in self._world.members.values() for event in member.announced())
        self.book.changes = [event["at"] for event in told if event["tag"] == "leader"]

    def _there(self, names: Sequence[str]) -> list[Member]:
        members = [self._world.members[name] for name in names if name in self._world.members]
        return [member for member in members if _runs(member)]

    # -- who leads

    def look(self) -> None:
        """
        Wait until each half agrees on who leads; from then on it is calm.

        :raises Violation: L1.
        """
        end = time.monotonic() + LEVEL
        while True:
            calm, flaw = self._halves()
            if not flaw:
                self.book.agreed(calm, time.monotonic())
                return
            if time.monotonic() > end:
                raise Violation(f"L1 not agreed within {LEVEL:g} s: {flaw}")
            time.sleep(POLL)

    def _halves(self) -> tuple[list[Half], str]:
        """The halves of healthy masters, and what is wrong with any."""
        told = {}
        for name in self._world.group():
            if _runs(member := self._world.members[name]):
                with contextlib.suppress(PeerError):
                    told[name] = self._world.auditor.ask(member, "leading", {})
        calm: list[Half] = []
        if any(self._sees(a, b) is not self._sees(b, a) for a in told for b in told if a != b):
            return calm, ""  # without clear halves nothing is promised
        for names in components(told, self._sees):
            half = {name: told[name] for name in names}
            if flaw := once_book.leading(half):
                return [], flaw
            (leader,) = (name for name in names if half[name]["leads"])
            cut_off = {n for n in names if n != leader and not self._sees(n, leader)}
            if flaw := once_book.reacting(half, cut_off):
                return [], flaw
            if all(self._world.members[name].healthy for name in names):
                calm.append(frozenset(names))
        return calm, ""

    def _sees(self, a: str, b: str) -> bool:
        return self._world.relays[a, b].mode in (OPEN, SLOW)

    # -- in the end

    def check(self) -> list[str]:
        """What is wrong, once :meth:`look` has returned: nothing waits any more."""
        self._hear_of_changes()
        reactions = self._world.reactions.all()
        counts = self._world.counts
        counts["reactions to events"] += len(reactions)
        counts["runs by ha.once"] += sum(len(ran) for ran in self.book.ran.values())
        counts["events told in calm halves"] += sum(bool(e.halves) for e in self.book.events)
        return once_book.verdict(self.book, reactions)


def _runs(member: Member) -> bool:
    return member.pid is not None and not member.stopped and not member.gone
