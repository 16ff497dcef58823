"""Masters that are drained know it, and so do operators, whatever comes in between."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from lab.engines import Engine
from saltext_ha.commands.minions import drain, drain_runner, moves
from saltext_ha.commands.minions.drained import DrainedMasters
from saltext_ha.common.errors import EngineUnavailable, HaError
from saltext_ha.minion import binding
from saltext_ha.minions.job_specs import WHERE, JobSpec
from saltext_ha.minions.move_planner import RebalanceStep
from tests.functional.minions.world import World, does_not_serve, failover, world
from tests.loop import in_a_loop, until

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus", "drains_quickly")]


def is_drained(there: World) -> set[str]:
    return {name for name, engine in there.engines.items() if engine.parts.health.draining}


@contextlib.asynccontextmanager
async def deaf_to(method: str, engine: Engine) -> AsyncIterator[None]:
    """*engine* takes no such question meanwhile, as if it had got lost."""
    handlers = engine.service.listener._handlers

    async def refuse(peer: Any, payload: dict[str, Any]) -> dict[str, Any]:
        raise HaError("lost on its way")

    before, handlers[method] = handlers[method], refuse
    yield
    handlers[method] = before


@in_a_loop
async def test_nobody_is_moved_off_a_master_that_does_not_know_that_it_is_drained(
    tmp_path: Path,
) -> None:
    """Others would move minions to it, and balancers send callers there."""
    async with world(tmp_path, web1=failover("m2"), db1=failover("m1")) as there:
        async with deaf_to("draining", there.m2):
            refused = await there.run("drain", "m2", timeout=5)
        assert refused["retcode"] == 2
        assert "nothing was moved: m2 could not be told" in refused["error"]
        assert "lost on its way" in refused["error"]
        assert "salt-run ha.rebalance ends that" in refused["error"]
        assert there.minions["web1"].hears == {"m2"}
        # A third one need not be told: whoever moves minions asks the drained one.
        async with deaf_to("draining", there.m2):
            done = await there.run("drain", "m1", timeout=5)
        assert ([row["to"] for row in done["moves"]], done["retcode"]) == (["m2"], 0)


@in_a_loop
async def test_who_was_heard_elsewhere_just_before_has_not_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the other master takes long to say for how long it has not heard it."""
    async with world(tmp_path, web1=failover("m1", stuck=True)) as there:
        m2 = there.m2
        real, ears = m2.made.bound.page, m2.parts.presence

        async def slow(payload: Any) -> dict[str, Any]:
            page = await real(payload)
            if "ids" in payload:  # who is waited for
                await asyncio.sleep(1.5)
            return page

        monkeypatch.setattr(m2.made.bound, "page", slow)
        there.start("m2", "web1")
        # Ages are told in tenths of a second.
        await until(lambda: (ears.sights(["web1"])["web1"].sure or 0) > 0.1, "a while ago")
        done = await there.run("drain", "m1", timeout=3)
        (row,) = done["moves"]
        assert (row["id"], row["moved"]) == ("web1", False)
        assert "heard nowhere within 3 s" in row["note"]


@in_a_loop
async def test_a_master_that_is_not_told_that_it_is_not_drained_any_more_gets_no_minions(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, 3, **{f"web{n}": failover("m1") for n in range(4)}) as there:
        await there.run("drain", "m2")
        async with deaf_to("draining", there.m2):
            spread = await there.run("rebalance", timeout=5)
        assert is_drained(there) == {"m2"}
        assert {row["to"] for row in spread["moves"]} == {"m3"}
        assert spread["spread"]["m2"] == {"before": 0, "after": 0}
        assert (list(spread["untold"]), spread["retcode"]) == (["m2"], 2)
        assert spread["notes"] == [
            "m2 is left out: it is still drained, as it could not be told that this is over "
            f"({spread['untold']['m2']}): run ha.rebalance again"
        ]
        again = await there.run("rebalance", timeout=5)
        assert ({row["to"] for row in again["moves"]}, again["untold"]) == ({"m2"}, {})
        # Who says that it is not drained need not be told.
        async with deaf_to("draining", there.m2):
            spread = await there.run("rebalance")
        assert (spread["untold"], spread["notes"], spread["retcode"]) == ({}, [], 0)
        # Neither told nor asked: it may be drained.
        m2 = there.m2
        async with deaf_to("draining", m2), deaf_to("summary", m2):
            spread = await there.run("rebalance")
        assert (list(spread["untold"]), spread["retcode"]) == (["m2"], 2)
        assert "m2 could not be told that it is not drained any more" in spread["notes"][1]


