"""What runs once, on real engines: counted by what it leaves behind."""

from __future__ import annotations

import asyncio
import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import salt.minion
import salt.runner

from lab import etcd
from lab.engines import Engine, Place, befriend
from saltext_ha.commands.once import once_runner
from saltext_ha.transport import control_client
from saltext_ha.transport.control_server import MAX_COMMANDS
from tests.engines import met, places, run, running
from tests.functional.once.salt_run import begun, once, options
from tests.loop import in_a_loop, until


async def on(place: Place, *args: Any, **kwargs: Any) -> dict[str, Any]:
    return await asyncio.to_thread(once, place, *args, **kwargs)


def lines(file: Path) -> list[str]:
    return file.read_text().split("\n")[:-1] if file.exists() else []


async def leads(leader: Engine, *others: Engine) -> None:
    name = leader.place.name

    def known() -> bool:
        return all(e.parts.leader.standing.leader == name for e in (leader, *others))

    await until(known, f"{name} leads")


@in_a_loop
async def test_it_runs_on_the_leader_only(tmp_path: Path) -> None:
    file = tmp_path / "effect"
    async with met(*places(tmp_path, "m1", "m2", **options(tmp_path))) as (m1, m2):
        await leads(m1, m2)
        # One after the other: Salt's loaders keep the options of one master in a process.
        answers = [await on(e.place, "effect.append", str(file), "x") for e in (m1, m2)]
        assert [each["skipped"] for each in answers] == [False, True]
        assert [each["retcode"] for each in answers] == [0, 0]
        assert answers[0]["return"] == "x"
        assert (answers[1]["leader"], answers[1]["why"]) == ("m1", "m1 leads")
        assert lines(file) == ["x -"]


@in_a_loop
async def test_a_failure_and_a_mistake_are_told(tmp_path: Path) -> None:
    async with met(*places(tmp_path, "m1", "m2", **options(tmp_path))) as (m1, m2):
        await leads(m1, m2)
        file = str(tmp_path / "effect")
        failed = await on(m1.place, "effect.append", file, "x", fail=True, name="n", within=60)
        assert (failed["retcode"], failed["error"]) == (1, "as it was told to")
        again = await on(m2.place, "effect.append", file, "x", name="n", within=60)
        assert again["skipped"]
        assert "m1 ran it, and it failed" in again["why"]
        shown = await run(m2.place, "leader")
        assert [(row["name"], row["state"], row["on"]) for row in shown["runs"]] == [
            ("n", "failed", "m1")
        ]
        assert shown["retcode"] == 1
        for wrong, words in (
            (("effect.nothing",), "no runner function"),
            (("wheel.key.nothing",), "no wheel function"),
            (("local.test.ping",), "takes a function and a target"),
            (("ha.once", "x"), "cannot run ha.once"),
        ):
            answer = await on(m2.place, *wrong)
            assert answer["retcode"] == 2
            assert words in answer["error"]
        answer = await on(m1.place, "effect.append", file, "x", within=60)
        assert "within: takes a name" in answer["error"]
        for given in ("x=1", ["x"], {1: "x"}):
            answer = await on(m1.place, "effect.append", file, "x", kwarg=given)
            assert answer["retcode"] == 2
            assert "kwarg: takes a mapping" in answer["error"]
        assert lines(Path(file)) == ["x -"]


@in_a_loop
async def test_an_orchestration_that_fails_has_failed(tmp_path: Path) -> None:
    """Salt's own: it tells its exit code in what it returns, and nowhere else."""
    states = tmp_path / "states"
    states.mkdir()
    (states / "good.sls").write_text("fine: test.succeed_without_changes\n")
    (states / "bad.sls").write_text("boom: test.fail_without_changes\n")
    more = {"file_roots": {"base": [str(states)]}, "cachedir": str(tmp_path / "cache")}

    def orchestrate(place: Place, sls: str) -> dict[str, Any]:
        with salt.runner.RunnerClient(dict(place.opts)) as client:
            answer: dict[str, Any] = client.functions["ha.once"](
                "state.orchestrate", sls, name=sls, within="12h"
            )
        return answer

    async with met(*places(tmp_path, "m1", "m2", **more)) as (m1, m2):
        await leads(m1, m2)
        codes = {}
        for sls in ("good", "bad", "missing"):
            answer = await asyncio.to_thread(orchestrate, m1.place, sls)
            assert answer["retcode"] == answer["return"]["retcode"], sls
            codes[sls] = answer["retcode"]
        assert codes == {"good": 0, "bad": 1, "missing": 1}
        shown = await run(m1.place, "leader")
        assert {row["name"]: row["state"] for row in shown["runs"]} == {
            "good": "done",
            "bad": "failed",
            "missing": "failed",
        }
        assert shown["retcode"] == 1


