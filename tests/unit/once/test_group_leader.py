"""Masters that ask each other who leads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from saltext_ha.config.leader import LeaderSettings
from saltext_ha.once import election, group_leader, locks
from saltext_ha.transport.client import NO_LISTENER
from saltext_ha.transport.peer import Peer
from tests.loop import becomes, in_a_loop, until
from tests.unit.once.world import World

QUICK = 2.0
"""Seconds for which a view counts here: more than a busy machine holds a test up."""
TURN = 0.125


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (election, group_leader):
        monkeypatch.setattr(module, "FRESH", QUICK)
    monkeypatch.setattr(group_leader, "TURN", TURN)
    monkeypatch.setattr(group_leader, "ANSWER_WITHIN", QUICK / 2)


@asynccontextmanager
async def world(*names: str) -> AsyncIterator[World]:
    made = World(names)
    try:
        yield made
    finally:
        for task in made.tasks.values():
            task.cancel()


@in_a_loop
async def test_one_that_comes_back_takes_nothing_over() -> None:
    async with world("m1", "m2", "m3") as group:
        await group.leads("m1")
        group.stop("m1")
        await group.leads("m2")
        group.start("m1")
        group.events.clear()
        await group.leads("m2")
        assert group.leading() == {"m2"}
        assert group.events == [("m1", "m2")], "m1 learns it, and for the others nothing changed"


@in_a_loop
async def test_one_that_hangs_is_followed_and_leads_no_more_when_it_goes_on() -> None:
    async with world("m1", "m2", "m3") as group:
        await group.leads("m1")
        group.hung.add("m1")
        group.tasks["m1"].cancel()  # as when it is stopped: its time goes by, it does nothing
        await group.leads("m2", "m1")
        # It has looked last when it was last asked, or a moment later.
        await until(lambda: not group.masters["m1"].standing.leads, "it leads no more")
        assert "asking again" in group.masters["m1"].standing.why
        second = group.masters["m2"]
        await until(lambda: "timed out" in second.standing.apart["m1"].why, "it is said why")
        group.hung.clear()
        group.tasks["m1"] = asyncio.ensure_future(group.masters["m1"].run())
        await group.leads("m2")
        assert ("m1", "m1") not in group.events[3:]


@in_a_loop
async def test_a_leader_that_may_not_lead_any_more_ceases_at_once() -> None:
    async with world("m1", "m2") as group:
        await group.leads("m1")
        group.unfit["m1"] = "drained"
        assert group.masters["m1"].standing.why == "drained"
        assert not group.leading()


@in_a_loop
async def test_a_master_is_told_of_those_it_does_not_see_itself_and_of_nothing_old() -> None:
    async with world("m1", "m2", "m3") as group:
        await group.leads("m1")

        async def told(sees: list[str]) -> list[str]:
            peer = Peer("m2", "https://x:1", "", "")
            answer = await group.masters["m1"].for_peers()["leader"](peer, {"sees": sees})
            return [row["name"] for row in answer["others"]]

        assert await told([]) == ["m3"]
        assert await told(["m3"]) == []
        group.hung.add("m3")
        await becomes(partial(told, []), [])


@in_a_loop
async def test_orders_that_differ_and_nobody_who_leads_for_long_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world("m1", "m2") as group:
        await group.leads("m1")
        first = group.masters["m1"]
        assert list(first.notes()) == []
        group.masters["m2"]._settings = LeaderSettings(order=("m2", "m1"))
        await until(lambda: "order: is not the same" in "".join(first.notes()), "it is told")
        group.unfit = {"m1": "drained", "m2": "its door is closed"}
        await group.leads("")
        assert "nobody leads" not in "".join(first.notes()), "one follows the other"
        monkeypatch.setattr(group_leader, "QUIET", 0.0)
        await until(
            lambda: (
                "nobody leads: no master that is reached here may lead: m1: drained; m2: its door"
                in "".join(first.notes())
            ),
            "it is told",
        )


@in_a_loop
async def test_a_name_in_the_order_that_no_master_has_is_told() -> None:
    async with world("m1", "m2") as group:
        first = group.masters["m1"]
        first._settings = LeaderSettings(order=("m2", "m1", "n3"))
        assert "order: this master knows no n3; write the names" in "".join(first.notes())
        first._settings = LeaderSettings(order=("m2",))
        assert "knows no" not in "".join(first.notes())


@in_a_loop
async def test_in_a_partition_each_half_has_one() -> None:
    async with world("m1", "m2", "m3") as group:
        await group.leads("m1")
        group.part(("m1", "m2"), ("m1", "m3"))
        await until(lambda: group.leading() == {"m1", "m2"}, "both halves act")
        group.part()
        await group.leads("m1")
        assert group.leading() == {"m1"}


@in_a_loop
async def test_who_has_a_lock_of_the_other_half_keeps_it_when_they_meet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So it is too where a master joins that has led itself, and is first in order."""
    monkeypatch.setattr(locks, "TTL", QUICK)  # both have led for longer when they meet
    async with world("m1", "m2") as group:
        first, second = (locks.GroupLocks(n, {}, group.masters[n]) for n in ("m1", "m2"))
        await group.leads("m1")
        group.part(("m1", "m2"))
        await until(lambda: group.leading() == {"m1", "m2"}, "both halves act")
        given: dict[str, Any] = {}

        async def held() -> object:
            given.update(await second.hold(locks.Wish("backup", "alice")))
            return given["held"]

        await becomes(held, True)
        group.part()
        await group.leads("m1")
        assert not (await first.hold(locks.Wish("backup", "bob")))["held"], "alice has it still"
        assert (await first.hold(locks.Wish("backup", "alice", given["token"])))["held"]


