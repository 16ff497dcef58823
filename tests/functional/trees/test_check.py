"""What ``check:`` of a tree refuses, and what is left of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from saltext_ha.trees import check_command, entries
from tests.disk_steps import put
from tests.engines import met, running
from tests.functional.trees.tree_place import STATES, pair, tree_place, waiting
from tests.loop import in_a_loop, until

ROOT = Path(__file__).parents[3]


@in_a_loop
@pytest.mark.parametrize("where", ["m1", "m2"])
async def test_a_check_that_fails_anywhere_switches_nowhere(tmp_path: Path, where: str) -> None:
    check = "sh -c 'grep -q good top.sls || { echo no good; exit 3; }'"
    m1, m2 = pair(tmp_path, files={"top.sls": "good"}, own={where: {"check": check}})
    async with met(m1, m2):
        await m1.deploy()
        m1.put({"top.sls": "bad"})
        failed = await m1.refused("deploy")
        for words in (f"{where}: states: check", "no good", "exit code 3", "nothing was switched"):
            assert words in failed
        assert "; mend the files, or the check" in failed
        assert "without=" not in failed  # that would go around the check
        assert m1.served() == m2.served() == {"top.sls": "good"}


@in_a_loop
async def test_a_check_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    m1 = tree_place(tmp_path, "m1", check="sh -c 'sleep 600; true'", check_timeout=1)
    async with running(m1):
        began = time.monotonic()
        failed = await m1.refused("deploy")
        assert time.monotonic() - began < 120
    assert "not within 1 s" in failed


def gone(file: Path) -> bool:
    """Whether the process whose id is in *file* has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(int(file.read_text())).status() == psutil.STATUS_ZOMBIE
    return True


@in_a_loop
async def test_a_check_is_ended_with_what_has_left_its_process_group(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    check = f"sh -c 'setsid sleep 600 & echo $! > {pid}; sleep 601'"
    # Long enough for the file to be written, however busy the machine is.
    m1 = tree_place(tmp_path, "m1", check=check, check_timeout=4)
    async with running(m1):
        failed = await asyncio.wait_for(m1.refused("deploy"), 120)
        assert failed.endswith("not within 4 s")
        # A process that was killed ends when it gets a processor.
        await until(lambda: gone(pid), "what has left it is ended")
        assert "not within 4 s" in await m1.refused("deploy"), "none is under way"


@in_a_loop
@pytest.mark.parametrize("setsid", ["", "setsid "])
async def test_a_check_has_ended_though_its_output_is_still_open(
    tmp_path: Path, setsid: str
) -> None:
    pid = tmp_path / "pid"
    # The id comes from the process itself: setsid(1) may fork.
    leaves = f'{setsid}sh -c "echo \\$\\$ > {pid}; exec sleep 600" &'
    check = f"sh -c '{leaves} while [ ! -s {pid} ]; do sleep 0.05; done; echo well; exit 3'"
    m1 = tree_place(tmp_path, "m1", check=check)
    async with running(m1):
        failed = await asyncio.wait_for(m1.refused("deploy"), 120)
    assert failed.endswith("exit code 3; mend the files, or the check: well")
    if setsid:  # nobody knows any more who has started it
        os.kill(int(pid.read_text()), signal.SIGKILL)
    await until(lambda: gone(pid), "what it left behind is ended")


@in_a_loop
async def test_a_check_of_another_user_that_cannot_be_killed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*args: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    def denied(self: psutil.Process) -> None:
        raise psutil.AccessDenied(self.pid)

    over = tmp_path / "over"
    m1 = tree_place(tmp_path, "m1", check=waiting(over), check_timeout=1)
    monkeypatch.setattr(check_command.os, "killpg", refused)
    monkeypatch.setattr(check_command.psutil.Process, "kill", denied)
    monkeypatch.setattr(check_command, "KILLED", 0.2)
    async with running(m1):
        failed = await asyncio.wait_for(m1.refused("deploy"), 120)
        over.touch()
    assert "not within 1 s; process" in failed
    assert failed.endswith("cannot be ended")


@in_a_loop
@pytest.mark.parametrize(
    "writes",
    [
        "touch added",
        "sh -c 'echo x >> top.sls'",
        "chmod 600 top.sls",
        "rm top.sls",
        "rm -r {tree}",
    ],
)
async def test_what_a_check_has_changed_is_not_served(tmp_path: Path, writes: str) -> None:
    m1, m2 = pair(tmp_path, own={"m2": {"check": writes}})
    async with met(m1, m2) as (_, engine):
        failed = await m1.refused("deploy")
        for words in ("m2", writes, "it changed the version that it checked", "write elsewhere"):
            assert words in failed
        assert not m1.live.exists()
        # Left out, that master fetches and serves it all the same: as it was deployed.
        await m1.deploy(without="m2")
        await until(lambda: m2.live.exists(), "m2 serves it")
        assert m2.served() == STATES
        modes = {stat.S_IMODE((p.live / "top.sls").stat().st_mode) for p in (m1, m2)}
        assert len(modes) == 1
        assert not engine.parts.trees.behind()


@in_a_loop
@pytest.mark.parametrize(("tree", "looks"), [({}, 0), ({"check": "true"}, 1)])
async def test_a_version_just_verified_is_looked_through_only_after_its_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tree: dict[str, Any], looks: int
) -> None:
    """Looking through 20 000 files takes 0.15 s, and all masters wait for it."""
    m1 = tree_place(tmp_path, "m1", **tree)
    looked: list[Path] = []
    listed = entries.entries

    def look(top: Path, *args: Any) -> Any:
        looked.append(top)
        return listed(top, *args)

    monkeypatch.setattr(entries, "entries", look)
    async with running(m1):
        await m1.deploy()
        assert [top.parent for top in looked].count(m1.versions) == looks