@in_a_loop
async def test_exit_codes_are_taken_from_where_salt_run_takes_them(tmp_path: Path) -> None:
    async with met(*places(tmp_path, "m1", "m2", **options(tmp_path))) as (m1, m2):
        await leads(m1, m2)
        for returned, code in (
            ({"retcode": 5}, 5),
            ({"data": {"retcode": 4}}, 4),
            ({"data": {"x": {"retcode": 3}}}, 0),
            ({"retcode": None}, 0),
            ({"retcode": True}, 1),
            ({"data": ["retcode"]}, 0),
            (["retcode"], 0),
        ):
            answer = await on(m1.place, "effect.echo", returned)
            assert answer["retcode"] == code, returned
            assert answer["return"] == returned


@in_a_loop
async def test_wheel_functions_run_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with met(*places(tmp_path, "m1", "m2")) as (m1, m2):
        await leads(m1, m2)
        answer = await on(m1.place, "wheel.key.list_all")
        assert "minions_pre" in answer["return"]
        assert (await on(m2.place, "wheel.key.list_all"))["skipped"]
    gc.collect()
    assert "unclosed WheelClient" not in caplog.text, "which cron would send by mail"


@in_a_loop
async def test_a_change_of_leaders_neither_runs_twice_nor_skips(tmp_path: Path) -> None:
    """Every master fires; the leader goes just after, and then just before it would have."""
    file = tmp_path / "effect"
    first, second = places(tmp_path, "m1", "m2", **options(tmp_path))

    async def fire(place: Place, name: str) -> dict[str, Any]:
        return await on(place, "effect.append", str(file), place.name, name=name, within="1h")

    befriend(first, second)
    async with running(second) as (m2,):
        async with running(first) as (m1,):
            await m1.meets(m2)
            await m2.meets(m1)
            await until(lambda: m2.parts.leader.standing.leader != "", "somebody leads")
            m2.parts.health.draining = True
            await leads(m1, m2)
            m2.parts.health.draining = False
            assert not (await fire(first, "nightly"))["skipped"]
        await leads(m2)
        late = await fire(second, "nightly")
        assert late["skipped"]
        assert "m1 ran it" in late["why"]
        # The next period: the leader goes before it has begun what the other waits for.
        async with running(first) as (m1,):
            await m1.meets(m2)
            await leads(m2, m1)
            following = asyncio.ensure_future(fire(first, "hourly"))
            m2.parts.health.draining = True
            answer = await following
            assert not answer["skipped"], answer
    assert lines(file) == ["m1 -", "m1 -"]


@in_a_loop
async def test_it_is_known_after_a_restart_of_all(tmp_path: Path) -> None:
    file = tmp_path / "effect"
    two = places(tmp_path, "m1", "m2", **options(tmp_path))
    async with met(*two) as (m1, m2):
        await leads(m1, m2)
        await on(m1.place, "effect.append", str(file), "x", name="n", within="1h")
    async with running(*two) as (m1, m2):
        await leads(m1, m2)
        for place in two:
            again = await on(place, "effect.append", str(file), "x", name="n", within="1h")
            assert "m1 ran it" in again["why"]
    assert lines(file) == ["x -"]


@in_a_loop
async def test_one_that_was_down_learns_of_it(tmp_path: Path) -> None:
    file = tmp_path / "effect"
    one, two = places(tmp_path, "m1", "m2", **options(tmp_path))
    befriend(one, two)
    async with running(one) as (m1,):
        await leads(m1)
        await on(one, "effect.append", str(file), "x", name="n", within="1h")
        async with running(two) as (m2,):
            await until(lambda: "n" in m2.parts.runs.registers, "m2 knows")
            assert [run.state for run in m2.parts.runs.registers["n"].values] == ["done"]


