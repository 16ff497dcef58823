"""One truth about folders: deployed on one master, served on all of them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import os
import pwd
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from salt.utils.args import parse_input

from lab.engines import Engine, Place
from saltext_ha.commands.trees import deploy
from saltext_ha.commands.trees.deploy_masters import Masters
from saltext_ha.common.errors import FolderChanged
from saltext_ha.config import mapping
from saltext_ha.transport import wire
from saltext_ha.transport.client import PeerClient
from saltext_ha.trees import check_command, entries
from saltext_ha.trees.source import commit, take
from saltext_ha.trees.staging import Parts
from saltext_ha.trees.store import TreeStore
from tests.engines import QUICK, met, run, running
from tests.loop import in_a_loop, until

ROOT = Path(__file__).parents[3]


def places(root: Path, *names: str, own: Any = None, **tree: Any) -> list[Place]:
    """
    Masters that each have a source and a live folder of their own.

    :param own: master → what its tree has beside *tree*; None: it has no tree.
    """
    found = []
    for name in names:
        (root / "trees" / name / "source").mkdir(parents=True)
        states = {
            "source": str(root / "trees" / name / "source"),
            "live": str(root / "trees" / name / "live"),
            **tree,
            **((own or {}).get(name) or {}),
        }
        trees = {} if name in (own or {}) and own[name] is None else {"states": states}
        found.append(Place(root, name, {**QUICK, "trees": trees}, {}))
    return found


def source(place: Place) -> Path:
    return place.root / "trees" / place.name / "source"


def live(place: Place) -> Path:
    return place.root / "trees" / place.name / "live"


def versions(place: Place) -> Path:
    return live(place).with_name(".live.ha")


def put(folder: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def served(place: Place) -> dict[str, str]:
    """What Salt would read there: of one version, also while another takes its place."""
    top = live(place).resolve()
    return {
        str(path.relative_to(top)): path.read_text()
        for path in sorted(top.rglob("*"))
        if path.is_file()
    }


async def tidied(engine: Engine) -> None:
    """Wait until no files come and go any more beside the versions, after a deployment."""
    served = live(engine.place).resolve().name
    spare = versions(engine.place) / "staging" / f"{served}.spare"
    await until(lambda: spare.is_dir() and not engine.parts.core._tasks, "it is tidied")


def copies(place: Place) -> list[Path]:
    """The whole copies of contents."""
    return [*(versions(place) / "pristine").glob("[0-9a-f]" * 64)]


def folders_in(folder: Path) -> int:
    return sum(path.is_dir() for path in folder.iterdir())


async def deployed(place: Place, *trees: str, **options: Any) -> dict[str, Any]:
    answer = await run(place, "deploy", *trees, **options)
    assert answer["retcode"] == 0, answer
    return answer


STATES = {"top.sls": "base: {}\n", "nginx/init.sls": "nginx: pkg.installed\n"}


@in_a_loop
async def test_of_long_lines_the_plan_has_the_beginning(tmp_path: Path) -> None:
    """The answer goes over Salt's bus; a minified file is one line of up to 64 KB."""
    two = places(tmp_path, "m1", "m2")
    put(source(two[0]), {f"{number}.js": "x" * 60_000 for number in range(20)})
    async with met(*two):
        diff = (await deployed(two[0], test=True))["trees"][0]["diff"]
        assert max(map(len, diff)) < 1100
        assert sum(line.endswith("xxx … 59001 more characters") for line in diff) == 20


@in_a_loop
async def test_what_is_deployed_on_one_is_served_by_all(tmp_path: Path) -> None:
    two = places(tmp_path, "m1", "m2")
    put(source(two[0]), STATES)
    (source(two[0]) / "link").symlink_to("nginx/init.sls")
    (source(two[0]) / "nginx" / "init.sls").chmod(0o640)
    async with met(*two):
        planned = await deployed(two[0], test=True)
        assert [row["path"] for row in planned["trees"][0]["added"]] == [
            "link",
            "nginx/init.sls",
            "top.sls",
        ]
        assert "+nginx: pkg.installed" in planned["trees"][0]["diff"]
        assert not live(two[0]).exists()
        assert not live(two[1]).exists()
        first = await deployed(two[0], message="the first")
        assert first["trees"][0]["number"] == 1
        assert served(two[0]) == served(two[1]) == {**STATES, "link": STATES["nginx/init.sls"]}
        for place in two:
            assert (live(place) / "nginx" / "init.sls").stat().st_mode & 0o777 == 0o640
            assert (live(place) / "link").is_symlink()
        again = await deployed(two[0])
        assert again["trees"][0]["number"] is None
        assert again["trees"][0]["same"]

        put(source(two[0]), {"top.sls": "base: {'*': [nginx]}\n", "new.sls": "{}\n"})
        shutil.rmtree(source(two[0]) / "nginx")
        (source(two[0]) / "link").unlink()
        second = await deployed(two[0])
        assert second["trees"][0]["counts"] == {"added": 1, "changed": 1, "removed": 2}
        assert set(served(two[1])) == {"new.sls", "top.sls"}
        assert served(two[1]) == served(two[0])

        shown = await run(two[1], "deployments")
        assert shown["retcode"] == 0, shown
        (tree,) = shown["trees"]
        assert [row["number"] for row in tree["deployments"]] == [2, 1]
        assert tree["deployments"][1]["message"] == "the first"
        assert tree["deployments"][0]["live_on"] == ["m1", "m2"]

        back = await run(two[1], "rollback")
        assert back["retcode"] == 0, back
        assert served(two[0]) == served(two[1]) == {**STATES, "link": STATES["nginx/init.sls"]}
        assert back["trees"][0]["number"] == 3


@in_a_loop
async def test_what_did_not_change_is_not_sent_nor_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = places(tmp_path, "m1", "m2")
    put(source(two[0]), {f"{i}.sls": f"{i}\n" * 1000 for i in range(50)})
    sizes: list[int] = []
    real = PeerClient.call

    async def call(self: PeerClient, method: str, payload: Any = None, *more: Any) -> Any:
        answer = await real(self, method, payload, *more)
        if method.startswith("tree_"):  # other messages are more, the longer it takes
            sizes.append(len(wire.pack(payload)) + len(wire.pack(answer)))
        return answer

    monkeypatch.setattr(PeerClient, "call", call)
    async with met(*two):
        await deployed(two[0])
        before = {path.name: path.stat() for path in live(two[1]).iterdir()}
        assert sum(sizes) > 100_000, "all files were sent"
        sizes.clear()
        put(source(two[0]), {"7.sls": "seven\n"})
        await deployed(two[0])
        after = {path.name: path.stat() for path in live(two[1]).iterdir()}
        assert {name for name in after if after[name].st_ino != before[name].st_ino} == {"7.sls"}
        assert after["7.sls"].st_mtime_ns != before["7.sls"].st_mtime_ns
        assert sum(sizes) < 20_000


@in_a_loop
async def test_other_content_of_the_same_size_and_time_is_another_file(tmp_path: Path) -> None:
    """Salt's fileserver keeps the hash of a file as long as its modification time is the same."""
    (place,) = places(tmp_path, "m1")
    file = source(place) / "a.sls"
    put(source(place), {"a.sls": "one\n"})
    before = file.stat()
    async with running(place):
        await deployed(place)
        first = (live(place) / "a.sls").stat().st_mtime
        put(source(place), {"a.sls": "two\n"})
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        await deployed(place)
        assert served(place) == {"a.sls": "two\n"}
        assert (live(place) / "a.sls").stat().st_mtime != first