@in_a_loop
async def test_masters_that_reach_each_other_over_a_third_have_one_leader() -> None:
    async with world("m1", "m2", "m3") as group:
        group.part(("m1", "m3"))
        await group.leads("m1")
        group.unfit["m1"] = "drained"
        await group.leads("m2")
        assert group.masters["m3"].standing.apart == {}


@in_a_loop
async def test_one_whose_engine_does_not_run_is_followed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (election, group_leader):
        monkeypatch.setattr(module, "FRESH", 3600.0)
    async with world("m1", "m2") as group:
        await group.leads("m1")
        group.stop("m1")
        await group.leads("m2")
        assert NO_LISTENER in group.masters["m2"].standing.apart["m1"].why


@in_a_loop
async def test_one_that_refuses_for_another_reason_is_not_said_to_take_no_part() -> None:
    async with world("m1", "m2") as group:
        group.faulty.add("m1")
        group.tasks["m1"].cancel()
        await group.leads("m2", "m1")
        faulty = group.masters["m2"].standing.apart["m1"]
        assert (faulty.why, faulty.out) == ("m1 refused leader: internal error", False)


@in_a_loop
async def test_a_late_refusal_undoes_no_later_answer() -> None:
    async with world("m1", "m2") as group:
        await group.leads("m1")
        first = group.masters["m1"]
        group.tasks["m1"].cancel()
        group.faulty.add("m2")
        first._direct["m2"] = first._clock() + 1  # when it was asked what it has answered since
        await first._ask("m2")
        assert "m2" in first._views
        first._direct["m2"] = first._clock() - 1
        await first._ask("m2")
        assert "m2" not in first._views


@in_a_loop
async def test_nobody_speaks_for_a_master_that_answers_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a member could have two of the others lead, each believing that it is alone."""
    async with world("m1", "m2", "m3") as group:
        honest = group.masters["m3"].for_peers()["leader"]
        told: list[str] = []

        async def lies(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            answer = await honest(peer, payload)
            other = {"m1": "m2", "m2": "m1"}[peer.name]
            told.append(peer.name)
            view = election.MasterView(other, sees=frozenset({"m3"}))
            return {**answer, "others": [group_leader.to_row(view, 0.0)]}

        monkeypatch.setattr(group.masters["m3"], "for_peers", lambda: {"leader": lies})
        await group.leads("m1")
        told.clear()
        twice = False

        def enough() -> bool:
            nonlocal twice
            twice |= {"m1", "m2"} <= group.leading()
            return twice or min(told.count("m1"), told.count("m2")) > 10

        await until(enough, "it has lied to both")
        assert not twice


@pytest.mark.parametrize(
    "nonsense",
    [
        {},
        {"view": None, "others": []},
        {"view": {"name": "m1"}, "others": []},
        {"view": group_leader.to_row(election.MasterView("m9"), 0.0), "others": []},
        {"view": group_leader.to_row(election.MasterView("m1"), 0.0), "others": [7]},
        {
            "view": {**group_leader.to_row(election.MasterView("m1"), 0.0), "age": float("nan")},
            "others": [],
        },
    ],
)
@in_a_loop
async def test_nonsense_of_a_peer_is_told_and_does_not_count(
    nonsense: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lies(*args: object) -> dict[str, Any]:
        return nonsense

    async with world("m1", "m2") as group:
        monkeypatch.setattr(group.masters["m1"], "for_peers", lambda: {"leader": lies})
        group.tasks["m1"].cancel()
        await group.leads("m2", "m1")
        assert "malformed" in group.masters["m2"].standing.apart["m1"].why
