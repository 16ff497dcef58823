"""What other commands tell of trees, and how an engine ends that reads one."""

from __future__ import annotations

import asyncio
import gc
import time
from pathlib import Path
from typing import Any

import pytest

from lab.engines import Place
from lab.wait import wait_for
from saltext_ha.trees import stager
from tests.engines import QUICK, met, run
from tests.forked import ForkedEngine
from tests.loop import in_a_loop

STATES = {"top.sls": "base: {}\n", "nginx/init.sls": "nginx: pkg.installed\n"}


def place(root: Path, name: str) -> Place:
    folder = root / "trees" / name
    (folder / "source").mkdir(parents=True)
    for path, text in STATES.items():
        (folder / "source" / path).parent.mkdir(exist_ok=True)
        (folder / "source" / path).write_text(text)
    live = str(folder / "live")
    trees = {"states": {"source": str(folder / "source"), "live": live}}
    return Place(root, name, {**QUICK, "trees": trees}, {"file_roots": {"base": [live]}})


async def deployed(place: Place, **options: Any) -> None:
    answer = await run(place, "deploy", **options)
    assert answer["retcode"] == 0, answer


def live(place: Place) -> Path:
    return place.root / "trees" / place.name / "live"


@in_a_loop
async def test_roots_name_the_tree_and_where_the_odd_edit_is(tmp_path: Path) -> None:
    two = [place(tmp_path, name) for name in ("m1", "m2")]
    async with met(*two):
        await deployed(two[0])
        same = await run(two[0], "check_consistency", only="roots")
        assert same["sections"]["roots"]["differences"] == []
        (live(two[1]) / "top.sls").write_text("by hand\n")
        (live(two[1]) / "mine.sls").write_text("{}\n")
        for asked in two:
            answer = await run(asked, "check_consistency", only="roots")
            found = {d["path"]: d for d in answer["sections"]["roots"]["differences"]}
            assert set(found) == {"file_roots:base:top.sls", "file_roots:base:mine.sls"}
            for difference in found.values():
                assert difference["tree"] == "states"
                assert difference["edited_on"] == ["m2"]
                assert "edited by hand on m2 in tree states" in difference["fix"]
                assert "salt-run ha.deploy states" in difference["fix"]
        await deployed(two[0])
        mended = await run(two[1], "check_consistency", only="roots")
        assert mended["sections"]["roots"]["differences"] == []


@in_a_loop
async def test_roots_that_differ_outside_of_trees_are_told_as_before(tmp_path: Path) -> None:
    two = [place(tmp_path, name) for name in ("m1", "m2")]
    for one in two:
        other = tmp_path / f"other-{one.name}"
        other.mkdir()
        (other / "x.sls").write_text(one.name)
        one.opts["file_roots"]["base"].append(str(other))
    async with met(*two):
        await deployed(two[0])
        answer = await run(two[0], "check_consistency", only="roots")
    (difference,) = answer["sections"]["roots"]["differences"]
    assert difference["path"] == "file_roots:base:x.sls"
    assert difference["edited_on"] == []


@in_a_loop
async def test_deployments_are_in_the_history_of_all(tmp_path: Path) -> None:
    two = [place(tmp_path, name) for name in ("m1", "m2")]
    async with met(*two):
        for number in range(7):
            (tmp_path / "trees" / "m1" / "source" / "n").write_text(f"{number}")
            await deployed(two[0], message=f"the {number}th")
        for asked in two:
            told = (await run(asked, "history", "states"))["writes"]
            assert [row["what"] for row in told] == [f"deployed {n}" for n in range(7, 0, -1)]
            assert {(row["tree"], row["id"], row["on"]) for row in told} == {("states", "", "m1")}
            assert {row["from"] for row in told} == {"m1"}
            assert "the 6th" in told[0]["why"]
            assert str(tmp_path) in told[0]["why"]
        assert (await run(two[1], "history", "web*"))["writes"] == []
        assert (await run(two[1], "history", by="nobody"))["writes"] == []
        some = await run(two[1], "history", "stat*", limit=3)
        assert (len(some["writes"]), some["more"]) == (3, True)


@in_a_loop
async def test_who_asks_for_a_version_and_goes_away_leaves_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stager, "QUESTION_WAITS", 0.0)
    complaints: list[str] = []
    two = [place(tmp_path, name) for name in ("m1", "m2")]
    async with met(*two) as (m1, m2):
        # Engines have set one of their own.
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, said: complaints.append(said["message"]))
        line = m1.link(m2).line
        for version in b"1" * 32, b"2" * 32:  # nobody has these
            asked = {"tree": "states", "version": version, "begin": True}
            assert (await line.call("tree_stage", asked))["state"] == stager.WORKING
            fetch = m2.parts.stager._fetches["states", version]
            assert fetch.task is not None
            await asyncio.wait([fetch.task])
            del fetch
        # Forget both, and nobody has asked what came of them.
        m2.parts.stager._fetches.clear()
        gc.collect()
        assert complaints == []


def test_an_engine_that_reads_a_large_source_stops_at_once(tmp_path: Path) -> None:
    one = place(tmp_path, "m1")
    with (tmp_path / "trees" / "m1" / "source" / "large").open("wb") as file:
        file.truncate(1 << 40)  # more than is read in an hour; it takes no space
    with ForkedEngine(one) as engine:
        job = engine.control("deploy", {"by": "root"})["job"]
        wait_for(
            lambda: "reading" in engine.control("deploy_progress", {"job": job}).get("text", ""),
            60,
            "it is being read",
        )
        began = time.monotonic()
        engine.stop()
        assert time.monotonic() - began < 50


def test_a_check_ends_with_the_engine(tmp_path: Path) -> None:
    one = place(tmp_path, "m1")
    mark = tmp_path / "pid"
    trees = one.opts["ha"]["trees"]
    trees["states"]["check"] = f"sh -c 'echo $$ > {mark}; exec sleep 600'"
    with ForkedEngine(Place(tmp_path, "m1", {**QUICK, "trees": trees}, {})) as engine:
        engine.control("deploy", {"by": "root"})
        wait_for(lambda: mark.exists() and mark.read_text().strip(), 60, "the check runs")
    pid = int(mark.read_text())
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), 60, "it is gone")
