"""Locks that a leader gives, by its own steady clock, whatever its time of day does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

from saltext_ha.once.leadership import Leadership
from saltext_ha.once.locks import TTL, GroupLocks, Wish


class Leader:
    """This master leads, since an hour that its clock may show another time for."""

    def __init__(self, since: float) -> None:
        self.standing = Leadership("group", "m1", True, "", since)

    def notes(self) -> Iterator[str]:
        return iter(())

    def for_peers(self) -> dict[str, Any]:
        return {}

    async def claim(self, name: str, within: float) -> str:
        return ""

    async def run(self) -> None:
        return


def test_a_clock_that_was_set_back_keeps_locks_for_no_longer_than_a_new_leader_does() -> None:
    now = 1000.0
    locks = GroupLocks("m1", {}, Leader(time.time() + 3600), clock=lambda: now)
    wish = Wish("backup", "alice", "")
    assert not asyncio.run(locks.hold(wish))["held"]
    now += TTL - 1
    assert not asyncio.run(locks.hold(wish))["held"]
    now += 2
    assert asyncio.run(locks.hold(wish))["held"]


def test_who_has_led_for_long_gives_the_first_lock_at_once() -> None:
    locks = GroupLocks("m1", {}, Leader(time.time() - 3600), clock=lambda: 1000.0)
    assert asyncio.run(locks.hold(Wish("backup", "alice", "")))["held"]
