"""Remotes of gitfs and git_pillar, as Salt itself fetches them, at the commits of two masters."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import salt.daemons.masterapi
import salt.fileserver
import salt.utils.gitfs

from lab.engines import Place
from tests.functional.comparing import checked, found, place
from tests.repositories import commit, git, head, repository

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus")]

# GitPython is there with each Salt; newer ones have one more that takes the git command alone.
PROVIDERS = ["gitpython", *(["gitcli"] if hasattr(salt.utils.gitfs, "GitCLI") else [])]


@pytest.fixture
def remotes(tmp_path: Path) -> tuple[Path, Path]:
    """Of states, with a branch and a tag beside; of pillar, with a branch that nobody uses."""
    made = []
    for name in ("states", "secrets"):
        made.append(repository(tmp_path / name))
        git("branch", "dev", cwd=made[-1])
        git("tag", "-a", "-m", "x", "v1", cwd=made[-1])
    return made[0], made[1]


def master(root: Path, name: str, provider: str, *remotes: Path) -> Place:
    states, pillar = (f"file://{remote}" for remote in remotes)
    return place(
        root,
        name,
        fileserver_backend=["roots", "gitfs"],
        gitfs_provider=provider,
        gitfs_base="main",
        gitfs_remotes=[states],
        git_pillar_provider=provider,
        ext_pillar=[{"git": [f"main {pillar}"]}],
    )


def update(place: Place) -> None:
    """What ``salt-run fileserver.update`` and ``git_pillar.update`` do, in other processes."""
    opts = copy.deepcopy(place.opts)
    salt.utils.gitfs.GitFS.instance_map.clear()  # one a process, of one master
    salt.fileserver.Fileserver(opts).update(back=["gitfs"])
    for pillar in salt.daemons.masterapi.init_git_pillar(opts):
        pillar.fetch_remotes()


@pytest.mark.parametrize("provider", PROVIDERS)
def test_by_remote_and_commit(tmp_path: Path, provider: str, remotes: tuple[Path, Path]) -> None:
    one, two = (master(tmp_path, name, provider, *remotes) for name in ("m1", "m2"))
    first = [head(remote) for remote in remotes]
    update(one), update(two)
    answer = checked(one, two)
    assert (found(answer), answer["retcode"]) == ({}, 0)

    second = [commit(remote, "two") for remote in remotes]
    update(two)
    answer = checked(one, two)
    states, pillar = (f"file://{remote}" for remote in remotes)
    assert found(answer) == {
        f"roots:gitfs:{states}:main": {"m1": first[0], "m2": second[0]},
        f"roots:git_pillar:{pillar}:main": {"m1": first[1], "m2": second[1]},
    }
    fixes = [difference["fix"] for difference in answer["sections"]["roots"]["differences"]]
    assert [fix.split(" on ")[0] for fix in fixes] == [
        "salt-run fileserver.update backend=git",
        "salt-run git_pillar.update",
    ]
    assert answer["retcode"] == 1

    update(one)
    answer = checked(one, two)
    assert (found(answer), answer["retcode"]) == ({}, 0)


def test_branches_that_come_and_go(tmp_path: Path, remotes: tuple[Path, Path]) -> None:
    one, two = (master(tmp_path, name, "gitpython", *remotes) for name in ("m1", "m2"))
    update(one), update(two)
    git("branch", "-D", "dev", cwd=remotes[0])
    git("branch", "next", cwd=remotes[0])
    update(two)
    absent: Any = {"absent": True}
    at = head(remotes[0])
    assert found(checked(one, two)) == {
        f"roots:gitfs:file://{remotes[0]}:dev": {"m1": at, "m2": absent},
        f"roots:gitfs:file://{remotes[0]}:next": {"m1": absent, "m2": at},
    }
    update(one)
    assert found(checked(one, two)) == {}


def test_who_has_not_fetched_yet_is_told_to(tmp_path: Path, remotes: tuple[Path, Path]) -> None:
    one, two = (master(tmp_path, name, "gitpython", *remotes) for name in ("m1", "m2"))
    update(two)
    answer = checked(one, two)
    states, pillar = (f"file://{remote}" for remote in remotes)
    waiting = {"m1": "not fetched yet", "m2": "configured"}
    assert found(answer) == {
        f"roots:gitfs:{states}": waiting,
        f"roots:git_pillar:{pillar}": waiting,
    }
    fixes = [difference["fix"] for difference in answer["sections"]["roots"]["differences"]]
    assert fixes == [
        "salt-run fileserver.update backend=git on m1",
        "salt-run git_pillar.update on m1",
    ]


def of_pillar(root: Path, name: str, *entries: Any, **options: Any) -> Place:
    """A master with these remotes of git_pillar."""
    return place(
        root, name, git_pillar_provider="gitpython", ext_pillar=[{"git": [*entries]}], **options
    )


def test_a_remote_that_names_no_branch(tmp_path: Path, remotes: tuple[Path, Path]) -> None:
    """It takes ``git_pillar_branch``."""
    url = f"file://{remotes[1]}"
    one, two = (of_pillar(tmp_path, name, url, git_pillar_branch="main") for name in ("m1", "m2"))
    first = head(remotes[1])
    update(one)
    second = commit(remotes[1], "two")
    update(two)
    assert found(checked(one, two)) == {f"roots:git_pillar:{url}:main": {"m1": first, "m2": second}}


@pytest.mark.parametrize(("before", "now"), [("main", "dev"), ("dev", "main")])
def test_what_was_fetched_for_another_branch_stays_and_is_not_used(
    tmp_path: Path, remotes: tuple[Path, Path], before: str, now: str
) -> None:
    """Salt keeps one repository a remote and branch, and never removes that of git_pillar."""
    url = f"file://{remotes[1]}"
    update(of_pillar(tmp_path, "m1", f"{before} {url}"))
    git("checkout", "-q", "dev", cwd=remotes[1])
    commit(remotes[1], "two")
    git("checkout", "-q", "main", cwd=remotes[1])
    commit(remotes[1], "three")
    one, two = (of_pillar(tmp_path, name, f"{now} {url}") for name in ("m1", "m2"))
    update(one), update(two)
    assert found(checked(one, two)) == {}


def test_a_branch_that_was_not_fetched_beside_one_that_was(
    tmp_path: Path, remotes: tuple[Path, Path]
) -> None:
    url = f"file://{remotes[1]}"
    update(of_pillar(tmp_path, "m2", f"main {url}"))
    one, two = (of_pillar(tmp_path, name, f"main {url}", f"dev {url}") for name in ("m1", "m2"))
    update(one)
    waiting = {"m1": "configured", "m2": "not fetched yet"}
    assert found(checked(one, two)) == {f"roots:git_pillar:{url}": waiting}


def test_a_repository_that_has_a_name_of_its_own(
    tmp_path: Path, remotes: tuple[Path, Path]
) -> None:
    url = f"file://{remotes[1]}"
    entries = [{f"main {url}": [{"name": "ours"}, {"root": "x"}]}, f"dev {url}"]
    one, two = (of_pillar(tmp_path, name, *entries) for name in ("m1", "m2"))
    update(one), update(two)
    assert found(checked(one, two)) == {}
    first, second = head(remotes[1]), commit(remotes[1], "two")
    update(two)
    assert found(checked(one, two)) == {f"roots:git_pillar:{url}:main": {"m1": first, "m2": second}}
