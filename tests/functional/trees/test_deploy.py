"""One truth about folders: deployed on one master, served on all of them."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from salt.utils.args import parse_input

from lab.engines import Place
from saltext_ha.commands.trees.deploy_masters import Masters
from saltext_ha.config import mapping
from saltext_ha.transport import wire
from saltext_ha.transport.client import PeerClient
from saltext_ha.trees.versions import Versions
from tests.disk_steps import put
from tests.engines import QUICK, met, running
from tests.functional.trees.tree_place import (
    STATES,
    TreePlace,
    pair,
    several_trees,
    tidied,
    tree_place,
    waiting,
)
from tests.loop import in_a_loop, until
from tests.repositories import put_under_git


@in_a_loop
async def test_of_long_lines_the_plan_has_the_beginning(m1: TreePlace, m2: TreePlace) -> None:
    """The answer goes over Salt's bus; a minified file is one line of up to 64 KB."""
    m1.put({f"{number}.js": "x" * 60_000 for number in range(20)})
    async with met(m1, m2):
        diff = (await m1.deploy(test=True))["trees"][0]["diff"]
        assert max(map(len, diff)) < 1100
        assert sum(line.endswith("xxx … 59001 more characters") for line in diff) == 20


@in_a_loop
async def test_what_is_deployed_on_one_is_served_by_all(m1: TreePlace, m2: TreePlace) -> None:
    (m1.source / "link").symlink_to("nginx/init.sls")
    (m1.source / "nginx" / "init.sls").chmod(0o640)
    async with met(m1, m2):
        planned = await m1.deploy(test=True)
        assert [row["path"] for row in planned["trees"][0]["added"]] == [
            "link",
            "nginx/init.sls",
            "top.sls",
        ]
        assert "+nginx: pkg.installed" in planned["trees"][0]["diff"]
        assert not m1.live.exists()
        assert not m2.live.exists()
        first = await m1.deploy(message="the first")
        assert first["trees"][0]["number"] == 1
        assert m1.served() == m2.served() == {**STATES, "link": STATES["nginx/init.sls"]}
        for place in (m1, m2):
            assert (place.live / "nginx" / "init.sls").stat().st_mode & 0o777 == 0o640
            assert (place.live / "link").is_symlink()
        again = await m1.deploy()
        assert again["trees"][0]["number"] is None
        assert again["trees"][0]["same"]

        m1.put({"top.sls": "base: {'*': [nginx]}\n", "new.sls": "{}\n"})
        shutil.rmtree(m1.source / "nginx")
        (m1.source / "link").unlink()
        second = await m1.deploy()
        assert second["trees"][0]["counts"] == {"added": 1, "changed": 1, "removed": 2}
        assert set(m2.served()) == {"new.sls", "top.sls"}
        assert m2.served() == m1.served()

        shown = await m2.shown()
        assert shown["retcode"] == 0, shown
        assert [row["number"] for row in shown["deployments"]] == [2, 1]
        assert shown["deployments"][1]["message"] == "the first"
        assert shown["deployments"][0]["live_on"] == ["m1", "m2"]

        back = await m2.rollback()
        assert m1.served() == m2.served() == {**STATES, "link": STATES["nginx/init.sls"]}
        assert back["trees"][0]["number"] == 3


@in_a_loop
async def test_what_another_master_has_deployed_is_named_where_it_is_replaced(
    m1: TreePlace, m2: TreePlace
) -> None:
    """The source here may be older."""

    async def replaced() -> str:
        return str((await m1.deploy(test=True))["trees"][0]["replaces"])

    async with met(m1, m2):
        await m1.deploy()
        m1.put({"more.sls": "{}\n"})
        assert await replaced() == ""  # its own
        await m1.deploy()
        back = await m2.rollback(message="more.sls is wrong")
        assert back["trees"][0]["replaces"] == ""
        by = (await m1.shown())["deployments"][0]["by"]
        from_there = f"from deployment 1, {m1.source}: more.sls is wrong"
        assert await replaced() == f"deployment 3, made on m2 by {by} {from_there}"
        (m1.source / "more.sls").unlink()
        assert await replaced() == ""  # the same files