@in_a_loop
async def test_a_master_that_was_away_serves_it_before_it_is_ready(tmp_path: Path) -> None:
    two = places(tmp_path, "m1", "m2")
    put(source(two[0]), STATES)
    async with met(*two) as (_, away):
        await deployed(two[0])
        await away.service.parts.links.close()
    async with running(two[0]) as (one,):
        put(source(two[0]), {"top.sls": "changed\n"})
        refused = await run(two[0], "deploy")
        assert refused["retcode"] == 2
        assert "without=m2" in refused["error"]
        assert served(two[0]) == STATES
        left = await deployed(two[0], without="m2")
        assert left["left_out"] == ["m2"]
        assert served(two[0])["top.sls"] == "changed\n"
        assert served(two[1]) == STATES
        async with running(two[1]) as (other,):
            assert "tree" in other.service.parts.trees.behind()
            await until(lambda: not other.service.parts.trees.behind(), "m2 has caught up")
            assert served(two[1])["top.sls"] == "changed\n"
            await one.meets(other)


@in_a_loop
async def test_a_master_whose_file_is_damaged_can_be_left_out(tmp_path: Path) -> None:
    two = places(tmp_path, "m1", "m2")
    put(source(two[0]), STATES)
    async with met(*two) as (one, _):
        (two[0].config.state_dir / "peers" / "m2.json").write_text("{")
        await until(lambda: "m2" not in one.parts.links, "m1 has noticed")
        refused = await run(two[0], "deploy")
        assert "m2.json: " in refused["error"]
        assert "without=m2 leaves out m2" in refused["error"]
        assert (await deployed(two[0], without="m2"))["left_out"] == ["m2"]
        assert served(two[0]) == STATES
        itself = await run(two[0], "deploy", without="m1")
        assert "without=m1: that is this master; run it on another one" in itself["error"]


@in_a_loop
async def test_a_strange_master_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    two = places(tmp_path, "m1", "m2")
    async with met(*two):  # there is no source folder: reading it would fail
        for function in ("deploy", "rollback"):
            refused = await run(two[0], function, without="m8,m2,m9")
            assert refused["retcode"] == 2
            assert refused["error"] == (
                "there is no master 'm8', 'm9' in this group; its masters: m1, m2. Give one of "
                "these names"
            )


@in_a_loop
async def test_two_deployments_that_did_not_know_of_each_other(tmp_path: Path) -> None:
    two = places(tmp_path, "m1", "m2")
    for place in two:
        put(source(place), {"who.sls": place.name})
    async with met(*two):
        await deployed(two[0])
    for place, other in (two, reversed(two)):
        async with running(place):
            put(source(place), {"who.sls": f"{place.name} alone"})
            await deployed(place, without=other.name)
    async with met(*two) as (one, other):
        await until(
            lambda: all(e.service.parts.tree_registers["states"].conflict for e in (one, other)),
            "both know of the conflict",
        )
        assert served(two[0]) == {"who.sls": "m1 alone"}
        assert served(two[1]) == {"who.sls": "m2 alone"}
        status = await run(two[0], "status")
        assert any("different versions were deployed" in row["note"] for row in status["masters"])
        shown = await run(two[0], "deployments")
        assert shown["retcode"] == 1
        assert shown["trees"][0]["conflict"]
        ended = await deployed(two[1])
        assert ended["trees"][0]["conflict"]
        assert served(two[0]) == served(two[1]) == {"who.sls": "m2 alone"}
        assert (await run(two[0], "deployments"))["retcode"] == 0


@in_a_loop
async def test_what_was_edited_by_hand_is_shown_and_kept(tmp_path: Path) -> None:
    two = places(tmp_path, "m1", "m2")
    put(source(two[0]), STATES)
    async with met(*two):
        await deployed(two[0])
        put(live(two[1]), {"top.sls": "by hand\n", "mine.sls": "{}\n"})
        shown = await run(two[0], "deployments")
        assert shown["retcode"] == 1
        assert shown["trees"][0]["edits"]["m2"]["paths"] == ["mine.sls", "top.sls"]
        again = await deployed(two[0])
        assert again["trees"][0]["edits"]["m2"]["count"] == 2
        assert served(two[1]) == STATES
        kept = list(versions(two[1]).rglob("mine.sls"))
        assert [path.read_text() for path in kept] == ["{}\n"]
        assert (kept[0].parent / "top.sls").read_text() == "by hand\n"


@in_a_loop
async def test_a_look_at_a_rollback_changes_nothing_that_is_served(tmp_path: Path) -> None:
    two = places(tmp_path, "m1", "m2")
    put(source(two[0]), STATES)
    async with met(*two):
        await deployed(two[0])
        put(live(two[0]), {"top.sls": "by hand\n"})
        planned = await run(two[0], "rollback", 1, test=True)
        assert planned["retcode"] == 0, planned
        assert served(two[0])["top.sls"] == "by hand\n"
        assert planned["trees"][0]["edits"]["m1"]["paths"] == ["top.sls"]
        back = await run(two[0], "rollback", 1)
        assert back["retcode"] == 0, back
        assert served(two[0]) == STATES
        (kept,) = versions(two[0]).glob("versions/*.edited-*/top.sls")
        assert kept.read_text() == "by hand\n"


@in_a_loop
async def test_a_real_folder_is_adopted_and_kept(tmp_path: Path) -> None:
    two = places(tmp_path, "m1", "m2")
    put(source(two[0]), STATES)
    for place in two:
        put(live(place), {"old.sls": place.name})
    async with met(*two):
        refused = await run(two[0], "deploy")
        assert refused["retcode"] == 2
        assert "adopt=True" in refused["error"]
        assert served(two[1]) == {"old.sls": "m2"}
        planned = await deployed(two[0], test=True)
        assert planned["adopt"] == {"states": ["m1", "m2"]}
        # It is compared with what is live there today.
        assert [row["path"] for row in planned["trees"][0]["removed"]] == ["old.sls"]
        assert "-m1" in planned["trees"][0]["diff"]
        await deployed(two[0], adopt=True)
        assert served(two[1]) == STATES
        (kept,) = versions(two[1]).glob("before-*/old.sls")
        assert kept.read_text() == "m2"
        # What the master that deployed had is the deployment before the first.
        shown = await run(two[1], "deployments")
        assert [row["number"] for row in shown["trees"][0]["deployments"]] == [1, 0]
        back = await run(two[1], "rollback", 0)
        assert back["retcode"] == 0, back
        assert served(two[0]) == served(two[1]) == {"old.sls": "m1"}


@in_a_loop
async def test_of_a_tree_with_another_name_what_was_live_can_be_gone_back_to(
    tmp_path: Path,
) -> None:
    two = places(tmp_path, "m1", "m2")
    put(source(two[0]), STATES)
    async with met(*two):
        await deployed(two[0])
    for place in two:
        place.ha["trees"]["base"] = place.ha["trees"].pop("states")  # type: ignore[index]
        place.__post_init__()
    async with met(*two) as engines:
        put(source(two[0]), {"top.sls": "other\n"})
        await deployed(two[0])
        for engine in engines:
            await tidied(engine)
        shown = await run(two[1], "deployments")
        assert [row["number"] for row in shown["trees"][0]["deployments"]] == [1, 0]
        assert (await run(two[1], "rollback"))["retcode"] == 0
        assert served(two[0]) == served(two[1]) == STATES


@in_a_loop
async def test_a_folder_that_no_version_can_be_made_of_is_kept_beside(tmp_path: Path) -> None:
    (place,) = places(tmp_path, "m1")
    put(source(place), STATES)
    live(place).mkdir()
    (live(place) / "out").symlink_to("/etc/passwd")
    async with running(place):
        await deployed(place, adopt=True)
        assert served(place) == STATES
        shown = await run(place, "deployments")
    assert [row["number"] for row in shown["trees"][0]["deployments"]] == [1]
    assert len(list(versions(place).glob("before-*/out"))) == 1


def at_step(number: int, do: Callable[[], object]) -> Callable[[], None]:
    """What :func:`take` calls at each step; at one of them it does *do*."""
    steps = itertools.count(1)

    def step() -> None:
        if next(steps) == number:
            do()

    return step


