"""The disk of a master hangs: deployments end, say so, and name the way on."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.engines import Engine
from saltext_ha.commands.trees import deploy
from saltext_ha.common.errors import ReplicaError
from saltext_ha.output import _trees
from saltext_ha.output._text import Screen
from saltext_ha.trees import live_path, tree_disk
from saltext_ha.trees.live_path import LivePath
from saltext_ha.trees.staging import Staging
from saltext_ha.trees.store import TreeStore
from tests.disk_steps import put
from tests.engines import met, running
from tests.forked import ForkedEngine
from tests.functional.trees.tree_place import (
    STATES,
    TreePlace,
    carried_out,
    pair,
    several_trees,
    tree_place,
)
from tests.loop import in_a_loop, until
from tests.tools import script

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
    m1, m2 = pair(tmp_path, files={"top.sls": "base: {}\n"})
    part = m2.store / "staging" / "parts" / hashlib.sha256(b"base: {}\n").hexdigest()
    async with met(m1, m2) as engines:
        impatient(engines[1], lane="deploying")
        with hanging(part):
            for _ in range(2):  # the second need not wait
                refused = await m1.refused("deploy")
                for words in (
                    "nothing was switched: m2: states",
                    HANGS,
                    "without=m2 leaves out m2",
                ):
                    assert words in refused
            await m1.deploy(without="m2")
            assert m1.served() == {"top.sls": "base: {}\n"}
            assert not m2.live.exists()
            await until(lambda: HANGS in engines[1].parts.trees.behind(), "m2 says why")
        await until(lambda: m2.live.exists(), "the disk of m2 responds, and it follows")
        assert m2.served() == {"top.sls": "base: {}\n"}


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
    m1 = tree_place(tmp_path, "m1", check=check)
    if name == "take_out":
        m1.put({"changes": ""})
    async with running(m1) as engines:
        impatient(*engines)
        with blocked(monkeypatch, kind, name, lambda *_: True) as met_it:
            for _ in range(2):
                failed = await m1.run("deploy")
                assert failed["retcode"] == 2
                assert HANGS in str(failed)
                assert "under way" not in str(failed)
            assert met_it.is_set()
        (m1.source / "changes").unlink(missing_ok=True)

        async def works() -> None:
            while (await m1.run("deploy"))["retcode"]:
                await asyncio.sleep(0.1)

        await asyncio.wait_for(works(), 60)
        assert m1.served() == STATES


@in_a_loop
async def test_a_check_whose_program_hangs_is_not_begun(tmp_path: Path) -> None:
    program = tmp_path / "check"
    script(program)
    m1 = tree_place(tmp_path, "m1", check=str(program))
    async with running(m1) as engines:
        impatient(*engines, lane="looking")
        with hanging(program):
            assert f"check: {program}: {HANGS}" in await m1.refused("deploy")
        while (await m1.run("deploy"))["retcode"]:
            pass
        assert m1.served() == STATES


@in_a_loop
async def test_a_rollback_needs_no_source(m1: TreePlace, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(m1) as engines:
        await m1.deploy()
        m1.put({"top.sls": "base: {'*': [nginx]}\n"})
        await m1.deploy()
        impatient(*engines, lane="reading")
        with blocked(monkeypatch, deploy, "take", lambda *_: True):
            assert f"{m1.source}: {HANGS}" in await m1.refused("deploy")
            await m1.rollback()
            assert m1.served() == STATES


@in_a_loop
async def test_what_another_master_decides_while_a_source_hangs_is_not_lost(
    m1: TreePlace, m2: TreePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with met(m1, m2):
        await m1.deploy()
        m1.put({"top.sls": "base: {'*': [nginx]}\n"})
        await m1.deploy()
        m1.put({"top.sls": "base: {'*': [apache]}\n"})
        with blocked(monkeypatch, deploy, "take", lambda *_: True) as met_it:
            hung = asyncio.ensure_future(m1.refused("deploy"))
            await until(met_it.is_set, "it reads the source")
            await m2.rollback()
        assert "was deployed on another master meanwhile" in await hung
        assert m1.served() == m2.served() == STATES


@in_a_loop
async def test_a_plan_that_hangs_names_both_folders_that_it_compares(
    m1: TreePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(m1) as engines:
        impatient(*engines, lane="reading")
        with blocked(monkeypatch, deploy, "plan_row", lambda *_: True):
            assert f"{m1.source} or {m1.store}: {HANGS}" in await m1.refused("deploy")
            for function in ("deployments", "status"):
                assert HANGS not in str(await m1.run(function))


@in_a_loop
async def test_a_live_folder_that_hangs_while_it_is_read_is_named(
    m1: TreePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(m1.live, STATES)

    def of_live(folder: Path, *_: Any) -> bool:
        return folder == m1.live

    async with running(m1) as engines:
        impatient(*engines, lane="deploying")
        with blocked(monkeypatch, deploy, "take", of_live):
            failed = await m1.refused("deploy", test=True)
            assert failed.startswith(f"{m1.live}: {HANGS}"), failed


@in_a_loop
async def test_a_deployment_that_fails_in_the_middle_says_what_is_deployed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    m1 = several_trees(tmp_path, "m1", "states", "pillar", "conf")
    async with running(m1) as (engine,):
        decide = engine.parts.tree_registers.decide

        async def fails(name: str, *args: Any) -> Any:
            if name == "pillar":
                raise ReplicaError("replica.db: disk full")
            return await decide(name, *args)

        monkeypatch.setattr(engine.parts.tree_registers, "decide", fails)
        answer = await m1.run("deploy")
        assert answer["retcode"] == 2
        words = "deployed: states; not deployed: pillar, conf: replica.db: disk full"
        assert answer["problem"] == words
        assert [row["number"] for row in answer["trees"]] == [1, None, None]
        text = "\n".join(_trees.deploy(answer, Screen()))
        assert words in text
        assert "live on" not in text
        assert "disk full" in await m1.refused("deploy", "pillar"), "nothing came before it"
        monkeypatch.setattr(engine.parts.tree_registers, "decide", decide)
        assert (await m1.deploy())["problem"] == ""


@in_a_loop
async def test_a_master_that_cannot_look_at_its_tree_is_unknown_everywhere(
    m1: TreePlace, m2: TreePlace
) -> None:
    async with met(m1, m2) as engines:
        await m1.deploy()
    (version,) = (path for path in m2.versions.iterdir() if path.is_dir())
    async with contextlib.AsyncExitStack() as stack:
        # Before they start: m2 reads it once, to tidy, and would not read it again.
        hangs = stack.enter_context(contextlib.ExitStack())
        hangs.enter_context(hanging(version.with_name(f"{version.name}.manifest")))
        engines = await stack.enter_async_context(met(m1, m2))
        impatient(engines[1])
        with hangs:
            before = threading.active_count()
            for _ in range(4):
                for place in (m1, m2):
                    shown = await place.run("deployments")
                    assert shown["retcode"] == 2, shown
                    assert HANGS in shown["unknown"]["m2"]
                    assert shown["trees"][0]["masters"] == {"m1": 1, "m2": "unknown"}
            assert threading.active_count() <= before + 12  # also those of m1, and of to_thread
            for place, hint in ((m1, True), (m2, False)):
                planned = await place.refused("deploy", test=True)
                assert HANGS in planned
                assert ("without=m2" in planned) is hint
        await until(lambda: not engines[1].parts.trees.behind(), "m2 can be looked at")
        while (shown := await m1.shown())["retcode"]:
            pass
        assert shown["masters"] == {"m1": 1, "m2": 1}


def told_by(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> list[str]:
    """The events about trees that an engine fires from now on."""
    told: list[str] = []
    monkeypatch.setattr(
        engine.parts.trees["states"], "_announce", lambda tag, data: told.append(tag)
    )
    return told


@in_a_loop
async def test_a_live_path_that_hangs_stops_nothing_else(
    m1: TreePlace, m2: TreePlace, monkeypatch: pytest.MonkeyPatch
) -> None:

    def of_m2(path: LivePath) -> bool:
        return path._tree.live == m2.live

    async with met(m1, m2) as engines:
        await m1.deploy()
        trees = engines[1].parts.trees
        tree = trees["states"]
        # Another task may have switched to it, and be about to tell.
        await until(lambda: tree._told and not trees.behind(), "it serves it, and has told so")
        told = told_by(monkeypatch, engines[1])
        monkeypatch.setattr(tree_disk, "LAST", 1000.0)
        with blocked(monkeypatch, LivePath, "look", of_m2) as met_it:
            await until(met_it.is_set)
            await tree.settle()
            assert (trees.behind(), told) == ("", []), "what was there just now still counts"
            monkeypatch.setattr(tree_disk, "LAST", 0.0)
            began = time.monotonic()
            status = await m1.run("status")
            notes = {row["name"]: row["note"] for row in status["masters"]}
            assert f"{m2.live} cannot be looked at: {HANGS}" in notes["m2"]
            assert time.monotonic() - began < 100
            assert HANGS in trees.behind()
            await tree.settle()
            assert told == ["deploy/failed"]
        await until(lambda: not tree._late, "the disk responds, and it is looked at")
        assert (trees.behind(), told) == ("", ["deploy/failed"]), "nothing else was deployed"


@in_a_loop
async def test_a_switch_that_was_given_up_and_is_done_later_is_told(
    m1: TreePlace, m2: TreePlace, monkeypatch: pytest.MonkeyPatch
) -> None:

    def of_m2(store: TreeStore, *_: Any) -> bool:
        return store.tree.live == m2.live

    async with met(m1, m2) as engines:
        impatient(engines[1], lane="deploying")
        told = told_by(monkeypatch, engines[1])
        with blocked(monkeypatch, TreeStore, "switch", of_m2):
            answer = await m1.run("deploy")
            assert HANGS in answer["unknown"]["m2"], answer
            assert told == ["deploy/failed"]
        await until(lambda: "deployed" in told, "the disk responds, and it follows")
        assert m2.served() == STATES
        await engines[1].parts.trees["states"].settle()
        assert told == ["deploy/failed", "deployed"]


@in_a_loop
async def test_nobody_is_answered_before_a_switch_of_another_task_is_whole(
    m1: TreePlace, m2: TreePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then Salt's lists of files are cleared: whoever deployed may use new files at once."""

    def of_m2(folder: Path) -> bool:
        return folder == m2.live.parent

    async with met(m1, m2) as (one, other):
        told = told_by(monkeypatch, other)
        with blocked(monkeypatch, live_path, "sync_dir", of_m2) as met_it:
            await m1.deploy(without="m2")
            await until(met_it.is_set, "m2 has followed by itself, but for the end")
            registers = one.parts.tree_registers
            payload = registers.told("states", registers["states"], adopt=False)
            asked = asyncio.ensure_future(
                one.link(other).contact.call("tree_switch", payload, 100.0)
            )
            await asyncio.wait([asked], timeout=1.0)
            assert not asked.done(), asked.result()
        assert await asked == {"problem": ""}
        assert told == ["deployed"]


@in_a_loop
async def test_a_tree_whose_disk_hangs_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    m1, m2 = (several_trees(tmp_path, name, "conf", "states") for name in ("m1", "m2"))
    top = tmp_path / "trees" / "m2"

    def of_conf(store: TreeStore, *_: Any) -> bool:
        return store.tree.live == top / "live-conf"

    async with met(m1, m2):
        with blocked(monkeypatch, TreeStore, "switch", of_conf) as met_it:
            await m1.deploy("conf", without="m2")
            await until(met_it.is_set, "m2 follows, and hangs")
            await m1.deploy("states", without="m2")
            await until((top / "live-states" / "who").exists, "m2 serves the other tree")
        await until((top / "live-conf" / "who").exists, "the disk responds")


def test_an_engine_whose_disk_hangs_ends(m1: TreePlace) -> None:
    with ForkedEngine(m1) as engine:
        carried_out(engine)
    (version,) = (path for path in m1.versions.iterdir() if path.is_dir())
    with hanging(version.with_name(f"{version.name}.manifest")):
        engine = ForkedEngine(m1).start()
        shown = engine.control("deployments")
        assert HANGS in shown["unknown"]["m1"]
        os.kill(engine.pid, signal.SIGTERM)
        assert engine.wait_ended() == 1
