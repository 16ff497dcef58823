"""
What runs once, on random histories in virtual time: slow disks and networks, masters that stop for
seconds, two that lead at once, and masters that come back without what they knew.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from saltext_ha.commands.once import once_runner
from saltext_ha.commands.once.once import Once
from saltext_ha.common.errors import PeerUnreachable
from saltext_ha.once import runs as once_runs
from saltext_ha.once.runs import Runs
from saltext_ha.replication.record import Dot
from saltext_ha.replication.runs import FRESH
from saltext_ha.sync.vouching import Claiming, Vouching
from saltext_ha.transport import wire
from saltext_ha.transport.peer import Peer
from tests.leader import Leader
from tests.unit.once.virtual_time import Process, VirtualLoop

NAMES = ("m1", "m2", "m3")
WAIT = 40.0
ANY: Any = None


class Replica:
    """Kept in memory: what a master writes down."""

    def __init__(self, node: str) -> None:
        self._node, self._count, self._rows = node, 0, dict[str, Any]()
        self.runs = self

    @contextmanager
    def transaction(self) -> Iterator[None]:
        yield

    def next_dot(self) -> Dot:
        self._count += 1
        return Dot(self._node, self._count)

    def all(self, read: Callable[[Any], Any]) -> dict[str, Any]:
        return {name: read(rows) for name, rows in self._rows.items()}

    def put(self, name: str, rows: Any) -> None:
        self._rows[name] = rows

    def drop(self, name: str) -> None:
        self._rows.pop(name, None)


class Core:
    """The keeper's thread: it takes its time."""

    def __init__(self, world: World, node: str) -> None:
        self.replica, self._world = Replica(node), world

    async def run(self, function: Callable[[], Any]) -> Any:
        await asyncio.sleep(self._world.disk())
        return function()


class Believing(Vouching):
    def __init__(self) -> None:
        self._replica: Any = SimpleNamespace(vouched=SimpleNamespace(highs={}, owners={}))

    def of(self, nodes: Iterable[str]) -> list[Any]:
        return []

    async def meet(
        self, core: Any, sender: str, raw: Any, claiming: Iterable[Claiming] | None = None
    ) -> None:
        pass

    def note(self, peer: str, reasons: Sequence[str]) -> None:
        raise AssertionError(reasons)


