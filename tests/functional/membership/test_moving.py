"""Masters that come back under another address, or with another configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.engines import Place, befriend, free_port
from saltext_ha.commands.masters import status as status_command
from tests.engines import join, noted, run, running, wrong
from tests.fixtures import named
from tests.loop import in_a_loop, until

pytestmark = pytest.mark.usefixtures("no_bus")

HA = {"sync_interval": 0.2, "peer_timeout": 20.0}  # those that are down refuse at once


m1, m2 = named(lambda root, name: Place(root, name, HA), "m1", "m2")


def moved(place: Place) -> Place:
    """The same master with another port."""
    return Place(place.root, place.name, HA, port=free_port())


async def group_of(m1: Place, m2: Place) -> None:
    async with running(m1, m2) as (one, two):
        await join(m1, m2)
        await one.meets(two)
        await two.meets(one)


@in_a_loop
async def test_one_that_moves_while_the_other_is_down(m1: Place, m2: Place) -> None:
    await group_of(m1, m2)
    there = moved(m2)
    async with running(there):
        pass
    async with running(there, m1) as (two, one):
        await until(lambda: one.parts.trust.peers()["m2"].url == there.config.url, "m1 was told")
        await one.meets(two)
        await two.meets(one)


@pytest.mark.parametrize("remedy", ["join", "peers"])
@in_a_loop
async def test_when_both_have_moved_the_note_says_what_helps(
    m1: Place, m2: Place, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await group_of(m1, m2)
    here, there = moved(m1), moved(m2)
    async with running(here, there) as (one, two):
        await until(lambda: one.parts.links.contacts["m2"].up is False, "m1 misses m2")
        assert "moved" not in (await run(here, "status"))["masters"][1]["note"]
        monkeypatch.setattr(status_command, "LONG", 0.0)
        status = await run(here, "status")
        note = status["masters"][1]["note"]
        assert status["retcode"] == 2
        assert "refused the connection" in note
        assert "salt-ha invite there and salt-ha join --token-file - here" in note
        assert "ha: peers: [{name: m2, url: https://ADDRESS:PORT}]" in note
        if remedy == "join":
            await join(there, here)
            await one.meets(two)
            await two.meets(one)
            return
    told = Place(
        m1.root, "m1", {**HA, "peers": [{"name": "m2", "url": there.config.url}]}, port=here.port
    )
    async with running(told, there) as (one, two):
        # One direction is enough: the other hears of it.
        await one.meets(two)
        await two.meets(one)


@in_a_loop
async def test_masters_that_do_not_reach_each_other_are_seen_from_a_third(tmp_path: Path) -> None:
    """As where a firewall was opened for some of the masters only."""
    closed = {**HA, "peers": [{"name": "m3", "url": f"https://127.0.0.1:{free_port()}"}]}
    m1, m2, m3 = (Place(tmp_path, n, closed if n == "m2" else HA) for n in ("m1", "m2", "m3"))
    async with running(m1, m2, m3) as (one, two, three):
        befriend(m1, m2, m3)
        await one.meets(two, three)
        await three.meets(one, two)
        await until(lambda: two.parts.group.unreached(), "m2 misses m3")
        for place in (m1, m3):
            status = await noted(place, "m2")
            rows = {row["name"]: row["note"] for row in status["masters"]}
            assert rows["m2"].startswith("does not reach m3: "), place
            assert "refused the connection" in rows["m2"], place
            assert not rows["m3"], place
        await three.stop()
        await until(lambda: one.parts.group.unreached(), "m1 misses it, too")
        rows = {row["name"]: row for row in (await run(m1, "status"))["masters"]}
        assert (rows["m3"]["state"], rows["m2"]["note"]) == ("unknown", "")


@in_a_loop
async def test_another_group_in_the_configuration_is_pointed_out(m1: Place, m2: Place) -> None:
    await group_of(m1, m2)
    other = Place(m2.root, "m2", {**HA, "group": "test"}, port=m2.port)
    async with running(m1, other) as (one, two):
        await one.meets(two)
        await two.meets(one)
        status = await noted(m1, "m2")
        assert "ha: group: test" in status["masters"][1]["note"]
        section = (await run(m1, "check_consistency"))["sections"]["group"]
        assert section["status"] == "differ"
        assert section["differences"][0]["values"] == {"m1": "default", "m2": "test"}
    async with running(m1, m2) as (one, two):
        await one.meets(two)
        assert "group" not in (await run(m1, "check_consistency"))["sections"]


@in_a_loop
async def test_another_name_in_the_configuration_is_pointed_out(m1: Place, m2: Place) -> None:
    """The name is by default the id of the master, and so often that of its host."""
    await group_of(m1, m2)
    renamed = Place(m2.root, "m2", {**HA, "name": "x2"}, port=m2.port)
    async with running(m1, renamed) as (one, two):
        await until(lambda: one.parts.links.contacts["m2"].up is True, "m1 meets it")
        await two.meets(one)
        for place, other, said in (
            (m1, "m2", "it calls itself x2: set  ha: name: m2  there again"),
            (renamed, "m1", "it knows this master as m2: set  ha: name: m2  here again"),
        ):
            status = await noted(place, other)
            assert status["retcode"] > 0
            assert said in status["masters"][1]["note"], place
    async with running(m1, m2) as (one, two):
        await one.meets(two)
        await two.meets(one)
        assert not wrong(await run(m1, "status"))
        assert not wrong(await run(m2, "status"))


@in_a_loop
async def test_under_another_name_it_does_not_lead_beside_the_others(m1: Place, m2: Place) -> None:
    """What is to run once would run twice."""
    await group_of(m1, m2)
    renamed = Place(m2.root, "m2", {**HA, "name": "a2"}, port=m2.port)
    async with running(m1, renamed) as (one, two):
        await until(lambda: one.parts.leader.standing.leads, "m1 leads")
        await until(lambda: "knows it as m2" in two.parts.leader.standing.why, "it says why")
        assert not two.parts.leader.standing.leads
        answer = await run(m1, "leader")
        assert answer["leading"] == ["m1"], answer
