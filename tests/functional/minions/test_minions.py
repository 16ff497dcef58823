"""Engines tell each other of minions, and have them asked; Salt itself is played here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from saltext_ha.commands.minions import minions as bound
from saltext_ha.minions import presence
from saltext_ha.minions.job_specs import MOVE, WHERE
from saltext_ha.minions.presence import Sight
from saltext_ha.runners import ha as runner
from tests.functional.minions.world import SECONDS, Minion, failover, hot, states, world
from tests.loop import in_a_loop, until

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus")]

NO_MASTER = "there is no master {} in this group; its masters: m1, m2. Give one of these names"


@in_a_loop
async def test_what_all_masters_have_heard_is_put_together(tmp_path: Path) -> None:
    minions = {name: failover() for name in ("db1", "web1", "web2")}
    async with world(tmp_path, **minions) as there:
        there.start("m1", "web1")
        there.start("m2", "db1")
        there.start("m2", "stranger")  # no accepted key: nothing to look for
        for name in ("m1", "m2"):
            answer = await there.run("minions", on=name)
            assert states(answer) == {"db1": "bound", "web1": "bound", "web2": "unknown"}
            assert [row["masters"] for row in answer["minions"]] == [["m2"], ["m1"], []]
            assert {row["name"]: row["minions"] for row in answer["masters"]} == {
                "m1": 1, "m2": 1,
            }  # fmt: skip
            assert (answer["retcode"], answer["counts"]) == (2, {"bound": 2, "unknown": 1})
        some = await there.run("minions", "web1")
        assert (states(some), some["retcode"]) == ({"web1": "bound"}, 0)
        nobody = await there.run("minions", "stranger")
        assert (nobody["minions"], nobody["retcode"]) == ([], 1)
        assert there.published == []
        for wrong in ("G@os:Linux", "", "*" * 9):
            refused = await there.run("minions", wrong)
            assert (refused["kind"], refused["retcode"]) == ("error", 2)
        # For the status page and the metrics.
        ours = there.m2.made.bound
        assert set(await ours.known()) == {"db1"}
        assert await ours.count() == 0
        status = await there.run("status")
        assert [row["bound"] for row in status["masters"]] == [0, 0]


@in_a_loop
async def test_who_answers_all_masters_at_once_is_pinged_once(tmp_path: Path) -> None:
    """Without saltext-ha a minion does not say what it is; what it answers does."""
    kinds = {"hot1": hot("m1", "m2", installed=False), "fo1": failover("m1", installed=False)}
    async with world(tmp_path, **kinds) as there:
        there.all_start()
        reached = await there.run("where")
        assert (reached["minions"], reached["count"]) == ({"fo1": ["m1"]}, 2)
        pings = len(there.published)
        assert pings == 2, "hot1, on both"
        assert await there.run("where") == reached
        assert len(there.published) == pings
        rows = {row["id"]: row for row in (await there.run("minions"))["minions"]}
        assert (rows["hot1"]["type"], rows["hot1"]["note"]) == ("list", "")
        there.start("m1", "hot1")
        await there.run("where")
        assert len(there.published) == 2 * pings, "it may be another kind now"


@in_a_loop
async def test_connections_tell_that_minions_are_gone_and_that_none_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there_are = {"m1": 2, "m2": 1}
    monkeypatch.setattr(bound, "NEW", -1.0)
    async with world(tmp_path, web1=failover("m1"), hot1=hot("m1", "m2")) as there:
        for name, engine in there.engines.items():

            async def count(name: str = name) -> int:
                return there_are[name]

            monkeypatch.setattr(engine.made.bound, "count", count)
            there.start(name, "hot1")
        there.start("m1", "web1")

        async def notes() -> tuple[list[str], list[int], int]:
            answer = await there.run("minions")
            said = [row["note"][:21] for row in answer["minions"]]
            return said, [row["gone"] for row in answer["masters"]], answer["retcode"]

        assert await notes() == (["", ""], [0, 0], 0)
        there_are["m1"] = 3
        assert await notes() == (["unless it is hot-hot,", ""], [0, 0], 0)
        there_are["m1"] = 1
        assert await notes() == (["unless it is hot-hot,", ""], [1, 0], 2)


@in_a_loop
async def test_who_has_a_key_is_told_from_who_is_made_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "MAX_STRANGERS", 2)
    async with world(tmp_path, web1=failover(), web2=failover()) as there:
        there.start("m1", "web1")
        ears = there.m1.parts.presence
        # Until then web1 is a stranger as well.
        await until(lambda: "web1" in ears._traces, "m1 knows that web1 has a key")
        for number in range(5):
            there.start("m1", f"made-up{number}")
        answer = await there.run("minions")
        assert states(answer) == {"web1": "bound", "web2": "unknown"}
        assert len(ears._strangers) == 2


@in_a_loop
async def test_a_peer_that_tells_of_others_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[set[str]] = []
    original = bound._rows

    def rows(ids: Any, known: Any) -> Any:
        kept.append({minion_id for each in known.values() for minion_id in each.sights})
        return original(ids, known)

    monkeypatch.setattr(bound, "_rows", rows)

    async with world(tmp_path, web1=failover()) as there:
        page = {
            "connections": 1,
            "listening": 5.0,
            "minions": [
                [name, *Sight(1, "job", lasts=1e9).to_wire()] for name in ("web1", "made-up")
            ],
            "more": False,
        }

        async def says(payload: Mapping[str, Any]) -> dict[str, Any]:
            return page

        monkeypatch.setattr(there.m2.made.bound, "page", says)
        answer = await there.run("minions")
        assert states(answer) == {"web1": "bound"}
        assert kept == [{"web1"}]


@in_a_loop
async def test_a_master_that_cannot_be_asked_is_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world(tmp_path, web1=hot("m1", "m2")) as there:
        there.all_start()
        assert (await there.run("minions"))["retcode"] == 0
        await there.m2.stop()
        answer = await there.run("minions")
        assert "m2" in answer["unknown"]
        assert answer["retcode"] == 2
        row = answer["masters"][1]
        assert (row["state"], row["minions"], row["connections"]) == ("unknown", None, None)
        assert answer["minions"][0]["masters"] == ["m1"]
        matrix = await there.run("reachability", timeout=SECONDS)
        assert (matrix["partial"], matrix["retcode"]) == (True, 2)
        cells = matrix["minions"][0]["answers"]
        assert [cells[name]["state"] for name in ("m1", "m2")] == ["hears", "unknown"]
        capsys.readouterr()
        gone = await there.run("drain", "m2")
        assert "m2 cannot be asked" in gone["error"]
        assert capsys.readouterr().err == ""  # not that it is drained from now on


@in_a_loop
async def test_long_answers_come_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bound, "PAGE", 2)
    async with world(tmp_path, **{f"web{n}": failover() for n in range(5)}) as there:
        for number in range(5):
            there.start("m2", f"web{number}")
        answer = await there.run("minions")
        assert answer["counts"] == {"bound": 5}
        first = await there.m1.link(there.m2).contact.call("bound", {"glob": "*"})
        assert (len(first["minions"]), first["more"]) == (2, True)
        monkeypatch.setattr(bound, "MAX_PAGES", 1)
        assert "says more than fits" in (await there.run("minions"))["unknown"]["m2"]


@in_a_loop
async def test_a_page_costs_the_same_however_many_minions_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is looked up at once holds up everything else that the engine does."""
    monkeypatch.setattr(bound, "PAGE", 4)
    names = [f"web{number:02}" for number in range(30)]
    async with world(tmp_path, **{name: failover() for name in names}) as there:
        heard = there.m2.parts.presence
        # Not all of them, and none of the first: pages are filled all the same.
        for name in names[10::2]:
            there.start("m2", name)
        looked_up: list[int] = []
        real = heard.sights

        def sights(ids: Iterable[str]) -> dict[str, Sight]:
            some = list(ids)
            looked_up.append(len(some))
            return real(some)

        monkeypatch.setattr(heard, "sights", sights)
        contact = there.m1.link(there.m2).contact
        told: list[list[str]] = []
        page: dict[str, Any] = {"more": True}
        while page["more"]:
            after = told[-1][-1] if told else ""
            page = await contact.call("bound", {"glob": "web*", "after": after})
            told.append([row[0] for row in page["minions"]])
        assert told == [names[10:18:2], names[18:26:2], names[26::2]]
        assert max(looked_up) <= 4
        few = await contact.call("bound", {"ids": [names[14], names[10], "web0", names[12]]})
        assert [row[0] for row in few["minions"]] == names[10:16:2]
        rest = await contact.call("bound", {"ids": names[10:14:2], "after": names[10]})
        assert [row[0] for row in rest["minions"]] == [names[12]]


