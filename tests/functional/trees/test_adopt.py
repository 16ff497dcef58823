"""What is at the live path before the first deployment, or cannot be exchanged."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from saltext_ha.commands.trees import deploy
from saltext_ha.trees import served_tree
from saltext_ha.trees.source import take
from saltext_ha.trees.store import TreeStore
from tests.disk_steps import put
from tests.engines import met, running
from tests.functional.trees.tree_place import STATES, TreePlace, tidied, tree_place
from tests.loop import in_a_loop


@in_a_loop
async def test_a_real_folder_is_adopted_and_kept(m1: TreePlace, m2: TreePlace) -> None:
    for place in (m1, m2):
        put(place.live, {"old.sls": place.name})
    async with met(m1, m2):
        assert "adopt=True" in await m1.refused("deploy")
        assert m2.served() == {"old.sls": "m2"}
        planned = await m1.deploy(test=True)
        assert planned["adopt"] == {"states": ["m1", "m2"]}
        # It is compared with what is live there today.
        assert [row["path"] for row in planned["trees"][0]["removed"]] == ["old.sls"]
        assert "-m1" in planned["trees"][0]["diff"]
        await m1.deploy(adopt=True)
        assert m2.served() == STATES
        (kept,) = m2.store.glob("before-*/old.sls")
        assert kept.read_text() == "m2"
        # What the master that deployed had is the deployment before the first.
        assert await m2.kept() == [1, 0]
        await m2.rollback(0)
        assert m1.served() == m2.served() == {"old.sls": "m1"}


@in_a_loop
async def test_what_is_being_adopted_is_no_failure(
    m1: TreePlace, m2: TreePlace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A follower's own loop looks at the live folder while the deployment moves it away."""
    switch = TreeStore.switch

    def slowly(store: TreeStore, version: bytes, adopt: bool = False) -> Path | None:
        time.sleep(1.5 * served_tree.EARLY)
        return switch(store, version, adopt)

    monkeypatch.setattr(TreeStore, "switch", slowly)
    put(m2.live, {"old.sls": ""})
    async with met(m1, m2):
        await m1.deploy(adopt=True)
        assert m2.served() == STATES
    assert "is not served" not in caplog.text


@in_a_loop
async def test_of_a_tree_with_another_name_what_was_live_can_be_gone_back_to(
    m1: TreePlace,
    m2: TreePlace,
) -> None:
    async with met(m1, m2):
        await m1.deploy()
    for place in (m1, m2):
        place.ha["trees"]["base"] = place.ha["trees"].pop("states")  # type: ignore[index]
        place.__post_init__()
    async with met(m1, m2) as engines:
        m1.put({"top.sls": "other\n"})
        await m1.deploy()
        for engine in engines:
            await tidied(engine)
        assert await m2.kept() == [1, 0]
        await m2.rollback()
        assert m1.served() == m2.served() == STATES


@in_a_loop
async def test_a_folder_that_no_version_can_be_made_of_is_kept_beside(m1: TreePlace) -> None:
    m1.live.mkdir()
    (m1.live / "out").symlink_to("/etc/passwd")
    async with running(m1):
        for options in ({"test": True}, {"adopt": True}):
            (row,) = (await m1.deploy(**options))["trees"]
            # All files are shown as new then, and none as removed.
            assert "out: a link that leads out of the tree" in row["unread"]
        assert m1.served() == STATES
        assert await m1.kept() == [1]
        m1.put({"top.sls": "changed"})
        assert (await m1.deploy())["trees"][0]["unread"] == ""
    assert len(list(m1.store.glob("before-*/out"))) == 1


@in_a_loop
async def test_nor_is_it_taken_away_by_a_source_without_files(tmp_path: Path) -> None:
    m1 = tree_place(tmp_path, "m1", files={})
    m1.live.mkdir()
    (m1.live / "out").symlink_to("/etc/passwd")
    async with running(m1):
        assert "is it mounted?" in await m1.refused("deploy", adopt=True)


