"""What is handed over to the leader's reactor, and what it makes of it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from saltext_ha.common.errors import HaError, PeerRefused, UnknownMethod
from saltext_ha.once import reactions
from saltext_ha.once.reactions import Reactions
from saltext_ha.once.same_event import WINDOW
from saltext_ha.salt_bus import reactor as events
from saltext_ha.salt_bus.intake import HEARD
from saltext_ha.salt_bus.proof import Proofs
from saltext_ha.transport import wire
from saltext_ha.transport.peer import Peer
from tests.leader import Leader
from tests.loop import in_a_loop, until


class Switch:
    """A reactor that does as it is told, unless it is broken."""

    configured = True

    def __init__(self) -> None:
        self.wanted = False
        self.broken = False

    @property
    def reacts(self) -> bool | None:
        return None if self.broken else self.wanted

    def matches(self, tag: str) -> bool:
        return tag == "x"

    async def run(self) -> None:
        await asyncio.Event().wait()


class Client:
    """The way from one master to another; what travels is packed as on the wire."""

    def __init__(self, sender: str, to: Master) -> None:
        self._peer = Peer(sender, "https://127.0.0.1:1", "", "")
        self._to = to
        self.loses_answers = self.cut = False
        self.answers = asyncio.Event()
        """Whether answers come now."""
        self.answers.set()
        self.sent: list[int] = []
        """How many events each call had."""

    @property
    def client(self) -> Client:
        return self

    async def call(
        self, method: str, payload: Mapping[str, Any] | None, timeout: float | None
    ) -> dict[str, Any]:
        if self.cut:
            raise PeerRefused("cut")
        try:
            sent = wire.unpack(wire.pack(payload or {}))
            self.sent.append(len(sent["events"]))
            await self.answers.wait()
            handlers = self._to.reactions.for_peers()
            if method not in handlers:
                raise UnknownMethod(f"m1 refused {method}: there is no /v1/{method} here", "")
            answer = await handlers[method](self._peer, sent)
        except UnknownMethod:
            raise
        except HaError as exc:
            raise PeerRefused(str(exc)) from None
        if self.loses_answers:
            self.loses_answers = False
            raise PeerRefused("the answer is lost")
        return answer


class Master:
    """Its reactor reacts to what it hears while it is on, and to what is fired for it."""

    def __init__(self, name: str) -> None:
        self.name, self.leader, self.switch = name, Leader(name), Switch()
        self.contacts: dict[str, Any] = {}
        self.reacted: list[Any] = []
        self.minions: set[str] = set()
        self.proofs = Proofs(name.encode())
        self.reactions = Reactions(
            name,
            self.contacts,
            self.leader,
            self.switch,
            self._fired,
            self.proofs,
            hears=lambda minion_id: minion_id in self.minions,
        )

    def _fired(self, tag: str, data: Mapping[str, Any]) -> None:
        assert data[HEARD]["by"]
        self.reacted.append(data["data"])

    def hears(self, what: Any, tag: str = "x") -> None:
        data = {"id": "web1", "cmd": "_minion_event", "data": what, "_stamp": f"of {self.name}"}
        on = bool(self.switch.reacts)
        if on:
            self.reacted.append(what)
        self.reactions.heard(tag, data, time.monotonic(), on)

    def told(self, name: str) -> Any:
        return self.reactions.told()[name]


@contextlib.asynccontextmanager
async def playing(*names: str) -> AsyncIterator[list[Master]]:
    """Masters of these names that reach each other, and hand events over."""
    masters = [Master(name) for name in names]
    for one in masters:
        for other in masters:
            if one is not other:
                one.contacts[other.name] = Client(one.name, other)
    tasks = [asyncio.ensure_future(each.reactions.run()) for each in masters]
    try:
        yield masters
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def lead(leader: Master, *masters: Master) -> None:
    for each in masters:
        each.leader.follows = leader.name
    await until(lambda: leader.switch.wanted)
    await until(lambda: not any(each.switch.wanted for each in masters if each is not leader))


@in_a_loop
async def test_what_another_master_hears_is_reacted_to_in_order_and_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with playing("m1", "m2") as (m1, m2):
        await lead(m1, m1, m2)
        monkeypatch.setattr(reactions, "TURN", 60.0)
        for number in range(500):
            m2.hears(number)
        await until(lambda: m2.told("handed") == 500)
        assert m1.reacted == list(range(500))
        assert m2.reacted == []
        assert m1.told("taken") == 500
        assert max(m2.contacts["m1"].sent) == reactions.BATCH


@in_a_loop
async def test_a_call_that_is_given_up_and_refused_just_then_is_no_error_in_the_log() -> None:
    called, wrong = asyncio.Event(), list[dict[str, Any]]()

    async def call(*_: Any) -> dict[str, Any]:
        called.set()
        try:
            return await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            raise PeerRefused("the answer had just come") from None

    asyncio.get_running_loop().set_exception_handler(lambda _, what: wrong.append(what))
    async with playing("m1", "m2") as (m1, m2):
        await lead(m1, m1, m2)
        m2.contacts["m1"].call = call
        m2.hears("this")
        await called.wait()
        await lead(m2, m1, m2)
        await until(lambda: m2.reacted == ["this"])
    gc.collect()
    await asyncio.sleep(0)
    assert not wrong


@pytest.mark.parametrize("first", ["m1", "m2"])
@in_a_loop
async def test_what_both_hear_counts_once(first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reactions, "GRACE", 60.0)  # the leader's own copy ends it at once
    async with playing("m1", "m2") as (m1, m2):
        await lead(m1, m1, m2)
        m1.minions.add("web1")
        here, there = (m1, m2) if first == "m1" else (m2, m1)
        for _ in range(3):
            here.hears("same")
            await asyncio.sleep(0.05)
            there.hears("same")
        await until(lambda: m2.told("handed") == 3)
        assert m1.reacted == ["same"] * 3
        assert (m1.told("same"), m1.told("twice")) == (3, 0)


@in_a_loop
async def test_the_leaders_own_copy_that_comes_too_late_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reactions, "GRACE", 0.1)
    async with playing("m1", "m2") as (m1, m2):
        await lead(m1, m1, m2)
        m1.minions.add("web1")
        m2.hears("late")
        await until(lambda: m2.told("handed") == 1)
        m1.hears("late")
        await until(lambda: m1.told("twice") == 1)
        assert m1.reacted == ["late"] * 2


@in_a_loop
async def test_without_a_leader_events_are_kept_until_one_of_three_leads() -> None:
    async with playing("m1", "m2", "m3") as (m1, m2, m3):
        for number in range(20):
            m2.hears(number)
            m3.hears(number)
        m3.hears("only m3")
        await until(lambda: m3.told("waiting") == 21)
        await lead(m2, m1, m2, m3)
        await until(lambda: m3.told("waiting") == m2.told("waiting") == 0)
        assert sorted(m2.reacted, key=str) == sorted([*range(20), "only m3"], key=str)
        assert m1.reacted == m3.reacted == []


@in_a_loop
async def test_what_was_on_its_way_for_long_is_compared_by_when_it_was_heard() -> None:
    async with playing("m1", "m2") as (m1, m2):
        await lead(m1, m1, m2)
        at = time.monotonic() - WINDOW + 10
        m1.reactions.heard("x", {"n": 1}, at, True)
        m2.reactions.heard("x", {"n": 1}, at, False)
        await until(lambda: m2.told("handed") == 1)
        assert (m1.told("same"), m1.reacted) == (1, [])


@in_a_loop
async def test_what_the_last_leader_took_is_not_reacted_to_again() -> None:
    async with playing("m1", "m2", "m3") as (m1, m2, m3):
        await lead(m1, m1, m2, m3)
        m3.contacts["m1"].cut = True
        m1.hears("e")
        m2.hears("e")
        m3.hears("e")  # does not reach the leader any more
        await until(lambda: m2.told("handed") == 1)
        await lead(m2, m2, m3)
        await until(lambda: m3.told("waiting") == 0)
        assert (m1.reacted, m2.reacted) == (["e"], [])


@in_a_loop
async def test_what_one_that_led_took_is_not_handed_over_when_it_hears_it_later() -> None:
    async with playing("m1", "m2", "m3") as (m1, m2, m3):
        await lead(m1, m1, m2, m3)
        m2.hears("e")
        await until(lambda: m2.told("handed") == 1)
        await lead(m3, m1, m2, m3)
        m1.hears("e")
        m1.hears("next")
        await until(lambda: m1.told("handed") == 1)
        assert (m1.reacted, m3.reacted) == (["e"], ["next"])


@in_a_loop
async def test_what_waits_for_the_copy_of_one_that_leads_no_more_goes_to_the_next_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reactions, "GRACE", 1.0)
    async with playing("m1", "m2", "m3") as (m1, m2, m3):
        await lead(m1, m1, m2, m3)
        m1.minions.add("web1")
        m3.hears("e")
        await until(lambda: m3.contacts["m1"].sent)
        await lead(m2, m1, m2, m3)
        await until(lambda: m3.told("handed") == 1)
        assert (m1.reacted, m2.reacted) == ([], ["e"])


@in_a_loop
async def test_nobody_waits_for_the_answer_of_one_that_leads_no_more() -> None:
    async with playing("m1", "m2") as (m1, m2):
        await lead(m1, m1, m2)
        m2.contacts["m1"].answers.clear()
        m2.hears("e")
        await until(lambda: m2.contacts["m1"].sent)
        m1.leader.follows = ""
        await lead(m2, m2)
        await until(lambda: m2.reacted == ["e"])


@in_a_loop
async def test_only_an_event_of_an_engine_is_marked_as_one_by_the_leader() -> None:
    async with playing("m1", "m2") as (m1, m2):
        fired: list[Mapping[str, Any]] = []
        m1.reactions._fire = lambda tag, data: fired.append(data)
        await lead(m1, m1, m2)
        for data in (m2.proofs.mark("x", {"n": 1}), {"n": 2}, m1.proofs.mark("y", {"n": 3})):
            m2.reactions.heard("x", data, time.monotonic(), False)
        await until(lambda: len(fired) == 3)
        assert [m1.proofs.is_ours("x", data) for data in fired] == [True, False, False]


@in_a_loop
async def test_an_answer_that_is_lost_makes_no_second_reaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with playing("m1", "m2") as (m1, m2):
        await lead(m1, m1, m2)
        m2.contacts["m1"].loses_answers = True
        m2.hears("e")
        await until(lambda: m2.told("handed") == 1)
        assert m1.reacted == ["e"]
        # Nothing waits for its turn any more.
        monkeypatch.setattr(reactions, "TURN", 60.0)
        for number, name in enumerate("fg", 2):
            m2.hears(name)
            await until(lambda number=number: m2.told("handed") == number)


@in_a_loop
async def test_large_events_are_handed_over_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reactions, "BATCH_BYTES", 1000)
    async with playing("m1", "m2") as (m1, m2):
        for number in range(10):
            m2.hears(f"{number}" * 600)
        await lead(m1, m1, m2)
        await until(lambda: m2.told("handed") == 10)
        assert m2.contacts["m1"].sent == [2] * 5


@in_a_loop
async def test_what_is_dropped_while_it_is_handed_over_takes_nothing_else_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reactions, "MOST", 3)
    async with playing("m1", "m2") as (m1, m2):
        way = m2.contacts["m1"]
        way.answers.clear()
        for number in range(3):
            m2.hears(number)
            await asyncio.sleep(0)
        await lead(m1, m1, m2)
        await until(lambda: way.sent == [3])
        m2.hears(3)
        await until(lambda: m2.told("dropped") == 1)
        way.answers.set()
        await until(lambda: m1.reacted == [0, 1, 2, 3])


@in_a_loop
async def test_a_reactor_that_does_not_answer_is_given_nothing() -> None:
    async with playing("m1", "m2") as (m1, m2):
        m1.switch.broken = True
        m1.leader.follows = m2.leader.follows = "m1"
        m2.hears("e")
        m1.hears("f")
        await asyncio.sleep(0.5)
        assert (m1.reacted, m2.told("waiting"), m1.told("waiting")) == ([], 1, 1)
        m1.switch.broken = False
        await until(lambda: sorted(m1.reacted) == ["e", "f"])


@in_a_loop
async def test_there_are_never_too_many_and_dropped_ones_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reactions, "MOST", 5)
    monkeypatch.setattr(reactions, "LARGEST", 1000)
    async with playing("m1", "m2") as (m1, m2):
        m2.hears("x" * 1001)
        await until(lambda: m2.told("dropped") == 1)
        for number in range(8):
            m2.hears(number)
            await asyncio.sleep(0)
        await until(lambda: m2.told("dropped") == 4)
        assert any("4 events were dropped" in note for note in m2.reactions.notes())
        await lead(m1, m1, m2)
        await until(lambda: m1.reacted == [3, 4, 5, 6, 7])


@pytest.mark.parametrize(("age", "told"), [(reactions.QUIET - 10, []), (reactions.QUIET, ["x"])])
@in_a_loop
async def test_what_waits_for_a_leader_for_long_is_told(age: float, told: list[str]) -> None:
    async with playing("m1") as (m1,):
        m1.reactions.heard("x", {"n": 1}, time.monotonic() - age, False)
        await until(lambda: m1.reactions._why)
        assert [*m1.reactions.notes()] == [
            "reactor: 1 events wait for a leader: nobody yet" for _ in told
        ]


@in_a_loop
async def test_why_the_leader_takes_nothing_is_told() -> None:
    async with playing("m1", "m2") as (m1, m2):
        await lead(m1, m1, m2)
        m2.contacts["m1"].cut = True
        m2.reactions.heard("x", {"n": 1}, time.monotonic() - reactions.QUIET, False)
        await until(lambda: "".join(m2.reactions.notes()).endswith("wait for a leader: cut"))


@in_a_loop
async def test_a_leader_whose_reactor_is_not_of_the_leader_is_told() -> None:
    async with playing("m1", "m2") as (m1, m2):
        m1.switch.configured = False  # it has no reactor, or no  once:
        m2.leader.follows = "m1"
        m2.reactions.heard("x", {"n": 1}, time.monotonic() - reactions.QUIET, False)
        await until(lambda: m2.reactions._why)
        assert [*m2.reactions.notes()] == [
            "reactor: 1 events wait for a leader: m1 leads, and takes none: write  ha: once: "
            "{reactor: true}  and the same  reactor:  there, and restart it"
        ]


@in_a_loop
async def test_what_has_waited_for_too_long_is_dropped_which_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with playing("m1") as (m1,):
        for number in range(3):
            m1.reactions.heard("x", {"n": number}, time.monotonic() - reactions.KEPT - 1, False)
        m1.hears("young")
        await until(lambda: m1.told("dropped") == 3)
        assert m1.told("waiting") == 1
        await lead(m1, m1)
        await until(lambda: m1.reacted == ["young"])
    assert len([each for each in caplog.messages if "an event is dropped" in each]) == 1


def nested(depth: int) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for _ in range(depth):
        data = {"a": data}
    return data


@in_a_loop
async def test_what_cannot_be_read_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither at the master that hears it, nor at the leader."""

    def pack(data: Mapping[str, Any]) -> bytes:
        return b"\xc1" if data["data"] == "unreadable" else packed(data)

    packed = events.pack
    monkeypatch.setattr(events, "pack", pack)
    async with playing("m1", "m2") as (m1, m2):
        await lead(m1, m1, m2)
        m2.hears(nested(5_000))
        m2.hears("unreadable")
        m2.hears("good")
        await until(lambda: m2.told("handed") == 2)
        assert m1.reacted == ["good"]
        assert (m1.told("dropped"), m2.told("dropped")) == (1, 1)


@in_a_loop
async def test_large_events_wait_for_the_event_loop_within_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reactions, "MOST_BYTES", 10_000)
    async with playing("m1", "m2") as (_, m2):
        for number in range(20):  # the loop does nothing meanwhile
            m2.hears(f"{number}" * 1000)
        assert m2.told("dropped") > 10, "they are not even kept for it"
        await until(lambda: m2.told("waiting"))
        assert 0 < m2.told("waiting") <= 9
        assert m2.told("waiting") + m2.told("dropped") == 20
        m2.hears("next")
        await until(lambda: m2.told("waiting") + m2.told("dropped") == 21)


@in_a_loop
async def test_what_no_reactor_of_the_leader_is_for_is_not_fired_there() -> None:
    """Its reactors are others; or a member that turned would like to speak on its bus."""
    async with playing("m1", "m2") as (m1, m2):
        await lead(m1, m1, m2)
        m2.hears("bad", tag="salt/key")
        m2.hears("good")
        await until(lambda: m2.told("handed") == 2)
        assert m1.reacted == ["good"]
        assert m1.told("dropped") == 1
        assert any("dropped" in note for note in m1.reactions.notes())
