"""What versions take on a disk: which are kept, which give way, and what is copied."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from saltext_ha.trees.staging import Parts
from saltext_ha.trees.store import TreeStore
from tests.disk_steps import free_space, put
from tests.engines import met, running
from tests.functional.trees.tree_place import (
    STATES,
    TreePlace,
    pair,
    tidied,
    tree_place,
    waiting,
)
from tests.loop import in_a_loop, until


@in_a_loop
async def test_a_version_that_is_being_checked_gives_no_room_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    m1, m2 = pair(tmp_path, check=waiting(go, only="slow"))

    def full(path: Path) -> int | None:
        return 0 if m1.store in path.parents and any(m1.versions.glob("*/slow")) else None

    async with met(m1, m2) as (engine, _):
        await m1.deploy()
        await tidied(engine)
        m1.put({"slow": "m1"})
        m2.put({"quick": "m2"})
        slow = asyncio.ensure_future(m1.deploy())
        await until(lambda: any(m1.versions.glob("*/slow")), "it is being checked")
        with monkeypatch.context() as patched:
            free_space(patched, full)
            refused = await m2.refused("deploy")
        go.touch()
        await slow
        assert "nothing was switched: m1: states: " in refused
        assert "are free" in refused
        assert m1.served() == m2.served() == {**STATES, "slow": "m1"}


@in_a_loop
async def test_what_was_too_large_before_any_deployment_leaves_room_for_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = {"check": "sh -c '! test -e large'"}
    m1, m2 = pair(tmp_path, files={**STATES, "large": "x"}, own={"m2": check})
    async with met(m1, m2):
        await m1.refused("deploy")
        free_space(monkeypatch, lambda _: 0 if any(m1.versions.glob("*/large")) else None)
        (m1.source / "large").unlink()
        m1.put({"small.sls": "{}\n"})
        await m1.deploy()


@in_a_loop
async def test_five_are_kept(tmp_path: Path) -> None:
    m1, m2 = pair(tmp_path, files={})
    async with met(m1, m2):
        for number in range(1, 8):
            m1.put({"n.sls": f"{number}"})
            await m1.deploy()
        assert await m1.kept() == [7, 6, 5, 4, 3]
        await until(lambda: m1.count() == m2.count() == 5, "it is tidied")
        assert "kept: 7, 6, 5, 4, 3" in await m1.refused("rollback", 1)
        await m1.rollback(4)
        assert m2.served() == {"n.sls": "4"}


RENDER = "import sys; from salt.utils import templates as t; print(t.py(sys.argv[1], True)['data'])"


def rendered(place: TreePlace, name: str) -> str:
    """What Salt's renderer ``py`` makes of a file that is served there."""
    command = [sys.executable, "-c", RENDER, str(place.live / name)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@in_a_loop
async def test_what_python_compiles_beside_a_file_is_no_edit(tmp_path: Path) -> None:
    """Salt renders pillar in Python from the live folder, and Python writes ``__pycache__``."""
    m1, m2 = pair(tmp_path, files={"sub/__pycache__/old.pyc": "of the source"})
    async with met(m1, m2):
        for number in range(1, 8):
            m1.put({"sub/who.sls": f"#!py\ndef run():\n    return {number}\n"})
            await m1.deploy()
            for place in (m1, m2):
                assert rendered(place, "sub/who.sls") == str(number)
                compiled = [path.name for path in place.live.glob("sub/__pycache__/*")]
                assert len(compiled) == 1
                assert compiled[0].startswith("who.")
        shown = await m2.shown()
        assert (shown["retcode"], shown["edits"]) == (0, {})
        assert (await m1.deploy())["trees"][0]["number"] is None
        await until(lambda: m1.count() == m2.count() == 5, "it is tidied")
        await m1.rollback(4)
        assert [rendered(place, "sub/who.sls") for place in (m1, m2)] == ["4", "4"]


@in_a_loop
async def test_what_a_tidying_that_was_cut_left_is_removed_later(
    tmp_path: Path, m1: TreePlace
) -> None:
    async with running(m1):
        await m1.deploy()
        left = m1.versions / ("a" * 64)
        # Made elsewhere: the tidying after the first deployment may still remove things there.
        made = tmp_path / "left"
        made.mkdir()
        (made / "file").touch()
        made.rename(left)
        left.with_name(f"{'b' * 64}.manifest").touch()
        m1.put({"new.sls": "{}"})
        await m1.deploy()
        await until(lambda: not any(left.parent.glob("[ab]" * 8 + "*")), "it is tidied")
        assert m1.count() == 2


@pytest.mark.parametrize("noticed", ["before it is fetched", "while it is fetched"])
@in_a_loop
async def test_a_deployment_that_was_too_large_keeps_no_disk_full(
    m1: TreePlace, m2: TreePlace, monkeypatch: pytest.MonkeyPatch, noticed: str
) -> None:
    huge, append = 5_000_000, Parts.append

    def free(path: Path) -> int:
        small = path.is_relative_to(m2.store) and noticed == "before it is fetched"
        return huge // 2 if small else huge * 2

    def fills(parts: Parts, digest: bytes, offset: int, data: bytes) -> None:
        if offset > huge // 2:
            raise OSError(errno.ENOSPC, "No space left on device", str(parts.path(digest)))
        append(parts, digest, offset, data)

    free_space(monkeypatch, free)
    monkeypatch.setattr(Parts, "append", fills)
    async with met(m1, m2):
        await m1.deploy()
        (m1.source / "huge.iso").write_bytes(os.urandom(huge))
        refused = await m1.refused("deploy")
        why = "new files need 5.0 MB, and 2.5 MB are free"
        assert "nothing was switched: m2: states: " in refused
        assert (why in refused) is (noticed == "before it is fetched")
        assert ("No space left" in refused) is (noticed != "before it is fetched")
        assert sum(path.stat().st_size for path in m2.store.rglob("*")) < huge // 2
        (m1.source / "huge.iso").unlink()
        m1.put({"small.sls": "{}\n"})
        await m1.deploy()


@in_a_loop
async def test_versions_staged_in_vain_are_removed_once_a_later_one_is_served(
    tmp_path: Path,
) -> None:
    bad = {"check": "sh -c '! test -e bad'"}
    m1, m2 = pair(tmp_path, files={}, own={"m2": bad})
    async with met(m1, m2):
        for number in (1, 2):
            m1.put({"n.sls": "0", "bad": ""})
            for _ in range(2):
                await m1.refused("deploy")
            assert m1.count() == number
            (m1.source / "bad").unlink()
            m1.put({"n.sls": f"{number}"})
            await m1.deploy()
            await until(lambda n=number: m1.count() == m2.count() == n, "it is tidied")  # type: ignore[misc]


@in_a_loop
async def test_what_was_staged_in_vain_before_any_deployment_is_removed_at_the_start(
    tmp_path: Path,
) -> None:
    m1 = tree_place(tmp_path, "m1", check="false")
    async with running(m1):
        await m1.refused("deploy")
    assert m1.count() == 1
    async with running(m1):
        await until(lambda: m1.count() == 0, "it is removed")


@in_a_loop
async def test_what_an_attempt_left_is_removed_at_the_start(m1: TreePlace) -> None:
    async with running(m1):
        await m1.deploy()
    part = m1.store / "staging" / "parts" / ("e" * 64)
    part.write_text("half of a file")
    async with running(m1):
        await until(lambda: not part.exists(), "it is removed")
        assert m1.served() == STATES


@in_a_loop
async def test_an_edit_in_place_on_all_masters_leaves_the_way_back(tmp_path: Path) -> None:
    """The same hot fix everywhere, by an editor that writes into the file that is there."""
    m1, m2 = pair(tmp_path, files={**STATES, "conf": "good\n"})
    async with met(m1, m2):
        await m1.deploy()
        m1.put({"new.sls": "{}\n"})
        await m1.deploy()
        for place in (m1, m2):
            await until(lambda p=place: len(p.copies) == 4, "copied")  # type: ignore[misc]
            put(place.live, {"conf": "hot fix\n"})
        m1.put({"conf": "hot fix\n"})
        await m1.deploy()
        for number in (2, 1):
            await m1.rollback(number)
            for place in (m1, m2):
                assert place.served()["conf"] == "good\n"


@in_a_loop
async def test_of_each_tree_contents_are_copied_by_one_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each deployment began another, while the first still copied."""
    m1 = tree_place(tmp_path, "m1", files={})
    steps: list[float] = []
    breath, go, own = asyncio.Event(), asyncio.sleep, 1.25  # nothing else sleeps that long

    async def sleep(seconds: float, result: Any = None) -> None:
        if seconds != own:
            return await go(seconds, result)
        steps.append(seconds)
        await breath.wait()

    monkeypatch.setattr("saltext_ha.trees.store.AT_A_TIME", -1)
    monkeypatch.setattr("saltext_ha.trees.served_tree.BREATH", own)
    monkeypatch.setattr("saltext_ha.trees.served_tree.asyncio.sleep", sleep)
    async with running(m1):
        for number in range(3):
            m1.put({"a.sls": "a", "n.sls": f"{number}"})
            await m1.deploy()
            await until(lambda: any(m1.store.glob("staging/*.spare")), "it is tidied")
        await until(lambda: bool(steps), "it copies")
        assert len(steps) == 1
        breath.set()
        await until(lambda: len(m1.copies) == 4, "all are copied")


@in_a_loop
async def test_why_nothing_is_copied_is_told_and_logged_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    m1 = tree_place(tmp_path, "m1")
    copy, tried, mended = TreeStore.preserve, 0, False

    def fails(store: TreeStore, lacking: list[bytes]) -> None:
        nonlocal tried
        tried += 1
        if mended:
            copy(store, lacking)
        else:
            raise OSError(errno.EIO, "Input/output error", "/versions/secret")

    monkeypatch.setattr(TreeStore, "preserve", fails)
    monkeypatch.setattr("saltext_ha.trees.trees.AGAIN", 0.5)
    async with running(m1) as (engine,):
        await m1.deploy()
        await until(lambda: tried > 1, "it is tried again")
        note = "tree states: old versions are not removed or copied: Input/output error"
        assert note in [*engine.parts.trees.notes()]
        mended = True
        await until(lambda: note not in [*engine.parts.trees.notes()], "it is mended")
    said = [record.getMessage() for record in caplog.records if "copied:" in record.getMessage()]
    assert said == ["ha trees: states: old versions are not removed or copied: Input/output error"]
