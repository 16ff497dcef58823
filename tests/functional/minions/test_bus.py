"""What minions may have Salt fire, and what an engine makes of it: memory stays bounded."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab.engines import Engine, Place
from saltext_ha.minions import own_jobs
from saltext_ha.minions.job_specs import WHERE, JobSpec
from tests.engines import run, running
from tests.loop import in_a_loop, until

pytestmark = pytest.mark.usefixtures("no_bus")

MB = 1_000_000
JID = "20260131031245123456"


class Grown:
    """Bytes that are held now and were not before."""

    held = 0


@contextmanager
def grown() -> Iterator[Grown]:
    found = Grown()
    gc.collect()
    tracemalloc.start()
    try:
        yield found
        found.held = kept()
    finally:
        tracemalloc.stop()


def kept() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def idle(engine: Engine) -> None:
    """Until what was heard is followed."""
    await engine.parts.core.run(lambda: None)
    await asyncio.sleep(0.1)
    await engine.made.bound.settle()
    await engine.parts.core.run(lambda: None)


def huge(number: int, size: int = 800_000) -> str:
    return f"{number:06}" + "x" * size


def flood(kind: str, number: int) -> tuple[str, dict[str, Any]]:
    """One event of a flood; 0.8 MB each, as much as Salt lets through."""
    name = huge(number)
    sent = {"id": "web1", "cmd": "_minion_event"}
    events: dict[str, tuple[str, dict[str, Any]]] = {
        "auth": ("salt/auth", {"id": name, "act": "pend", "pub": "x"}),
        "accepted": ("salt/auth", {"id": name, "act": "accept"}),
        "key": ("salt/key", {"id": name, "act": "delete"}),
        "return": (f"salt/job/{JID}/ret/{name}", {"id": name, "return": True}),
        "value": (
            f"salt/job/{JID}/ret/web{number}",
            {"id": f"web{number}", "return": {"masters": [name], "address": name}},
        ),
        "jid": (f"salt/job/{name}/new", {"jid": name}),
        "present": ("salt/presence/present", {"present": [name]}),
        "wheel": (
            f"salt/wheel/{number}/new",
            {"fun": "wheel.key.accept", "user": name, "fun_args": [huge(number, 80) for _ in [1]]},
        ),
        "arguments": (
            f"salt/wheel/{number}/new",
            {"fun": "wheel.key.accept", "user": "root", "fun_args": [name]},
        ),
        "call": (f"salt/wheel/{name}/new", {"fun": "wheel.key.accept", "user": "root"}),
        "failover": (
            "salt/ha/minion/web1/failover",
            {**sent, "data": {"from": name, "to": name, "why": name}},
        ),
        "report": (
            "salt/ha/minion/web1/bound",
            {**sent, "data": {"type": name, "addresses": [name], "port": 4506, "of": 10**400}},
        ),
        "start": (f"salt/minion/{name}/start", {"id": name, "cmd": "_minion_event"}),
        "run": (f"salt/run/{number}/ret", {"return": name}),
        "long run": (f"salt/run/{name}/ret", {"return": "x"}),
        "health": ("salt/ha/health", {"master": name, "turn": 1}),
    }
    return events[kind]


KINDS = [
    *("auth", "accepted", "key", "return", "value", "jid", "present", "wheel", "arguments"),
    *("call", "failover", "report", "start"),
]


@pytest.mark.parametrize("kind", KINDS)
@in_a_loop
async def test_events_of_any_size_are_not_kept(tmp_path: Path, kind: str) -> None:
    async with running(Place(tmp_path, "m1")) as (engine,):
        engine.parts.returns.expect([JID], 300, lambda value: value)
        await idle(engine)
        with grown() as found:
            for number in range(40):
                engine.parts.bus.tell(*flood(kind, number))
            await until(lambda: kept() < 2 * MB, "nothing of them is kept", 30)
        assert found.held < 2 * MB, f"{found.held / MB:.0f} MB are kept"


@pytest.mark.parametrize("kind", ["run", "long run"])
@in_a_loop
async def test_what_comes_before_it_is_waited_for_is_not_kept(tmp_path: Path, kind: str) -> None:
    async with running(Place(tmp_path, "m1")) as (engine,):
        with engine.parts.bus.subscribe("salt/run/"), grown() as found:
            for number in range(40):
                engine.parts.bus.tell(*flood(kind, number))
            await until(lambda: kept() < 2 * MB, "nothing of them is kept", 30)
        assert found.held < 2 * MB, f"{found.held / MB:.0f} MB are kept"


def where(jid: str, minion_id: str, bent: bool = False) -> tuple[str, dict[str, Any]]:
    """A return of ha.current_master; *bent*: as large as one may be."""
    masters = ["y" * 300] * 100 if bent else ["10.0.0.1", "10.0.0.2"]
    value = {"type": "failover", "masters": masters, "address": "10.0.0.1", "connected": True}
    return f"salt/job/{jid}/ret/{minion_id}", {"id": minion_id, "return": value, "jid": jid}


@in_a_loop
async def test_forged_returns_take_nobodys_place(tmp_path: Path) -> None:
    """Whoever has a part in a job knows its id, and can return it under any name."""
    async with running(Place(tmp_path, "m1")) as (engine,):
        parts, jobs = engine.parts, engine.made.jobs

        def publish(opts: Any, order: JobSpec, jid: str) -> list[str]:
            # Faster than the publisher tells for whom it is.
            for number in range(3_000):
                parts.bus.tell(*where(jid, f"forged{number}", bent=True))
            return ["evil", "web1", "web2"]

        jobs.here.publish = publish
        # Not shorter: beside others, that many returns take half a minute.
        work = asyncio.ensure_future(jobs.run(JobSpec(WHERE, glob="*"), 100))
        await until(lambda: bool(jobs.here._running), "it is begun")
        with grown() as found:
            (jid,) = jobs.here._running
            await until(lambda: parts.returns.targeted(jid) is not None, "it is known for whom")
            for minion_id in ("evil", "web1", "web2"):
                parts.bus.tell(*where(jid, minion_id, bent=minion_id == "evil"))
            answers, strays = await work
        assert found.held < 10 * MB, f"{found.held / MB:.0f} MB are kept"
        told = answers["m1"]
        assert not told.error
        assert told.returned.keys() == told.targeted == {"evil", "web1", "web2"}
        assert told.returned["web1"][1]["type"] == "failover"
        assert strays == []
        assert "answered more" in (await run(engine.place, "status"))["masters"][0]["note"]


@in_a_loop
async def test_what_was_returned_is_forgotten_after_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_jobs, "AFTERWARDS", 0.1)
    async with running(Place(tmp_path, "m1")) as (engine,):
        parts, jobs = engine.parts, engine.made.jobs
        sent: list[str] = []

        def publish(opts: Any, order: JobSpec, jid: str) -> list[str]:
            sent.append(jid)
            parts.bus.tell(*where(jid, "web1"))
            return ["web1"]

        jobs.here.publish = publish
        answers, _ = await jobs.run(JobSpec(WHERE, glob="*"), 0.5)
        assert answers["m1"].returned.keys() == {"web1"}
        await until(lambda: parts.returns.count(sent[0]) == 0, "it is forgotten")
        assert parts.memory.held == 0
