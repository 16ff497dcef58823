"""The lease of ``salt-ha lock`` while nobody prolongs it, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from saltext_ha.cli import lock_program
from saltext_ha.cli.lock_program import TURN, Lock, Lost
from saltext_ha.common.errors import HaError
from saltext_ha.once.locks import GROUP, TTL, GroupLocks, Wish, has_it
from tests.leader import Leader

NEW_LEADER = 10.0
"""Seconds within which all masters know the next leader (docs/once.md)."""


class World:
    """One lock, which is given and prolonged except for some seconds."""

    def __init__(self, away: float, seconds: float) -> None:
        self.now, self.away, self.back = 0.0, away, away + seconds

    def ask(self, command: str, payload: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        if self.away <= self.now < self.back:
            self.now += timeout  # as of a leader that hangs
            raise HaError("m1 did not answer")
        return has_it(GROUP, "token", TTL)


def kept(monkeypatch: pytest.MonkeyPatch, away: float, seconds: float) -> bool:
    """Whether the lock is kept, though nobody prolongs it for so long from the time *away* on."""
    world = World(away, seconds)
    monkeypatch.setattr(lock_program, "boot_clock", lambda: world.now)
    lock = Lock(world.ask, "backup", "root", lambda line: None)
    assert lock.take(None)
    try:
        while world.now < away + seconds + TTL:
            lock.keep()
            world.now += TURN
    except Lost:
        return False
    return True


def test_a_change_of_leaders_costs_no_lock_whenever_it_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = [number * TURN for number in range(1, round(2 * TTL / TURN))]
    assert not [each for each in times if not kept(monkeypatch, each, NEW_LEADER)]


def test_a_lease_that_nobody_prolongs_is_lost_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not kept(monkeypatch, 3.0, TTL)


def test_who_waits_for_a_new_leader_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = [1000.0], list[str]()

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(lock_program, "boot_clock", lambda: now[0])
    monkeypatch.setattr(lock_program, "time", SimpleNamespace(sleep=sleep))
    locks = GroupLocks("m1", {}, Leader("m1", "m1", began=now[0]), clock=lambda: now[0])

    def ask(command: str, payload: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        return asyncio.run(locks.hold(Wish(**payload)))

    assert Lock(ask, "backup", "root", said.append).take(None)
    assert now[0] == pytest.approx(1000.0 + TTL)
    assert [line for line in said if "has just begun to lead" in line] == said[:-1]
    assert len(said) == 2, said