@in_a_loop
async def test_what_still_runs_is_not_begun_again_and_what_died_is_shown(tmp_path: Path) -> None:
    file, stop = tmp_path / "effect", tmp_path / "stop"
    async with met(*places(tmp_path, "m1", "m2", **options(tmp_path))) as (m1, m2):
        await leads(m1, m2)
        process = begun(
            m1.place, "effect.append", str(file), "x", until=str(stop), name="n", within=1
        )
        try:
            await until(lambda: lines(file) == ["x -"], "it runs")
            for engine in (m1, m2):
                again = await on(
                    engine.place, "effect.append", str(file), "y", name="n", within=3600
                )
                assert (again["skipped"], again["waited"]) == (True, False)
                assert "m1 runs it" in again["why"]
            process.kill()
            process.wait()

            def unfinished() -> bool:
                return [row["state"] for row in m2.parts.runs.table()] == ["unfinished"]

            await until(unfinished, "it shows that it was not finished")
            shown = await run(m2.place, "leader")
            assert shown["retcode"] == 1
        finally:
            process.kill()
            process.communicate()
        after = await on(m1.place, "effect.append", str(file), "z", name="n", within=0)
        assert not after["skipped"]
        await until(lambda: [r["state"] for r in m2.parts.runs.table()] == ["done"], "it is over")


@in_a_loop
async def test_without_anybody_that_leads_nothing_runs(tmp_path: Path) -> None:
    file = tmp_path / "effect"
    async with met(*places(tmp_path, "m1", "m2", **options(tmp_path))) as (m1, m2):
        await leads(m1, m2)
        m1.parts.health.draining = m2.parts.health.draining = True
        # An answer of before may still be on its way, in which m2 led.
        drained = "m1: drained; m2: drained"
        await until(lambda: drained in m1.parts.leader.standing.why, "nobody leads")
        answer = await on(m1.place, "effect.append", str(file), "x", wait=1)
        assert (answer["skipped"], answer["retcode"], answer["leader"]) == (True, 1, None)
        assert "nobody leads" in answer["why"]
        assert not lines(file)


@in_a_loop
async def test_where_no_master_takes_part_nothing_runs_and_that_is_told(tmp_path: Path) -> None:
    file = tmp_path / "effect"
    off = {"leader": False}
    async with met(*places(tmp_path, "m1", "m2", ha=off, **options(tmp_path))) as (m1, m2):
        answer = await on(m1.place, "effect.append", str(file), "x", wait=0)
        assert (answer["skipped"], answer["retcode"], answer["leader"]) == (True, 1, None)
        assert "and no other one leads" in answer["why"]
        shown = await run(m2.place, "leader")
        assert (shown["leader"], shown["retcode"]) == (None, 1)
    assert not lines(file)


@in_a_loop
async def test_an_engine_that_starts_is_waited_for(tmp_path: Path) -> None:
    """As where a schedule with ``run_on_start`` begins together with the engine."""
    file = tmp_path / "effect"
    m1, m2 = places(tmp_path, "m1", "m2", **options(tmp_path))
    refused = await on(m1, "effect.append", str(file), "x", wait=0)
    assert (refused["retcode"], lines(file)) == (2, [])
    assert "not running" in refused["error"]
    with ThreadPoolExecutor(1) as pool:
        early = pool.submit(once, m1, "effect.append", str(file), "x", wait=60)
        await asyncio.sleep(0.5)
        assert not early.done()
        async with met(m1, m2):
            answer = await asyncio.wrap_future(early)
    assert (answer["skipped"], answer["retcode"], lines(file)) == (False, 0, ["x -"])