@in_a_loop
async def test_what_did_not_change_is_not_sent_nor_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    m1, m2 = pair(tmp_path, files={f"{i}.sls": f"{i}\n" * 1000 for i in range(50)})
    sizes: list[int] = []
    real = PeerClient.call

    async def call(self: PeerClient, method: str, payload: Any = None, *more: Any) -> Any:
        answer = await real(self, method, payload, *more)
        if method.startswith("tree_"):  # other messages are more, the longer it takes
            sizes.append(len(wire.pack(payload)) + len(wire.pack(answer)))
        return answer

    monkeypatch.setattr(PeerClient, "call", call)
    async with met(m1, m2):
        await m1.deploy()
        before = {path.name: path.stat() for path in m2.live.iterdir()}
        assert sum(sizes) > 100_000, "all files were sent"
        sizes.clear()
        m1.put({"7.sls": "seven\n"})
        await m1.deploy()
        after = {path.name: path.stat() for path in m2.live.iterdir()}
        assert {name for name in after if after[name].st_ino != before[name].st_ino} == {"7.sls"}
        assert after["7.sls"].st_mtime_ns != before["7.sls"].st_mtime_ns
        assert sum(sizes) < 20_000


@in_a_loop
async def test_a_master_that_was_away_serves_it_before_it_is_ready(
    m1: TreePlace, m2: TreePlace
) -> None:
    async with met(m1, m2) as (_, away):
        await m1.deploy()
        await away.service.parts.links.close()
    async with running(m1) as (one,):
        m1.put({"top.sls": "changed\n"})
        assert "without=m2" in await m1.refused("deploy")
        assert m1.served() == STATES
        left = await m1.deploy(without="m2")
        assert left["left_out"] == ["m2"]
        assert m1.served()["top.sls"] == "changed\n"
        assert m2.served() == STATES
        async with running(m2) as (other,):
            assert "tree" in other.service.parts.trees.behind()
            await until(lambda: not other.service.parts.trees.behind(), "m2 has caught up")
            assert m2.served()["top.sls"] == "changed\n"
            await one.meets(other)


@in_a_loop
async def test_a_master_whose_file_is_damaged_can_be_left_out(m1: TreePlace, m2: TreePlace) -> None:
    async with met(m1, m2) as (one, _):
        for name in ("m2", "m3"):
            (m1.config.state_dir / "peers" / f"{name}.json").write_text("{")
        await until(lambda: "m2" not in one.parts.links, "m1 has noticed")
        refused = await m1.refused("deploy")
        assert "m2.json: " in refused
        for without in ("", "m2", "m3"):
            refused = await m1.refused("deploy", without=without)
            assert refused.endswith("; without=m2,m3 leaves out m2,m3")
        (m1.config.state_dir / "peers" / "m3.json").unlink()
        assert (await m1.deploy(without="m2"))["left_out"] == ["m2"]
        assert m1.served() == STATES
        itself = await m1.refused("deploy", without="m1")
        assert "without=m1: that is this master; run it on another one" in itself


@in_a_loop
async def test_a_strange_master_is_refused_before_anything_is_read(
    m1: TreePlace, m2: TreePlace
) -> None:
    shutil.rmtree(m1.source)  # reading it would fail
    async with met(m1, m2):
        for function in ("deploy", "rollback"):
            assert await m1.refused(function, without="m8,m2,m9") == (
                "there is no master 'm8', 'm9' in this group; its masters: m1, m2. Give one of "
                "these names"
            )


@pytest.mark.parametrize("secret", [False, True])
@in_a_loop
async def test_two_deployments_that_did_not_know_of_each_other(
    tmp_path: Path, secret: bool
) -> None:
    m1, m2 = pair(tmp_path, files={"who.sls": "m1"}, secret=secret)
    async with met(m1, m2):
        await m1.deploy()
    for place, other in ((m1, m2), (m2, m1)):
        async with running(place):
            place.put({"who.sls": f"{place.name} alone"})
            await place.deploy(without=other.name)
    async with met(m1, m2) as (one, other):
        await until(
            lambda: all(e.service.parts.tree_registers["states"].conflict for e in (one, other)),
            "both know of the conflict",
        )
        assert m1.served() == {"who.sls": "m1 alone"}
        assert m2.served() == {"who.sls": "m2 alone"}
        status = await m1.run("status")
        assert any("different versions were deployed" in row["note"] for row in status["masters"])
        shown = await m1.shown()
        assert shown["retcode"] == 1
        assert shown["conflict"]
        two = [(row["number"], row["on"], row["live_on"]) for row in shown["deployments"][:2]]
        assert sorted(two) == [(2, "m1", ["m1"]), (2, "m2", ["m2"])]
        m2.put({"who.sls": "both"})
        ended = await m2.deploy()
        assert ended["trees"][0]["conflict"]
        assert m1.served() == m2.served() == {"who.sls": "both"}
        assert (await m1.shown())["retcode"] == 0
        # The one before was another one on each side.
        for options in ({}, {"to": 2}):
            refused = await m1.refused("rollback", **options)
            assert "several deployments match 2 (" in refused
            assert ("name one by its version" in refused) is not secret, "it shows no versions"
            assert "salt-run ha.deploy states on the master that is right" in refused
        if secret:
            return
        rows = (await m1.shown())["deployments"]
        (of_m1,) = (row for row in rows if (row["number"], row["on"]) == (2, "m1"))
        await m2.rollback(of_m1["version"][:12])
        assert m1.served() == m2.served() == {"who.sls": "m1 alone"}