@pytest.mark.parametrize(
    "write",
    [
        lambda top: put(top, {"a": "as it is now\n", "b": "as it is now\n"}),
        lambda top: put(top, {"c": "a\n"}),
        lambda top: (top / "a").unlink(),
    ],
    ids=["changed", "added", "removed"],
)
def test_of_a_source_that_changes_while_it_is_read_no_mixture_is_taken(
    tmp_path: Path, write: Any
) -> None:
    """As by a  git pull  just then."""
    folder = tmp_path / "source"
    put(folder, {"a": "before\n", "b": "before\n"})
    one_is_read = at_step(3, lambda: write(folder))  # both were listed before
    with pytest.raises(FolderChanged, match="changed while it was being read; deploy again"):
        take(folder, [], False, tmp_path / "digests", one_is_read)
    there = {path.name for path in folder.iterdir()}
    assert {*take(folder, [], False, tmp_path / "digests").manifest} == there


def test_a_link_that_goes_while_a_source_is_read_is_a_change_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "source"
    put(folder, {"a": "a\n"})
    (folder / "link").symlink_to("a")
    all_are_listed = at_step(3, (folder / "link").unlink)
    with pytest.raises(FolderChanged, match="source/link: changed while it was being read"):
        take(folder, [], False, tmp_path / "digests", all_are_listed)


@in_a_loop
async def test_a_plan_says_how_permissions_change(tmp_path: Path) -> None:
    (place,) = places(tmp_path, "m1")
    put(source(place), {"a": "a\n", "b": "b\n"})
    (source(place) / "a").chmod(0o640)
    async with running(place):
        await deployed(place)
        (source(place) / "a").chmod(0o750)
        put(source(place), {"b": "other\n"})
        (row,) = (await deployed(place, test=True))["trees"]
        assert [each.get("mode") for each in row["changed"]] == ["640 → 750", None]


def test_a_folder_that_goes_while_a_source_is_listed_is_a_change_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "source"
    put(folder, {"d/a": "a\n", "e/a": "a\n"})
    both_are_named = at_step(2, lambda: [shutil.rmtree(folder / name) for name in "de"])
    with pytest.raises(FolderChanged, match=r"source/[de]: changed while it was being read"):
        take(folder, [], False, tmp_path / "digests", both_are_named)


@in_a_loop
async def test_a_live_folder_that_changes_while_it_is_read_is_not_adopted_without_a_way_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place,) = places(tmp_path, "m1")
    put(source(place), STATES)
    put(live(place), {"old.sls": ""})

    def rsync(folder: Path, *more: Any) -> Any:
        *others, stop = more

        def goes_on() -> None:
            stop()
            if folder == live(place) and (folder / "old.sls").stat().st_size < 20:
                with (folder / "old.sls").open("a") as file:
                    file.write("more\n")

        return take(folder, *others, goes_on)

    async with running(place):
        with monkeypatch.context() as patched:
            patched.setattr(deploy, "take", rsync)
            refused = await run(place, "deploy", adopt=True)
        assert f"{live(place)}/old.sls: changed while it was being read" in refused["error"]
        assert not live(place).is_symlink()
        await deployed(place, adopt=True)
        assert (await run(place, "rollback", 0))["retcode"] == 0
        assert served(place)["old.sls"].startswith("more\n")


@in_a_loop
async def test_an_empty_folder_needs_no_adopting(tmp_path: Path) -> None:
    (place,) = places(tmp_path, "m1")
    put(source(place), STATES)
    live(place).mkdir()
    async with running(place):
        await deployed(place)
    assert served(place) == STATES
    assert not list(versions(place).glob("before-*"))


@in_a_loop
@pytest.mark.parametrize("adopted", [False, True])
async def test_a_source_without_files_takes_none_away(tmp_path: Path, adopted: bool) -> None:
    """As of a file system that is not mounted, when cron deploys."""
    (place,) = places(tmp_path, "m1")
    put(live(place) if adopted else source(place), STATES)
    async with running(place):
        if not adopted:
            await deployed(place)
        shutil.rmtree(source(place))
        (source(place) / "mounted").mkdir(parents=True)
        for test in (True, False):
            refused = await run(place, "deploy", adopt=adopted, test=test)
            assert refused["retcode"] == 2, refused
            assert f"there is no file in {source(place)}; is it mounted?" in refused["error"]
        assert served(place) == STATES
        put(source(place), {".keep": ""})
        await deployed(place, adopt=adopted)
        assert served(place) == {".keep": ""}


@in_a_loop
async def test_nor_where_this_master_serves_nothing_itself(tmp_path: Path) -> None:
    two = places(tmp_path, "m1", "m2")
    put(source(two[0]), STATES)
    async with met(*two):
        await deployed(two[0])
        live(two[0]).unlink()
        shutil.rmtree(source(two[0]))
        source(two[0]).mkdir()
        refused = await run(two[0], "deploy")
        assert "is it mounted?" in refused["error"]
        assert served(two[1]) == STATES


@in_a_loop
@pytest.mark.parametrize("where", ["m1", "m2"])
async def test_a_check_that_fails_anywhere_switches_nowhere(tmp_path: Path, where: str) -> None:
    check = "sh -c 'grep -q good top.sls || { echo no good; exit 3; }'"
    two = places(tmp_path, "m1", "m2", own={where: {"check": check}})
    put(source(two[0]), {"top.sls": "good"})
    async with met(*two):
        await deployed(two[0])
        put(source(two[0]), {"top.sls": "bad"})
        failed = await run(two[0], "deploy")
        assert failed["retcode"] == 2
        for words in (f"{where}: states: check", "no good", "exit code 3", "nothing was switched"):
            assert words in failed["error"]
        assert "; mend the files, or the check" in failed["error"]
        assert "without=" not in failed["error"]  # that would go around the check
        assert served(two[0]) == served(two[1]) == {"top.sls": "good"}


@in_a_loop
async def test_a_check_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    (place,) = places(tmp_path, "m1", check="sh -c 'sleep 600; true'", check_timeout=1)
    put(source(place), STATES)
    async with running(place):
        began = time.monotonic()
        failed = await run(place, "deploy")
        assert time.monotonic() - began < 120
    assert failed["retcode"] == 2
    assert "not within 1 s" in failed["error"]