@pytest.mark.parametrize(
    "said",
    [
        {"connections": "5", "listening": 1.0, "minions": []},
        {"connections": 5, "listening": "x", "minions": []},
        {"connections": 5, "listening": 1.0, "minions": [["web1", 1]]},
        {"connections": 5, "listening": 1.0, "minions": [[["web1"], *Sight().to_wire()]]},
        {"connections": 5, "listening": 1.0},
    ],
)
@in_a_loop
async def test_a_peer_that_answers_nonsense_is_unknown(
    tmp_path: Path, said: dict[str, Any]
) -> None:
    async with world(tmp_path, web1=failover()) as there:

        async def page(payload: Any) -> dict[str, Any]:
            return said

        there.m2.made.bound.page = page  # type: ignore[method-assign]
        answer = await there.run("minions")
        assert "malformed" in answer["unknown"]["m2"]
        assert (answer["retcode"], states(answer)) == (2, {"web1": "unknown"})


@in_a_loop
async def test_live_asks_from_every_master_at_once(tmp_path: Path) -> None:
    minions = {"one": failover("m1"), "two": failover("m2"), "hot": hot("m1", "m2")}
    async with world(tmp_path, **minions, stock=Minion("", {"m1"}, installed=False)) as there:
        answer = await there.run("minions", live=True, timeout=SECONDS)
        assert set(states(answer).values()) == {"bound"}
        assert answer["retcode"] == 0
        rows = {row["id"]: row for row in answer["minions"]}
        assert rows["hot"]["masters"] == ["m1", "m2"]
        assert (rows["two"]["masters"], rows["two"]["type"]) == (["m2"], "failover")
        assert (rows["stock"]["masters"], rows["stock"]["type"]) == (["m1"], "")
        assert (rows["one"]["version"], rows["stock"]["version"]) == ("0.1.0", None)
        assert {*there.functions} == {"ha.current_master"}
        # What was heard before does not count, when somebody does not answer now.
        minions["one"].hears = set()
        answer = await there.run("minions", live=True, timeout=SECONDS)
        assert (states(answer)["one"], answer["retcode"]) == ("silent", 1)
        minions["hot"].hears = {"m1"}
        answer = await there.run("minions", "hot", live=True, timeout=SECONDS)
        assert (answer["minions"][0]["masters"], answer["retcode"]) == (["m1"], 1)
        assert states(answer) == {"hot": "partly"}
        there.broken = {"m2"}
        minions["one"].hears = {"m1"}
        answer = await there.run("minions", "one", live=True, timeout=SECONDS)
        assert (states(answer)["one"], answer["retcode"]) == ("bound", 2)
        assert answer["masters"][1]["state"] == "unknown"


