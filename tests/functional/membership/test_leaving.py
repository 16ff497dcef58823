"""A master that leaves the group."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.engines import befriend
from tests.engines import (
    accepted,
    join,
    level,
    met,
    places,
    put,
    run,
    running,
)
from tests.loop import in_a_loop, until

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus")]


@in_a_loop
async def test_leave_asks_for_no_restart_and_none_is_needed(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2")
    async with met(one, two) as (m1, m2):
        put(two, "web0")
        await level(m1, m2)
        before, node = m2.parts.identity.fingerprint, m2.parts.core.replica.node
        left = await run(two, "leave")
        assert left["retcode"] == 0, left
        assert not any("restart" in note for note in left["notes"])
        await until(lambda: not m1.parts.links and not m2.parts.links, "both are alone")
        assert m2.parts.identity.fingerprint != before
        assert m2.parts.core.replica.node != node
        put(two, "web1")
        await until(lambda: "web1" in m2.known(lambda of: set(of.ids())), "recorded")

        await join(one, two)
        await until(lambda: accepted(one) == accepted(two) == [{"web0", "web1"}], "joined")
        (two.pki_dir / "minions" / "web0").unlink()
        put(one, "web2")
        await until(lambda: accepted(one) == accepted(two) == [{"web1", "web2"}], "both ways")


@in_a_loop
async def test_who_was_removed_before_is_not_advised_to_remove_it_again(tmp_path: Path) -> None:
    """By then it may have joined anew: that would take it out for good."""
    one, two, three = places(tmp_path, "m1", "m2", "m3", ha={"peer_timeout": 1})
    befriend(one, two, three)  # m2 is down
    async with running(one, three) as (m1, m3):
        await m1.meets(m3)
        assert (await run(one, "remove_peer", "m3"))["retcode"] == 2
        left = await run(three, "leave")
        assert "left; m1 does not trust this master any more" in left["notes"]
        (note,) = [each for each in left["notes"] if each.startswith("m2 was not told")]
        assert "if ha.peers still lists m3 there" in note
        assert note.endswith("before m3 joins again")