def gone(file: Path) -> bool:
    """Whether the process whose id is in *file* has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(int(file.read_text())).status() == psutil.STATUS_ZOMBIE
    return True


@in_a_loop
async def test_a_check_is_ended_with_what_has_left_its_process_group(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    check = f"sh -c 'setsid sleep 600 & echo $! > {pid}; sleep 601'"
    (place,) = places(tmp_path, "m1", check=check, check_timeout=1)
    put(source(place), STATES)
    async with running(place):
        failed = await asyncio.wait_for(run(place, "deploy"), 120)
        assert failed["error"].endswith("not within 1 s")
        # A process that was killed ends when it gets a processor.
        await until(lambda: gone(pid), "what has left it is ended")
        assert "not within 1 s" in (await run(place, "deploy"))["error"], "none is under way"


@in_a_loop
@pytest.mark.parametrize("setsid", ["", "setsid "])
async def test_a_check_has_ended_though_its_output_is_still_open(
    tmp_path: Path, setsid: str
) -> None:
    pid = tmp_path / "pid"
    # The id comes from the process itself: setsid(1) may fork.
    leaves = f'{setsid}sh -c "echo \\$\\$ > {pid}; exec sleep 600" &'
    check = f"sh -c '{leaves} while [ ! -s {pid} ]; do sleep 0.05; done; echo well; exit 3'"
    (place,) = places(tmp_path, "m1", check=check)
    put(source(place), STATES)
    async with running(place):
        failed = await asyncio.wait_for(run(place, "deploy"), 120)
    assert failed["error"].endswith("exit code 3; mend the files, or the check: well")
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
    check = f"sh -c 'while [ ! -e {over} ]; do sleep 0.05; done'"
    (place,) = places(tmp_path, "m1", check=check, check_timeout=1)
    put(source(place), STATES)
    monkeypatch.setattr(check_command.os, "killpg", refused)
    monkeypatch.setattr(check_command.psutil.Process, "kill", denied)
    monkeypatch.setattr(check_command, "KILLED", 0.2)
    async with running(place):
        failed = await asyncio.wait_for(run(place, "deploy"), 120)
        over.touch()
    assert failed["retcode"] == 2
    assert "not within 1 s; process" in failed["error"]
    assert failed["error"].endswith("cannot be ended")


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
    own = {"m1": {}, "m2": {"check": writes}}
    two = places(tmp_path, "m1", "m2", own=own)
    put(source(two[0]), STATES)
    async with met(*two) as (_, m2):
        failed = await run(two[0], "deploy")
        assert failed["retcode"] == 2
        for words in ("m2", writes, "it changed the version that it checked", "write elsewhere"):
            assert words in failed["error"]
        assert not live(two[0]).exists()
        # Left out, that master fetches and serves it all the same: as it was deployed.
        await deployed(two[0], without="m2")
        await until(lambda: live(two[1]).exists(), "m2 serves it")
        assert served(two[1]) == STATES
        assert stat.S_IMODE((live(two[1]) / "top.sls").stat().st_mode) == stat.S_IMODE(
            (live(two[0]) / "top.sls").stat().st_mode
        )
        assert not m2.parts.trees.behind()


@in_a_loop
@pytest.mark.parametrize(("tree", "looks"), [({}, 0), ({"check": "true"}, 1)])
async def test_a_version_just_verified_is_looked_through_only_after_its_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tree: dict[str, Any], looks: int
) -> None:
    """Looking through 20 000 files takes 0.15 s, and all masters wait for it."""
    (place,) = places(tmp_path, "m1", **tree)
    put(source(place), STATES)
    looked: list[Path] = []
    listed = entries.entries

    def look(top: Path, *args: Any) -> Any:
        looked.append(top)
        return listed(top, *args)

    monkeypatch.setattr(entries, "entries", look)
    async with running(place):
        await deployed(place)
        within = versions(place) / "versions"
        assert [top.parent == within for top in looked].count(True) == looks


@in_a_loop
@pytest.mark.parametrize("ends", [0, 1])
async def test_of_a_version_that_a_check_has_changed_nothing_is_left(
    tmp_path: Path, ends: int
) -> None:
    """No hand has edited it; so it is not kept as edited by hand."""
    go = tmp_path / "go"
    check = f"sh -c 'test -e {go} || touch added; test -e {go} || exit {ends}'"
    (place,) = places(tmp_path, "m1", check=check)
    put(source(place), STATES)
    async with running(place):
        for _ in range(2):
            assert (await run(place, "deploy"))["retcode"] == 2
            assert not [*(versions(place) / "versions").iterdir()]
        go.touch()
        await deployed(place)
        assert served(place) == STATES
        # Whatever is deployed may be needed: it stays, and is mended when it is served again.
        put(source(place), {"new.sls": "{}\n"})
        await deployed(place)
        go.unlink()
        assert (await run(place, "rollback", 1))["retcode"] == 2
        go.touch()
        assert (await run(place, "rollback", 1))["retcode"] == 0
        assert served(place) == STATES


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
    two = places(tmp_path, "m1", "m2", own={"m2": {"check": writes}})
    put(source(two[0]), STATES)
    async with met(*two):
        failed = await run(two[0], "deploy")
    assert "it changed the version that it checked: caf\\xe9; let it" in failed["error"]


@in_a_loop
async def test_a_check_in_python_leaves_nothing_in_the_version(tmp_path: Path) -> None:
    (place,) = places(tmp_path, "m1", check=f"{sys.executable} -c 'import mine; mine.f()'")
    modules = {"mine.py": "def f():\n    return 1\n"}
    put(source(place), modules)
    async with running(place):
        await deployed(place)
    assert served(place) == modules


@in_a_loop
async def test_of_two_who_deploy_at_once_the_second_looks_again(tmp_path: Path) -> None:
    wait = "sh -c 'test ! -e slow || while test ! -e ../../../../go; do sleep 0.05; done'"
    two = places(tmp_path, "m1", "m2", check=wait)
    put(source(two[0]), {"slow": "m1"})
    put(source(two[1]), {"quick": "m2"})
    async with met(*two):
        slow = asyncio.ensure_future(run(two[0], "deploy"))
        await until(lambda: any(versions(two[0]).glob("versions/*/slow")), "it is being checked")
        assert (await run(two[1], "deploy"))["retcode"] == 0
        spare = versions(two[0]) / "staging"
        await until(lambda: any(spare.glob("*.spare")), "it is tidied")
        assert any(versions(two[0]).glob("versions/*/slow")), "its check still runs"
        (tmp_path / "trees" / "go").touch()
        refused = await slow
        assert refused["retcode"] == 2
        assert "deployed on another master meanwhile" in refused["error"]
        assert served(two[0]) == served(two[1]) == {"quick": "m2"}


@in_a_loop
async def test_what_another_deploys_between_two_trees_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two: list[Place] = []
    for name in ("m1", "m2"):
        top = tmp_path / "trees" / name
        for tree in ("states", "pillar"):
            put(top / tree, {"who": name})
        trees = {
            tree: {"source": f"{top / tree}", "live": f"{top}/live-{tree}"}
            for tree in ("states", "pillar")
        }
        two.append(Place(tmp_path, name, {**QUICK, "trees": trees}, {}))
    others: list[dict[str, Any]] = []
    switch = Masters.switch

    async def takes_time(self: Masters, name: str, *more: Any) -> dict[str, str]:
        late = await switch(self, name, *more)
        if name == "states":
            others.append(await run(two[1], "deploy", "pillar"))
        return late

    async with met(*two):
        monkeypatch.setattr(Masters, "switch", takes_time)
        answer = await run(two[0], "deploy", "states", "pillar")
        assert [other["retcode"] for other in others] == [0]
        assert answer["retcode"] == 2
        assert answer["problem"].startswith(
            "deployed: states; not deployed: pillar: tree pillar was deployed on another master"
        )
        for name in ("m1", "m2"):
            assert (tmp_path / "trees" / name / "live-states" / "who").read_text() == "m1"
            assert (tmp_path / "trees" / name / "live-pillar" / "who").read_text() == "m2"


@in_a_loop
async def test_a_version_that_is_being_checked_gives_no_room_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = "sh -c 'test ! -e slow || while test ! -e ../../../../go; do sleep 0.05; done'"
    two = places(tmp_path, "m1", "m2", check=wait)
    put(source(two[0]), STATES)
    statvfs = os.statvfs

    def full(path: Path) -> Any:
        there = versions(two[0]) / "versions"
        if there.parent in Path(path).parents and any(there.glob("*/slow")):
            return SimpleNamespace(f_bavail=0, f_frsize=1, f_blocks=1)
        return statvfs(path)

    async with met(*two):
        await deployed(two[0])
        spare = versions(two[0]) / "staging"
        await until(lambda: any(spare.glob("*.spare")), "it is tidied")
        put(source(two[0]), {"slow": "m1"})
        put(source(two[1]), {"quick": "m2"})
        slow = asyncio.ensure_future(run(two[0], "deploy"))
        await until(lambda: any(versions(two[0]).glob("versions/*/slow")), "it is being checked")
        monkeypatch.setattr(os, "statvfs", full)
        refused = await run(two[1], "deploy")
        monkeypatch.undo()
        (tmp_path / "trees" / "go").touch()
        assert (await slow)["retcode"] == 0
        assert "nothing was switched: m1: states: " in refused["error"]
        assert "are free" in refused["error"]
        assert served(two[0]) == served(two[1]) == {**STATES, "slow": "m1"}


@in_a_loop
async def test_what_was_too_large_before_any_deployment_leaves_room_for_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = places(tmp_path, "m1", "m2", own={"m2": {"check": "sh -c '! test -e large'"}})
    put(source(two[0]), {**STATES, "large": "x"})
    statvfs = os.statvfs

    def full(path: Path) -> Any:
        if any(versions(two[0]).glob("versions/*/large")):
            return SimpleNamespace(f_bavail=0, f_frsize=1, f_blocks=1)
        return statvfs(path)

    async with met(*two):
        assert (await run(two[0], "deploy"))["retcode"] == 2
        monkeypatch.setattr(os, "statvfs", full)
        (source(two[0]) / "large").unlink()
        put(source(two[0]), {"small.sls": "{}\n"})
        await deployed(two[0])


@in_a_loop
async def test_a_master_without_that_tree_is_named_with_what_to_do(tmp_path: Path) -> None:
    two = places(tmp_path, "m1", "m2", own={"m2": None})
    put(source(two[0]), STATES)
    async with met(*two):
        refused = await run(two[0], "deploy")
        assert refused["retcode"] == 2
        assert (
            "m2: has no tree states: write it into  ha: trees:  there, too, and restart its "
            "salt-master; without=m2 leaves out m2" in refused["error"]
        )
        assert not live(two[0]).exists()


@in_a_loop
async def test_all_trees_that_a_master_lacks_are_named(tmp_path: Path) -> None:
    [m1], [m2] = places(tmp_path, "m1"), places(tmp_path, "m2", own={"m2": None})
    second = {
        name: str(tmp_path / "trees" / "m1" / f"pillar-{name}") for name in ("source", "live")
    }
    Path(second["source"]).mkdir()
    m1 = Place(tmp_path, "m1", {**m1.ha, "trees": {**m1.ha["trees"], "pillar": second}}, {})
    async with met(m1, m2):
        refused = await run(m1, "deploy")
        assert "m2: has no tree states, pillar: " in refused["error"]


@in_a_loop
async def test_secret_trees_are_closed_and_not_shown(tmp_path: Path) -> None:
    two = places(tmp_path, "m1", "m2", secret=True)
    put(source(two[0]), {"users/root.sls": "password: hunter2\n"})
    async with met(*two) as engines:
        planned = await deployed(two[0], test=True)
        assert planned["trees"][0]["diff"] == []
        assert "hunter2" not in str(planned)
        done = await deployed(two[0])
        shown = await run(two[1], "deployments")
        version = engines[0].service.parts.stager.disks["states"].store.live()[1]
        assert version is not None
        for answer in (planned, done, shown):
            assert version.hex()[:8] not in str(answer)
        assert shown["trees"][0]["masters"] == {"m1": 1, "m2": 1}
        for engine in engines:
            await tidied(engine)
        for place in two:
            for path in (versions(place), *versions(place).rglob("*")):
                if not path.is_symlink():
                    assert path.stat().st_mode & 0o077 == 0, path
            assert version.hex()[:8] not in str(live(place).readlink())
            assert served(place) == {"users/root.sls": "password: hunter2\n"}


@in_a_loop
async def test_an_error_of_a_rollback_names_no_version_of_a_secret_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of folders that belong to root, after salt-master was made to run as salt."""
    (place,) = places(tmp_path, "m1", secret=True)

    def closed(store: TreeStore, version: bytes) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(store.path_of(version)))

    async with running(place):
        for text in ("one", "two"):
            put(source(place), {"a": text})
            await deployed(place)
        with monkeypatch.context() as patched:
            patched.setattr(TreeStore, "manifest", closed)
            refused = await run(place, "rollback")
    assert refused["error"] == f"{versions(place)}: Permission denied"