@in_a_loop
async def test_where_a_job_has_to_be_published(tmp_path: Path) -> None:
    minions = {"both": hot("m1", "m2"), "fo1": failover("m1"), "fo2": failover("m2")}
    minions["none"] = failover()
    async with world(tmp_path, **minions) as there:
        # Nobody has heard of any: they are asked.
        told = await there.run("where", timeout=SECONDS)
        found = {"fo1": ["m1"], "fo2": ["m2"], "none": []}
        assert (told["minions"], told["self"], told["count"]) == (found, "m1", 4)
        assert (told["retcode"], told["masters"]) == (1, ["m1", "m2"])
        asked = len(there.published)
        told = await there.run("where", ["fo1", "fo2"])
        assert told["minions"] == {"fo1": ["m1"], "fo2": ["m2"]}
        assert len(there.published) == asked, "that is known now"
        assert (await there.run("where", ["both"]))["minions"] == {}
        assert len(there.published) == asked, "it has answered both at once"
        # It authenticates somewhere else, and nobody says more: it is asked.
        there.minions["fo2"].hears = {"m1"}
        there.fire("m1", "salt/auth", {"id": "fo2", "act": "accept"})
        told = await there.run("where", "fo2", timeout=SECONDS)
        assert told["minions"] == {"fo2": ["m1"]}
        assert len(there.published) == asked + 2
        none = await there.run("where", "wbe*")
        assert (none["count"], none["retcode"]) == (0, 1)
        wrong = await there.run("where", "G@os:x")
        assert wrong["kind"] == "error"
        assert "by tgt_type=, as tgt_type=compound" in wrong["error"]


