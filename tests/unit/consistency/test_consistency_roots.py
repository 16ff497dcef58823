"""Which files are served and what is in them: held against Salt's own fileserver."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path, PurePath
from typing import Any

import msgpack
import pytest
import salt.config
import salt.fileclient
import salt.loader

from saltext_ha.common.errors import StillReading
from saltext_ha.config import mapping
from saltext_ha.consistency import digests, git, result, roots, tree
from saltext_ha.consistency.digests import Digests
from saltext_ha.consistency.facts import Facts
from saltext_ha.consistency.section import Mine
from saltext_ha.consistency.tree import Seen
from tests import repositories
from tests.tools import program

pytestmark = pytest.mark.core

NONCE = b"n" * 32
SECRET = "hunter2-correct-horse"


def opts(root: Path, **options: Any) -> dict[str, Any]:
    return salt.config.apply_master_config(
        {
            "id": "m1",
            "root_dir": str(root),
            "pki_dir": str(root / "pki"),
            "sock_dir": str(root / "run"),
            "cachedir": str(root / "cache"),
            "file_roots": {"base": [str(root / "srv")]},
            "pillar_roots": {"base": [str(root / "pillar")]},
            **options,
        }
    )


def write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def srv(tmp_path: Path) -> Path:
    """A tree with everything in it that the fileserver treats in some way of its own."""
    srv, elsewhere = tmp_path / "srv", tmp_path / "elsewhere"
    for name in ("top.sls", "web/init.sls", "web/conf.j2", "db/.hidden", "db/x.swp", "ä/ö.sls"):
        write(srv / name, name)
    write(elsewhere / "shared/a.sls", "shared")
    write(elsewhere / "one.sls", "one")
    (srv / "linked").symlink_to(elsewhere / "shared")
    (srv / "one.sls").symlink_to(elsewhere / "one.sls")
    (srv / "again.sls").symlink_to("top.sls")
    (srv / "dangling").symlink_to("nowhere")
    (srv / "web/round").symlink_to(srv / "web")
    os.mkfifo(srv / "pipe")
    (srv / "empty").mkdir()
    return srv


def served_by_salt(master: dict[str, Any], env: str = "base") -> set[str]:
    """What Salt lists and would also hand out."""
    server = salt.loader.fileserver(master, ["roots"])
    shutil.rmtree(Path(master["cachedir"]), ignore_errors=True)
    listed = server["roots.file_list"]({"saltenv": env})
    # Salt goes round in a link to a folder above; every file is there without.
    direct = (name for name in listed if "round/" not in name)
    return {name for name in direct if server["roots.find_file"](name, env)["path"]}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"file_ignore_glob": ["*.swp", "*/.hidden"]},
        {"file_ignore_regex": [r"/\.", r"^web/"]},
        {"file_ignore_regex": [r"/srv/web/"]},  # of the full path: listed, and not handed out
        {"fileserver_followsymlinks": False},
        {"fileserver_ignoresymlinks": True},
        {"fileserver_followsymlinks": False, "fileserver_ignoresymlinks": True},
    ],
)
def test_the_files_of_states_are_those_that_salt_serves(
    tmp_path: Path, srv: Path, options: dict[str, Any]
) -> None:
    master = opts(tmp_path, **options)
    served = set(tree.files([str(srv)], tree.for_states(master)))
    assert served == served_by_salt(master)
    assert "top.sls" in served


@pytest.mark.parametrize("options", [{}, {"file_ignore_glob": ["db", "*.swp", "top.sls"]}])
def test_the_files_of_pillar_are_those_that_salt_reads(
    tmp_path: Path, srv: Path, options: dict[str, Any]
) -> None:
    srv.rename(tmp_path / "pillar")
    master = opts(tmp_path, **options)
    client = salt.fileclient.get_file_client({**master, "cachedir": str(tmp_path / "c")}, True)
    listed = {name for name in client.file_list() if "round/" not in name}
    read = {name for name in listed if client._find_file(name)["path"]}
    assert set(tree.files([str(tmp_path / "pillar")], tree.for_pillar())) == read


def test_the_first_root_that_has_a_file_wins(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    write(one / "a"), write(two / "a"), write(two / "b")
    found = tree.files([str(one), str(two), str(tmp_path / "gone")], tree.for_states({}))
    assert {name: seen.path for name, seen in found.items()} == {
        "a": str(one / "a"),
        "b": str(two / "b"),
    }


def test_every_environment_that_has_a_folder(tmp_path: Path) -> None:
    for env in ("dev", "test"):
        write(tmp_path / "envs" / env / "salt" / "top.sls")
    write(tmp_path / "envs" / "README")
    master = opts(
        tmp_path, file_roots={"__env__": [f"{tmp_path}/envs/__env__/salt"], "base": ["/nowhere"]}
    )
    found = tree.environments(master["file_roots"])
    assert found.keys() == {"base", "dev", "test"}
    for env in ("dev", "test"):
        assert set(tree.files(found[env], tree.for_states(master))) == served_by_salt(master, env)


# What is in them


def seen(*paths: Path) -> dict[str, Seen]:
    return {path.name: Seen(str(path), path.stat()) for path in paths}


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ten seconds later than when the files were written."""
    now = digests.time.time_ns
    monkeypatch.setattr(digests.time, "time_ns", lambda: now() + 10_000_000_000)


