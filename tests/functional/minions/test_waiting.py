"""``ha.cmd`` waits for minions of masters that no longer say what came of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from saltext_ha.commands import cmd_batches
from saltext_ha.minions import own_jobs
from tests.engines import run
from tests.functional.minions.test_minions import SECONDS, World, failover, m1, world
from tests.loop import in_a_loop, until

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus")]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_jobs, "FINDING", SECONDS)
    monkeypatch.setattr(own_jobs, "LATE", 0.1)
    monkeypatch.setattr(cmd_batches, "AGAIN", 0.1)


def looks(there: World, name: str) -> int:
    return there.minions[name].asked.count("saltutil.find_job")


def returns_it(there: World, name: str, master: str) -> None:
    found = [jid for at, fun, jid in there.published if (at, fun) == (master, "test.arg")]
    there.minions[name].busy = False
    data = {"id": name, "fun": "test.arg", "return": "late", "retcode": 0}
    there.fire(master, f"salt/job/{found[-1]}/ret/{name}", data)


async def leaves(there: World) -> str:
    """m2 leaves the group."""
    await run(there.engines["m2"].place, "leave")
    await until(lambda: "m2" not in there.engines["m1"].parts.links, "m2 is gone")
    asking = there.engines["m1"].made.commands["cmd_more"]
    (now,) = [jid for at, fun, jid in there.published if (at, fun) == ("m1", "test.arg")]
    told = await asking({"jids": {"m1": now, "m2": now}, "timeout": 0.1})
    assert ([*told["masters"]], told["unknown"]) == (
        ["m1"], {"m2": "is not in the group any more"},
    )  # fmt: skip
    return ""  # it may have left while it was asked


async def stops(there: World) -> str:
    await there.engines["m2"].stop()
    return "refused the connection"


async def hangs(there: World) -> str:
    """Its engine takes the question and never answers it."""

    async def never(*_: Any) -> dict[str, Any]:
        await asyncio.sleep(3600)
        raise AssertionError

    there.engines["m2"].service.listener._handlers["job_more"] = never
    return "timed out"


@pytest.mark.parametrize("ends", [leaves, stops, hangs])
@in_a_loop
async def test_what_a_master_does_not_say_any_more_is_unknown(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ends: Callable[[World], Awaitable[str]],
) -> None:
    """And the minions of the others are waited for."""
    monkeypatch.setattr("saltext_ha.minions.jobs.LOOKING", 1.0)
    minions = {"busy1": failover("m1", busy=True), "busy2": failover("m2", busy=True)}
    async with world(tmp_path, **minions, fo2=failover("m2"), silent=failover("m2")) as there:
        for name, minion in minions.items():
            there.start(*minion.hears, name)
        there.start("m2", "silent")
        there.minions["silent"].hears = set()
        asked = asyncio.ensure_future(run(m1(there), "cmd", "*", "test.arg", 1, timeout=SECONDS))
        await until(lambda: looks(there, "busy1") >= 2 and looks(there, "busy2") >= 2, "again")
        why = await ends(there)
        before = looks(there, "busy1")
        await until(lambda: looks(there, "busy1") > before + 3 or asked.done(), "waited for")
        assert not asked.done()
        returns_it(there, "busy1", "m1")
        ran = await asked
        assert ran["returned"] == {"busy1": "late", "fo2": [1]}
        assert (ran["missing"], ran["running"]) == ({}, {})
        assert ran["unsure"] == ["busy2", "silent"]
        assert why in ran["unknown"]["m2"]
        assert f"job {ran['jobs'][0]['m2']} there is not known" in ran["unknown"]["m2"]
        assert ran["retcode"] == 2