@in_a_loop
async def test_who_is_deaf_to_whom(tmp_path: Path) -> None:
    minions = {
        "deaf": hot("m1"), "fine": hot("m1", "m2"), "gone": failover(), "one": failover("m2"),
        "stock": Minion("", {"m1"}, installed=False), "stray": hot("m1", "m2"),
    }  # fmt: skip
    async with world(tmp_path, **minions) as there:
        answer = await there.run("reachability", timeout=SECONDS)
        assert states(answer) == {
            "deaf": "deaf", "fine": "ok", "gone": "silent", "one": "ok", "stock": "unknown",
            "stray": "ok",
        }  # fmt: skip
        assert answer["retcode"] == 2
        # Failover or deaf? That was not known of some, so they were asked; once is enough.
        assert there.functions == ["test.ping"] * 2 + ["ha.current_master"] * 2
        there.published.clear()
        none = await there.run("reachability", "wbe*", timeout=SECONDS)
        assert (none["minions"], none["retcode"]) == ([], 1)
        there.published.clear()
        only = await there.run("reachability", "[dfo]*", timeout=SECONDS)
        assert (only["retcode"], there.functions) == (1, ["test.ping"] * 2)
        fine = await there.run("reachability", "[fo]*", timeout=SECONDS)
        assert (fine["retcode"], fine["strays"]) == (0, [])

        minions["stray"].returns = "m2"
        answer = await there.run("reachability", "stray", timeout=SECONDS)
        assert answer["strays"] == [
            {"published": "m1", "arrived": "m2", "count": 1, "ids": ["stray"]}
        ]
        assert answer["minions"][0]["state"] == "astray"
        assert answer["retcode"] == 1

        there.broken = {"m2"}
        answer = await there.run("reachability", "fine", timeout=SECONDS)
        assert "Salt request timed out" in answer["unknown"]["m2"]
        assert (answer["partial"], answer["retcode"]) == (True, 2)


@in_a_loop
async def test_a_slow_minion_has_as_long_to_say_where_it_is_as_to_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or it could not be moved at all."""
    async with world(tmp_path, web1=failover("m1")) as there:
        jobs, given = there.m1.made.jobs, dict[str, float]()
        real = jobs.run

        async def timed(spec: Any, timeout: float, *more: Any, **named: Any) -> Any:
            given[spec.what] = timeout
            return await real(spec, timeout, *more, **named)

        monkeypatch.setattr(jobs, "run", timed)
        await there.run("drain", "m1", test=True)
        assert given[WHERE] >= given[MOVE] >= 15.0


@in_a_loop
async def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    async with world(tmp_path, web1=failover("m1")) as there:
        for function, arguments, said in (
            ("drain", {"master": "m9"}, NO_MASTER.format("'m9'")),
            ("drain", {"master": "m9", "test": True}, NO_MASTER.format("'m9'")),
            ("failover_safe", {"master": "m9"}, NO_MASTER.format("'m9'")),
            ("remove_peer", {"name": "m9"}, NO_MASTER.format("'m9'")),
            ("drain", {"master": "m1", "batch": 0}, "whole number from 1"),
            ("rebalance", {"timeout": "soon"}, "timeout='soon'"),
            ("reachability", {"timeout": 0}, "timeout=0"),
            ("minions", {"timeout": 1e9}, "timeout=1000000000.0"),
        ):
            answer = await there.run(function, **arguments)
            assert said in answer["error"], answer
            assert answer["retcode"] == runner.__context__["retcode"] == 2
