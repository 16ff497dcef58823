"""``ha.cmd`` waits for minions of masters that no longer say what came of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from saltext_ha.commands.minions import cmd_batches
from saltext_ha.engine.service import Service
from saltext_ha.minions import own_jobs
from tests.functional.minions.world import SECONDS, World, failover, world
from tests.loop import in_a_loop, until

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus")]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_jobs, "FINDING", SECONDS)
    monkeypatch.setattr(own_jobs, "LATE", 0.1)
    monkeypatch.setattr(cmd_batches, "AGAIN", 0.1)


async def leaves(there: World) -> str:
    """m2 leaves the group."""
    await there.run("leave", on="m2")
    await until(lambda: "m2" not in there.m1.parts.links, "m2 is gone")
    asking = there.m1.made.commands["cmd_more"]
    (now,) = there.jids("m1")
    told = await asking({"jids": {"m1": now, "m2": now}, "timeout": 0.1})
    assert ([*told["masters"]], told["unknown"]) == (
        ["m1"], {"m2": "is not in the group any more"},
    )  # fmt: skip
    return ""  # it may have left while it was asked


async def stops(there: World) -> str:
    await there.m2.stop()
    return ""  # it refuses the connection, or has said before that it stops


async def restarts(there: World) -> str:
    """m2 is ended and started anew: it knows nothing of the jobs before."""
    m2 = there.m2
    await m2.stop()
    m2.service = Service(m2.place.opts, m2.place.config)
    await m2.start()
    m2.made.jobs.here.publish = there._publisher("m2")
    return ""  # it may have been asked meanwhile, or be asked now


async def hangs(there: World) -> str:
    """Its engine takes the question and never answers it."""

    async def never(*_: Any) -> dict[str, Any]:
        await asyncio.sleep(3600)
        raise AssertionError

    there.m2.service.listener._handlers["job_more"] = never
    return "timed out"


@pytest.mark.parametrize("ends", [leaves, stops, restarts, hangs])
@in_a_loop
async def test_what_a_master_does_not_say_any_more_is_unknown(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ends: Callable[[World], Awaitable[str]],
) -> None:
    """And the minions of the others are waited for."""
    monkeypatch.setattr("saltext_ha.minions.jobs.LOOKING", 0.0)
    minions = {"busy1": failover("m1", busy=True), "busy2": failover("m2", busy=True)}
    async with world(tmp_path, **minions, fo2=failover("m2"), silent=failover("m2")) as there:
        there.all_start()
        there.minions["silent"].hears = set()
        asked = asyncio.ensure_future(there.run("cmd", "*", "test.arg", 1, timeout=SECONDS))
        await until(lambda: there.looks("busy1") >= 2 and there.looks("busy2") >= 2, "again")
        why = await ends(there)
        before = there.looks("busy1")
        await until(lambda: there.looks("busy1") > before + 3 or asked.done(), "waited for")
        assert not asked.done()
        there.late("busy1")
        ran = await asked
        assert ran["returned"] == {"busy1": "late", "fo2": [1]}
        assert (ran["missing"], ran["running"]) == ({}, {})
        assert ran["unsure"] == ["busy2", "silent"]
        assert why in ran["unknown"]["m2"]
        assert f"job {ran['jobs'][0]['m2']} there is not known" in ran["unknown"]["m2"]
        assert ran["retcode"] == 2


@in_a_loop
async def test_a_part_is_waited_for_also_if_another_takes_long_to_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time, as minions have as long as is configured to say whether they run it."""
    monkeypatch.setattr(own_jobs, "AFTERWARDS", 0.2)
    minions = {"busy1": failover("m1", busy=True), "slow2": failover("m2", busy=True, slow=3.0)}
    async with world(tmp_path, options={"gather_job_timeout": 10}, **minions) as there:
        there.all_start()
        asked = asyncio.ensure_future(there.run("cmd", "*", "test.arg", 1, timeout=SECONDS))
        await until(lambda: there.looks("busy1") >= 3 or asked.done(), "asked again")
        assert not asked.done(), asked.result()
        there.late("busy1")
        there.late("slow2")
        ran = await asked
        assert (ran["returned"], ran["retcode"]) == ({"busy1": "late", "slow2": "late"}, 0)


@pytest.mark.parametrize("tgt", ["*", ["fo1", "fo2"]])
@in_a_loop
async def test_what_a_master_published_that_is_restarted_is_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tgt: str | list[str]
) -> None:
    """Already while it waits for the first time; and it is not published again."""
    minions = {"fo1": failover("m1"), "fo2": failover("m2", busy=True)}
    async with world(tmp_path, **minions) as there:
        there.all_start()
        asked = asyncio.ensure_future(
            there.run("cmd", tgt, "test.arg", 1, timeout=60, progress=True)
        )
        await until(lambda: there.jids("m2"), "it is under way")
        await restarts(there)
        ran = await asked
        (jid,) = there.jids("m2")
        assert ran["unknown"].keys() == {"m2"}
        assert f"; may have run: job {jid}" in ran["unknown"]["m2"]
        assert (ran["returned"], ran["missing"], ran["running"]) == ({"fo1": [1]}, {}, {})
        assert (ran["unsure"], ran["unreachable"], ran["retcode"]) == (["fo2"], [], 2)
        last = capsys.readouterr().err.splitlines()[-1]
        assert last == "ended: 1 returned, 0 failed, 0 missing; unknown: m2"