@in_a_loop
@pytest.mark.parametrize("ends", [0, 1])
async def test_of_a_version_that_a_check_has_changed_nothing_is_left(
    tmp_path: Path, ends: int
) -> None:
    """No hand has edited it; so it is not kept as edited by hand."""
    go = tmp_path / "go"
    check = f"sh -c 'test -e {go} || touch added; test -e {go} || exit {ends}'"
    m1 = tree_place(tmp_path, "m1", check=check)
    async with running(m1):
        for _ in range(2):
            await m1.refused("deploy")
            assert not [*m1.versions.iterdir()]
        go.touch()
        await m1.deploy()
        assert m1.served() == STATES
        # Whatever is deployed may be needed: it stays, and is mended when it is served again.
        m1.put({"new.sls": "{}\n"})
        await m1.deploy()
        go.unlink()
        await m1.refused("rollback", 1)
        go.touch()
        await m1.rollback(1)
        assert m1.served() == STATES


@pytest.mark.parametrize("check", ["true", "false"])
def test_a_check_of_a_copy_as_in_the_docs_leaves_nothing(tmp_path: Path, check: str) -> None:
    """Copies of secrets, among others."""
    page = (ROOT / "docs" / "trees.md").read_text()
    (command,) = re.findall("`(sh -c 'd=.*)`", page)
    put(tmp_path / "version", STATES)
    copies = tmp_path / "copies"
    copies.mkdir()
    done = subprocess.run(
        shlex.split(command.replace("…", f"touch written && test -e top.sls && {check}")),
        cwd=tmp_path / "version",
        env={**os.environ, "TMPDIR": str(copies)},
        check=False,
    )
    assert done.returncode == int(check == "false")
    assert not [*copies.iterdir()]
    assert not (tmp_path / "version" / "written").exists()


@in_a_loop
async def test_what_a_check_has_written_is_told_though_its_name_is_no_text(tmp_path: Path) -> None:
    writes = "sh -c 'touch $(printf caf\\\\351)'"
    m1, m2 = pair(tmp_path, own={"m2": {"check": writes}})
    async with met(m1, m2):
        failed = await m1.refused("deploy")
    assert "it changed the version that it checked: caf\\xe9; let it" in failed


@in_a_loop
async def test_a_check_in_python_leaves_nothing_in_the_version(tmp_path: Path) -> None:
    modules = {"mine.py": "def f():\n    return 1\n"}
    check = f"{sys.executable} -c 'import mine; mine.f()'"
    m1 = tree_place(tmp_path, "m1", files=modules, check=check)
    async with running(m1):
        await m1.deploy()
    assert m1.served() == modules


@in_a_loop
async def test_of_a_check_that_says_more_than_fits_the_end_is_shown(tmp_path: Path) -> None:
    says = "sh -c 'head -c 50000000 /dev/zero | tr \\0 x; echo; echo why; exit 1'"
    m1 = tree_place(tmp_path, "m1", check=says)
    async with running(m1):
        failed = await m1.refused("deploy")
    assert failed.endswith("why")
    assert len(failed) < 10_000