@in_a_loop
async def test_what_was_edited_by_hand_is_shown_and_kept(m1: TreePlace, m2: TreePlace) -> None:
    async with met(m1, m2):
        await m1.deploy()
        put(m2.live, {"top.sls": "by hand\n", "mine.sls": "{}\n"})
        shown = await m1.shown()
        assert shown["retcode"] == 1
        assert shown["edits"]["m2"]["paths"] == ["mine.sls", "top.sls"]
        again = await m1.deploy()
        assert again["trees"][0]["edits"]["m2"]["count"] == 2
        assert m2.served() == STATES
        kept = list(m2.store.rglob("mine.sls"))
        assert [path.read_text() for path in kept] == ["{}\n"]
        assert (kept[0].parent / "top.sls").read_text() == "by hand\n"


@in_a_loop
async def test_a_look_at_a_rollback_changes_nothing_that_is_served(
    m1: TreePlace, m2: TreePlace
) -> None:
    async with met(m1, m2):
        await m1.deploy()
        put(m1.live, {"top.sls": "by hand\n"})
        planned = await m1.rollback(1, test=True)
        assert m1.served()["top.sls"] == "by hand\n"
        assert planned["trees"][0]["edits"]["m1"]["paths"] == ["top.sls"]
        await m1.rollback(1)
        assert m1.served() == STATES
        (kept,) = m1.store.glob("versions/*.edited-*/top.sls")
        assert kept.read_text() == "by hand\n"


@in_a_loop
async def test_a_plan_says_how_permissions_change(tmp_path: Path) -> None:
    m1 = tree_place(tmp_path, "m1", files={"a": "a\n", "b": "b\n"})
    (m1.source / "a").chmod(0o640)
    async with running(m1):
        await m1.deploy()
        (m1.source / "a").chmod(0o750)
        m1.put({"b": "other\n"})
        (row,) = (await m1.deploy(test=True))["trees"]
        assert [each.get("mode") for each in row["changed"]] == ["640 → 750", None]


@in_a_loop
@pytest.mark.parametrize("adopted", [False, True])
async def test_a_source_without_files_takes_none_away(tmp_path: Path, adopted: bool) -> None:
    """As of a file system that is not mounted, when cron deploys."""
    m1 = tree_place(tmp_path, "m1", files={})
    put(m1.live if adopted else m1.source, STATES)
    async with running(m1):
        if not adopted:
            await m1.deploy()
        shutil.rmtree(m1.source)
        (m1.source / "mounted").mkdir(parents=True)
        for test in (True, False):
            refused = await m1.refused("deploy", adopt=adopted, test=test)
            assert f"there is no file in {m1.source}; is it mounted?" in refused
        assert m1.served() == STATES
        m1.put({".keep": ""})
        await m1.deploy(adopt=adopted)
        assert m1.served() == {".keep": ""}


@in_a_loop
async def test_nor_where_this_master_serves_nothing_itself(m1: TreePlace, m2: TreePlace) -> None:
    async with met(m1, m2):
        await m1.deploy()
        m1.live.unlink()
        shutil.rmtree(m1.source)
        m1.source.mkdir()
        assert "is it mounted?" in await m1.refused("deploy")
        assert m2.served() == STATES