@in_a_loop
async def test_a_master_that_hangs_up_may_have_run_it(tmp_path: Path) -> None:
    """It looks as if one of the two did not know the other's certificate."""
    async with world(tmp_path, fo2=failover("m2")) as there:
        there.all_start()
        listener = there.m2.service.listener

        async def dies(*_: Any) -> dict[str, Any]:
            for connection in [*listener._http.acceptor.authenticated]:
                connection.drop()
            await asyncio.sleep(3600)
            raise AssertionError

        listener._handlers["job_run"] = dies
        ran = await there.run("cmd", "fo2", "test.arg", timeout=SECONDS)
        assert "hung up" in ran["unknown"]["m2"]
        assert "; may have run: job 20" in ran["unknown"]["m2"]
        assert (ran["unsure"], ran["missing"], ran["retcode"]) == (["fo2"], {}, 2)


@pytest.mark.parametrize("first", [True, False])
@in_a_loop
async def test_who_returns_to_an_engine_that_stops_is_not_missing(
    tmp_path: Path, first: bool
) -> None:
    """In its last moments it answers, and hears no minion any more."""
    minions = {"fo1": failover("m1"), "fo2": failover("m2", busy=True)}
    async with world(tmp_path, **minions) as there:
        there.all_start()
        asked = asyncio.ensure_future(there.run("cmd", "*", "test.arg", 1, timeout=SECONDS))
        await until(lambda: there.looks("fo2") >= 2 or (first and there.jids("m2")))
        there.m2.parts.ending.begin()
        there.minions["fo2"].busy = False  # nor does it say that it still runs it
        ran = await asked
        assert "the engine of this master stops" in ran["unknown"]["m2"]
        assert (ran["returned"], ran["missing"]) == ({"fo1": [1]}, {})
        assert (ran["unsure"], ran["retcode"]) == (["fo2"], 2)


@in_a_loop
async def test_a_job_may_have_run_whose_own_master_is_restarted(tmp_path: Path) -> None:
    async with world(tmp_path, fo1=failover("m1", busy=True)) as there:
        there.all_start()
        asked = asyncio.ensure_future(there.run("cmd", "*", "test.arg", 1, timeout=60))
        await until(lambda: there.jids("m1"), "it is under way")
        await there.m1.stop()
        ran = await asked
        assert "does not answer" in ran["error"]
        assert "the job may have run: salt-run ha.jobs shows it" in ran["error"]
        assert ran["retcode"] == 2
        # Whoever cannot even be asked has run nothing.
        ran = await there.run("cmd", "*", "test.arg", 1)
        assert "is not running" in ran["error"]
        assert "may have run" not in ran["error"]
        assert len(there.jids("m1")) == 1


@in_a_loop
async def test_who_says_that_it_still_runs_it_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``salt`` does: the timeout is how long a minion may say nothing."""
    minions = {
        "busy1": failover("m1", busy=True), "busy2": failover("m2", busy=True),
        "busy3": failover("m2", busy=True), "fo2": failover("m2"),
    }  # fmt: skip
    async with world(tmp_path, **minions) as there:
        there.all_start()
        running = asyncio.ensure_future(there.run("cmd", "*", "test.arg", 1, timeout=SECONDS))
        await until(lambda: there.looks("busy1") >= 2 and there.looks("busy2") >= 2, "asked again")
        there.late("busy1")
        await until(lambda: there.looks("busy2") >= 4, "asked on, for those of the other master")
        assert not running.done()
        minions["busy3"].busy = False  # it was killed: it returns nothing, and says so
        there.late("busy2", 3)
        ran = await running
        assert ran["returned"] == {"busy1": "late", "busy2": "late", "fo2": [1]}
        assert (ran["missing"], ran["running"]) == ({"busy3": "m2"}, {})
        assert (ran["failed"], ran["unknown"], ran["retcode"]) == ({"busy2": 3}, {}, 1)
        assert len(there.jids()) == 2, "once each"

        # Bounded: a minion that says so for ever is not waited for as long.
        monkeypatch.setattr(cmd_batches, "LONGEST", 2 * SECONDS)
        minions["busy1"].busy = True
        ran = await there.run("cmd", "busy1", "test.arg", timeout=SECONDS)
        assert (ran["missing"], list(ran["running"])) == ({"busy1": "m1"}, ["busy1"])
        # A master that refuses that question: what it said first stays.
        del there.m2.service.listener._handlers["job_more"]
        minions["busy3"].busy = True
        monkeypatch.setattr(cmd_batches, "LONGEST", 60.0)
        ran = await there.run("cmd", "busy3", "test.arg", timeout=SECONDS)
        assert (ran["missing"], list(ran["running"])) == ({"busy3": "m2"}, ["busy3"])
        assert (ran["unknown"], ran["retcode"]) == ({}, 1)