@in_a_loop
async def test_a_master_that_does_not_say_whom_it_heard_may_have_more_minions(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, web1=failover("m1"), off=failover()) as there:
        there.start("m1", "off")
        async with deaf_to("bound", there.m1):
            done = await there.run("drain", "m1", timeout=5, on="m2")
        assert ([*done["unknown"]], done["retcode"]) == (["m1"], 2)
        done = await there.run("drain", "m1", timeout=5, on="m2")
        assert ([row["id"] for row in done["stay"]], done["retcode"]) == (["off"], 1)


@in_a_loop
async def test_a_master_that_is_not_drained_at_the_end_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was restarted meanwhile, or somebody ran ha.rebalance: minions may come to it again."""
    real = moves.Moves.carry_out

    async def meanwhile(self: moves.Moves, *args: Any) -> list[dict[str, Any]]:
        there.m1.parts.health.draining = False
        return await real(self, *args)

    async with world(tmp_path, web1=failover("m1")) as there:
        monkeypatch.setattr(moves.Moves, "carry_out", meanwhile)
        plan = await there.run("drain", "m1", test=True, on="m2")
        assert (plan["notes"], plan["retcode"]) == ([], 0)
        done = await there.run("drain", "m1", timeout=5, on="m2")
        assert done["notes"] == [
            "m1 is not drained any more: its salt-master was restarted meanwhile, or ha.rebalance "
            "was run. Run it again"
        ]
        assert ([row["moved"] for row in done["moves"]], done["retcode"]) == ([True], 1)


@in_a_loop
async def test_nobody_goes_to_a_master_that_is_drained_meanwhile(tmp_path: Path) -> None:
    """As where two of several masters are drained at a time."""
    minions = {f"web{n}": failover("m1") for n in range(4)}
    minions["db"] = failover("m2")  # so that m3 comes first
    async with world(tmp_path, 3, **minions) as there:
        m3 = there.engines["m3"].parts.health
        there.moving = lambda _: setattr(m3, "draining", True)
        done = await there.run("drain", "m1", batch=1, timeout=5)
        assert [row["to"] for row in done["moves"]] == ["m3", "m2", "m2", "m2"]
        assert done["retcode"] == 0
        # Nor when it is the only one.
        one = there.m1
        masters = DrainedMasters(one.parts.group, one.parts.health)
        moving = moves.Moves(one.made.jobs, one.made.bound, masters)
        step = RebalanceStep("db", "m2", "m3", there.address("m3"))
        (row,) = await moving.carry_out([step], 1, 1.0, test=False)
        assert (row["moved"], row["note"]) == (False, "m3 is drained now")


@in_a_loop
async def test_who_answers_too_late_and_moves_has_moved(tmp_path: Path) -> None:
    async with world(tmp_path, web1=failover("m1"), web2=failover("m1", mute=True)) as there:

        def moving(order: JobSpec) -> None:
            if order.ids == ("web1", "web2"):
                there.minions["web2"].hears = {"m2"}
                there.start("m2", "web2")

        there.moving = moving
        done = await there.run("drain", "m1", timeout=5)
        assert {row["id"]: row["moved"] for row in done["moves"]} == {"web1": True, "web2": True}
        assert done["retcode"] == 0


@in_a_loop
async def test_a_silent_minion_does_not_hold_up_the_next_batch(tmp_path: Path) -> None:
    """With one in each batch, a thousand minions took twenty minutes longer."""
    many = {f"web{n:02}": failover("m1", mute=n == 3) for n in range(20)}
    async with world(tmp_path, **many) as there:
        batches: list[tuple[str, ...]] = []

        def moving(order: JobSpec) -> None:
            batches.append(order.ids)
            if len(batches) == 2:  # it arrives only now
                there.minions["web03"].hears = {"m2"}
                there.start("m2", "web03")

        there.moving = moving
        done = await there.run("drain", "m1", batch=10, timeout=20)
        assert "web03" in batches[0]
        assert all(row["moved"] for row in done["moves"]), done["moves"]


@in_a_loop
async def test_nobody_else_goes_to_a_master_that_heard_none_of_a_batch(tmp_path: Path) -> None:
    """As where a firewall lets its request port through, and not its publish port."""
    many = {f"web{n}": failover("m1", stuck=n < 2) for n in range(6)}
    async with world(tmp_path, **many) as there:
        done = await there.run("drain", "m1", batch=2, timeout=1)
        notes = {row["id"]: row["note"] for row in done["moves"] if not row["moved"]}
        assert "heard nowhere" in notes.pop("web0")
        assert "heard nowhere" in notes.pop("web1")
        why = "not asked: m2 has heard none of a batch that went there"
        assert notes == {f"web{n}": why for n in range(2, 6)}
        assert there.minions["web5"].asked.count("ha.failover") == 0
        assert done["retcode"] == 1
        # A single one may be ill by itself.
        again = await there.run("drain", "m1", batch=1, timeout=1)
        assert [row["moved"] for row in again["moves"]] == [False, False, True, True, True, True]


@in_a_loop
async def test_where_one_master_heard_nobody_the_others_go_to_another(tmp_path: Path) -> None:
    many = {f"web{n}": failover("m1", stuck=n < 2) for n in range(4)}
    many |= {f"db{n}": failover("m2") for n in range(4)}  # so that m3 comes first
    async with world(tmp_path, 3, **many) as there:
        done = await there.run("drain", "m1", batch=2, timeout=1)
        assert [row["to"] for row in done["moves"]] == ["m3", "m3", "m2", "m2"]
        assert [row["moved"] for row in done["moves"]] == [False, False, True, True]


@in_a_loop
async def test_two_drains_at_once_do_not_drain_all_masters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when each master is told to drain itself: minions take seconds to answer."""
    async with world(tmp_path, web1=failover("m1"), db1=failover("m2")) as there:
        here = there.m1.made.jobs
        real, late = here.run, list[dict[str, Any]]()

        async def slow(spec: Any, *args: Any, **more: Any) -> Any:
            if spec.what == WHERE and not late:
                late.append(await there.run("drain", "m2", on="m2", timeout=5))
            return await real(spec, *args, **more)

        monkeypatch.setattr(here, "run", slow)
        first = await there.run("drain", "m1", timeout=5)
        assert (late[0]["retcode"], is_drained(there)) == (0, {"m2"})
        assert "no other master than m1 is ready" in first["error"]
        assert "stays drained" not in first["error"]
        assert there.minions["web1"].hears == {"m1"}
        # Insisting, it may.
        done = await there.run("drain", "m1", force=True, timeout=5)
        assert (is_drained(there), done["moves"]) == ({"m1", "m2"}, [])


