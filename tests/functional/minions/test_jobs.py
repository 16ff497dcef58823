"""Masters publish jobs for each other, and wait for the minions that can return them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from saltext_ha.common.errors import PeerRefused
from saltext_ha.minions import own_jobs, returns
from saltext_ha.minions.job_specs import MOVE, PING, WHERE, CommandSpec, JobSpec
from saltext_ha.minions.publishing import new_jids
from tests.functional.minions.world import LONG, SECONDS, failover, hot, states, world
from tests.loop import in_a_loop, until

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus")]


@in_a_loop
async def test_who_is_connected_nowhere_is_not_waited_for(tmp_path: Path) -> None:
    """Not for the whole timeout: all who can hear the question have answered it."""
    async with world(tmp_path, fo1=failover("m1"), fo2=failover("m2"), off=failover()) as there:
        began = time.monotonic()
        live = await there.run("minions", live=True, timeout=LONG)
        assert states(live) == {"fo1": "bound", "fo2": "bound", "off": "silent"}
        ran = await there.run("cmd", ["fo1", "off"], "test.arg", timeout=LONG)
        assert (set(ran["returned"]), ran["retcode"]) == ({"fo1"}, 1)
        assert time.monotonic() - began < LONG / 2


@in_a_loop
async def test_a_command_is_waited_for_no_longer_because_of_absent_minions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_jobs, "FINDING", SECONDS)
    async with world(tmp_path, fo1=failover("m1"), off=failover()) as there:
        here, (jid,) = there.m1.made.jobs.here, new_jids(1)
        order = CommandSpec(["fo1", "off"], "list", "test.arg").to_wire()
        await here.run({"jid": jid, "order": order, "timeout": SECONDS})
        began = time.monotonic()
        told = await here.more({"jid": jid, "timeout": LONG})
        assert [minion_id for minion_id, *_ in told["returned"]] == ["fo1"]
        assert time.monotonic() - began < LONG / 2


@pytest.mark.parametrize("seen", [0, 1, 2, 3, None], ids="{} connections".format)
@in_a_loop
async def test_who_is_connected_and_slow_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: int | None
) -> None:
    """
    Not by a master that has as many returns as connections, until it has seen that several minions
    share one.
    """
    monkeypatch.setattr(own_jobs, "LAST", 0.2)
    slow = hot("m1", slow=2 * LONG if seen == 2 else 3.0)
    async with world(tmp_path, web1=hot("m1"), web2=hot("m1"), web3=slow) as there:
        here = there.m1.made.jobs.here

        async def ask() -> list[str]:
            (jid,) = new_jids(1)
            order = JobSpec(PING, glob="*").to_wire()
            told = await here.run({"jid": jid, "order": order, "timeout": LONG})
            return [minion_id for minion_id, *_ in told["returned"]]

        here.connections = lambda: seen
        assert await ask() == ["web1", "web2", "web3"][: 2 if seen == 2 else 3]
        if seen in (0, 1):
            here.connections = lambda: 2
            assert await ask() == ["web1", "web2", "web3"]


@pytest.mark.parametrize("says", ["it has returned", "it runs it"])
@in_a_loop
async def test_that_minions_share_a_connection_is_learnt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str
) -> None:
    """Also from what comes when the first job is over."""
    monkeypatch.setattr(own_jobs, "LAST", 0.2)
    monkeypatch.setattr(own_jobs, "FINDING", SECONDS)
    busy = says == "it runs it"
    second = hot("m1", busy=busy, slow=0.0 if busy else 4.0)
    async with world(tmp_path, web1=hot("m1"), web2=second) as there:
        here = there.m1.made.jobs.here

        async def ask(jid: str) -> dict[str, Any]:
            order = CommandSpec("*", "glob", "test.arg") if busy else JobSpec(PING, glob="*")
            return await here.run({"jid": jid, "order": order.to_wire(), "timeout": seconds})

        here.connections = lambda: 1
        first, again = new_jids(2)
        seconds = 5.0 if busy else LONG
        told = await ask(first)
        assert [name for name, *_ in told["returned"]] == ["web1"]
        assert told["running"] == (["web2"] if busy else [])
        await until(lambda: here._shared, "it is learnt")
        if busy:  # or an operator's job would be asked for again and again
            began = time.monotonic()
            await here.more({"jid": first, "timeout": 5.0})
            assert time.monotonic() - began > 4.0
        else:
            assert len((await ask(again))["returned"]) == 2


@pytest.mark.parametrize(
    ("seen", "cluster", "most"),
    [
        ([1, 2], "", 2),  # one came while the job was published
        ([2, 1], "", 2),  # one has heard it and left
        ([None, 2], "", None),
        ([2, None], "", None),
        ([2, 2], "c", None),  # what minions of other members return comes here, too
    ],
)
@in_a_loop
async def test_how_many_can_hear_a_job(
    tmp_path: Path, seen: list[int | None], cluster: str, most: int | None
) -> None:
    async with world(tmp_path, web1=hot("m1")) as there:
        here, spec = there.m1.made.jobs.here, JobSpec(PING, glob="*")
        here._opts, here.connections = {"cluster_id": cluster}, lambda: seen.pop(0)
        job = here._publish(spec, new_jids(1)[0], count=True)
        assert (job.targeted, job.connections) == ({"web1"}, most)


@in_a_loop
async def test_jobs_that_are_over_are_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Returns of a job that takes long are not lost after many short ones."""
    monkeypatch.setattr(own_jobs, "AFTERWARDS", 0.2)
    monkeypatch.setattr(returns, "MAX_JOBS", 6)
    async with world(tmp_path, web1=hot("m1", "m2")) as there:
        ours, theirs = (there.engines[name].parts.returns for name in ("m1", "m2"))
        ours.expect(["20260131031245123456"], 310, str)
        for _ in range(8):
            found = await there.run("cmd", "web1", "test.ping", timeout=100)
            assert (found["returned"], found["unknown"]) == ({"web1": True}, {})
            await until(
                lambda: len(ours._expected) == 1 and not theirs._expected, "all is forgotten"
            )
        for number in range(5):
            ours.expect([f"2026013103124599999{number}"], 310, str)
        refused = await there.run("cmd", "web1", "test.ping", timeout=1)
        assert "6 jobs are waited for already" in refused["unknown"]["m1"]