@pytest.mark.usefixtures("later")
def test_what_has_not_changed_is_not_read_again(tmp_path: Path) -> None:
    files = [write(tmp_path / "srv" / str(number), str(number)) for number in range(50)]
    first = Digests(tmp_path / "state")
    found, missed = first.of(seen(*files))
    assert (first.read, missed) == (50, {})
    written = digests.mark_of((tmp_path / "state" / digests.FILE).stat())
    again = Digests(tmp_path / "state")
    assert again.of(seen(*files)) == (found, {})
    assert again.read == 0
    memory = (tmp_path / "state" / digests.FILE).stat()
    assert digests.mark_of(memory) == written, "nor is anything written"
    assert oct(memory.st_mode)[-3:] == "600"


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("how", ["longer", "same size", "time set back", "another file"])
def test_what_has_changed_is_read_again(tmp_path: Path, how: str) -> None:
    path = write(tmp_path / "srv" / "a", "old")
    before = path.stat()
    one = Digests(tmp_path / "state")
    found, _ = one.of(seen(path))
    if how == "another file":
        write(tmp_path / "b", "new").replace(path)
    else:
        path.write_text("older" if how == "longer" else "new")
    if how == "time set back":
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    two = Digests(tmp_path / "state")
    assert two.of(seen(path))[0] != found
    assert two.read == 1


def test_what_changed_just_now_may_change_again_unseen(tmp_path: Path) -> None:
    path = write(tmp_path / "srv" / "a", "old")
    Digests(tmp_path / "state").of(seen(path))
    again = Digests(tmp_path / "state")
    again.of(seen(path))
    assert again.read == 1


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("damage", [b"", b"\xff\xff", b"\x80", b"\x81\xa6format\x07"])
def test_a_damaged_memory_is_made_anew(tmp_path: Path, damage: bytes) -> None:
    path = write(tmp_path / "srv" / "a")
    found = Digests(tmp_path / "state").of(seen(path))
    (tmp_path / "state" / digests.FILE).write_bytes(damage)
    for reads in (1, 0):
        again = Digests(tmp_path / "state")
        assert (again.of(seen(path)), again.read) == (found, reads)


def test_without_a_place_to_remember_it_files_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "srv" / "a")
    (tmp_path / "state").write_text("no folder")
    assert Digests(tmp_path / "state").of(seen(path))[0].keys() == {"a"}


@pytest.mark.usefixtures("later")
def test_reading_that_takes_long_goes_on_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = seen(*(write(tmp_path / "srv" / str(number)) for number in range(3)))
    ticks = itertools.count()
    monkeypatch.setattr(digests.time, "monotonic", lambda: float(next(ticks)))
    with pytest.raises(StillReading, match="1 of 3 files"):
        Digests(tmp_path / "state", patience=1.5).of(files)
    again = Digests(tmp_path / "state")
    again.of(files)
    assert again.read == 2


def test_a_folder_that_may_not_be_read_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "srv/a"), write(tmp_path / "srv/closed/b"), write(tmp_path / "pki/x")
    scandir = os.scandir

    def as_another_user(path: str) -> Any:  # root may read all
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(tree.os, "scandir", as_another_user)
    taken = facts(opts(tmp_path))
    assert {p for p in taken.leaves if p.startswith("file_roots:base:")} == {"file_roots:base:a"}
    closed = tmp_path / "srv/closed"
    assert taken.unknown == {"file_roots:base:closed": f"{closed}: permission denied"}
    monkeypatch.undo()
    read = facts(opts(tmp_path))
    assert "file_roots:base:closed/b" in read.leaves
    assert roots.compare({"m1": read, "m2": taken}) == []
    third = dataclasses.replace(read, leaves={**read.leaves, "file_roots:base:closed/b": b"other"})
    (found,) = roots.compare({"m1": read, "m2": taken, "m3": third})
    assert found["values"]["m2"] == {"unknown": f"{closed}: permission denied"}