@in_a_loop
async def test_a_master_that_nobody_is_with_is_found_by_the_name_that_minions_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Masters know each other by address, minions know them by name: after a drain, too."""
    names = {f"salt{n}.example.org": frozenset({f"127.0.0.{n + 1}"}) for n in (1, 2)}
    real = binding.resolve

    def resolve(host: str) -> frozenset[str]:
        return names.get(host) or real(host)

    monkeypatch.setattr(binding, "resolve", resolve)
    monkeypatch.setattr(World, "address", lambda _, master: f"salt{master[1:]}.example.org")
    async with world(tmp_path, web1=failover("m1"), web2=failover("m1")) as there:
        done = await there.run("drain", "m1", timeout=5)
        assert ([row["to"] for row in done["moves"]], done["retcode"]) == (["m2", "m2"], 0)
        spread = await there.run("rebalance", timeout=5)
        assert [(row["to"], row["moved"]) for row in spread["moves"]] == [("m1", True)]


def test_names_are_looked_up_on_this_master(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = {
        "m1.example.org": "127.0.1.1", "salt1": "10.0.0.1", "salt2": "10.0.0.2",
        # On each master that has a minion of its own.
        "salt": "127.0.0.1", "m2.example.org": "127.0.0.1",
    }  # fmt: skip
    monkeypatch.setattr(binding, "resolved", lambda host: frozenset({hosts.get(host, host)}))
    monkeypatch.setattr("socket.gethostname", lambda: "m1")
    monkeypatch.setattr("socket.getfqdn", lambda: "m1.example.org")
    known = {"m1": {"10.0.0.1"}, "m2": {"10.0.0.2", "m2.example.org"}}
    assert drain._looked_up({"salt", "salt1", "salt2", "gone"}, known, "m1") == {
        "m1": {"10.0.0.1", "salt1", "m1", "m1.example.org"},
        "m2": {"10.0.0.2", "m2.example.org", "salt2"},
    }
    # A minion may name many, and a name service may not answer.
    monkeypatch.setattr(drain, "LOOKING_UP", 0.0)
    assert drain._looked_up({"salt2"}, known, "m1")["m2"] == known["m2"]


@in_a_loop
async def test_a_minion_that_only_a_master_out_of_reach_could_take_is_not_said_to_know_no_other(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, web1=failover("m1")) as there:
        there.broken.add("m2")
        done = await there.run("drain", "m1", test=True)
        (row,) = done["stay"]
        assert row["why"] == "it could only go to m2, which could not be asked"
        assert (row["goes_on"], done["moves"], list(done["unknown"])) == (None, [], ["m2"])


@in_a_loop
async def test_who_insists_moves_nobody_to_a_master_that_may_be_drained(tmp_path: Path) -> None:
    async with world(tmp_path, 3, web1=failover("m1")) as there:
        for name in ("m2", "m3"):
            does_not_serve(there.engines[name])
        async with deaf_to("summary", there.m2):
            there.minions["db1"] = failover("m3")  # m2 is the emptiest
            done = await there.run("drain", "m1", force=True, timeout=5)
        assert [(row["to"], row["moved"]) for row in done["moves"]] == [("m3", True)]


@in_a_loop
async def test_whatever_ends_it_says_that_the_master_stays_drained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(tmp_path, web1=failover("m1")) as there:
        made = there.m2.made

        async def fails(*_: Any, **__: Any) -> Any:
            raise HaError("the replica could not be read")

        works = made.bound.minions
        monkeypatch.setattr(made.bound, "minions", fails)
        refused = await there.run("drain", "m1", on="m2")
        assert is_drained(there) == {"m1"}
        assert refused["error"] == (
            "the replica could not be read. m1 stays drained until salt-run ha.rebalance, or a "
            "restart of salt-master there"
        )

        async def is_wrong(*_: Any, **__: Any) -> Any:
            raise RuntimeError("a fault of ours")

        monkeypatch.setattr(made.bound, "minions", is_wrong)
        refused = await there.run("drain", "m1", force=True, on="m2")
        assert "log has the traceback. m1 stays drained until" in refused["error"]
        assert "a fault of ours" in caplog.text
        monkeypatch.setattr(made.bound, "minions", fails)
        # Nothing was marked: nothing is said of it.
        await there.run("rebalance")
        plan = await there.run("drain", "m1", test=True, on="m2")
        assert plan["error"] == "the replica could not be read"
        assert is_drained(there) == set()
        monkeypatch.setattr(made.bound, "minions", works)

        there.minions["web1"].stuck = True
        moving = asyncio.ensure_future(made.commands["drain"]({"name": "m1", "timeout": 100.0}))
        while "ha.failover" not in there.minions["web1"].asked:
            await asyncio.sleep(0.02)
        moving.cancel()
        with caplog.at_level(logging.WARNING), pytest.raises(asyncio.CancelledError):
            await moving
        assert "m1 stays drained until salt-run ha.rebalance" in caplog.text


@in_a_loop
async def test_the_engine_goes_on_without_its_runner(tmp_path: Path) -> None:
    """As :mod:`.drain_runner` says when it is interrupted."""
    async with world(tmp_path, web1=failover("m1"), web2=failover("m1")) as there:
        _, writer = await asyncio.open_unix_connection(str(there.m1.place.config.control_socket))
        body = json.dumps({"name": "m1", "batch": 1}).encode()
        head = f"POST /drain HTTP/1.1\r\nHost: m1\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        web1, web2 = (there.minions[name] for name in ("web1", "web2"))
        await until(lambda: "ha.failover" in web1.asked, "the first is moved")
        writer.close()
        await until(lambda: web2.hears == {"m2"}, "the second is moved as well")
        assert is_drained(there) == {"m1"}


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_who_interrupts_it_is_told_what_stays(
    end: type[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []

    def ask(name: str, payload: dict[str, Any]) -> dict[str, Any]:
        if name == "may_drain":
            return {}
        said.append(capsys.readouterr().err)
        raise end

    with pytest.raises(end):
        drain_runner.run(ask, {"name": "m1", "test": False})
    assert "m1 is drained, and stays so if this is interrupted" in said[0]
    after = capsys.readouterr().err
    assert "goes on moving" in after
    assert "m1 may be drained" in after
    with pytest.raises(end):
        drain_runner.run(ask, {"name": "m1", "test": True})
    assert (said[1], capsys.readouterr().err) == ("", "")


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_who_interrupts_a_rebalance_is_told_what_goes_on(
    end: type[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(name: str, payload: dict[str, Any]) -> dict[str, Any]:
        raise end

    with pytest.raises(end):
        drain_runner.rebalance(ask, {"test": False})
    assert "goes on moving minions" in capsys.readouterr().err
    with pytest.raises(end):
        drain_runner.rebalance(ask, {"test": True})
    assert not capsys.readouterr().err


def test_an_engine_that_ends_meanwhile_may_have_drained_it() -> None:
    def ask(name: str, payload: dict[str, Any]) -> dict[str, Any]:
        if name == "may_drain":
            return {}
        raise EngineUnavailable("the ha engine of this master does not answer")

    with pytest.raises(EngineUnavailable, match="m1 may be drained: salt-run"):
        drain_runner.run(ask, {"name": "m1", "test": False})


@in_a_loop
async def test_who_is_refused_is_told_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Above all not that a master is drained from now on."""
    async with world(tmp_path, web1=failover("m1")) as there:
        capsys.readouterr()
        for wish, why in (
            ({"master": "m9"}, "there is no master 'm9' in this group; its masters: m1, m2."),
            ({"master": "m1", "batch": 0}, "batch=0: takes a whole number"),
            ({"master": "m1", "timeout": "soon"}, "timeout='soon': takes seconds"),
        ):
            refused = await there.run("drain", **wish)
            assert (why in refused["error"], refused["retcode"]) == (True, 2), refused
            assert capsys.readouterr().err == ""
        does_not_serve(there.m2)
        refused = await there.run("drain", "m1")
        assert "no other master than m1 is ready" in refused["error"]
        assert capsys.readouterr().err == ""
        done = await there.run("drain", "m1", force=True)
        assert "m1 is drained, and stays so" in capsys.readouterr().err
        assert is_drained(there) == {"m1"}, done
        await there.m1.stop()
        gone = await there.run("drain", "m2")
        assert "is not running" in gone["error"]
        assert "may be drained" not in gone["error"]
        assert capsys.readouterr().err == ""