@in_a_loop
async def test_a_live_folder_that_changes_while_it_is_read_is_not_adopted_without_a_way_back(
    m1: TreePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(m1.live, {"old.sls": ""})

    def rsync(folder: Path, *more: Any) -> Any:
        *others, stop = more

        def goes_on() -> None:
            stop()
            if folder == m1.live and (folder / "old.sls").stat().st_size < 20:
                with (folder / "old.sls").open("a") as file:
                    file.write("more\n")

        return take(folder, *others, goes_on)

    async with running(m1):
        with monkeypatch.context() as patched:
            patched.setattr(deploy, "take", rsync)
            refused = await m1.refused("deploy", adopt=True)
        assert f"{m1.live}/old.sls: changed while it was being read" in refused
        assert not m1.live.is_symlink()
        await m1.deploy(adopt=True)
        await m1.rollback(0)
        assert m1.served()["old.sls"].startswith("more\n")


@pytest.mark.parametrize(
    ("mode", "secret", "opens"), [(0o750, False, True), (0o755, False, False), (0o700, True, False)]
)
@in_a_loop
async def test_what_becomes_open_to_other_users_is_told(
    tmp_path: Path, mode: int, secret: bool, opens: bool
) -> None:
    """Often the folder is closed, and all files in it are open."""
    m1 = tree_place(tmp_path, "m1", secret=secret)
    put(m1.live, {"top.sls": ""})
    m1.live.chmod(mode)
    async with running(m1):
        for options in ({"test": True}, {"adopt": True}):
            assert (await m1.deploy(**options))["trees"][0]["opens"] is opens
        assert (m1.live.stat().st_mode & 0o007 == 0) is secret
        m1.put({"top.sls": "other"})
        assert (await m1.deploy())["trees"][0]["opens"] is False


@in_a_loop
async def test_an_empty_folder_needs_no_adopting(m1: TreePlace) -> None:
    m1.live.mkdir()
    async with running(m1):
        await m1.deploy()
    assert m1.served() == STATES
    assert not list(m1.store.glob("before-*"))


@in_a_loop
async def test_a_rollback_adopts_too(m1: TreePlace) -> None:
    async with running(m1):
        await m1.deploy()
        m1.put({"new.sls": "{}\n"})
        await m1.deploy()
        m1.live.unlink()
        put(m1.live, {"mine.sls": "by hand"})
        assert "ha.rollback with adopt=True" in await m1.refused("rollback", 1)
        assert m1.served() == {"mine.sls": "by hand"}
        await m1.rollback(1, adopt=True)
        assert m1.served() == STATES
        assert [path.read_text() for path in m1.store.glob("before-*/*")] == ["by hand"]


def mount(root: Path, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """The list of what is mounted, as far as the engines see: *folder*."""
    mounted = root / "mountinfo"
    mounted.write_text(f"36 35 98:0 / {folder} rw - tmpfs none rw\n")
    monkeypatch.setattr("saltext_ha.trees.obstacles.MOUNTS", mounted)
    return mounted


@in_a_loop
async def test_a_live_folder_that_is_mounted_is_told_before_anything_changes(
    tmp_path: Path, m1: TreePlace, m2: TreePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in (m1, m2):
        put(place.live, {"old.sls": place.name})
    mounted = mount(tmp_path, monkeypatch, m2.live)
    async with met(m1, m2):
        for options in ({"test": True}, {"adopt": True}):
            refused = await m1.refused("deploy", **options)
            assert f"nothing was changed: m2: {m2.live} is a mount point" in refused
            assert refused.endswith("; without=m2 leaves out m2")
        assert not any(place.store.exists() for place in (m1, m2))
        status = await m1.run("status")
        assert not any(row["note"] for row in status["masters"])
        mounted.write_text("")
        await m1.deploy(adopt=True)


@in_a_loop
async def test_a_master_that_cannot_serve_any_more_refuses_to_stage(
    tmp_path: Path, m1: TreePlace, m2: TreePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The obstacle came after the masters were asked for their state."""
    mount(tmp_path, monkeypatch, m2.store)
    monkeypatch.setattr("saltext_ha.trees.tree_state.obstacle", lambda tree: "")
    async with met(m1, m2):
        refused = await m1.refused("deploy")
    assert f"nothing was switched: m2: states: {m2.store} is a mount" in refused
    assert not m1.live.exists()
