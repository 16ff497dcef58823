"""The disk of a master hangs: deployments end, say so, and name the way on."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.engines import Engine, Place
from lab.wait import wait_for
from saltext_ha.commands.trees import deploy
from saltext_ha.common.errors import ReplicaError
from saltext_ha.output import _trees
from saltext_ha.output._text import Screen
from saltext_ha.trees import live_path, tree_disk
from saltext_ha.trees.live_path import LivePath
from saltext_ha.trees.staging import Staging
from saltext_ha.trees.store import TreeStore
from tests.engines import QUICK, met, run, running
from tests.forked import ForkedEngine
from tests.functional.trees.test_deploy import (
    STATES,
    deployed,
    live,
    places,
    put,
    served,
    source,
    versions,
)
from tests.loop import in_a_loop, until

HANGS = "the file system does not respond"


@pytest.fixture(autouse=True)
def durable_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk hangs where a test says so. It is not slow besides, as on a busy machine."""
    names = ("staging._sync_file", "staging.sync_dir", "staging.sync_file_system")
    for name in (*names, "store.sync_dir", "live_path.sync_dir"):
        monkeypatch.setattr(f"saltext_ha.trees.{name}", lambda *_: None)


def impatient(*engines: Engine, lane: str = "") -> None:
    """
    Have them give up what hangs after half a second.

    :param lane: only this kind of work; what does not hang may take longer on a busy machine.
    """
    for engine in engines:
        for disk in engine.parts.stager.disks.values():
            for each in [lane] if lane else ["deploying", "reading", "looking", "sending"]:
                getattr(disk, each).limit = 0.5


@contextlib.contextmanager
def hanging(path: Path) -> Iterator[None]:
    """Whoever opens *path* waits."""
    aside = path.with_name("aside")
    if path.exists():
        path.rename(aside)
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    try:
        yield
    finally:
        # Open it at the other side, so that who waits goes on; nobody finds it again.
        gone = path.rename(path.with_name("gone"))
        if aside.exists():
            aside.rename(path)
        os.close(os.open(gone, os.O_RDWR | os.O_NONBLOCK))
        gone.unlink(missing_ok=True)


@contextlib.contextmanager
def blocked(
    monkeypatch: pytest.MonkeyPatch, kind: Any, name: str, concerns: Callable[..., bool]
) -> Iterator[threading.Event]:
    """A function of the disk does not return where it *concerns* what it is called with."""
    go, met_it, real = threading.Event(), threading.Event(), getattr(kind, name)

    def waits(*args: Any, **kwargs: Any) -> Any:
        if concerns(*args):
            met_it.set()
            go.wait(100)
        return real(*args, **kwargs)

    monkeypatch.setattr(kind, name, waits)
    try:
        yield met_it
    finally:
        go.set()


@in_a_loop
async def test_a_deployment_onto_a_disk_that_hangs_ends_and_names_the_way_on(
    tmp_path: Path,
) -> None:
    two = places(tmp_path, "m1", "m2")
    put(source(two[0]), {"top.sls": "base: {}\n"})
    part = versions(two[1]) / "staging" / "parts" / hashlib.sha256(b"base: {}\n").hexdigest()
    async with met(*two) as engines:
        impatient(engines[1], lane="deploying")
        with hanging(part):
            for _ in range(2):  # the second need not wait
                refused = await run(two[0], "deploy")
                assert refused["retcode"] == 2
                for words in (
                    "nothing was switched: m2: states",
                    HANGS,
                    "without=m2 leaves out m2",
                ):
                    assert words in refused["error"]
            await deployed(two[0], without="m2")
            assert served(two[0]) == {"top.sls": "base: {}\n"}
            assert not live(two[1]).exists()
            await until(lambda: HANGS in engines[1].parts.trees.behind(), "m2 says why")
        await until(lambda: live(two[1]).exists(), "the disk of m2 responds, and it follows")
        assert served(two[1]) == {"top.sls": "base: {}\n"}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Staging, "make_durable"),
        (TreeStore, "switch"),
        (TreeStore, "take_out"),
        (deploy, "plan_row"),
        (deploy, "take"),
    ],
    ids=["stage", "switch", "take out", "plan", "source"],
)
@in_a_loop
async def test_whatever_hangs_on_the_own_disk_another_deployment_can_be_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, name: str
) -> None:
    check = "sh -c 'test ! -e changes || touch changed'"
    (place,) = places(tmp_path, "m1", check=check)
    put(source(place), STATES)
    if name == "take_out":
        put(source(place), {"changes": ""})
    async with running(place) as engines:
        impatient(*engines)
        with blocked(monkeypatch, kind, name, lambda *_: True) as met_it:
            for _ in range(2):
                failed = await run(place, "deploy")
                assert failed["retcode"] == 2
                assert HANGS in str(failed)
                assert "under way" not in str(failed)
            assert met_it.is_set()
        (source(place) / "changes").unlink(missing_ok=True)

        async def works() -> None:
            while (await run(place, "deploy"))["retcode"]:
                await asyncio.sleep(0.1)

        await asyncio.wait_for(works(), 60)
        assert served(place) == STATES


