"""Locks that a leader gives, by its own steady clock, whatever its time of day does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from saltext_ha.common.errors import HaError, InvalidRecord
from saltext_ha.config.leader import LeaderSettings
from saltext_ha.once import locks as locks_module
from saltext_ha.once.candidate import Candidate
from saltext_ha.once.group_leader import GroupLeader
from saltext_ha.once.locks import GONE, TTL, GroupLocks, Wish
from saltext_ha.transport.peer import Peer
from tests.leader import Leader
from tests.loop import in_a_loop, until

WISH = Wish("backup", "alice")


def locks_since(began: float, clock: Callable[[], float], since: float = 0.0) -> GroupLocks:
    """Of a master that leads since *began*; by its time of day, *since*, which may be wrong."""
    return GroupLocks("m1", {}, Leader("m1", "m1", since=since, began=began), clock=clock)


@pytest.mark.parametrize("shift", [3600, 0, -3600])
@in_a_loop
async def test_a_new_leader_gives_none_for_a_while_whatever_its_time_of_day(shift: float) -> None:
    now = 1000.0
    locks = locks_since(now, lambda: now, time.time() + shift)
    wish = Wish("backup", "alice", "")
    assert not (await locks.hold(wish))["held"]
    now += TTL - 1
    assert "none yet, for 1 s" in (await locks.hold(wish))["why"]
    now += 2
    assert (await locks.hold(wish))["held"]


@in_a_loop
async def test_who_has_led_for_long_gives_the_first_lock_at_once() -> None:
    locks = locks_since(1000.0 - 3600, lambda: 1000.0)
    assert (await locks.hold(Wish("backup", "alice", "")))["held"]


@in_a_loop
async def test_a_clock_that_is_set_forward_makes_no_leader_older(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Locks that the last leader gave may be held still."""
    leader = GroupLeader(Candidate("m1", str, lambda tag, data: None), LeaderSettings(), {})
    locks = GroupLocks("m1", {}, leader)
    task = asyncio.ensure_future(leader.run())
    try:
        await until(lambda: leader.standing.leads, "it leads")
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + 3600)
        answer = await locks.hold(Wish("backup", "alice", ""))
        assert "has just begun to lead" in answer["why"]
    finally:
        task.cancel()


def test_a_lock_of_the_last_leader_is_taken_over_by_its_holder_only_while_the_leader_is_new() -> (
    None
):
    now = 1000.0
    locks = locks_since(now, lambda: now)
    mine = Wish("backup", "alice", "a" * 32)
    assert asyncio.run(locks.hold(mine))["token"] == mine.token
    assert asyncio.run(locks.hold(Wish("backup", "bob", "b" * 32)))["why"] == GONE
    assert "alice has it, for 0 s" in asyncio.run(locks.hold(Wish("backup", "bob")))["why"]
    now += TTL + 1
    assert asyncio.run(locks.hold(mine))["why"] == GONE


@in_a_loop
async def test_a_lock_that_is_prolonged_is_held_since_it_was_given_and_ends_a_while_after() -> None:
    now = 1000.0
    locks = locks_since(0.0, lambda: now)
    mine = Wish("backup", "alice", (await locks.hold(WISH))["token"])
    for _ in range(3):
        now += TTL - 1
        assert (await locks.hold(mine))["token"] == mine.token
    why = (await locks.hold(Wish("backup", "bob")))["why"]
    assert why == f"alice has it, for {3 * (TTL - 1):.0f} s"
    now += TTL
    assert (await locks.hold(Wish("backup", "bob")))["held"]


@in_a_loop
async def test_only_its_holder_gives_a_lock_back() -> None:
    locks = locks_since(0.0, lambda: 1000.0)
    token = (await locks.hold(Wish("backup", "alice")))["token"]
    await locks.release(Wish("backup", "bob", "b" * 32))
    await locks.release(Wish("backup", "bob"))
    assert not (await locks.hold(Wish("backup", "bob")))["held"]
    await locks.release(Wish("backup", "alice", token))
    assert (await locks.hold(Wish("backup", "bob")))["held"]


@in_a_loop
async def test_a_master_that_does_not_lead_gives_none_and_takes_none_back() -> None:
    leader = Leader("m1", "m1", began=0.0)
    locks = GroupLocks("m1", {}, leader, clock=lambda: 1000.0)
    told = {"name": "backup", "by": "alice", "token": (await locks.hold(WISH))["token"]}
    for other, why in (("m2", ""), ("", "nobody yet")):
        leader.follows = other
        for answer in locks.for_peers().values():
            with pytest.raises(HaError, match="this master does not lead"):
                await answer(Peer("m3", "https://x:1", "", ""), told)
        with pytest.raises(HaError, match=f"nobody leads{why and ': '}{why}$"):
            await locks.hold(WISH)


@in_a_loop
async def test_there_are_never_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks_module, "MOST", 2)
    locks = locks_since(0.0, lambda: 1000.0)
    answers = [await locks.hold(Wish(name, "alice")) for name in "abc"]
    assert [answer["held"] for answer in answers] == [True, True, False]
    again = Wish("a", "alice", answers[0]["token"])
    assert (await locks.hold(again))["held"], "one that is held is prolonged"


@pytest.mark.parametrize(
    ("name", "by", "token"),
    [("x" * 65, "a", ""), ("", "a", ""), ("x\n", "a", ""), ("x", "", ""), ("x", "a" * 101, ""),
     ("x", "a\x1b[2J", ""), ("x", "a", "t" * 65)],
)  # fmt: skip
def test_nonsense_is_refused(name: str, by: str, token: str) -> None:
    with pytest.raises(InvalidRecord):
        Wish(name, by, token)
    assert Wish("x" * 64, "a" * 100, "t" * 64)
