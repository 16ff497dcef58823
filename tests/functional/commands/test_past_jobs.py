"""``ha.jobs`` and ``ha.lookup_jid``: whichever master published it, wherever it is returned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab.engines import Engine, befriend
from saltext_ha.commands.minions.past_jobs import LARGE, MAX_LISTED
from tests.engines import met, places, run, running
from tests.forked import ForkedEngine
from tests.functional.minions.test_job_cache import JIDS, arrived, cached
from tests.functional.minions.world import Minion, World
from tests.loop import in_a_loop


class Working(World):
    """Minions that say what they are at work on."""

    def __init__(self, *engines: Engine, runs: dict[str, str]) -> None:
        super().__init__({engine.place.name: engine for engine in engines})
        self._runs = runs

    def _does(
        self, minion_id: str, minion: Minion, master: str, function: str, arguments: Any
    ) -> Any:
        if function == "saltutil.running":
            jid = self._runs.get(minion_id)
            return [{"jid": jid, "fun": "state.apply"}] if jid else []
        return super()._does(minion_id, minion, master, function, arguments)


@in_a_loop
async def test_jobs_of_all_masters_are_one_list(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2")
    cached(one, JIDS[0], {"w1": True}, minions=["w1"])
    cached(two, JIDS[1], {"w1": True}, minions=["w1", "w3"], fun="state.apply")
    befriend(one, two)
    # In a process of its own: Salt's loaders keep the options of one master in a process.
    with ForkedEngine(two):
        async with running(one) as (m1,):
            await m1.meets(two)
            world = Working(m1, runs={"w3": JIDS[1]})
            # It was published on m2, and is on m1 now, where it goes on with it.
            world.minions = {"w3": Minion("failover", {"m1"})}
            answer = await run(one, "jobs")
            rows = {row["jid"]: row for row in answer["jobs"]}
            assert list(rows) == [JIDS[1], JIDS[0]]
            late = rows[JIDS[1]]
            assert (late["function"], late["masters"]) == ("state.apply", ["m2"])
            assert (late["returned"], late["targeted"]) == (1, 2)
            assert (late["state"], late["running"]) == ("running", ["w3"])
            assert rows[JIDS[0]]["state"] == "done"
            # No salt-master is there that could ask the minions of m2.
            assert "m2 could not publish" in answer["unknown"]["m2"]
            assert answer["retcode"] == 2
            assert "limit=0: takes" in (await run(one, "jobs", limit=0))["error"]


@in_a_loop
async def test_a_job_is_looked_up_everywhere(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2")
    cached(two, JIDS[1], {"w1": {"a": 1}}, minions=["w1", "w2", "w3", "w4"], fun="state.apply")
    arrived(one, JIDS[1], {"w2": 2})
    befriend(one, two)
    with ForkedEngine(two):
        async with running(one) as (m1,):
            await m1.meets(two)
            world = Working(m1, runs={"w3": JIDS[1], "w4": JIDS[2]})
            world.minions = {name: Minion("failover", {"m1"}) for name in ("w3", "w4")}
            found = await run(one, "lookup_jid", JIDS[1])
            assert found["returned"] == {"w1": {"a": 1}, "w2": 2}
            assert found["arrived"] == {"w1": "m2", "w2": "m1"}
            assert (found["published"], found["job"]["function"]) == (["m2"], "state.apply")
            assert (found["running"], found["missing"]) == (["w3"], ["w4"])
            nothing = await run(one, "lookup_jid", JIDS[3])
            assert (nothing["job"], nothing["returned"], nothing["retcode"]) == (None, {}, 1)
            assert "no job id" in (await run(one, "lookup_jid", "12"))["error"]


@in_a_loop
async def test_a_master_that_shows_no_jobs_and_one_that_is_down_are_unknown(tmp_path: Path) -> None:
    one, two = (*places(tmp_path, "m1"), *places(tmp_path, "m2", ha={"commands": False}))
    cached(one, JIDS[0], {"w1": True}, minions=["w1"])
    async with met(one, two) as (_, m2):
        answer = await run(one, "jobs")
        assert "shows its jobs to no other master" in answer["unknown"]["m2"]
        assert ([row["jid"] for row in answer["jobs"]], answer["retcode"]) == ([JIDS[0]], 2)
        await m2.stop()
        answer = await run(one, "lookup_jid", JIDS[0])
        assert "m2" in answer["unknown"]
        assert (answer["returned"], answer["retcode"]) == ({"w1": True}, 2)


@in_a_loop
async def test_what_is_large_in_jobs_of_a_peer_hides_none_of_them(tmp_path: Path) -> None:
    """As after salt-cp: whole files are arguments of its jobs."""
    one, two = places(tmp_path, "m1", "m2")
    for number, jid in enumerate(JIDS):
        file = {"/srv/big": "x" * (MAX_LISTED // 3 if number else 10)}
        cached(two, jid, {"w1": True}, minions=["w1"], fun="cp.recv", arg=[file, "/tmp/big"])
    cached(one, JIDS[0][:-1] + "9", {"w1": True}, minions=["w1"])
    befriend(one, two)
    with ForkedEngine(two):
        async with running(one) as (m1,):
            await m1.meets(two)
            answer = await run(one, "jobs")
            assert (answer["unknown"], answer["retcode"]) == ({}, 0)
            (_, *large, small) = answer["jobs"]
            assert [row["jid"] for row in large] == JIDS[:0:-1]
            assert any(row["arguments"] == LARGE for row in large)
            assert small["arguments"] == [{"/srv/big": "x" * 10}, "/tmp/big"]
            found = await run(one, "lookup_jid", JIDS[1])
            assert (found["unknown"], found["returned"]) == ({}, {"w1": True})