@pytest.mark.parametrize("how", [errno.ESTALE, errno.EACCES, errno.EIO])
def test_roots_that_cannot_be_read_are_unknown_and_not_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: int
) -> None:
    """As on a server of NFS that was installed anew: all masters would be the same."""
    write(tmp_path / "srv/a"), write(tmp_path / "pki/x")
    scandir = os.scandir

    def as_stale(path: str) -> Any:
        if str(path).endswith("srv"):
            raise OSError(how, os.strerror(how), path)
        return scandir(path)

    monkeypatch.setattr(tree.os, "scandir", as_stale)
    why = f"{tmp_path / 'srv'}: {os.strerror(how).lower()}"
    assert facts(opts(tmp_path)).unknown == {"file_roots": why}
    monkeypatch.undo()
    stat = Path.stat

    def stale(path: Path, **more: Any) -> os.stat_result:
        if path.name == "srv":
            raise OSError(how, os.strerror(how), path)
        return stat(path, **more)

    monkeypatch.setattr(Path, "stat", stale)
    assert facts(opts(tmp_path)).unknown == {"file_roots": why}


def test_a_pipe_and_a_file_that_is_gone(tmp_path: Path) -> None:
    path = write(tmp_path / "srv" / "a")
    files = seen(path)
    path.unlink()
    os.mkfifo(path)
    assert Digests(tmp_path / "state").of(files)[0].keys() <= {"a"}
    path.unlink()
    assert Digests(tmp_path / "state").of(files) == ({}, {})


# The section


def facts(master: dict[str, Any], nonce: bytes = NONCE) -> Facts:
    return roots.take(Mine(master, mapping.parse(master), nonce))


def compared(one: Facts, two: Facts) -> dict[str, dict[str, Any]]:
    found = result.of_section(roots.SECTION, {"m1": one, "m2": two}, {})
    json.dumps(found)
    return {entry["path"]: entry["values"] for entry in found["differences"]}


