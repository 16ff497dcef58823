"""What is taken from the folder that a deployment is read from."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from saltext_ha.common.errors import FolderChanged, HaError
from saltext_ha.trees.manifest import FILE
from saltext_ha.trees.source import LISTED, Source, commit, take
from tests.disk_steps import put
from tests.repositories import put_under_git


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    return tmp_path / "source"


def taken(
    source: Path,
    ignore: Sequence[str] = (),
    secret: bool = False,
    step: Callable[[], None] = lambda: None,
) -> Source:
    return take(source, ignore, secret, source.with_name("digests"), step)


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
    source: Path, write: Any
) -> None:
    """As by a  git pull  just then."""
    put(source, {"a": "before\n", "b": "before\n"})
    one_is_read = at_step(3, lambda: write(source))  # both were listed before
    with pytest.raises(FolderChanged, match="changed while it was being read; deploy again"):
        taken(source, step=one_is_read)
    there = {path.name for path in source.iterdir()}
    assert {*taken(source).manifest} == there


def test_a_link_that_goes_while_a_source_is_read_is_a_change_of_it(source: Path) -> None:
    put(source, {"a": "a\n"})
    (source / "link").symlink_to("a")
    all_are_listed = at_step(3, (source / "link").unlink)
    with pytest.raises(FolderChanged, match="source/link: changed while it was being read"):
        taken(source, step=all_are_listed)


def test_a_folder_that_goes_while_a_source_is_listed_is_a_change_of_it(source: Path) -> None:
    put(source, {"d/a": "a\n", "e/a": "a\n"})
    both_are_named = at_step(2, lambda: [shutil.rmtree(source / name) for name in "de"])
    with pytest.raises(FolderChanged, match=r"source/[de]: changed while it was being read"):
        taken(source, step=both_are_named)


@pytest.mark.parametrize("key", ["clean", "process"])
@pytest.mark.parametrize("name", ["x", "a=b", "A.b", "\udcff"])
def test_no_program_that_a_checkout_names_is_run(tmp_path: Path, name: str, key: str) -> None:
    checkout, ran = tmp_path / "checkout", tmp_path / "ran"
    put(checkout, {"top.sls": "base: {}\n"})
    attributes = f"*.sls filter={name}\n".encode(errors="surrogateescape")
    (checkout / ".gitattributes").write_bytes(attributes)
    put_under_git(checkout)
    program = f"touch {ran}; cat"
    with open(checkout / ".git" / "config", "a", errors="surrogateescape") as config:
        config.write(f'[filter "{name}"]\n\t{key} = "{program}"\n\trequired\n')
    put(checkout, {"top.sls": "changed\n"})
    assert "production, uncommitted changes" in commit(checkout, ())
    assert not ran.exists()


def test_filters_of_the_user_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of git-lfs: without it, each file of it would seem to be changed."""
    checkout, home = tmp_path / "checkout", tmp_path / "home"
    put(home, {".gitconfig": '[filter "x"]\n\tclean = "tr a b"\n'})
    monkeypatch.setenv("HOME", str(home))
    put(checkout, {"top.sls": "a\n", ".gitattributes": "*.sls filter=x\n"})
    put_under_git(checkout)
    os.utime(checkout / "top.sls", (1, 1))  # git looks into it
    assert commit(checkout, ()).endswith(" production)")
    with open(checkout / ".git" / "config", "a") as config:
        config.write(f'[filter "x"]\n\tclean = "touch {tmp_path}/ran; tr a b"\n')
    assert "uncommitted changes" in commit(checkout, ())
    assert not (tmp_path / "ran").exists()


def test_files_that_git_ignores_are_told(source: Path) -> None:
    """They are deployed, and in no commit."""
    put(source, {"d/top.sls": "base: {}\n", "d/.gitignore": "*.local\n*.swp\n"})
    put_under_git(source)
    put(source, {"d/sub/x.swp": "", "other.local": "", "d/__pycache__/a.local": ""})
    deployed = source / "d"
    assert taken(deployed, ignore=["*.swp"]).words.endswith(" production)")
    put(source, {"d/sub/ä ö.local": ""})
    found = taken(deployed, ignore=["*.swp"])
    assert found.words.endswith(" production, files that git ignores)")
    assert "sub/ä ö.local" in found.manifest


def test_a_checkout_in_a_folder_that_git_ignores_is_told(source: Path) -> None:
    """As a formula that was cloned there: git names its folder, and nothing in it."""
    put(source, {"top.sls": "base: {}\n", ".gitignore": "formulas/\n"})
    put_under_git(source)
    put(source, {"formulas/nginx/init.sls": ""})
    put_under_git(source / "formulas" / "nginx")
    assert taken(source).words.endswith(" production, files that git ignores)")
    assert taken(source, ignore=["/formulas/"]).words.endswith(" production)")