@in_a_loop
async def test_a_job_is_not_published_when_nobody_waits_for_it_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_jobs, "PUBLISHING", 0.1)
    monkeypatch.setattr(own_jobs, "LOOKING", 0.1)
    async with world(tmp_path, web1=hot("m1")) as there:
        ours = there.m1.made.jobs
        for _ in range(own_jobs.AT_ONCE):
            await ours.here._turns.acquire()
        order = JobSpec(PING, ids=("web1",))
        running = asyncio.ensure_future(ours.run(order, 0.1, ["m1"]))
        await until(lambda: ours.here._turns._waiters, "it waits for its turn")
        await asyncio.sleep(0.3)  # longer than anybody waits for it
        for _ in range(own_jobs.AT_ONCE):
            ours.here._turns.release()
        found, _ = await running
        assert "its turn came too late" in found["m1"].error
        assert (there.published, found["m1"].unsure) == ([], False)


@in_a_loop
async def test_a_job_is_published_as_long_as_somebody_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asked waits for the publishing, too; and of a command for who says that it runs it."""
    async with world(tmp_path, web1=hot("m1")) as there:
        ours = there.m1.made.jobs
        for order, name in (
            (JobSpec(PING, ids=("web1",)), "PUBLISHING"),
            (CommandSpec(["web1"], "list", "test.ping"), "LOOKING"),
        ):
            for each in ("PUBLISHING", "LOOKING"):
                monkeypatch.setattr(own_jobs, each, 30.0 if each == name else 0.0)
            for _ in range(own_jobs.AT_ONCE):
                await ours.here._turns.acquire()
            running = asyncio.ensure_future(ours.run(order, 0.1, ["m1"]))
            await asyncio.sleep(0.5)
            for _ in range(own_jobs.AT_ONCE):
                ours.here._turns.release()
            found, _ = await running
            assert (found["m1"].error, found["m1"].targeted) == ("", {"web1"})


@in_a_loop
async def test_peers_may_have_nothing_else_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, web1=failover("m2")) as there:
        contact = there.m1.link(there.m2).contact
        (jid,) = new_jids(1)
        good = {"jid": jid, "order": JobSpec(PING, glob="*").to_wire(), "timeout": SECONDS}
        bad: list[dict[str, Any]] = [
            {"order": {**JobSpec(PING, glob="*").to_wire(), "what": "cmd.run"}},
            {"order": {**JobSpec(PING, glob="*").to_wire(), "glob": "G@os:*"}},
            {"order": {**JobSpec(PING, glob="*").to_wire(), "what": MOVE}},
            {"order": None}, {"jid": "1"}, {"jid": None}, {"timeout": 1e9}, {"timeout": True},
        ]  # fmt: skip
        for change in bad:
            with pytest.raises(PeerRefused):
                await contact.call("job_run", {**good, **change})
        for payload in ({}, {"jids": []}, {"jids": [jid] * 99}, {"jids": ["x"]}):
            for method in ("job_expect", "job_strays"):
                with pytest.raises(PeerRefused):
                    await contact.call(method, {"timeout": 1, **payload})
        for payload in ({}, {"jid": jid}, {"jid": jid, "timeout": 1e9}, {"jid": [jid]}):
            with pytest.raises(PeerRefused):
                await contact.call("job_more", {"timeout": 1, **payload})
        assert there.published == []
        with monkeypatch.context() as full:
            full.setattr(own_jobs, "MAX_RUNNING", 0)
            with pytest.raises(PeerRefused, match="jobs are under way"):
                await contact.call("job_run", good)
        assert there.published == []
        (over,) = new_jids(1)  # one that is over takes nobody's turn, though it is kept
        order = JobSpec(PING, ids=("web1",)).to_wire()
        await contact.call("job_run", {**good, "jid": over, "order": order})
        with pytest.raises(PeerRefused, match="that job is no longer waited for"):
            await contact.call("job_more", {"jid": over, "timeout": 1})  # of commands only
        monkeypatch.setattr(own_jobs, "MAX_RUNNING", 1)
        there.published.clear()
        # A call that is repeated, because its connection broke, publishes once.
        first, second = await asyncio.gather(
            contact.call("job_run", good), contact.call("job_run", good)
        )
        assert first == second == await contact.call("job_run", good)
        assert first["returned"][0][0] == "web1"
        assert there.published == [("m2", "test.ping", jid)]


@in_a_loop
async def test_what_was_not_asked_does_not_count_as_an_answer(tmp_path: Path) -> None:
    async with world(tmp_path, web1=failover("m1")) as there:
        ours, (jid,) = there.m1.made.jobs.here, new_jids(1)
        # Anybody may fire an event that looks like a return.
        await ours.expect({"jids": [jid], "timeout": 1})
        there.fire("m1", f"salt/job/{jid}/ret/web9", {"id": "web9", "return": True})
        order = JobSpec(WHERE, ids=("web1",)).to_wire()
        told = await ours.run({"jid": jid, "order": order, "timeout": SECONDS})
        assert [each[0] for each in told["returned"]] == ["web1"]