@in_a_loop
async def test_a_check_whose_program_hangs_is_not_begun(tmp_path: Path) -> None:
    program = tmp_path / "check"
    put(tmp_path, {"check": "#!/bin/sh\n"})
    program.chmod(0o755)
    (place,) = places(tmp_path, "m1", check=str(program))
    put(source(place), STATES)
    async with running(place) as engines:
        impatient(*engines, lane="looking")
        with hanging(program):
            failed = await run(place, "deploy")
            assert f"check: {program}: {HANGS}" in failed["error"]
        answer = {"retcode": 2}
        while answer["retcode"]:
            answer = await run(place, "deploy")
        assert served(place) == STATES


@in_a_loop
async def test_a_rollback_needs_no_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place,) = places(tmp_path, "m1")
    put(source(place), STATES)
    async with running(place) as engines:
        await deployed(place)
        put(source(place), {"top.sls": "base: {'*': [nginx]}\n"})
        await deployed(place)
        impatient(*engines, lane="reading")
        with blocked(monkeypatch, deploy, "take", lambda *_: True):
            failed = await run(place, "deploy")
            assert f"{source(place)}: {HANGS}" in failed["error"]
            back = await run(place, "rollback")
            assert back["retcode"] == 0, back
            assert served(place) == STATES


@in_a_loop
async def test_what_another_master_decides_while_a_source_hangs_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = places(tmp_path, "m1", "m2")
    put(source(two[0]), STATES)
    async with met(*two):
        await deployed(two[0])
        put(source(two[0]), {"top.sls": "base: {'*': [nginx]}\n"})
        await deployed(two[0])
        put(source(two[0]), {"top.sls": "base: {'*': [apache]}\n"})
        with blocked(monkeypatch, deploy, "take", lambda *_: True) as met_it:
            hung = asyncio.ensure_future(run(two[0], "deploy"))
            await until(met_it.is_set, "it reads the source")
            back = await run(two[1], "rollback")
            assert back["retcode"] == 0, back
        refused = await hung
        assert "was deployed on another master meanwhile" in refused["error"]
        assert served(two[0]) == served(two[1]) == STATES


@in_a_loop
async def test_a_plan_that_hangs_names_both_folders_that_it_compares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place,) = places(tmp_path, "m1")
    put(source(place), STATES)
    async with running(place) as engines:
        impatient(*engines, lane="reading")
        with blocked(monkeypatch, deploy, "plan_row", lambda *_: True):
            failed = await run(place, "deploy")
            assert f"{source(place)} or {versions(place)}: {HANGS}" in failed["error"]
            for function in ("deployments", "status"):
                assert HANGS not in str(await run(place, function))


@in_a_loop
async def test_a_live_folder_that_hangs_while_it_is_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place,) = places(tmp_path, "m1")
    put(source(place), STATES)
    put(live(place), STATES)

    def of_live(folder: Path, *_: Any) -> bool:
        return folder == live(place)

    async with running(place) as engines:
        impatient(*engines, lane="deploying")
        with blocked(monkeypatch, deploy, "take", of_live):
            failed = await run(place, "deploy", test=True)
            assert failed["error"].startswith(f"{live(place)}: {HANGS}"), failed