@pytest.fixture
def two(tmp_path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two masters that serve the same."""
    masters = []
    for name in ("one", "two"):
        root = tmp_path / name
        write(root / "srv/top.sls", "top")
        write(root / "srv/web/init.sls", "web")
        write(root / "pillar/top.sls", f"password: {SECRET}")
        write(root / "srv-dev/top.sls")
        (root / "pki").mkdir()
        env = {"base": [str(root / "srv")], "dev": [str(root / "srv-dev")]}
        masters.append(opts(root, file_roots=env))
    return masters[0], masters[1]


def test_the_same_files_in_other_places(two: tuple[dict[str, Any], dict[str, Any]]) -> None:
    one, other = (facts(master) for master in two)
    assert one == other
    assert compared(one, other) == {}
    assert roots.size({"m1": one, "m2": other}) == 4 + 3, "files and environments"


def test_files_that_are_missing_different_and_extra(
    two: tuple[dict[str, Any], dict[str, Any]], tmp_path: Path
) -> None:
    srv = tmp_path / "two/srv"
    (srv / "web/init.sls").unlink()
    write(srv / "top.sls", "other")
    write(srv / "extra.sls", "extra")
    write(tmp_path / "two/pillar/top.sls", "password: other")
    found = compared(*(facts(master) for master in two))
    assert found.keys() == {
        "file_roots:base:extra.sls",
        "file_roots:base:top.sls",
        "file_roots:base:web/init.sls",
        "pillar_roots:base:top.sls",
    }
    assert found["file_roots:base:web/init.sls"]["m2"] == {"absent": True}
    assert found["file_roots:base:extra.sls"]["m1"] == {"absent": True}
    # No digest either: by it, whoever may read this answer could guess what is in a small file.
    assert found["file_roots:base:top.sls"] == {"m1": "content #1", "m2": "content #2"}
    assert found["pillar_roots:base:top.sls"] == {"m1": {"secret": "#1"}, "m2": {"secret": "#2"}}


def test_an_environment_that_is_missing_is_one_difference(
    two: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    one, other = two
    other = {**other, "file_roots": {"base": other["file_roots"]["base"]}}
    assert compared(facts(one), facts(other)) == {
        "file_roots:dev": {"m1": "present", "m2": {"absent": True}}
    }


def test_names_of_any_bytes_travel_and_stay_apart(
    two: tuple[dict[str, Any], dict[str, Any]], tmp_path: Path
) -> None:
    for name in (b"\xff", b"\xfe"):
        write(tmp_path / "two/srv" / os.fsdecode(name))
    told = facts(two[1])
    assert msgpack.unpackb(msgpack.packb(dict(told.leaves))) == dict(told.leaves)
    assert set(compared(facts(two[0]), told)) == {
        "file_roots:base:\\xff",
        "file_roots:base:\\xfe",
    }


def test_modules_that_masters_load(two: tuple[dict[str, Any], dict[str, Any]]) -> None:
    masters = []
    for root, master in zip(("one", "two"), two, strict=True):
        top = Path(master["pki_dir"]).parent
        assert top.name == root
        modules = {"extension_modules": str(top / "ext"), "utils_dirs": [str(top / "ext/utils")]}
        modules |= {"runner_dirs": [str(top / "run"), str(top / "none")], "returner_dirs": None}
        masters.append({**master, **modules})
        write(top / "ext/auth/corp.py", root)
        write(top / "ext/auth/same.py", "same")
        write(top / "ext/utils/u.py", "same")
        write(top / f"ext/auth/__pycache__/{root}.cpython-311.pyc", root)
        write(top / "ext/auth/corp.pyc", root)
        write(top / "ext/.git/HEAD", root)
        write(top / "ext/auth/corp.py~", root)
    write(Path(masters[0]["extension_modules"]) / "runners/x.py")
    write(Path(masters[1]["runner_dirs"][0]) / "y.py")
    parts = {"m1": facts(masters[0]), "m2": facts(masters[1])}
    assert {path for path in parts["m1"].leaves if "roots" not in path} == {
        "extension_modules:auth/corp.py",
        "extension_modules:auth/same.py",
        "extension_modules:utils/u.py",
        "extension_modules:runners/x.py",
    }
    assert compared(parts["m1"], parts["m2"]) == {
        "extension_modules:auth/corp.py": {"m1": "content #1", "m2": "content #2"},
        "extension_modules:runners/x.py": {"m1": "content #1", "m2": {"absent": True}},
        "runner_dirs:y.py": {"m1": {"absent": True}, "m2": "content #1"},
    }
    found = result.of_section(roots.SECTION, parts, {})["differences"]
    assert all(entry["severity"] == "drift" for entry in found)
    assert [entry["fix"] for entry in found] == [
        f"put the same file in place on m1 or m2 ({roots.SYNC}); restart salt-master there",
        "remove the file on m1, or put it in place on m2, too; restart salt-master there",
        "remove the file on m2, or put it in place on m1, too; restart salt-master there",
    ]


def test_an_older_release_that_tells_nothing_of_modules(
    two: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    one, other = two
    one["extension_modules"] = str(Path(one["pki_dir"]).parent / "ext")
    write(Path(one["extension_modules"]) / "runners/x.py")
    old = ("file_roots", "pillar_roots", "gitfs_remotes", "gitfs", "git_pillar")
    parts = {"m1": facts(one), "m2": Facts(facts(other).leaves, {}, old)}
    found = result.of_section(roots.SECTION, parts, {})
    assert (found["status"], found["differences"]) == ("unknown", [])
    assert found["unknown"]["m2"].startswith("extension_modules: not reported")


def test_many_modules_that_cannot_be_read_hide_no_states(
    two: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    one, other = two
    write(Path(one["file_roots"]["base"][0], "top.sls"), "another")
    states = "file_roots:base:closed"
    missed = {f"extension_modules:runners/{n}": "denied" for n in range(roots.FEW + 1)}
    unknown = roots._unknown({states: "permission denied", **missed})
    assert unknown.keys() == {states, "extension_modules"}
    assert unknown["extension_modules"] == (
        f"{len(missed)} files cannot be read; extension_modules:runners/0: denied"
    )
    parts = {"m1": dataclasses.replace(facts(one), unknown=unknown), "m2": facts(other)}
    found = result.of_section(roots.SECTION, parts, {})
    assert [entry["path"] for entry in found["differences"]] == ["file_roots:base:top.sls"]


@pytest.mark.parametrize(
    "folder", ["__pycache__", ".git", "sub/.git", "sub/__pycache__", "lost+found"]
)
def test_folders_that_are_not_compared_are_not_listed(
    two: tuple[dict[str, Any], dict[str, Any]], monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    one, _ = two
    one["extension_modules"] = str(Path(one["pki_dir"]).parent / "ext")
    places = [Path(one["extension_modules"]), *map(Path, one["file_roots"]["base"])]
    for place in places:
        write(place / folder / "deep/x")
    scandir, listed = os.scandir, []

    def noting(path: str) -> Any:
        listed.append(str(path))
        return scandir(path)

    monkeypatch.setattr(tree.os, "scandir", noting)
    facts(one)
    assert str(places[0]) in listed
    assert not [path for path in listed if f"/{folder}" in path]


@pytest.mark.parametrize(
    "made",
    [
        # It has the time of its source in it.
        *("__pycache__/who.cpython-311.pyc", "sub/__pycache__/who.cpython-311.pyc"),
        # Of a checkout, when it was fetched; of a worktree or submodule, where the rest is.
        *(".git/logs/HEAD", ".git", "formulas/apache/.git", ".hg/dirstate", ".svn/wc.db"),
        # Where the folder is a file system of its own; only root may list it.
        "lost+found/#12",
    ],
)
def test_what_each_master_makes_beside_states_and_pillar_is_not_compared(
    two: tuple[dict[str, Any], dict[str, Any]], made: str
) -> None:
    one, other = two
    for option in ("file_roots", "pillar_roots"):
        write(Path(one[option]["base"][0]) / made, "made here")
        for master in two:
            write(Path(master[option]["base"][0]) / ".gitignore", "*.swp")
    assert facts(one) == facts(other)
    assert "file_roots:base:.gitignore" in facts(one).leaves


def test_what_salt_writes_beside_the_repositories_of_winrepo_is_not_compared(
    two: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    """``winrepo.update_git_repos`` writes into file_roots by default."""
    for number, master in enumerate(two):
        top = Path(master["file_roots"]["base"][0])
        repositories = top / "win/repo-ng"
        write(repositories / "packages/_" / "work" / "init.sls", "firefox")
        write(repositories / "remote_map.txt", f"# winrepo_remote map as of 12:00:0{number}")
        write(repositories / "cache_version", f"3008.{number}")
        write(repositories / "work" / "packages/_/update.lk", str(number))
        write(top / "work/cache_version", "a site's own")
    one, other = map(facts, two)
    assert one == other
    packaged = [path for path in one.leaves if path.startswith("file_roots:base:win/")]
    assert [PurePath(path).parts[-2:] for path in packaged] == [("work", "init.sls")]
    assert "file_roots:base:work/cache_version" in one.leaves


def test_pillar_is_told_under_a_nonce_only(two: tuple[dict[str, Any], dict[str, Any]]) -> None:
    path = "pillar_roots:base:top.sls"
    assert facts(two[0]).leaves[path] != facts(two[0], b"m" * 32).leaves[path]


def test_without_the_roots_backend_its_files_do_not_matter(
    two: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    taken = facts({**two[0], "fileserver_backend": ["gitfs"]})
    assert {path.split(":")[0] for path in taken.leaves} == {"pillar_roots"}


def test_a_file_that_cannot_be_read_is_unknown(
    two: tuple[dict[str, Any], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = facts(two[0]), facts(two[1])
    path = "file_roots:base:top.sls"
    leaves = {name: value for name, value in other.leaves.items() if name != path}
    broken = Facts(leaves, {path: "permission denied"}, other.covers)
    found = result.of_section(roots.SECTION, {"m1": one, "m2": broken}, {})
    assert found["status"] == "unknown"
    assert found["unknown"] == {"m2": f"{path}: permission denied"}


# git


def home(master: dict[str, Any], kind: str, text: str) -> Path:
    """The folder in which Salt keeps the remote *text*."""
    return Path(master["cachedir"], kind, git._names(text, {}, "sha256")[0])


def fetched(remote: Path, folder: Path, packed: bool) -> None:
    """As Salt keeps a remote: branches below refs/remotes/origin."""
    folder.mkdir(parents=True)
    repositories.git("init", "-q", ".", cwd=folder)
    repositories.git("remote", "add", "origin", str(remote), cwd=folder)
    repositories.git("fetch", "-q", "--tags", "origin", cwd=folder)
    if packed:
        repositories.git("pack-refs", "--all", cwd=folder)


def test_what_was_fetched_since_git_packed_its_references(tmp_path: Path) -> None:
    remote = repositories.repository(tmp_path / "remote")
    master = opts(tmp_path, fileserver_backend=["gitfs"], gitfs_remotes=[str(remote)])
    clone = home(master, "gitfs", str(remote)) / "_"
    fetched(remote, clone, packed=True)
    repositories.git("remote", "set-head", "origin", "main", cwd=clone)
    new = repositories.commit(remote, "two")
    repositories.git("fetch", "-q", "origin", cwd=clone)
    assert git.states(master, NONCE) == {
        f"gitfs:{remote}": git.FETCHED,
        f"gitfs:{remote}:main": new,
        git.REMOTES: [str(remote)],
    }


@pytest.mark.parametrize("missing", ["HEAD", "config"])
def test_a_repository_that_is_not_whole_was_not_fetched(tmp_path: Path, missing: str) -> None:
    remote = repositories.repository(tmp_path / "remote")
    master = opts(tmp_path, fileserver_backend=["gitfs"], gitfs_remotes=[str(remote)])
    clone = home(master, "gitfs", str(remote)) / "_"
    fetched(remote, clone, packed=False)
    (clone / ".git" / missing).unlink()
    assert git.states(master, NONCE)[f"gitfs:{remote}"] == git.NOT_FETCHED


def test_pillar_of_the_branch_of_each_environment(tmp_path: Path) -> None:
    remote = repositories.repository(tmp_path / "remote")
    repositories.git("branch", "dev", cwd=remote)
    at = repositories.head(remote)
    for branch, names in {"main": {"main"}, "__env__": {"main", "dev"}}.items():
        master = opts(tmp_path / branch, ext_pillar=[{"git": f"{branch} {remote}"}])
        fetched(remote, home(master, "git_pillar", f"{branch} {remote}") / "_", packed=False)
        assert git.pillars(master) == {
            f"git_pillar:{remote}": git.FETCHED,
            **{f"git_pillar:{remote}:{name}": at for name in names},
        }


@pytest.mark.parametrize("packed", [False, True])
def test_git_remotes_by_branch_and_commit(tmp_path: Path, packed: bool) -> None:
    remote = repositories.repository(tmp_path / "remote")
    first = repositories.head(remote)
    repositories.git("tag", "v1", cwd=remote)
    repositories.git("tag", "-a", "-m", "of its own", "v2", cwd=remote)
    repositories.git("branch", "dev", cwd=remote)
    options = {
        "fileserver_backend": ["roots", "gitfs"],
        "gitfs_remotes": [{str(remote): [{"root": "x"}]}, "https://user:pw@git.example/other"],
        "ext_pillar": ["no mapping", {"git": [f"main {remote}"]}],
    }
    one, two = (opts(tmp_path / name, **options) for name in ("one", "two"))
    fetched(remote, home(one, "gitfs", str(remote)) / "_", packed)
    fetched(remote, home(one, "git_pillar", f"main {remote}"), packed)
    second = repositories.commit(remote, "two")
    fetched(remote, home(two, "gitfs", str(remote)) / "_", packed)
    fetched(remote, home(two, "git_pillar", f"main {remote}"), packed)
    states = git.states(one, NONCE)
    arranged = [{str(remote): {"root": "x"}}, "https://git.example/other"]
    assert states.pop(git.REMOTES) == git.states(two, NONCE)[git.REMOTES] == arranged
    assert states == {
        f"gitfs:{remote}": "configured",
        f"gitfs:{remote}:main": first,
        f"gitfs:{remote}:dev": first,
        f"gitfs:{remote}:v1": first,
        f"gitfs:{remote}:v2": repositories.git("rev-parse", "v2", cwd=remote),
        "gitfs:https://git.example/other": git.NOT_FETCHED,
    }
    assert git.pillars(one) == {
        f"git_pillar:{remote}": "configured",
        f"git_pillar:{remote}:main": first,
    }
    for master in (one, two):
        Path(master["pki_dir"]).mkdir()
    assert compared(facts(one), facts(two)) == {
        f"gitfs:{remote}:main": {"m1": first, "m2": second},
        f"git_pillar:{remote}:main": {"m1": first, "m2": second},
    }


URL = "https://git.example/x"


@pytest.mark.parametrize(
    ("one", "two", "shown"),
    [
        ([{URL: [{"root": "prod"}]}], [{URL: [{"root": "dev"}]}],
         ([{URL: {"root": "prod"}}], [{URL: {"root": "dev"}}])),
        ([{URL: [{"root": "prod"}]}], [URL], ([{URL: {"root": "prod"}}], [URL])),
        ([URL, f"{URL}2"], [f"{URL}2", URL], ([URL, f"{URL}2"], [f"{URL}2", URL])),
        ([{URL: [{"privkey": "/a"}, {"root": "p"}]}], [{URL: [{"root": "p"}]}], ()),
        ([{URL: [{"name": "a"}, {"proxy": f"http://me:{SECRET}@proxy"}]}], [URL], ()),
        ([f"https://me:{SECRET}@{URL[8:]}"], [URL], ()),
    ],
)  # fmt: skip
def test_what_remotes_serve_of_themselves_and_in_which_order(
    tmp_path: Path, one: list[Any], two: list[Any], shown: tuple[Any, ...]
) -> None:
    (tmp_path / "pki").mkdir()
    backend = {"fileserver_backend": ["gitfs"], "pillar_roots": {}}
    found = compared(*(facts(opts(tmp_path, gitfs_remotes=r, **backend)) for r in (one, two)))
    assert found == (
        {"gitfs_remotes": dict(zip(("m1", "m2"), shown, strict=True))} if shown else {}
    )


def test_what_is_not_everywhere_hides_no_difference_between_the_others(
    two: tuple[dict[str, Any], dict[str, Any]], tmp_path: Path
) -> None:
    """Of m1 and m2 in what m3 has not got at all, or has not fetched yet."""
    one, other = two
    write(tmp_path / "two/srv-dev/top.sls", "another")
    without = {**one, "file_roots": {"base": one["file_roots"]["base"]}}
    parts = {"m1": facts(one), "m2": facts(other), "m3": facts(without)}
    found = result.of_section(roots.SECTION, parts, {})["differences"]
    assert [entry["path"] for entry in found] == ["file_roots:dev", "file_roots:dev:top.sls"]
    assert found[0]["fix"] == (
        "add dev to file_roots on m3, or take it out on m1 and m2; restart salt-master there"
    )

    def fetched(served: str, **leaves: str) -> Facts:
        at = {f"gitfs:{URL}:{branch}": commit for branch, commit in leaves.items()}
        mark = git.FETCHED if leaves else git.NOT_FETCHED
        return Facts({f"gitfs:{URL}": mark, git.REMOTES: [served], **at}, {}, tuple(roots.RULES))

    there = {"main": "a" * 40, "dev": "b" * 40}
    parts = {"m1": fetched("x", **there), "m2": fetched("y", **{**there, "dev": "c" * 40})}
    parts["m3"] = fetched("x")
    found = result.of_section(roots.SECTION, parts, {})["differences"]
    assert {entry["path"]: entry["fix"].split(" on ")[-1] for entry in found} == {
        git.REMOTES: "m2, in the same order; restart salt-master there",
        f"gitfs:{URL}": "m3",
        f"gitfs:{URL}:dev": "m1, m2 or m3",
    }


@pytest.mark.parametrize(
    ("holders", "fix"),
    [
        ("m1", "remove the file on m1, or put it in place on m2 and m3, too; no restart needed"),
        ("m1 m3", f"put the file in place on m2 ({roots.HOW}); no restart needed"),
        ("m1 m2!", f"put the same file in place on m1, m2 or m3 ({roots.HOW}); "
         "no restart needed"),
        ("m1 m2 m3!", f"put the same file in place on m3 ({roots.HOW}); no restart needed"),
    ],
)  # fmt: skip
def test_what_to_do_about_a_file(holders: str, fix: str) -> None:
    parts = {}
    for name in ("m1", "m2", "m3"):
        content = bytes(32) if f"{name}!" not in holders else b"x" * 32
        leaves = {"file_roots:base:a": content} if name in holders else {}
        parts[name] = Facts(leaves, {}, tuple(roots.RULES))
    (entry,) = result.of_section(roots.SECTION, parts, {})["differences"]
    assert entry["fix"] == fix


def test_a_file_that_cannot_be_read_is_no_difference_where_another_lacks_all() -> None:
    every = tuple(roots.RULES)
    base = {"file_roots:base": "present"}
    dev = {**base, "file_roots:dev": "present"}
    parts = {
        "m1": Facts({**dev, "file_roots:dev:x.sls": b"1" * 16}, {}, every),
        "m2": Facts(dev, {"file_roots:dev:x.sls": "permission denied"}, every),
        "m3": Facts(base, {}, every),
    }
    assert [found["path"] for found in roots.compare(parts)] == ["file_roots:dev"]


def test_a_master_that_cannot_decrypt_the_pillar_of_another(tmp_path: Path) -> None:
    """A real key of gpg, with its subkey, in the folder where Salt's renderer looks by default."""
    config = {name: tmp_path / name / "etc" / "master" for name in ("m1", "m2")}
    home = config["m1"].parent / "gpgkeys"
    home.mkdir(mode=0o700, parents=True)
    # The path of a socket may have 107 bytes, and gpg puts the one of its agent there.
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        gpg = [program("gpg"), "--homedir", short]
        make = ("--batch", "--passphrase", "", "--quick-gen-key", "salt", "default", "default", "0")
        show = ("-K", "--with-keygrip", "--with-colons")
        try:
            for arguments in (make, show):
                done = subprocess.run(
                    [*gpg, *arguments], check=True, capture_output=True, text=True
                )
        finally:
            subprocess.run(["gpgconf", "--homedir", short, "--kill", "all"], check=False)
        shutil.copytree(Path(short) / "private-keys-v1.d", home / "private-keys-v1.d")
    grips = {line.split(":")[9] for line in done.stdout.splitlines() if line.startswith("grp:")}
    one, two = (facts(opts(tmp_path / name, conf_file=str(config[name]))) for name in config)
    differences = result.of_section(roots.SECTION, {"m1": one, "m2": two}, {})["differences"]
    found = {each["path"]: each for each in differences}
    assert found.keys() == {f"gpg_keydir:{grip}" for grip in grips}
    assert len(grips) == 2
    for each in found.values():
        assert each["fix"].startswith("m2 cannot render pillar encrypted for it: as the user of")
        assert "/etc/salt/gpgkeys, or what gpg_keydir: says" in each["fix"]
        assert each["severity"] == "drift"
    same = facts(opts(tmp_path / "m3", gpg_keydir=str(home)))
    assert not compared(one, same)


def test_secret_keys_that_cannot_be_listed_are_unknown(tmp_path: Path) -> None:
    write(tmp_path / "gpgkeys" / "private-keys-v1.d")
    unknown = facts(opts(tmp_path, gpg_keydir=str(tmp_path / "gpgkeys"))).unknown
    assert "not a directory" in unknown["gpg_keydir"]


def test_a_secret_key_that_only_root_may_read_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that root has imported into the folder of the user of salt-master."""
    key = write(tmp_path / "gpgkeys" / "private-keys-v1.d" / f"{'A' * 40}.key")
    settings = opts(tmp_path, gpg_keydir=str(tmp_path / "gpgkeys"))
    assert f"gpg_keydir:{'A' * 40}" in facts(settings).leaves
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != str(key))
    taken = facts(settings)
    assert f"{key}: permission denied" in taken.unknown["gpg_keydir"]
    assert not any(path.startswith("gpg_keydir") for path in taken.leaves)


def test_a_remote_that_only_one_master_has(tmp_path: Path) -> None:
    options = {"fileserver_backend": ["git"]}
    one = opts(tmp_path / "one", gitfs_remotes=["https://git.example/a"], **options)
    two = opts(tmp_path / "two", **options)
    found = compared(facts(one), facts(two))
    assert found == {"gitfs:https://git.example/a": {"m1": git.NOT_FETCHED, "m2": {"absent": True}}}
    parts = {"m1": facts(one), "m2": facts(two)}
    (entry,) = result.of_section(roots.SECTION, parts, {"m3": "refused"})["differences"]
    assert entry["fix"] == (
        "add https://git.example/a to gitfs_remotes on m2, or take it out on m1; "
        "restart salt-master there"
    )


# -- git


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        ({}, 150),
        ({"gitfs_update_interval": 300}, 330),
        ({"git_pillar_update_interval": 300, "loop_interval": 10}, 340),
        ({"gitfs_update_interval": 86400}, 900),
        ({"gitfs_update_interval": "often"}, 150),
    ],
)
def test_how_long_the_next_master_may_take_to_fetch_the_same(
    options: dict[str, Any], seconds: float
) -> None:
    assert git.fetched_within(options) == seconds


def test_remotes_are_read_however_they_are_written() -> None:
    assert git._arrangement(["", None, {"b": 5}]) == ["", "None", "b"]
    assert git._entries(None) == git._entries([]) == []
    assert git._entries(["a", {"b": [{"root": "x"}, {"name": 5}]}, {}, {"c": None}]) == [
        ("a", {}),
        ("b", {"root": "x", "name": 5}),
        ("{}", {}),
        ("c", {}),
    ]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://git.example.com/a", "https://git.example.com/a"),
        ("https://me:secret@git.example.com/a", "https://git.example.com/a"),
        ("https://me:s@cret@git.example.com/a", "https://git.example.com/a"),
        ("git@git.example.com:a", "git@git.example.com:a"),
        ("//me@git.example.com/a", "//me@git.example.com/a"),
        ("file:///srv/a@b", "file:///srv/a@b"),
    ],
)
def test_no_user_of_a_remote_is_told(url: str, shown: str) -> None:
    assert git._url(url) == shown


@pytest.mark.parametrize("home", ["", ".git", "_", "_/.git", "dev/.git"])
def test_a_repository_is_found_wherever_a_release_of_salt_keeps_it(
    tmp_path: Path, home: str
) -> None:
    (tmp_path / home).mkdir(parents=True, exist_ok=True)
    (tmp_path / home / "HEAD").write_text("ref: refs/heads/main")
    (tmp_path / "none" / ".git").mkdir(parents=True)
    assert {*git._repositories(tmp_path)} == {tmp_path / home}


def test_of_the_repositories_of_all_environments_the_latest_counts(tmp_path: Path) -> None:
    remote = repositories.repository(tmp_path / "remote")
    text = f"__env__ {remote}"
    master = opts(tmp_path, ext_pillar=[{"git": [text]}])
    for env, fetched_at, commit in (("a", 2, "a" * 40), ("b", 3, "b" * 40), ("c", 1, "c" * 40)):
        clone = home(master, "git_pillar", text) / env
        fetched(remote, clone, packed=False)
        (clone / ".git/refs/remotes/origin/main").write_text(commit)
        os.utime(clone / ".git/FETCH_HEAD", (fetched_at, fetched_at))
    assert git.pillars(master)[f"git_pillar:{remote}:main"] == "b" * 40


@pytest.mark.parametrize("config", [None, "url = x", "[core", '[remote "upstream"]\n  url = x'])
def test_a_repository_without_a_remote_has_none(tmp_path: Path, config: str | None) -> None:
    if config is not None:
        (tmp_path / "config").write_text(config)
    assert git._remote_of(tmp_path) == ""


def test_a_remote_is_read_as_git_writes_it(tmp_path: Path) -> None:
    text = '[core]\n\tbare\n[remote "origin"]\n\turl = https://h/%a\n\t\tfetch = x\n\tfetch = y\n'
    (tmp_path / "config").write_text(text)
    assert git._remote_of(tmp_path) == "https://h/%a"
