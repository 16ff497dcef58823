"""Strangers knock by the thousand: others hear of a few, and what people decide goes first."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lab.engines import Engine
from lab.key_folders import ACCEPTED, PENDING, accept, plant
from saltext_ha.reconciler.hints import Hint
from tests.engines import is_level, met, places, there, wrong
from tests.loop import becomes, in_a_loop, until

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus")]

LIMIT = {"pending_limit": 50}


async def note(engine: Engine) -> tuple[str, str]:
    """Whether all is well with the keys, and what is to be known of this master."""
    status: dict[str, Any] = await engine.made.status.status({})
    rows = {row["name"]: row["note"] for row in status["masters"]}
    return "degraded" if wrong(status) else "ok", rows[engine.place.name]


@in_a_loop
async def test_what_is_over_the_limit_waits_and_comes_in_later(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha=LIMIT)
    strangers = [f"stranger{number:03}" for number in range(120)]
    plant(one.pki_dir, ["web1"], PENDING)
    async with met(one, two) as (m1, m2):
        await until(lambda: there(two, PENDING) == {"web1"}, "known")
        plant(one.pki_dir, strangers, PENDING, seed=2)
        await m1.parts.core.scan()
        await until(lambda: len(there(two, PENDING)) == 50, "as many as may be")
        await until(lambda: is_level(m1, m2), "level: what waits is no difference")
        # It is Salt's, and stays as it is.
        assert there(one, PENDING) == {"web1", *strangers}
        state, said = await note(m1)
        assert state == "degraded"
        assert "71 new minions are known here only" in said
        assert "pending_limit" in said
        # Who is known is not hit by it, nor is a decision about somebody who is not.
        waiting = sorted(there(one, PENDING) - there(two, PENDING))
        accept(one.pki_dir, ["web1", waiting[0]])
        await m1.parts.core.scan()
        await until(lambda: there(two) == {"web1", waiting[0]}, "accepted")
        assert waiting[0] not in m1.parts.core.keeper.newcomers.waiting
        # A key is in both folders for a moment.
        await until(lambda: not there(two) & there(two, PENDING), "and nowhere else")
        # One that nobody knows but this master is deleted.
        (one.pki_dir / PENDING / waiting[1]).unlink()
        # Room is made, and the others come.
        known = there(two, PENDING)
        for minion_id in known:
            (one.pki_dir / PENDING / minion_id).unlink()
        for minion_id in sorted(known):
            await m1.hint(minion_id, gone=True)
        await until(
            lambda: len(there(two, PENDING)) > 45 and not known & there(two, PENDING),
            "the next ones came",
        )
        assert len(there(two, PENDING)) <= 50
        accept(one.pki_dir, there(two, PENDING))
        await m1.parts.core.scan()
        left = there(one, PENDING)
        assert 19 <= len(left) < 25
        await until(lambda: there(two, PENDING) == left, "and the rest")
        await until(lambda: is_level(m1, m2), "level")
        await becomes(lambda: note(m1), ("ok", ""))


@in_a_loop
async def test_a_minion_that_another_master_knows_need_not_wait(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha=LIMIT)
    strangers = [f"stranger{number:03}" for number in range(60)]
    async with met(one, two) as (m1, m2):
        plant(one.pki_dir, strangers, PENDING, seed=2)
        await m1.parts.core.scan()
        await until(lambda: len(there(two, PENDING)) == 50, "as many as may be")
        waits = sorted(there(one, PENDING) - there(two, PENDING))[0]
        (two.pki_dir / ACCEPTED).mkdir(exist_ok=True)
        key = (one.pki_dir / PENDING / waits).read_text()
        (two.pki_dir / ACCEPTED / waits).write_text(key)
        await m2.hint(waits)
        await until(lambda: there(one) == {waits}, "it was accepted there")
        await until(lambda: is_level(m1, m2), "level")
        assert "9 new minions" in (await note(m1))[1]


@in_a_loop
async def test_what_lies_in_the_folder_at_the_start_came_over_a_longer_time(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"pending_rate": 60})
    strangers = [f"stranger{number:03}" for number in range(300)]
    plant(one.pki_dir, strangers[:150], PENDING, seed=2)
    async with met(one, two) as (m1, _):
        await until(lambda: there(two, PENDING) == {*strangers[:150]}, "all of them")
        plant(one.pki_dir, strangers[150:], PENDING, seed=3)
        await m1.parts.core.scan()
        await until(lambda: len(there(two, PENDING)) >= 205, "a minute's number")
        assert len(there(two, PENDING)) < 240
        assert "60 came in a minute" in (await note(m1))[1]
        # One more each second.
        before = len(there(two, PENDING))
        await until(lambda: len(there(two, PENDING)) > before, "some more")


@in_a_loop
async def test_a_deletion_does_not_wait_for_a_flood(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"pending_limit": 100_000, "pending_rate": 100_000})
    strangers = [f"stranger{number:05}" for number in range(4_000)]
    web = [f"web{number}" for number in range(5)]
    plant(one.pki_dir, web)
    async with met(one, two) as (m1, m2):
        await until(lambda: there(two) == {*web}, "accepted")
        plant(one.pki_dir, strangers, PENDING, seed=2)
        core = m1.parts.core
        flood = asyncio.ensure_future(core.hinted([Hint(i, "", False) for i in strangers]))
        for minion_id in web:
            (one.pki_dir / ACCEPTED / minion_id).unlink()
        await asyncio.gather(*(m1.hint(minion_id, gone=True) for minion_id in web))
        await until(lambda: there(two) == set(), "deleted")
        assert len(there(two, PENDING)) < len(strangers), "it came after all of them"
        await flood
        await until(lambda: is_level(m1, m2), "level", 120)
