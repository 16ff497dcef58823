"""Masters that ask each other who leads, in one process: the way between them is cut at will."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from saltext_ha.common.boot_clock import boot_clock
from saltext_ha.common.errors import NobodyListens, PeerRefused, PeerUnreachable
from saltext_ha.config.leader import LeaderSettings
from saltext_ha.once.candidate import Candidate
from saltext_ha.once.group_leader import GroupLeader
from saltext_ha.transport import wire
from saltext_ha.transport.client import NO_LISTENER
from saltext_ha.transport.peer import Peer
from tests.loop import until


class Contact:
    """From one master to another; it is its own client."""

    def __init__(self, world: World, me: str, to: str) -> None:
        self._world, self._me, self._to = world, me, to

    @property
    def client(self) -> Contact:
        return self

    async def call(
        self, method: str, payload: Mapping[str, Any] | None, timeout: float | None
    ) -> dict[str, Any]:
        try:
            return await asyncio.wait_for(self._call(method, payload), timeout)
        except asyncio.TimeoutError:
            raise PeerUnreachable(f"{self._to} timed out") from None

    async def _call(self, method: str, payload: Mapping[str, Any] | None) -> dict[str, Any]:
        world = self._world
        await world.way(self._me, self._to)
        if self._to in world.down:
            raise NobodyListens(f"{self._to} {NO_LISTENER}")
        if self._to in world.faulty:
            raise PeerRefused(f"{self._to} refused {method}: internal error")
        handler = world.masters[self._to].for_peers()[method]
        asked = wire.unpack(wire.pack(payload or {}))
        answer = await world.at(self._to, handler(Peer(self._me, "https://x:1", "", ""), asked))
        await world.way(self._me, self._to)
        return wire.unpack(wire.pack(dict(answer)))


class World:
    def __init__(self, names: Iterable[str], order: tuple[str, ...] = ()) -> None:
        self.names = list(names)
        self.settings = LeaderSettings(order=order)
        self.down: set[str] = set()
        self.hung: set[str] = set()
        self.faulty: set[str] = set()
        self.cut: set[tuple[str, str]] = set()
        """One that asks, and one that it does not reach."""
        self.unfit: dict[str, str] = {}
        self.events: list[tuple[str, str | None]] = []
        self.masters: dict[str, GroupLeader] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        for name in self.names:
            self.start(name)

    def start(self, name: str) -> None:
        def unfit() -> str:
            return self.unfit.get(name, "")

        def announce(tag: str, data: Mapping[str, Any]) -> None:
            self.events.append((name, data["leader"]))

        contacts = {other: self.contact(name, other) for other in self.names if other != name}
        me = Candidate(name, unfit, announce)
        self.masters[name] = GroupLeader(me, self.settings, contacts, self.clock(name))
        self.tasks[name] = self.begin(name, self.masters[name].run())
        self.down.discard(name)

    def part(self, *pairs: tuple[str, str]) -> None:
        """None of them reaches the other one."""
        self.cut = {each for one, other in pairs for each in ((one, other), (other, one))}

    def stop(self, name: str) -> None:
        self.tasks[name].cancel()
        self.down.add(name)

    def leading(self) -> set[str]:
        up = set(self.names) - self.down
        return {name for name in up if self.masters[name].standing.leads}

    async def leads(self, name: str, *but: str) -> None:
        def known() -> bool:
            asked = set(self.names) - self.down - set(but)
            return {self.masters[each].standing.leader for each in asked} == {name}

        await until(known, f"{name or 'nobody'} leads")

    # -- what a world with a time of its own has otherwise

    def contact(self, me: str, to: str) -> Contact:
        return Contact(self, me, to)

    def clock(self, name: str) -> Callable[[], float]:
        """That of a master."""
        return boot_clock

    def begin(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A new start of a master does *work*."""
        return asyncio.ensure_future(work)

    async def at(self, name: str, work: Coroutine[Any, Any, Any]) -> Any:
        """What *work* returns that a master does for another one."""
        return await work

    async def way(self, one: str, other: str) -> None:
        """The way of a question from *one* to *other*, or that of its answer; a lost one waits."""
        if {one, other} & self.hung or (one, other) in self.cut:
            await asyncio.Event().wait()
