"""What other commands tell of trees, and how an engine ends that reads one."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from pathlib import Path

import pytest

from lab.wait import wait_for
from saltext_ha.trees import stager
from tests.disk_steps import put
from tests.engines import met
from tests.forked import ForkedEngine
from tests.functional.trees.tree_place import TreePlace, tree_place
from tests.loop import in_a_loop


def place(root: Path, name: str) -> TreePlace:
    live = str(root / "trees" / name / "live")
    return tree_place(root, name, options={"file_roots": {"base": [live]}})


@in_a_loop
async def test_roots_name_the_tree_and_where_the_odd_edit_is(tmp_path: Path) -> None:
    m1, m2 = (place(tmp_path, name) for name in ("m1", "m2"))
    async with met(m1, m2):
        await m1.deploy()
        same = await m1.run("check_consistency", only="roots")
        assert same["sections"]["roots"]["differences"] == []
        put(m2.live, {"top.sls": "by hand\n", "mine.sls": "{}\n"})
        for asked in (m1, m2):
            answer = await asked.run("check_consistency", only="roots")
            found = {d["path"]: d for d in answer["sections"]["roots"]["differences"]}
            assert set(found) == {"file_roots:base:top.sls", "file_roots:base:mine.sls"}
            for difference in found.values():
                assert difference["tree"] == "states"
                assert difference["edited_on"] == ["m2"]
                assert "edited by hand on m2 in tree states" in difference["fix"]
                assert "salt-run ha.deployments states names the command" in difference["fix"]
        await m1.deploy()
        mended = await m2.run("check_consistency", only="roots")
        assert mended["sections"]["roots"]["differences"] == []


@in_a_loop
async def test_roots_that_differ_outside_of_trees_are_told_as_before(tmp_path: Path) -> None:
    m1, m2 = (place(tmp_path, name) for name in ("m1", "m2"))
    for one in (m1, m2):
        other = tmp_path / f"other-{one.name}"
        put(other, {"x.sls": one.name})
        one.opts["file_roots"]["base"].append(str(other))
    async with met(m1, m2):
        await m1.deploy()
        answer = await m1.run("check_consistency", only="roots")
    (difference,) = answer["sections"]["roots"]["differences"]
    assert difference["path"] == "file_roots:base:x.sls"
    assert difference["edited_on"] == []


@in_a_loop
async def test_deployments_are_in_the_history_of_all(tmp_path: Path) -> None:
    m1, m2 = (place(tmp_path, name) for name in ("m1", "m2"))
    async with met(m1, m2):
        for number in range(7):
            m1.put({"n": f"{number}"})
            await m1.deploy(message=f"the {number}th")
        for asked in (m1, m2):
            told = (await asked.run("history", "states"))["writes"]
            assert [row["what"] for row in told] == [f"deployed {n}" for n in range(7, 0, -1)]
            assert {(row["tree"], row["id"], row["on"]) for row in told} == {("states", "", "m1")}
            assert {row["from"] for row in told} == {"m1"}
            assert "the 6th" in told[0]["why"]
            assert str(tmp_path) in told[0]["why"]
        assert (await m2.run("history", "web*"))["writes"] == []
        assert (await m2.run("history", by="nobody"))["writes"] == []
        some = await m2.run("history", "stat*", limit=3)
        assert (len(some["writes"]), some["more"]) == (3, True)


@in_a_loop
async def test_who_asks_for_a_version_and_goes_away_leaves_no_traceback(
    m1: TreePlace, m2: TreePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stager, "QUESTION_WAITS", 0.0)
    complaints: list[str] = []
    async with met(m1, m2) as (one, other):
        # Engines have set one of their own.
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, said: complaints.append(said["message"]))
        contact = one.link(other).contact
        for version in b"1" * 32, b"2" * 32:  # nobody has these
            asked = {"tree": "states", "version": version, "begin": True}
            assert (await contact.call("tree_stage", asked))["state"] == stager.WORKING
            fetch = other.parts.stager._fetches["states", version]
            assert fetch.task is not None
            await asyncio.wait([fetch.task])
            del fetch
        # Forget both, and nobody has asked what came of them.
        other.parts.stager._fetches.clear()
        gc.collect()
        assert complaints == []


def test_an_engine_that_reads_a_large_source_stops_at_once(m1: TreePlace) -> None:
    with (m1.source / "large").open("wb") as file:
        file.truncate(1 << 40)  # more than is read in an hour; it takes no space
    with ForkedEngine(m1) as engine:
        job = engine.control("deploy", {"by": "root"})["job"]
        wait_for(
            lambda: "reading" in engine.control("deploy_progress", {"job": job}).get("text", ""),
            60,
            "it is being read",
        )
        os.kill(engine.pid, signal.SIGTERM)
        # One that went on reading would be ended after a while, with another status.
        assert engine.wait_ended() == 0


def test_a_check_ends_with_the_engine(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    m1 = tree_place(tmp_path, "m1", check=f"sh -c 'echo $$ > {mark}; exec sleep 600'")
    with ForkedEngine(m1) as engine:
        engine.control("deploy", {"by": "root"})
        wait_for(lambda: mark.exists() and mark.read_text().strip(), 60, "the check runs")
    pid = int(mark.read_text())
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), 60, "it is gone")