@in_a_loop
async def test_what_a_schedule_shows_nobody_is_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = str(tmp_path / "effect")
    # With what Salt's schedule adds.
    scheduled = {"wait": 0, "__pub_schedule": "nightly", "__pub_fun": "ha.once"}

    def logged() -> list[tuple[str, str]]:
        found = [
            (record.levelname, record.getMessage().partition("schedule='nightly' ")[2])
            for record in caplog.records
            if record.name.endswith("once_runner")
        ]
        caplog.clear()
        return found

    async with met(*places(tmp_path, "m1", "m2", **options(tmp_path))) as (m1, m2):
        await leads(m1, m2)
        late = await on(m2.place, "effect.append", file, "x", name="n", **scheduled)
        assert (late["skipped"], late["waited"], late["retcode"]) == (True, True, 0)
        why = "was skipped here, and may run nowhere: 'm1 leads, and has not begun it'"
        assert logged() == [("WARNING", why)]
        await on(m1.place, "effect.append", file, "x", name="n", **scheduled)
        in_time = await on(m2.place, "effect.append", file, "x", name="n", **scheduled)
        assert (in_time["skipped"], in_time["waited"]) == (True, False)
        assert logged() == []
        await on(m1.place, "effect.append", file, "x", fail=True, **scheduled)
        assert logged() == [("ERROR", "has failed: 'as it was told to'")]
        await on(m1.place, "effect.echo", {"retcode": 5}, **scheduled)
        assert logged() == [("ERROR", "has failed: 'exit code 5'")]
        await on(m1.place, "effect.nothing")
        assert logged() == [], "whoever called it has seen it"
    await on(m1.place, "effect.append", file, "x", **scheduled)
    ((level, why),) = logged()
    assert level == "ERROR"
    assert "the ha engine of this master is not running" in why


@in_a_loop
async def test_with_etcd_masters_that_do_not_reach_each_other_run_it_once(tmp_path: Path) -> None:
    file = tmp_path / "effect"
    with etcd.cluster(tmp_path / "etcd", 1) as (member,):
        # No lease ends by itself, however much Salt's loaders hold up the engines of this process.
        ha = {"leader": {"store": "etcd", "endpoints": [member.endpoint], "ttl": 60}}
        apart = places(tmp_path, "m1", "m2", ha=ha, **options(tmp_path))
        async with running(*apart) as engines:

            def leading() -> list[Engine]:
                return [e for e in engines if e.parts.leader.standing.leads]

            await until(lambda: len(leading()) == 1, "one leads")
            (first,) = leading()
            (second,) = [e for e in engines if e is not first]

            async def fire(engine: Engine, **more: Any) -> dict[str, Any]:
                name = engine.place.name
                return await on(engine.place, "effect.append", str(file), name, name="n", **more)

            assert not (await fire(first, within="1h"))["skipped"]
            first.parts.health.draining = True
            await until(lambda: leading() == [second], "the other leads")
            late = await fire(second, within="1h")
            assert late["skipped"]
            assert f"{first.place.name} has begun it" in late["why"]
            assert (await run(second.place, "leader"))["runs"] == []
            assert not (await fire(second, within=0))["skipped"]
    ran = [line.split()[0] for line in lines(file)]
    assert ran == [first.place.name, second.place.name]


@in_a_loop
async def test_two_at_once_on_the_leader_run_it_once(tmp_path: Path) -> None:
    file = tmp_path / "effect"
    async with met(*places(tmp_path, "m1", "m2", **options(tmp_path))) as (m1, m2):
        await leads(m1, m2)
        answers = await asyncio.gather(
            *(
                on(m1.place, "effect.append", str(file), "x", name="n", within="1m")
                for _ in range(5)
            )
        )
        assert sum(not each["skipped"] for each in answers) == 1
        assert lines(file) == ["x -"]


@in_a_loop
async def test_many_that_are_due_at_one_instant_all_run(tmp_path: Path) -> None:
    """More than an engine takes at a time: a schedule begins all of a minute together."""
    many = 3 * MAX_COMMANDS
    async with met(*places(tmp_path, "m1", "m2")) as (m1, m2):
        await leads(m1, m2)
        socket = m1.parts.config.control_socket

        def fire(number: int) -> dict[str, Any]:
            functions = once_runner.Functions({}, {"site.job": lambda: number}, {})
            return once_runner.run(
                lambda command, payload: control_client.request(socket, command, payload),
                functions, "site.job", (), {}, name=f"job {number}", wait=120,
            )  # fmt: skip

        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(many) as pool:
            asked = [loop.run_in_executor(pool, fire, number) for number in range(many)]
            answers = await asyncio.gather(*asked)
    assert [each["return"] for each in answers] == [*range(many)]