@in_a_loop
async def test_where_a_live_path_leads_is_closed_and_opened_again(tmp_path: Path) -> None:
    """Whoever may list the folder above reads where a link leads."""
    (place,) = places(tmp_path, "m1")

    async def led(secret: bool, text: str) -> str:
        place.opts["ha"]["trees"]["states"]["secret"] = secret
        place.config = mapping.parse(place.opts)
        put(source(place), {"top.sls": text})
        async with running(place) as (engine,):
            await deployed(place)
            assert served(place) == {"top.sls": text}
            version = engine.service.parts.stager.disks["states"].store.live()[1]
        assert version is not None
        return str(live(place).readlink()).replace(version.hex(), "VERSION")

    assert await led(False, "1") == ".live.ha/versions/VERSION"
    assert [await led(True, "2"), await led(True, "3")] == [".live.ha/served"] * 2
    assert await led(False, "4") == ".live.ha/versions/VERSION"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda top: (top / "out").symlink_to("/etc/passwd"), "leads out of the tree"),
        (lambda top: (top / "up").symlink_to("../../x"), "leads out of the tree"),
        (lambda top: os.mkfifo(top / "pipe"), "neither a file"),
        pytest.param(
            lambda top: os.mknod(top / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3)),
            "neither a file",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices"),
        ),
    ],
    ids=["absolute link", "link above", "pipe", "device"],
)
@in_a_loop
async def test_what_no_tree_may_hold(tmp_path: Path, make: Any, words: str) -> None:
    (place,) = places(tmp_path, "m1")
    make(source(place))
    async with running(place):
        refused = await run(place, "deploy")
    assert refused["retcode"] == 2
    assert words in refused["error"]
    assert not live(place).exists()


def put_under_git(folder: Path) -> None:
    """Commit all that is in *folder*, with the user's own configuration of git."""
    git = ["git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x@y"]
    for words in (["init", "-q", "-b", "production"], ["add", "-A"], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *words], check=True)


@in_a_loop
async def test_git_stays_out_and_is_named(tmp_path: Path) -> None:
    (place,) = places(tmp_path, "m1", ignore=["*.swp", "notes/*"])
    put(source(place), {**STATES, ".x.swp": "", "notes/a": ""})
    put_under_git(source(place))
    async with running(place):
        clean = await deployed(place)
        assert "production" in clean["trees"][0]["source"]
        assert "uncommitted" not in clean["trees"][0]["source"]
        assert served(place) == STATES
        put(source(place), {"top.sls": "changed\n"})
        assert "uncommitted changes" in (await deployed(place))["trees"][0]["source"]


@pytest.mark.parametrize("key", ["clean", "process"])
@pytest.mark.parametrize("name", ["x", "a=b", "A.b", "\udcff"])
def test_no_program_that_a_checkout_names_is_run(tmp_path: Path, name: str, key: str) -> None:
    checkout, ran = tmp_path / "checkout", tmp_path / "ran"
    put(checkout, STATES)
    attributes = f"*.sls filter={name}\n".encode(errors="surrogateescape")
    (checkout / ".gitattributes").write_bytes(attributes)
    put_under_git(checkout)
    program = f"touch {ran}; cat"
    with open(checkout / ".git" / "config", "a", errors="surrogateescape") as config:
        config.write(f'[filter "{name}"]\n\t{key} = "{program}"\n\trequired\n')
    put(checkout, {"top.sls": "changed\n"})
    assert "production, uncommitted changes" in commit(checkout)
    assert not ran.exists()