@in_a_loop
async def test_of_two_who_deploy_at_once_the_second_looks_again(tmp_path: Path) -> None:
    go = tmp_path / "go"
    m1, m2 = pair(tmp_path, files={"slow": "m1"}, check=waiting(go, only="slow"))
    m2.put({"quick": "m2"})
    async with met(m1, m2):
        slow = asyncio.ensure_future(m1.refused("deploy"))
        await until(lambda: any(m1.versions.glob("*/slow")), "it is being checked")
        await m2.deploy()
        await until(lambda: any(m1.store.glob("staging/*.spare")), "it is tidied")
        assert any(m1.versions.glob("*/slow")), "its check still runs"
        go.touch()
        assert "deployed on another master meanwhile" in await slow
        assert m1.served() == m2.served() == {"quick": "m2"}


@in_a_loop
async def test_what_another_deploys_between_two_trees_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    m1, m2 = (several_trees(tmp_path, name, "states", "pillar") for name in ("m1", "m2"))
    switch = Masters.switch

    async def takes_time(self: Masters, name: str, *more: Any) -> dict[str, str]:
        late = await switch(self, name, *more)
        if name == "states":
            await m2.deploy("pillar")
        return late

    async with met(m1, m2):
        monkeypatch.setattr(Masters, "switch", takes_time)
        answer = await m1.run("deploy", "states", "pillar")
        assert answer["retcode"] == 2
        assert answer["problem"].startswith(
            "deployed: states; not deployed: pillar: tree pillar was deployed on another master"
        )
        for name in ("m1", "m2"):
            assert (tmp_path / "trees" / name / "live-states" / "who").read_text() == "m1"
            assert (tmp_path / "trees" / name / "live-pillar" / "who").read_text() == "m2"


@in_a_loop
async def test_a_master_without_that_tree_is_named_with_what_to_do(m1: TreePlace) -> None:
    async with met(m1, Place(m1.root, "m2", QUICK)):
        refused = await m1.refused("deploy")
        assert (
            "m2: has no tree states: write it into  ha: trees:  there, too, and restart its "
            "salt-master; without=m2 leaves out m2" in refused
        )
        assert not m1.live.exists()


@in_a_loop
async def test_all_trees_that_a_master_lacks_are_named(tmp_path: Path) -> None:
    m1 = several_trees(tmp_path, "m1", "states", "pillar")
    async with met(m1, Place(tmp_path, "m2", QUICK)):
        assert "m2: has no tree states, pillar: " in await m1.refused("deploy")


@in_a_loop
async def test_secret_trees_are_closed_and_not_shown(tmp_path: Path) -> None:
    m1, m2 = pair(tmp_path, files={"users/root.sls": "password: hunter2\n"}, secret=True)
    async with met(m1, m2) as engines:
        planned = await m1.deploy(test=True)
        assert planned["trees"][0]["diff"] == []
        assert "hunter2" not in str(planned)
        done = await m1.deploy()
        shown = await m2.shown()
        version = engines[0].service.parts.stager.disks["states"].store.live()[1]
        assert version is not None
        for answer in (planned, done, shown):
            assert version.hex()[:8] not in str(answer)
        assert shown["masters"] == {"m1": 1, "m2": 1}
        for engine in engines:
            await tidied(engine)
        for place in (m1, m2):
            for path in (place.store, *place.store.rglob("*")):
                if not path.is_symlink():
                    assert path.stat().st_mode & 0o077 == 0, path
            assert version.hex()[:8] not in str(place.live.readlink())
            assert place.served() == {"users/root.sls": "password: hunter2\n"}