@in_a_loop
async def test_a_deployment_that_fails_in_the_middle_says_what_is_deployed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees = {}
    for name in ("states", "pillar", "conf"):
        folder = tmp_path / "source" / name
        put(folder, {"a": name})
        trees[name] = {"source": str(folder), "live": str(tmp_path / "live" / name)}
    (tmp_path / "live").mkdir()
    place = Place(tmp_path, "m1", {**QUICK, "trees": trees}, {})
    async with running(place) as (engine,):
        decide = engine.parts.tree_registers.decide

        async def fails(name: str, *args: Any) -> Any:
            if name == "pillar":
                raise ReplicaError("replica.db: disk full")
            return await decide(name, *args)

        monkeypatch.setattr(engine.parts.tree_registers, "decide", fails)
        answer = await run(place, "deploy")
        assert answer["retcode"] == 2
        words = "deployed: states; not deployed: pillar, conf: replica.db: disk full"
        assert answer["problem"] == words
        assert [row["number"] for row in answer["trees"]] == [1, None, None]
        text = "\n".join(_trees.deploy(answer, Screen()))
        assert words in text
        assert "live on" not in text
        alone = await run(place, "deploy", "pillar")  # nothing came before it
        assert alone["retcode"] == 2
        assert "disk full" in alone["error"]
        monkeypatch.setattr(engine.parts.tree_registers, "decide", decide)
        assert (await deployed(place))["problem"] == ""


@in_a_loop
async def test_a_master_that_cannot_look_at_its_tree_is_unknown_everywhere(tmp_path: Path) -> None:
    two = places(tmp_path, "m1", "m2")
    put(source(two[0]), STATES)
    async with met(*two) as engines:
        await deployed(two[0])
    (version,) = (path for path in (versions(two[1]) / "versions").iterdir() if path.is_dir())
    async with contextlib.AsyncExitStack() as stack:
        # Before they start: m2 reads it once, to tidy, and would not read it again.
        hangs = stack.enter_context(contextlib.ExitStack())
        hangs.enter_context(hanging(version.with_name(f"{version.name}.manifest")))
        engines = await stack.enter_async_context(met(*two))
        impatient(engines[1])
        with hangs:
            before = threading.active_count()
            for _ in range(4):
                for place in two:
                    shown = await run(place, "deployments")
                    assert shown["retcode"] == 2, shown
                    assert HANGS in shown["unknown"]["m2"]
                    assert shown["trees"][0]["masters"] == {"m1": 1, "m2": "unknown"}
            assert threading.active_count() <= before + 12  # also those of m1, and of to_thread
            for place, hint in zip(two, (True, False), strict=True):
                planned = await run(place, "deploy", test=True)
                assert planned["retcode"] == 2
                assert HANGS in planned["error"]
                assert ("without=m2" in planned["error"]) is hint
        await until(lambda: not engines[1].parts.trees.behind(), "m2 can be looked at")
        shown = {"retcode": 2}
        while shown["retcode"]:
            shown = await run(two[0], "deployments")
        assert shown["trees"][0]["masters"] == {"m1": 1, "m2": 1}