def test_the_configuration_of_the_user_is_read_without_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As systemd starts salt-master."""
    checkout, home = tmp_path / "checkout", tmp_path / "home"
    put(home, {".gitconfig": f"[safe]\n\tdirectory = {checkout}\n"})
    put(checkout, {"top.sls": "base: {}\n"})
    put_under_git(checkout)
    told = {"TEST_ASSUME_DIFFERENT_OWNER": "1", "CONFIG_NOSYSTEM": "1"}
    for name, value in told.items():
        monkeypatch.setenv(f"GIT_{name}", value)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert commit(checkout, ()) == ""
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_dir=str(home)))
    assert commit(checkout, ()).endswith(" production)")


def test_no_program_that_a_submodule_names_is_run(tmp_path: Path) -> None:
    checkout, ran = tmp_path / "checkout", tmp_path / "ran"
    put(checkout, {"top.sls": "base: {}\n"})
    inner = checkout / "inner"
    put(inner, {"a.sls": "a\n", ".gitattributes": "*.sls filter=x\n"})
    for folder in (inner, checkout):
        put_under_git(folder)
    with open(inner / ".git" / "config", "a") as config:
        config.write(f'[filter "x"]\n\tclean = "touch {ran}; cat"\n')
    put(inner, {"a.sls": "b\n"})
    assert commit(checkout, ()).endswith(" production)")
    assert not ran.exists()


def test_what_takes_long_is_given_up_when_it_is_to_be(source: Path) -> None:
    with (source / "large").open("wb") as file:
        file.truncate(1 << 40)  # more than is read in an hour; it takes no space

    def stop() -> None:
        raise HaError("it stops")

    with pytest.raises(HaError, match="it stops"):
        taken(source, step=at_step(11, stop))


def test_owners_and_modes(source: Path) -> None:
    root = os.geteuid() == 0
    # Only root reads a file that its owner may not.
    for name, mode in (("run", 0o755), ("group", 0o040 if root else 0o440), ("setuid", 0o4711)):
        (source / name).touch()
        (source / name).chmod(mode)
    if root:
        os.chown(source / "run", 12345, 12345)
    found = taken(source)
    assert found.words == str(source), "it is no git checkout"
    modes = {path: node.mode for path, node in found.manifest.items()}
    # Who serves it must be able to read it.
    assert modes == {"run": 0o755, "group": 0o440, "setuid": 0o711}
    assert found.owners == (["12345"] if root else [])
    closed = taken(source, secret=True)
    assert {node.mode & 0o077 for node in closed.manifest.values()} == {0}


def refused(source: Path) -> str:
    with pytest.raises(HaError) as caught:
        taken(source)
    return str(caught.value)


def test_all_that_is_wrong_with_a_source_is_named(source: Path) -> None:
    source.rmdir()
    assert refused(source).startswith(f"{source}: there is no such folder here; ha.deploy reads ")
    source.symlink_to(source)
    assert refused(source) == f"{source}: Too many levels of symbolic links"
    source.unlink()
    source.mkdir()
    (source / ("x" * 255)).touch()
    (source / "\u00fc").touch()
    (source / "odd").symlink_to("\udcff")
    (source / "\udcff").touch()
    (source / "out").symlink_to("/etc")
    (source / "up").symlink_to("../../x")
    os.mkfifo(source / "pipe")
    assert refused(source) == (
        f"{source}: cannot be deployed: '\\udcff': a name is UTF-8, of at most 255 bytes; odd: a "
        "link that leads out of the tree; out: a link that leads out of the tree; pipe: neither a "
        "file, a folder nor a link; up: a link that leads out of the tree; mend it, or leave it "
        "out by ignore:"
    )
    for number in range(LISTED):
        os.mkfifo(source / f"pipe{number}")
    assert "; pipe0: neither" in refused(source)
    assert f"{LISTED - 1}: neither" not in refused(source)
    assert ", and 5 more; mend it" in refused(source)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_a_device_is_not_taken(source: Path) -> None:
    try:
        os.mknod(source / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("this root may make no devices")
    assert "null: neither a file, a folder nor a link" in refused(source)


@pytest.mark.parametrize(
    ("glob", "left"),
    [
        ("*.swp", {"notes/a", "sub/notes/b"}),
        ("notes/", {"a.swp", "sub/c.swp"}),
        ("notes", {"a.swp", "sub/c.swp"}),
        ("/notes/", {"a.swp", "sub/c.swp", "sub/notes/b"}),
        ("/notes", {"a.swp", "sub/c.swp", "sub/notes/b"}),
        ("*/", {"a.swp"}),
        ("a.swp/", {"a.swp", "notes/a", "sub/c.swp", "sub/notes/b"}),
        ("/*.swp", {"notes/a", "sub/notes/b"}),
        ("sub/*", {"a.swp", "notes/a"}),
        ("/a.swp", {"notes/a", "sub/c.swp", "sub/notes/b"}),
        ("c.swp", {"a.swp", "notes/a", "sub/notes/b"}),
        ("/c.swp", {"a.swp", "notes/a", "sub/c.swp", "sub/notes/b"}),
    ],
)
def test_what_is_ignored_may_be_written_with_slashes(
    source: Path, glob: str, left: set[str]
) -> None:
    put(source, dict.fromkeys(("a.swp", "notes/a", "sub/c.swp", "sub/notes/b"), ""))
    found = taken(source, [glob]).manifest
    assert {path for path, node in found.items() if node.kind == FILE} == left


def test_a_source_with_too_many_entries(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saltext_ha.trees.source.MOST_ENTRIES", 3)
    for name in ("a", "b", "c"):
        (source / name).mkdir()
    assert len(taken(source).manifest) == 3
    (source / "c" / "d").touch()
    assert "more than 3 entries" in refused(source)
    assert len(taken(source, ["d"]).manifest) == 3