@in_a_loop
async def test_an_error_of_a_rollback_names_no_version_of_a_secret_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of folders that belong to root, after salt-master was made to run as salt."""
    m1 = tree_place(tmp_path, "m1", files={}, secret=True)

    def closed(versions: Versions, version: bytes) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(versions.path_of(version)))

    async with running(m1):
        for text in ("one", "two"):
            m1.put({"a": text})
            await m1.deploy()
        with monkeypatch.context() as patched:
            patched.setattr(Versions, "manifest", closed)
            refused = await m1.refused("rollback")
    assert refused == f"{m1.store}: Permission denied"


@in_a_loop
async def test_where_a_live_path_leads_is_closed_and_opened_again(tmp_path: Path) -> None:
    """Whoever may list the folder above reads where a link leads."""
    m1 = tree_place(tmp_path, "m1", files={})

    async def led(secret: bool, text: str) -> str:
        m1.opts["ha"]["trees"]["states"]["secret"] = secret
        m1.config = mapping.parse(m1.opts)
        m1.put({"top.sls": text})
        async with running(m1) as (engine,):
            await m1.deploy()
            assert m1.served() == {"top.sls": text}
            version = engine.service.parts.stager.disks["states"].store.live()[1]
        assert version is not None
        return str(m1.live.readlink()).replace(version.hex(), "VERSION")

    assert await led(False, "1") == ".live.ha/versions/VERSION"
    assert [await led(True, "2"), await led(True, "3")] == [".live.ha/served"] * 2
    assert await led(False, "4") == ".live.ha/versions/VERSION"


@in_a_loop
async def test_git_stays_out_and_is_named(tmp_path: Path) -> None:
    m1 = tree_place(
        tmp_path, "m1", files={**STATES, ".x.swp": "", "notes/a": ""}, ignore=["*.swp", "notes/*"]
    )
    put_under_git(m1.source)
    async with running(m1):
        clean = await m1.deploy()
        assert "production" in clean["trees"][0]["source"]
        assert "uncommitted" not in clean["trees"][0]["source"]
        assert m1.served() == STATES
        m1.put({"top.sls": "changed\n"})
        assert "uncommitted changes" in (await m1.deploy())["trees"][0]["source"]


@in_a_loop
async def test_a_version_that_was_deleted_by_hand_is_fetched_again(
    m1: TreePlace, m2: TreePlace
) -> None:
    async with met(m1, m2):
        await m1.deploy()
        shutil.rmtree(m2.live.resolve())
        # It is shown before anything mends it, and an engine that asks is not ended by it.
        shown = await m1.run("deployments")
        assert shown["retcode"] in (0, 1), shown
        await until(lambda: m2.served() == STATES, "it is fetched from m1")
    shutil.rmtree(m1.live.resolve())
    shutil.rmtree(m2.live.resolve())
    async with met(m1, m2):
        gone = await m1.shown()
        assert gone["retcode"] == 1
        assert gone["masters"] == {"m1": "nothing", "m2": "nothing"}
        assert "is not served here" in (await m1.run("status"))["masters"][0]["note"]
        await m1.deploy()
        assert m1.served() == m2.served() == STATES


@in_a_loop
async def test_of_a_served_version_whose_manifest_is_damaged_nothing_is_claimed(
    m1: TreePlace,
) -> None:
    async with running(m1):
        await m1.deploy()
    (manifest,) = m1.versions.glob("*.manifest")
    manifest.write_bytes(b"")  # as after a power cut, on a disk that lies
    put(m1.live, {"top.sls": "by hand\n"})
    async with running(m1):
        shown = await m1.shown()
        assert shown["retcode"] == 1
        assert shown["masters"] == {"m1": "nothing"}
        await m1.deploy()
        assert m1.served() == STATES
        assert (await m1.shown())["retcode"] == 0


@in_a_loop
async def test_what_is_served_is_told_while_something_is_staged(tmp_path: Path) -> None:
    """A check takes as long as it likes; nobody who looks waits for it."""
    go = tmp_path / "go"
    m1, m2 = pair(tmp_path, check=waiting(go))
    async with met(m1, m2):
        deploying = asyncio.ensure_future(m1.deploy())
        await until(lambda: any(any(p.versions.glob("*")) for p in (m1, m2)), "it is staged")
        assert (await m2.shown())["masters"] == {"m1": "nothing", "m2": "nothing"}
        assert not deploying.done()
        go.touch()
        await deploying


@in_a_loop
async def test_what_takes_long_says_how_far_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    go, said = tmp_path / "go", ""
    m1, m2 = pair(tmp_path, own={"m2": {"check": waiting(go)}})

    def is_said() -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return "m2 2 of 2 new files" in said

    async with met(m1, m2):
        deploying = asyncio.ensure_future(m1.deploy())
        await until(is_said, "it is said")
        assert not m1.live.exists()
        go.touch()
        await deploying


@in_a_loop
async def test_one_deployment_at_a_time(tmp_path: Path) -> None:
    go = tmp_path / "go"
    m1 = tree_place(tmp_path, "m1", check=waiting(go))
    async with running(m1):
        tries = [asyncio.ensure_future(m1.run("deploy")) for _ in range(3)]
        await until(lambda: sum(each.done() for each in tries) == 2, "two are refused")
        go.touch()
        answers = await asyncio.gather(*tries)
    assert sorted(answer["retcode"] for answer in answers) == [0, 2, 2]
    refused = [answer["error"] for answer in answers if answer["retcode"]]
    assert all("under way" in error for error in refused)


@in_a_loop
async def test_a_tree_that_becomes_secret_is_closed_at_the_start(m1: TreePlace) -> None:
    async with running(m1):
        await m1.deploy()
    assert m1.store.stat().st_mode & 0o777 == 0o755
    m1.opts["ha"]["trees"]["states"]["secret"] = True
    m1.config = mapping.parse(m1.opts)
    async with running(m1):
        await until(lambda: m1.store.stat().st_mode & 0o777 == 0o700, "it is closed")
        assert m1.served() == STATES


@in_a_loop
async def test_a_name_that_is_no_text_is_shown_and_stops_nothing(
    m1: TreePlace, m2: TreePlace
) -> None:
    async with met(m1, m2):
        await m1.deploy()
        for place in (m1, m2):
            Path(os.fsdecode(os.fsencode(place.live) + b"/caf\xe9")).write_text("by hand")
        shown = await m1.shown()
        assert shown["retcode"] == 1, "none is unknown"
        edits = {"count": 1, "paths": ["caf\\xe9"]}
        assert shown["edits"] == {"m1": edits, "m2": edits}
        m1.put({"new.sls": "{}\n"})
        await m1.deploy()
        assert "new.sls" in m2.served()


@in_a_loop
async def test_a_message_of_several_lines_is_taken(m1: TreePlace) -> None:
    """As of ``git log -1 --format=%B``: Salt takes it for an argument without a name."""
    message = "nginx 1.28\n\nwith=ssl"
    given, named = parse_input(["states", f"message={message}"], condition=False)
    assert not named
    async with running(m1):
        await m1.deploy(*given)
        assert (await m1.shown())["deployments"][0]["message"] == message
        refused = await m1.refused("deploy", "massage=a\nb")
        assert "massage: takes tree, test, without, message, adopt" in refused


@in_a_loop
async def test_a_message_that_is_no_text_is_refused(m1: TreePlace) -> None:
    async with running(m1):
        refused = await m1.refused("deploy", message="caf\udce9")
        assert "an argument is not in UTF-8, near" in refused
        assert not m1.live.exists()
        await m1.deploy(message="caf\u00e9")


@in_a_loop
async def test_a_tree_is_named_as_for_a_rollback(tmp_path: Path) -> None:
    place = several_trees(tmp_path, "m1", "states", "pillar", "more")
    async with running(place):
        answer = await place.deploy("states", tree="pillar, more")
        assert [row["tree"] for row in answer["trees"]] == ["states", "pillar", "more"]
        answer = await place.deploy(tree=["pillar"], test=True)
        assert [row["tree"] for row in answer["trees"]] == ["pillar"]


@in_a_loop
async def test_where_a_rollback_cannot_go_is_said(m1: TreePlace) -> None:
    put(m1.live, STATES)
    async with running(m1):
        assert "there is no tree" in await m1.refused("deploy", ["nosuch"])
        await m1.deploy(adopt=True)  # what was live before is deployment 0, and the same
        assert "no earlier deployment differs from the current one" in await m1.refused("rollback")
        refused = await m1.refused("rollback", "states")
        assert "is not kept; kept: 1, 0; did you mean tree=states?" in refused


@in_a_loop
async def test_if_one_of_two_trees_has_nowhere_to_go_back_the_other_is_named(
    tmp_path: Path,
) -> None:
    """Whoever deployed new states only, and is in a hurry to undo that."""
    place = several_trees(tmp_path, "m1", "states", "pillar")
    states, live = (tmp_path / "trees" / "m1" / each for each in ("states", "live-states"))
    async with running(place):
        for text in ("one", "two"):
            put(states, {"a.sls": text})
            await place.deploy()
        for wanted, reason in (((), "no deployment before the current one"), ((2,), "is not kept")):
            refused = await place.refused("rollback", *wanted)
            assert f"tree pillar: {'' if wanted else 'there is '}" in refused
            assert reason in refused
            assert refused.endswith("; to take back another tree alone: tree=states")
        assert (live / "a.sls").read_text() == "two"
        await place.rollback(tree="states")
        assert (live / "a.sls").read_text() == "one"
        assert "tree=" not in await place.refused("rollback", 7, tree="states")


@in_a_loop
async def test_without_a_tree_it_is_said_how_to_get_one(tmp_path: Path) -> None:
    m1 = TreePlace(tmp_path, "m1")
    async with running(m1):
        refused = await m1.refused("deployments")
        assert "write  ha: trees:  into its configuration" in refused
        assert "restart salt-master" in refused
