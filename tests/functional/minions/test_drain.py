"""``ha.drain`` and ``ha.rebalance`` move minions to masters that work."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from saltext_ha.minions import presence
from tests.functional.minions.world import (
    Minion,
    does_not_serve,
    failover,
    hot,
    states,
    world,
)
from tests.loop import becomes, in_a_loop, until

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus", "drains_quickly")]


@in_a_loop
async def test_a_master_is_drained_and_filled_again(tmp_path: Path) -> None:
    minions = {f"web{n}": failover("m1") for n in range(4)}
    others = {
        "hot": hot("m1", "m2"), "stock": Minion("", {"m1"}, installed=False),
        "quiet": failover(), "there": failover("m2"), "deaf": hot("m1"),
        "single": Minion("str", {"m1"}), "both": Minion("", {"m1", "m2"}, installed=False),
    }  # fmt: skip
    async with world(tmp_path, **minions, **others) as there:
        there.start("m1", "quiet")
        plan = await there.run("drain", "m1", test=True)
        assert [(row["id"], row["from"], row["to"]) for row in plan["moves"]] == [
            (f"web{n}", "m1", "m2") for n in range(4)
        ]
        assert all(row["planned"] and not row["moved"] for row in plan["moves"])
        stay = {row["id"]: row["why"] for row in plan["stay"]}
        assert "hot-hot" in stay["hot"]
        assert "no other master" in stay["deaf"]
        assert "not installed" in stay["stock"]
        assert "does not answer" in stay["quiet"]
        fates = {row["id"]: row["goes_on"] for row in plan["stay"]}
        assert fates == {
            "hot": True, "both": True, "deaf": False, "single": False, "stock": None,
            "quiet": None,
        }  # fmt: skip
        assert plan["retcode"] == 1, "some would be lost"
        assert all(minion.hears == {"m1"} for minion in minions.values())
        assert not there.m1.parts.health.draining

        minions["web1"].mute = True  # the others have long arrived when it is given up
        minions["web3"].stuck = True
        # From the other master, in batches; a second drain waits for its turn.
        before = len(minions["web0"].asked)
        busy = asyncio.ensure_future(there.run("drain", "m1", batch=2, timeout=3, on="m2"))
        await until(lambda: len(minions["web0"].asked) > before, "it is under way")
        assert "being moved already" in (await there.run("rebalance", on="m2"))["error"]
        done = await busy
        moved = {row["id"]: row["moved"] for row in done["moves"]}
        assert moved == {"web0": True, "web1": False, "web2": True, "web3": False}
        assert done["moves"][1]["note"] == "did not answer"
        assert "heard nowhere within 3 s" in done["moves"][3]["note"]
        minions["web1"].mute, minions["web1"].hears = False, {"m2"}
        assert done["retcode"] == 1
        draining = {name: engine.parts.health.draining for name, engine in there.engines.items()}
        assert draining == {"m1": True, "m2": False}
        status = {
            row["name"]: row["note"] for row in (await there.run("status", on="m2"))["masters"]
        }
        assert "drained" in status["m1"]
        assert there.jids("m1", function="ha.failover") == there.jids(function="ha.failover")

        minions["web3"].stuck = False
        minions["web3"].hears = {"m1"}
        spread = await there.run("rebalance", timeout=5)
        assert spread["spread"] == {
            "m1": {"before": 1, "after": 2}, "m2": {"before": 4, "after": 3},
        }  # fmt: skip
        assert spread["retcode"] == 0
        assert not any(engine.parts.health.draining for engine in there.engines.values())
        left = {"hot", "stock", "deaf", "single", "both"}
        assert {row["id"] for row in spread["stay"]} == left
        again = await there.run("rebalance", test=True)
        assert again["moves"] == []
        assert minions["web0"].asked.count("ha.failover") >= 2


@in_a_loop
async def test_nothing_is_lost_with_a_drained_master_whose_minions_go_on(tmp_path: Path) -> None:
    """And that is what exit code 0 means, whoever stays."""
    async with world(tmp_path, web1=failover("m1"), hot=hot("m1", "m2")) as there:
        first = await there.run("drain", "m1", timeout=5)
        assert (first["retcode"], [row["moved"] for row in first["moves"]]) == (0, [True])
        assert [(row["id"], row["goes_on"]) for row in first["stay"]] == [("hot", True)]
        # It is with m1 besides, but that is to be stopped, too.
        second = await there.run("drain", "m2", test=True)
        fates = {row["id"]: row["goes_on"] for row in second["stay"]}
        assert (second["retcode"], fates) == (1, {"hot": False, "web1": None})
        await there.run("rebalance", timeout=5)

        there.minions["hot"].hears = {"m1"}
        deaf = await there.run("drain", "m1", test=True)
        assert deaf["retcode"] == 1
        there.broken = {"m2"}
        unsure = await there.run("drain", "m1", test=True)
        assert [row["goes_on"] for row in unsure["stay"] if row["id"] == "hot"] == [None]
        assert unsure["retcode"] == 2


@in_a_loop
async def test_who_was_heard_last_on_a_drained_master_may_be_lost_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "FRESH", 0.2)  # seconds
    async with world(tmp_path, quiet=failover(), there=failover("m2")) as there:
        for name in ("m2", "m1"):
            there.start(name, "quiet")
            ears = there.engines[name].parts.presence
            await until(
                lambda ears=ears: (ears.sights(["quiet"])["quiet"].sure or 0) > 0.3,
                "it is long ago",
            )

        async def seen() -> object:
            known = await there.run("minions", "quiet")
            return states(known), set(known["minions"][0]["on"])

        await becomes(seen, ({"quiet": "silent"}, {"m1", "m2"}))
        first = await there.run("drain", "m1", test=True)
        assert ([(row["id"], row["goes_on"]) for row in first["stay"]], first["retcode"]) == (
            [("quiet", None)], 1,
        )  # fmt: skip
        second = await there.run("drain", "m2", test=True)
        assert ([row["id"] for row in second["moves"]], second["stay"]) == (["there"], [])
        assert second["retcode"] == 0


@in_a_loop
async def test_nobody_is_moved_to_a_master_that_was_drained_before(tmp_path: Path) -> None:
    async with world(tmp_path, web1=failover("m1"), db1=failover("m2")) as there:
        assert [row["id"] for row in (await there.run("drain", "m1"))["moves"]] == ["web1"]
        # Whoever is asked: m1 is empty because it is to be.
        for asked in ("m1", "m2"):
            refused = await there.run("drain", "m2", on=asked)
            assert "no other master than m2 is ready" in refused["error"]
            assert refused["retcode"] == 2
            assert not there.m2.parts.health.draining
            plan = await there.run("drain", "m2", test=True, on=asked)
            assert (plan["retcode"], len(plan["notes"])) == (1, 1)
            assert (await there.run("status", on=asked))["tolerates"] == 0
        for asked in ("m1", "m2"):
            answer = await there.run("drain", "m2", force=True, on=asked)
            assert answer["moves"] == []
            stay = {row["id"]: row["why"] for row in answer["stay"]}
            assert set(stay) == {"db1", "web1"}
            assert all("only go to m1, drained until" in why for why in stay.values())
            assert there.minions["web1"].hears == {"m2"}
        await there.run("rebalance")
        again = await there.run("drain", "m2", timeout=5)
        assert {row["to"] for row in again["moves"]} == {"m1"}


@in_a_loop
async def test_nobody_is_moved_to_a_master_that_does_not_serve(tmp_path: Path) -> None:
    minions = {f"web{n}": failover("m1") for n in range(4)}
    async with world(tmp_path, 3, **minions, hot=hot("m1", "m3"), db=failover("m2")) as there:
        does_not_serve(there.engines["m3"])
        plan = await there.run("rebalance", test=True)
        assert {row["to"] for row in plan["moves"]} == {"m2"}
        assert plan["retcode"] == 1, "nobody is moved to m3"
        spread = await there.run("rebalance", timeout=5)
        assert {row["to"] for row in spread["moves"]} == {"m2"}
        assert spread["notes"] == ["m3 is left out: it is not ready: event bus: timed out"]
        assert spread["spread"]["m3"] == {"before": 0, "after": 0}
        assert spread["retcode"] == 1

        done = await there.run("drain", "m1", timeout=5)
        assert {(row["to"], row["moved"]) for row in done["moves"]} == {("m2", True)}
        assert [(row["id"], row["goes_on"]) for row in done["stay"]] == [("hot", False)]
        assert done["retcode"] == 1
        # Whoever insists is obeyed, but a drained master stays empty.
        forced = await there.run("drain", "m2", force=True, timeout=5)
        assert {(row["to"], row["moved"]) for row in forced["moves"]} == {("m3", True)}
        assert (forced["retcode"], len(forced["notes"])) == (1, 1)
        # m3 still does not serve, and who is there stays there.
        after = await there.run("rebalance", timeout=5)
        assert (after["moves"], after["retcode"]) == ([], 1)


@pytest.mark.parametrize("test", [True, False])
@in_a_loop
async def test_who_is_refused_by_the_emptiest_master_goes_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, test: bool
) -> None:
    """As where its key is not accepted yet."""
    minions = {f"web{n}": failover("m1") for n in range(2)}
    others = {f"db{n}": failover("m2") for n in range(3)}
    async with world(tmp_path, 3, **minions, **others, shut=failover("m1")) as there:
        does, refusing = there._does, {there.address("m3")}

        def refuse(minion_id: str, *rest: Any) -> Any:
            where = rest[3][0]["to"] if rest[2] == "ha.failover" else ""
            if where in refusing or (where and minion_id == "shut"):
                return {"result": False, "comment": f"{where} does not answer"}
            return does(minion_id, *rest)

        monkeypatch.setattr(there, "_does", refuse)
        done = await there.run("drain", "m1", timeout=5, test=test)
        rows = {row["id"]: (row["to"], row["moved"] or row["planned"]) for row in done["moves"]}
        assert rows == {"web0": ("m2", True), "web1": ("m2", True), "shut": ("m2", False)}
        notes = {row["id"]: row["note"] for row in done["moves"]}
        each = [f"{name}: {there.address(name)} does not answer" for name in ("m3", "m2")]
        assert notes["shut"] == "; ".join(each)
        assert done["retcode"] == 1


@in_a_loop
async def test_a_plan_to_rebalance_counts_on_drained_masters(tmp_path: Path) -> None:
    """To rebalance ends that they are drained."""
    async with world(tmp_path, web1=failover("m2"), web2=failover("m2")) as there:
        there.m1.parts.health.draining = True
        plan = await there.run("rebalance", test=True)
        assert [row["to"] for row in plan["moves"]] == ["m1"]
        assert (plan["retcode"], plan["notes"]) == (0, [])
        does_not_serve(there.m1)
        plan = await there.run("rebalance", test=True)
        assert (plan["moves"], plan["retcode"]) == ([], 1)
