"""``ha.pause``, ``ha.resume`` and ``mode: observe``."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.engines import Engine
from saltext_ha.common.errors import ReplicaError
from tests.engines import (
    accepted,
    met,
    notes,
    places,
    put,
    run,
)
from tests.loop import in_a_loop, until

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus")]


@in_a_loop
async def test_observing_masters_write_nothing_before_they_are_resumed(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"mode": "observe"})
    put(one, "web1")
    async with met(one, two) as (m1, m2):
        await until(lambda: "web1" in m2.known(lambda of: set(of.ids())), "heard of")
        assert m2.parts.core.mode.name == "observe"
        assert "salt-run ha.resume" in await notes(m1, "m2")
        assert not (two.pki_dir / "minions" / "web1").exists()
        assert list(two.pki_dir.glob("minions*/.ha-*")) == []
        await m2.made.commands["resume"]({"by": "alice"})
        await until(lambda: accepted(two) == [{"web1"}], "written")
        assert m2.parts.core.mode.name == "enforce"
    async with Engine(two) as m2:
        assert m2.parts.core.mode.name == "enforce"  # it stays resumed
    enforcing, observing = *places(tmp_path, "m2", ha={"mode": "enforce"}), two
    for place, mode in ((enforcing, "enforce"), (observing, "observe")):
        async with Engine(place) as m2:
            assert m2.parts.core.mode.name == mode  # the configuration was changed since


@in_a_loop
async def test_a_pause_outlives_a_change_of_the_mode(tmp_path: Path) -> None:
    (one,) = places(tmp_path, "m1")
    async with Engine(one) as m1:
        await m1.made.commands["pause"]({"by": "alice"})
        assert m1.parts.core.mode.name == "paused"
    (observing,) = places(tmp_path, "m1", ha={"mode": "observe"})
    async with Engine(observing) as m1:
        assert m1.parts.core.mode.name == "observe"
    async with Engine(one) as m1:
        assert m1.parts.core.mode.name == "paused"


@in_a_loop
async def test_a_master_that_cannot_pause_keeps_no_other_from_pausing(tmp_path: Path) -> None:
    def pause(since: str) -> None:
        raise ReplicaError("replica.db: cannot be written: disk is full")

    one, two = places(tmp_path, "m1", "m2")
    async with met(one, two) as (m1, m2):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(m1.parts.core.keeper, "pause", pause)
            assert "disk is full" in (await run(one, "pause"))["error"]
            assert not m2.parts.core.mode.paused
            done = await run(one, "pause", all=True)
        assert done["retcode"] == 2
        assert [note[:9] for note in done["notes"]] == ["m2: pause", "m1: not d"]
        assert m2.parts.core.mode.paused
        m1.parts.core.mode.shared = "its key store is shared"
        done = await run(one, "resume", all=True)
        assert (done["retcode"], done["notes"][1]) == (
            2,
            "m1: not done: m1 does not write: its key store is shared",
        )
        assert not m2.parts.core.mode.paused