class Contact:
    """To another master; its own client."""

    def __init__(self, world: World, me: str, to: str) -> None:
        self._world, self._me, self._to = world, me, to
        self.up = True
        self.client = self

    async def call(self, method: str, payload: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        try:
            return await asyncio.wait_for(self._call(method, payload), timeout)
        except asyncio.TimeoutError:
            self._world.late = True
            raise PeerUnreachable(f"{self._to} timed out") from None

    async def _call(self, method: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        world, asked = self._world, wire.unpack(wire.pack(payload))
        await asyncio.sleep(world.network())
        there = world.masters[self._to]
        work = there.runs.for_peers()[method](Peer(self._me, "https://x:1", "", ""), asked)
        answer = await asyncio.shield(there.process.start(work))
        await asyncio.sleep(world.network())
        return wire.unpack(wire.pack(dict(answer)))


class Master:
    def __init__(self, world: World, name: str, leader: str) -> None:
        self.name, self.world, self.starts = name, world, 0
        self.leader = Leader(name, leader)
        self.start()

    def start(self) -> None:
        """As after the loss of its replica."""
        self.starts += 1
        self.process = Process(self.world.loop)
        self.world.clocks[self.process] = self.world.random.choice((0.0, 0.0, -1e5, 10.0))
        contacts = {to: Contact(self.world, self.name, to) for to in NAMES if to != self.name}
        core: Any = Core(self.world, f"{self.name[1:]}{self.starts}".ljust(16, "0"))
        self.runs = Runs(self.name, core, contacts, self.leader, Believing(), 5.0)  # type: ignore[arg-type]
        self.working = self.process.start(self.runs.run())

    async def once(self, within: str = "1h") -> str:
        """``ha.once`` here; returns what it did at last, and why."""
        once, loop = Once(ANY, self.leader, self.runs), self.world.loop
        asked = {"function": "f.g", "name": "n", "within": within, "pid": os.getpid(), "by": "root"}
        end = loop.time() + WAIT
        while True:
            told = await once.once(asked)
            if told["do"] != "wait" or loop.time() >= end:
                break
            await asyncio.sleep(once_runner.POLL)
        if told["do"] == "run":
            self.world.ran.append(self.name)
            await asyncio.sleep(self.world.random.choice((0.0, 1.0, 20.0)))
            await once.end({"name": "n", "start": told["start"], "state": "done"})
        return f"{told['do']} {told['why']}"


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.loop = VirtualLoop()
        self.ran: list[str] = []
        self.clocks: dict[Process | None, float] = {}
        """Seconds that the clocks of the masters are ahead."""
        self.late = False
        """
        Whether an answer came too late, or a disk was so slow that others took a run for one that
        goes on, before its master looked whether it may.
        """
        self.slow_disk = self.random.choice((0.01, 0.01, 1.0, 9.0))
        self.slow_network = self.random.choice((0.01, 0.3, 1.0))
        leader = self.random.choice(NAMES)
        self.masters = {name: Master(self, name, leader) for name in NAMES}

    def disk(self) -> float:
        if self.random.random() < 0.7:
            return 0.001
        seconds = self.random.uniform(0, self.slow_disk)
        self.late |= seconds + once_runs.TELLING > FRESH
        return seconds

    def network(self) -> float:
        return self.random.uniform(0, self.slow_network)

    async def lead(self, name: str) -> None:
        """Soon all know that *name* leads, each at its own time."""
        for master in self.random.sample(list(self.masters.values()), len(NAMES)):
            master.leader.follows = name
            await asyncio.sleep(self.random.uniform(0, 2))

    async def stop(self, name: str) -> None:
        process = self.masters[name].process
        process.stopped = True
        await asyncio.sleep(self.random.uniform(0, 9))
        process.go_on()

    async def history(self) -> list[str]:
        asked = []

        async def call(master: Master, after: float) -> str:
            await asyncio.sleep(after)
            return await master.once()

        for master in self.masters.values():
            after = self.random.uniform(0, self.random.choice((0.1, 1.0, 8.0)))
            asked.append(master.process.start(call(master, after)))
        for _ in range(self.random.randrange(3)):
            await asyncio.sleep(self.random.uniform(0, self.random.choice((1.0, 5.0))))
            name = self.random.choice(NAMES)
            await (self.stop(name) if self.random.random() < 0.5 else self.lead(name))
        return [await each for each in asked]

    def time(self) -> float:
        """By the clock of the master that asks."""
        return 1e9 + self.loop.time() + self.clocks.get(Process.current(), 0.0)

    async def restored(self, within: str) -> str:
        """A master comes back without its replica, leads at once, and the job is due again."""
        master = self.masters[self.random.choice(NAMES)]
        master.working.cancel()
        master.start()
        for each in self.masters.values():
            each.leader.follows = master.name
        return str(await master.process.start(master.once(within)))


def play(seed: int) -> None:
    world = World(seed)
    clock = SimpleNamespace(time=world.time, monotonic=world.loop.time)
    with mock.patch.object(once_runs, "time", clock):
        try:
            said = world.loop.run_until_complete(world.history())
            world.loop.pass_by(20)
            for master in world.masters.values():
                assert [row["state"] for row in master.runs.table()] == ["done" for _ in world.ran]
            if world.late:
                return
            assert len(world.ran) == 1, (world.ran, said)
            for within, runs in (("1h", 1), ("0", 2)):
                again = world.loop.run_until_complete(world.restored(within))
                assert world.late or len(world.ran) == runs, again
        finally:
            world.loop.end()


@settings(max_examples=200)
@given(st.integers(0, 2**32))
def test_what_is_due_runs_on_one_master_and_is_known_to_all(seed: int) -> None:
    play(seed)