def test_filters_of_the_user_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of git-lfs: without it, each file of it would seem to be changed."""
    checkout, home = tmp_path / "checkout", tmp_path / "home"
    put(home, {".gitconfig": '[filter "x"]\n\tclean = "tr a b"\n'})
    monkeypatch.setenv("HOME", str(home))
    put(checkout, {"top.sls": "a\n", ".gitattributes": "*.sls filter=x\n"})
    put_under_git(checkout)
    os.utime(checkout / "top.sls", (1, 1))  # git looks into it
    assert commit(checkout).endswith(" production)")
    with open(checkout / ".git" / "config", "a") as config:
        config.write(f'[filter "x"]\n\tclean = "touch {tmp_path}/ran; tr a b"\n')
    assert "uncommitted changes" in commit(checkout)
    assert not (tmp_path / "ran").exists()


def test_the_configuration_of_the_user_is_read_without_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As systemd starts salt-master."""
    checkout, home = tmp_path / "checkout", tmp_path / "home"
    put(home, {".gitconfig": f"[safe]\n\tdirectory = {checkout}\n"})
    put(checkout, STATES)
    put_under_git(checkout)
    told = {"TEST_ASSUME_DIFFERENT_OWNER": "1", "CONFIG_NOSYSTEM": "1"}
    for name, value in told.items():
        monkeypatch.setenv(f"GIT_{name}", value)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert commit(checkout) == ""
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_dir=str(home)))
    assert commit(checkout).endswith(" production)")


def test_no_program_that_a_submodule_names_is_run(tmp_path: Path) -> None:
    checkout, ran = tmp_path / "checkout", tmp_path / "ran"
    put(checkout, STATES)
    inner = checkout / "inner"
    put(inner, {"a.sls": "a\n", ".gitattributes": "*.sls filter=x\n"})
    for folder in (inner, checkout):
        put_under_git(folder)
    with open(inner / ".git" / "config", "a") as config:
        config.write(f'[filter "x"]\n\tclean = "touch {ran}; cat"\n')
    put(inner, {"a.sls": "b\n"})
    assert commit(checkout).endswith(" production)")
    assert not ran.exists()


@in_a_loop
async def test_five_are_kept(tmp_path: Path) -> None:
    two = places(tmp_path, "m1", "m2")
    async with met(*two):
        for number in range(1, 8):
            put(source(two[0]), {"n.sls": f"{number}"})
            await deployed(two[0])
        kept = [d["number"] for d in (await run(two[0], "deployments"))["trees"][0]["deployments"]]
        assert kept == [7, 6, 5, 4, 3]
        for place in two:
            folder = versions(place) / "versions"
            await until(lambda f=folder: folders_in(f) == 5, "it is tidied")  # type: ignore[misc]
        gone = await run(two[0], "rollback", 1)
        assert gone["retcode"] == 2
        assert "kept: 7, 6, 5, 4, 3" in gone["error"]
        back = await run(two[0], "rollback", 4)
        assert back["retcode"] == 0
        assert served(two[1]) == {"n.sls": "4"}


@in_a_loop
async def test_a_version_that_somebody_edited_is_not_removed_with_the_old_ones(
    tmp_path: Path,
) -> None:
    (place,) = places(tmp_path, "m1")
    async with running(place):
        put(source(place), {"n.sls": "0"})
        await deployed(place)
        put(live(place), {"mine.sls": "by hand"})
        for number in range(1, 8):
            put(source(place), {"n.sls": f"{number}"})
            await deployed(place)
        kept = [path.read_text() for path in versions(place).glob("versions/*/mine.sls")]
        assert kept == ["by hand"]


RENDER = "import sys; from salt.utils import templates as t; print(t.py(sys.argv[1], True)['data'])"