def told_by(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> list[str]:
    """The events about trees that an engine fires from now on."""
    told: list[str] = []
    monkeypatch.setattr(engine.parts.trees, "_announce", lambda tag, data: told.append(tag))
    return told


@in_a_loop
async def test_a_live_path_that_hangs_stops_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = places(tmp_path, "m1", "m2")
    put(source(two[0]), STATES)

    def of_m2(path: LivePath) -> bool:
        return path._tree.live == live(two[1])

    async with met(*two) as engines:
        await deployed(two[0])
        trees = engines[1].parts.trees
        # Another task may have switched to it, and be about to tell.
        await until(lambda: trees._told and not trees.behind(), "it serves it, and has told so")
        told = told_by(monkeypatch, engines[1])
        monkeypatch.setattr(tree_disk, "LAST", 1000.0)
        with blocked(monkeypatch, LivePath, "look", of_m2) as met_it:
            await until(met_it.is_set)
            await trees.settle("states")
            assert (trees.behind(), told) == ("", []), "what was there just now still counts"
            monkeypatch.setattr(tree_disk, "LAST", 0.0)
            began = time.monotonic()
            status = await run(two[0], "status")
            notes = {row["name"]: row["note"] for row in status["masters"]}
            assert f"{live(two[1])} cannot be looked at: {HANGS}" in notes["m2"]
            assert time.monotonic() - began < 100
            assert HANGS in trees.behind()
            await trees.settle("states")
            assert told == ["deploy/failed"]
        await until(lambda: not trees._late, "the disk responds, and it is looked at")
        assert (trees.behind(), told) == ("", ["deploy/failed"]), "nothing else was deployed"


@in_a_loop
async def test_a_switch_that_was_given_up_and_is_done_later_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = places(tmp_path, "m1", "m2")
    put(source(two[0]), STATES)

    def of_m2(store: TreeStore, *_: Any) -> bool:
        return store.tree.live == live(two[1])

    async with met(*two) as engines:
        impatient(engines[1])
        told = told_by(monkeypatch, engines[1])
        with blocked(monkeypatch, TreeStore, "switch", of_m2):
            answer = await run(two[0], "deploy")
            assert HANGS in answer["unknown"]["m2"], answer
            assert told == ["deploy/failed"]
        await until(lambda: "deployed" in told, "the disk responds, and it follows")
        assert served(two[1]) == STATES
        await engines[1].parts.trees.settle("states")
        assert told == ["deploy/failed", "deployed"]


@in_a_loop
async def test_nobody_is_answered_before_a_switch_of_another_task_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then Salt's lists of files are cleared: whoever deployed may use new files at once."""
    two = places(tmp_path, "m1", "m2")
    put(source(two[0]), STATES)

    def of_m2(folder: Path) -> bool:
        return folder == live(two[1]).parent

    async with met(*two) as (m1, m2):
        told = told_by(monkeypatch, m2)
        with blocked(monkeypatch, live_path, "sync_dir", of_m2) as met_it:
            await deployed(two[0], without="m2")
            await until(met_it.is_set, "m2 has followed by itself, but for the end")
            registers = m1.parts.tree_registers
            payload = registers.told("states", registers["states"], adopt=False)
            asked = asyncio.ensure_future(m1.link(m2).line.call("tree_switch", payload, 100.0))
            await asyncio.wait([asked], timeout=1.0)
            assert not asked.done(), asked.result()
        assert await asked == {"problem": ""}
        assert told == ["deployed"]


@in_a_loop
async def test_a_tree_whose_disk_hangs_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = []
    for name in ("m1", "m2"):
        trees = {}
        for tree in ("conf", "states"):
            put(tmp_path / "source" / tree, {"a": tree})
            folder = tmp_path / "live" / name / tree
            folder.parent.mkdir(parents=True, exist_ok=True)
            trees[tree] = {"source": str(tmp_path / "source" / tree), "live": str(folder)}
        two.append(Place(tmp_path, name, {**QUICK, "trees": trees}, {}))

    def of_conf(store: TreeStore, *_: Any) -> bool:
        return store.tree.live == tmp_path / "live" / "m2" / "conf"

    async with met(*two):
        with blocked(monkeypatch, TreeStore, "switch", of_conf) as met_it:
            await deployed(two[0], "conf", without="m2")
            await until(met_it.is_set, "m2 follows, and hangs")
            await deployed(two[0], "states", without="m2")
            there = tmp_path / "live" / "m2" / "states" / "a"
            await until(there.exists, "m2 serves the other tree")
        await until((tmp_path / "live" / "m2" / "conf" / "a").exists, "the disk responds")


def test_an_engine_whose_disk_hangs_ends(tmp_path: Path) -> None:
    (place,) = places(tmp_path, "m1")
    put(source(place), STATES)
    with ForkedEngine(place) as engine:
        job = engine.control("deploy", {"by": "root"})["job"]
        wait_for(
            lambda: "answer" in engine.control("deploy_progress", {"job": job}),
            60,
            "it is deployed",
        )
    (version,) = (path for path in (versions(place) / "versions").iterdir() if path.is_dir())
    with hanging(version.with_name(f"{version.name}.manifest")):
        engine = ForkedEngine(place).start()
        shown = engine.control("deployments")
        assert HANGS in shown["unknown"]["m1"]
        began = time.monotonic()
        engine.stop()
        assert time.monotonic() - began < 50