def rendered(place: Place, name: str) -> str:
    """What Salt's renderer ``py`` makes of a file that is served there."""
    command = [sys.executable, "-c", RENDER, str(live(place) / name)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@in_a_loop
async def test_what_python_compiles_beside_a_file_is_no_edit(tmp_path: Path) -> None:
    """Salt renders pillar in Python from the live folder, and Python writes ``__pycache__``."""
    two = places(tmp_path, "m1", "m2")
    put(source(two[0]), {"sub/__pycache__/old.pyc": "of the source"})
    async with met(*two):
        for number in range(1, 8):
            put(source(two[0]), {"sub/who.sls": f"#!py\ndef run():\n    return {number}\n"})
            await deployed(two[0])
            for place in two:
                assert rendered(place, "sub/who.sls") == str(number)
                compiled = [path.name for path in live(place).glob("sub/__pycache__/*")]
                assert len(compiled) == 1
                assert compiled[0].startswith("who.")
        shown = await run(two[1], "deployments")
        assert (shown["retcode"], shown["trees"][0]["edits"]) == (0, {})
        assert (await deployed(two[0]))["trees"][0]["number"] is None
        for place in two:
            folder = versions(place) / "versions"
            await until(lambda f=folder: folders_in(f) == 5, "it is tidied")  # type: ignore[misc]
        assert (await run(two[0], "rollback", 4))["retcode"] == 0
        assert [rendered(place, "sub/who.sls") for place in two] == ["4", "4"]


@in_a_loop
async def test_a_version_that_was_deleted_by_hand_is_fetched_again(tmp_path: Path) -> None:
    two = places(tmp_path, "m1", "m2")
    put(source(two[0]), STATES)
    async with met(*two):
        await deployed(two[0])
        shutil.rmtree(live(two[1]).resolve())
        # It is shown before anything mends it, and an engine that asks is not ended by it.
        shown = await run(two[0], "deployments")
        assert shown["retcode"] in (0, 1), shown
        await until(lambda: served(two[1]) == STATES, "it is fetched from m1")
    shutil.rmtree(live(two[0]).resolve())
    shutil.rmtree(live(two[1]).resolve())
    async with met(*two):
        gone = await run(two[0], "deployments")
        assert gone["retcode"] == 1
        assert gone["trees"][0]["masters"] == {"m1": "nothing", "m2": "nothing"}
        assert "is not served here" in (await run(two[0], "status"))["masters"][0]["note"]
        await deployed(two[0])
        assert served(two[0]) == served(two[1]) == STATES


@in_a_loop
async def test_of_a_served_version_whose_manifest_is_damaged_nothing_is_claimed(
    tmp_path: Path,
) -> None:
    (place,) = places(tmp_path, "m1")
    put(source(place), STATES)
    async with running(place):
        await deployed(place)
    (manifest,) = (versions(place) / "versions").glob("*.manifest")
    manifest.write_bytes(b"")  # as after a power cut, on a disk that lies
    put(live(place), {"top.sls": "by hand\n"})
    async with running(place):
        shown = await run(place, "deployments")
        assert shown["retcode"] == 1
        assert shown["trees"][0]["masters"] == {"m1": "nothing"}
        await deployed(place)
        assert served(place) == STATES
        assert (await run(place, "deployments"))["retcode"] == 0


@in_a_loop
async def test_what_is_served_is_told_while_something_is_staged(tmp_path: Path) -> None:
    """A check takes as long as it likes; nobody who looks waits for it."""
    go = tmp_path / "go"
    command = f"sh -c 'while ! test -e {go}; do sleep 0.1; done'"
    two = places(tmp_path, "m1", "m2", check=command)
    put(source(two[0]), STATES)
    async with met(*two):
        deploying = asyncio.ensure_future(deployed(two[0]))
        await until(lambda: any([*versions(p).glob("versions/*")] for p in two), "it is staged")
        shown = await run(two[1], "deployments")
        assert shown["trees"][0]["masters"] == {"m1": "nothing", "m2": "nothing"}
        assert not deploying.done()
        go.touch()
        await deploying


@in_a_loop
async def test_what_takes_long_says_how_far_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    go, said = tmp_path / "go", ""
    command = f"sh -c 'while ! test -e {go}; do sleep 0.1; done'"
    two = places(tmp_path, "m1", "m2", own={"m2": {"check": command}})
    put(source(two[0]), STATES)

    def is_said() -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return "m2 2 of 2 new files" in said

    async with met(*two):
        deploying = asyncio.ensure_future(deployed(two[0]))
        await until(is_said, "it is said")
        assert not live(two[0]).exists()
        go.touch()
        await deploying


@in_a_loop
async def test_of_a_check_that_says_more_than_fits_the_end_is_shown(tmp_path: Path) -> None:
    says = "sh -c 'head -c 50000000 /dev/zero | tr \\0 x; echo; echo why; exit 1'"
    (place,) = places(tmp_path, "m1", check=says)
    put(source(place), STATES)
    async with running(place):
        failed = await run(place, "deploy")
    assert failed["error"].endswith("why")
    assert len(failed["error"]) < 10_000


@in_a_loop
async def test_one_deployment_at_a_time(tmp_path: Path) -> None:
    go = tmp_path / "go"
    check = f"sh -c 'while [ ! -e {go} ]; do sleep 0.05; done'"
    (place,) = places(tmp_path, "m1", check=check)
    put(source(place), STATES)
    async with running(place):
        tries = [asyncio.ensure_future(run(place, "deploy")) for _ in range(3)]
        await until(lambda: sum(each.done() for each in tries) == 2, "two are refused")
        go.touch()
        answers = await asyncio.gather(*tries)
    assert sorted(answer["retcode"] for answer in answers) == [0, 2, 2]
    refused = [answer["error"] for answer in answers if answer["retcode"]]
    assert all("under way" in error for error in refused)


@in_a_loop
async def test_a_tree_that_becomes_secret_is_closed_at_the_start(tmp_path: Path) -> None:
    (place,) = places(tmp_path, "m1")
    put(source(place), STATES)
    async with running(place):
        await deployed(place)
    assert versions(place).stat().st_mode & 0o777 == 0o755
    place.opts["ha"]["trees"]["states"]["secret"] = True
    place.config = mapping.parse(place.opts)
    async with running(place):
        await until(lambda: versions(place).stat().st_mode & 0o777 == 0o700, "it is closed")
        assert served(place) == STATES


@in_a_loop
async def test_what_a_tidying_that_was_cut_left_is_removed_later(tmp_path: Path) -> None:
    (place,) = places(tmp_path, "m1")
    put(source(place), STATES)
    async with running(place):
        await deployed(place)
        left = versions(place) / "versions" / ("a" * 64)
        # Made elsewhere: the tidying after the first deployment may still remove things there.
        made = tmp_path / "left"
        made.mkdir()
        (made / "file").touch()
        made.rename(left)
        left.with_name(f"{'b' * 64}.manifest").touch()
        put(source(place), {"new.sls": "{}"})
        await deployed(place)
        await until(lambda: not any(left.parent.glob("[ab]" * 8 + "*")), "it is tidied")
        assert folders_in(left.parent) == 2


@in_a_loop
async def test_a_name_that_is_no_text_is_shown_and_stops_nothing(tmp_path: Path) -> None:
    two = places(tmp_path, "m1", "m2")
    put(source(two[0]), STATES)
    async with met(*two):
        await deployed(two[0])
        for place in two:
            Path(os.fsdecode(os.fsencode(live(place)) + b"/caf\xe9")).write_text("by hand")
        shown = await run(two[0], "deployments")
        assert not shown["unknown"]
        edits = {"count": 1, "paths": ["caf\\xe9"]}
        assert shown["trees"][0]["edits"] == {"m1": edits, "m2": edits}
        put(source(two[0]), {"new.sls": "{}\n"})
        await deployed(two[0])
        assert "new.sls" in served(two[1])


@in_a_loop
async def test_a_message_of_several_lines_is_taken(tmp_path: Path) -> None:
    """As of ``git log -1 --format=%B``: Salt takes it for an argument without a name."""
    (place,) = places(tmp_path, "m1")
    put(source(place), STATES)
    message = "nginx 1.28\n\nwith=ssl"
    given, named = parse_input(["states", f"message={message}"], condition=False)
    assert not named
    async with running(place):
        await deployed(place, *given)
        shown = await run(place, "deployments")
        assert shown["trees"][0]["deployments"][0]["message"] == message
        refused = await run(place, "deploy", "massage=a\nb")
        assert "massage: takes test, without, message, adopt" in refused["error"]


@in_a_loop
async def test_a_message_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (place,) = places(tmp_path, "m1")
    put(source(place), STATES)
    async with running(place):
        refused = await run(place, "deploy", message="caf\udce9")
        assert refused["error"] == "message: takes text in UTF-8; nothing was changed"
        assert not live(place).exists()
        await deployed(place, message="caf\u00e9")


@in_a_loop
async def test_a_live_folder_that_is_mounted_is_told_before_anything_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = places(tmp_path, "m1", "m2")
    put(source(two[0]), STATES)
    put(live(two[0]), {"old.sls": "m1"})
    put(live(two[1]), {"old.sls": "m2"})
    mounted = tmp_path / "mountinfo"
    mounted.write_text(f"36 35 98:0 / {live(two[1])} rw - tmpfs none rw\n")
    monkeypatch.setattr("saltext_ha.trees.obstacles.MOUNTS", mounted)
    async with met(*two):
        for options in ({"test": True}, {"adopt": True}):
            refused = await run(two[0], "deploy", **options)
            assert refused["retcode"] == 2
            assert f"nothing was changed: m2: {live(two[1])} is a mount point" in refused["error"]
            assert refused["error"].endswith("; without=m2 leaves out m2")
        assert not any(versions(place).exists() for place in two)
        status = await run(two[0], "status")
        assert not any(row["note"] for row in status["masters"])
        mounted.write_text("")
        await deployed(two[0], adopt=True)


@in_a_loop
async def test_a_master_that_cannot_serve_refuses_to_stage_for_an_older_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deployer of an older release does not read the obstacle in the state."""
    two = places(tmp_path, "m1", "m2")
    put(source(two[0]), STATES)
    mounted = tmp_path / "mountinfo"
    mounted.write_text(f"36 35 98:0 / {versions(two[1])} rw - tmpfs none rw\n")
    monkeypatch.setattr("saltext_ha.trees.obstacles.MOUNTS", mounted)
    monkeypatch.setattr("saltext_ha.trees.stager.obstacle", lambda tree: "")
    async with met(*two):
        refused = await run(two[0], "deploy")
    assert f"nothing was switched: m2: states: {versions(two[1])} is a mount" in refused["error"]
    assert not live(two[0]).exists()


@in_a_loop
async def test_where_a_rollback_cannot_go_is_said(tmp_path: Path) -> None:
    (place,) = places(tmp_path, "m1")
    put(source(place), STATES)
    put(live(place), STATES)
    name = next(iter(place.opts["ha"]["trees"]))
    async with running(place):
        assert "there is no tree" in (await run(place, "deploy", ["nosuch"]))["error"]
        await deployed(place, adopt=True)  # what was live before is deployment 0, and the same
        refused = await run(place, "rollback")
        assert "no earlier deployment differs from the current one" in refused["error"]
        refused = await run(place, "rollback", name)
        assert f"is not kept; kept: 1, 0; did you mean tree={name}?" in refused["error"]


@in_a_loop
async def test_if_one_of_two_trees_has_nowhere_to_go_back_the_other_is_named(
    tmp_path: Path,
) -> None:
    """Whoever deployed new states only, and is in a hurry to undo that."""
    (place,) = places(tmp_path, "m1")
    folder = tmp_path / "trees" / "m1"
    (folder / "pillar-source").mkdir()
    put(folder / "pillar-source", {"top.sls": "base: {}\n"})
    second = {"source": str(folder / "pillar-source"), "live": str(folder / "pillar-live")}
    place = Place(
        tmp_path, "m1", {**place.ha, "trees": {**place.ha["trees"], "pillar": second}}, {}
    )
    async with running(place):
        for states in ("one", "two"):
            put(source(place), {"a.sls": states})
            await deployed(place)
        for wanted, reason in (((), "no deployment before the current one"), ((2,), "is not kept")):
            refused = await run(place, "rollback", *wanted)
            assert f"tree pillar: {'' if wanted else 'there is '}" in refused["error"]
            assert reason in refused["error"]
            assert refused["error"].endswith("; to take back another tree alone: tree=states")
        assert served(place) == {"a.sls": "two"}
        assert (await run(place, "rollback", tree="states"))["retcode"] == 0
        assert served(place) == {"a.sls": "one"}
        refused = await run(place, "rollback", 7, tree="states")
        assert "tree=" not in refused["error"]


@in_a_loop
async def test_without_a_tree_it_is_said_how_to_get_one(tmp_path: Path) -> None:
    place = Place(tmp_path, "m1")
    async with running(place):
        refused = await run(place, "deployments")
        assert "write  ha: trees:  into its configuration" in refused["error"]
        assert "restart salt-master" in refused["error"]


@in_a_loop
async def test_a_rollback_adopts_too(tmp_path: Path) -> None:
    (place,) = places(tmp_path, "m1")
    put(source(place), STATES)
    async with running(place):
        await deployed(place)
        put(source(place), {"new.sls": "{}\n"})
        await deployed(place)
        live(place).unlink()
        put(live(place), {"mine.sls": "by hand"})
        refused = await run(place, "rollback", 1)
        assert "ha.rollback with adopt=True" in refused["error"]
        assert served(place) == {"mine.sls": "by hand"}
        back = await run(place, "rollback", 1, adopt=True)
        assert back["retcode"] == 0, back
        assert served(place) == STATES
        assert [path.read_text() for path in versions(place).glob("before-*/*")] == ["by hand"]


@pytest.mark.parametrize("noticed", ["before it is fetched", "while it is fetched"])
@in_a_loop
async def test_a_deployment_that_was_too_large_keeps_no_disk_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noticed: str
) -> None:
    two = places(tmp_path, "m1", "m2")
    put(source(two[0]), STATES)
    huge, append = 5_000_000, Parts.append

    def full(path: Path) -> Any:
        m2 = str(path).startswith(str(versions(two[1]))) and noticed == "before it is fetched"
        return SimpleNamespace(f_bavail=huge // 2 if m2 else huge * 2, f_frsize=1)

    def fills(parts: Parts, digest: bytes, offset: int, data: bytes) -> None:
        if offset > huge // 2:
            raise OSError(errno.ENOSPC, "No space left on device", str(parts.path(digest)))
        append(parts, digest, offset, data)

    monkeypatch.setattr(os, "statvfs", full)
    monkeypatch.setattr(Parts, "append", fills)
    async with met(*two):
        await deployed(two[0])
        (source(two[0]) / "huge.iso").write_bytes(os.urandom(huge))
        refused = await run(two[0], "deploy")
        why = "new files need 5.0 MB, and 2.5 MB are free"
        assert "nothing was switched: m2: states: " in refused["error"]
        assert (why in refused["error"]) is (noticed == "before it is fetched")
        assert ("No space left" in refused["error"]) is (noticed != "before it is fetched")
        assert sum(path.stat().st_size for path in versions(two[1]).rglob("*")) < huge // 2
        (source(two[0]) / "huge.iso").unlink()
        put(source(two[0]), {"small.sls": "{}\n"})
        await deployed(two[0])


@in_a_loop
async def test_versions_staged_in_vain_are_removed_once_a_later_one_is_served(
    tmp_path: Path,
) -> None:
    bad = {"check": "sh -c '! test -e bad'"}
    two = places(tmp_path, "m1", "m2", own={"m2": bad})
    folders = [versions(place) / "versions" for place in two]
    async with met(*two):
        for number in (1, 2):
            put(source(two[0]), {"n.sls": "0", "bad": ""})
            for _ in range(2):
                assert (await run(two[0], "deploy"))["retcode"] == 2
            assert folders_in(folders[0]) == number
            (source(two[0]) / "bad").unlink()
            put(source(two[0]), {"n.sls": f"{number}"})
            await deployed(two[0])
            for folder in folders:
                await until(lambda f=folder, n=number: folders_in(f) == n, "it is tidied")  # type: ignore[misc]


@in_a_loop
async def test_what_was_staged_in_vain_before_any_deployment_is_removed_at_the_start(
    tmp_path: Path,
) -> None:
    (place,) = places(tmp_path, "m1", check="false")
    put(source(place), STATES)
    async with running(place):
        assert (await run(place, "deploy"))["retcode"] == 2
    folder = versions(place) / "versions"
    assert folders_in(folder) == 1
    async with running(place):
        await until(lambda: folders_in(folder) == 0, "it is removed")


@in_a_loop
async def test_what_an_attempt_left_is_removed_at_the_start(tmp_path: Path) -> None:
    (place,) = places(tmp_path, "m1")
    put(source(place), STATES)
    async with running(place):
        await deployed(place)
    part = versions(place) / "staging" / "parts" / ("e" * 64)
    part.write_text("half of a file")
    async with running(place):
        await until(lambda: not part.exists(), "it is removed")
        assert served(place) == STATES


@in_a_loop
async def test_an_edit_in_place_on_all_masters_leaves_the_way_back(tmp_path: Path) -> None:
    """The same hot fix everywhere, by an editor that writes into the file that is there."""
    two = places(tmp_path, "m1", "m2")
    put(source(two[0]), {**STATES, "conf": "good\n"})
    async with met(*two):
        await deployed(two[0])
        put(source(two[0]), {"new.sls": "{}\n"})
        await deployed(two[0])
        for place in two:
            await until(lambda p=place: len(copies(p)) == 4, "copied")  # type: ignore[misc]
            put(live(place), {"conf": "hot fix\n"})
        put(source(two[0]), {"conf": "hot fix\n"})
        await deployed(two[0])
        for number in (2, 1):
            back = await run(two[0], "rollback", number)
            assert back["retcode"] == 0, back
            for place in two:
                assert served(place)["conf"] == "good\n"


@in_a_loop
async def test_of_each_tree_contents_are_copied_by_one_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each deployment began another, while the first still copied."""
    (place,) = places(tmp_path, "m1")
    steps: list[float] = []
    breath, go, own = asyncio.Event(), asyncio.sleep, 1.25  # nothing else sleeps that long

    async def sleep(seconds: float, result: Any = None) -> None:
        if seconds != own:
            return await go(seconds, result)
        steps.append(seconds)
        await breath.wait()

    monkeypatch.setattr("saltext_ha.trees.store.AT_A_TIME", -1)
    monkeypatch.setattr("saltext_ha.trees.trees.BREATH", own)
    monkeypatch.setattr("saltext_ha.trees.trees.asyncio.sleep", sleep)
    async with running(place):
        for number in range(3):
            put(source(place), {"a.sls": "a", "n.sls": f"{number}"})
            await deployed(place)
            folder = versions(place) / "staging"
            await until(lambda f=folder: any(f.glob("*.spare")), "it is tidied")  # type: ignore[misc]
        await until(lambda: bool(steps), "it copies")
        assert len(steps) == 1
        breath.set()
        await until(lambda: len(copies(place)) == 4, "all are copied")


@in_a_loop
async def test_why_nothing_is_copied_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (place,) = places(tmp_path, "m1")
    tried = 0

    def fails(*_: Any) -> None:
        nonlocal tried
        tried += 1
        raise OSError(errno.EIO, "Input/output error", "/versions/secret")

    monkeypatch.setattr("saltext_ha.trees.store.TreeStore.preserve", fails)
    async with running(place):
        for number in (1, 2):
            put(source(place), {"n.sls": f"{number}"})
            await deployed(place)
            await until(lambda n=number: tried == n, "it is tried")  # type: ignore[misc]
    said = [record.getMessage() for record in caplog.records if "tidied" in record.getMessage()]
    assert said == ["ha trees: states: old versions are not tidied or copied: Input/output error"]
