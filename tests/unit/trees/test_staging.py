"""What a version is put together from: a spare, other versions, what was fetched before."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from saltext_ha.common.errors import HaError
from saltext_ha.config.trees import Tree
from saltext_ha.trees import entries
from saltext_ha.trees import manifest as manifests
from saltext_ha.trees.live_path import LINKED
from saltext_ha.trees.source import Source, take
from saltext_ha.trees.staging import Staging
from saltext_ha.trees.store import TreeStore
from tests.disk_steps import free_space, read

FILES = {f"{folder}/{name}": f"{folder}{name}\n" for folder in "abc" for name in range(10)}


def copy_all(staging: Staging, found: Source) -> None:
    """Bring all contents that *staging* lacks from the folder of *found*."""
    for digest, paths in staging.missing.items():
        staging.copy(digest, found.folder / paths[0])
        assert staging.settle(digest)


class Master:
    """One that deploys what *files* its source has."""

    def __init__(self, root: Path) -> None:
        self.root, self.live = root, root / "live"
        self.store = TreeStore(Tree("states", self.live))
        self.kept: list[bytes] = []

    def read(self, files: dict[str, str]) -> Source:
        source = self.root / "source"
        for path in [path for path in source.rglob("*") if path.is_file()]:
            if str(path.relative_to(source)) not in files:
                path.unlink()
        for path, text in files.items():
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            if not (source / path).exists() or (source / path).read_text() != text:
                (source / path).write_text(text)
        return take(source, (), False, self.root / "digests")

    def begun(
        self, files: dict[str, str], in_use: list[bytes] | None = None
    ) -> tuple[Staging, Source, bytes]:
        found = self.read(files)
        version = manifests.version_of(found.manifest)
        return self.store.begin(version, found.manifest, in_use), found, version

    def stage(self, files: dict[str, str]) -> bytes:
        staging, found, version = self.begun(files)
        copy_all(staging, found)
        self.store.finish(version, staging)
        return version

    def deploy(self, files: dict[str, str], keep: int = 5) -> None:
        version = self.stage(files)
        self.store.switch(version)
        self.kept = [*self.kept, version][-keep:]
        self.store.keep(set(self.kept))
        assert self.served() == files
        assert not any(self.store.versions.edits(version))

    def served(self) -> dict[str, str]:
        return read(self.live.resolve())


@pytest.fixture
def master(tmp_path: Path) -> Master:
    return Master(tmp_path)


def changed(number: int) -> dict[str, str]:
    return {**FILES, "a/0": f"{number}\n"}


@pytest.mark.parametrize("keep", [5, 1], ids=["all are kept", "the spare is an old version"])
def test_of_a_small_change_nothing_else_is_touched(
    master: Master, keep: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    master.deploy(FILES, keep)
    master.deploy(changed(1), keep)
    links: list[str] = []
    link = os.link
    monkeypatch.setattr(os, "link", lambda *args, **kw: (links.append(args[1]), link(*args, **kw)))
    staging, _, version = master.begun(changed(2))
    assert links == []
    assert [*staging.missing.values()] == [["a/0"]]
    assert len(staging.marks) == len(FILES) - 1
    staging.parts.append(next(iter(staging.missing)), 0, b"2\n")
    assert staging.settle(next(iter(staging.missing)))
    master.store.finish(version, staging)
    master.store.switch(version)
    assert master.served() == changed(2)


def test_many_histories_of_many_files(master: Master) -> None:
    for number in range(9):
        files = {
            path: text for path, text in FILES.items() if crc32(f"{path}{number}".encode()) % 3
        }
        master.deploy({**files, f"new/{number}": "", "a/0": f"{number // 2}"}, 1 + number % 3)


@pytest.mark.parametrize("way", ["in its place", "a new file", "other permissions"])
def test_what_was_edited_by_hand_is_fetched_anew(master: Master, way: str) -> None:
    """A spare shares its files with what is live, so what changes the one in place does both."""
    master.deploy(FILES)
    live = master.live / "b" / "3"
    if way == "other permissions":
        live.chmod(0o777)
    else:
        if way == "a new file":
            live.unlink()
        live.write_text("by hand")
    assert master.store.versions.edits(master.kept[-1]).changed == ["b/3"]
    master.deploy(changed(1))
    edited = next((master.store.tree.folder / "versions").glob(f"{master.kept[0].hex()}/b/3"))
    assert edited.read_text() == ("b3\n" if way == "other permissions" else "by hand")


def moved(top: Path) -> None:
    """As to a larger disk, or back from a backup: all files are other ones, with the same times."""
    shutil.copytree(top, top.with_name("copy"), symlinks=True)
    shutil.rmtree(top)
    top.with_name("copy").rename(top)


@pytest.mark.parametrize("marks", [True, False])
def test_what_was_moved_to_another_disk_is_not_edited(master: Master, marks: bool) -> None:
    for number in range(3):
        master.deploy(changed(number))
    versions = master.store.tree.folder / "versions"
    moved(versions)
    if not marks:
        for path in versions.glob("*.marks"):
            path.unlink()
    (versions / master.kept[-1].hex() / "b" / "3").write_text("B3\n")
    for _ in range(2):
        master.store = TreeStore(master.store.tree)  # it starts again
        assert master.store.versions.edits(master.kept[-1]).changed == ["b/3"]
        assert not any(master.store.versions.edits(master.kept[0]))
    (versions / master.kept[-1].hex() / "b" / "3").write_text("b3\n")
    assert not any(master.store.versions.edits(master.kept[-1]))
    master.deploy(changed(3), 1)
    assert len([*versions.iterdir()]) == 3  # the version, its manifest, its marks


def test_marks_that_were_found_anew_are_read_once(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    master.deploy(FILES)
    moved(master.store.tree.folder / "versions")
    assert not any(TreeStore(master.store.tree).versions.edits(master.kept[-1]))
    monkeypatch.setattr(entries, "verified", None)
    assert not any(TreeStore(master.store.tree).versions.edits(master.kept[-1]))


def test_what_is_served_is_not_removed_with_its_manifest_lost(master: Master) -> None:
    master.deploy(FILES)
    for path in (master.store.tree.folder / "versions").glob("*.manifest"):
        path.unlink()
    master.store = TreeStore(master.store.tree)  # it starts again
    master.store.keep(set())
    assert master.served() == FILES
    master.deploy(FILES)


def test_one_version_is_enough_to_keep_what_was_edited_in_its_place(master: Master) -> None:
    """Otherwise each such edit would keep all versions of that time for ever."""
    for number in range(5):
        master.deploy(changed(number))
    (master.live / "b" / "3").write_text("by hand")
    for number in range(5, 12):
        master.deploy(changed(number))
    versions = [path for path in (master.store.tree.folder / "versions").iterdir() if path.is_dir()]
    by_hand = [path for path in versions if (path / "b" / "3").read_text() == "by hand"]
    assert (len(versions), len(by_hand)) == (6, 1)


def test_an_edited_version_that_is_not_kept_any_more_is_called_so(master: Master) -> None:
    """As the docs say; and nobody looks through it again after each deployment."""
    master.deploy(changed(0))
    (master.live / "mine").write_text("by hand")
    for number in (1, 2):
        master.deploy(changed(number), keep=2)
    (kept,) = (master.store.tree.folder / "versions").glob("*.edited-*")
    assert read(kept) == {**changed(0), "mine": "by hand"}
    assert sorted(master.store.versions.here()) == sorted(master.kept)
    master.deploy(changed(0), keep=2)
    assert kept.is_dir()


def preserved(master: Master) -> Path:
    lacking = master.store.lacking(set(master.kept))
    while lacking:
        master.store.preserve(lacking)
    return master.store.tree.folder / "pristine"


def test_an_edit_in_place_destroys_no_kept_version(master: Master) -> None:
    """Versions share their files, so it changes all of them; they are put together again."""
    for number in range(3):
        master.deploy(changed(number))
        preserved(master)
    for path in ("a/0", "b/3"):
        (master.live / path).write_text("by hand")
    master.deploy({**changed(3), "b/3": "by hand"})
    preserved(master)
    for number in (2, 1, 0):
        version = master.kept[number]
        manifest = master.store.versions.manifest(version)
        assert manifest is not None
        assert master.store.versions.edits(version).changed == (["a/0"] * (number == 2)) + ["b/3"]
        staging = master.store.begin(version, manifest)
        assert not staging.missing
        master.store.finish(version, staging)
        assert not any(master.store.versions.edits(version))
        master.store.switch(version)
        assert master.served() == changed(number)


def test_copies_are_those_of_kept_versions_and_closed(master: Master) -> None:
    master.deploy({"a": "one", "b": "both"}, keep=1)
    assert len([*preserved(master).iterdir()]) == 2
    master.deploy({"a": "two", "b": "both"}, keep=1)
    folder = preserved(master)
    assert sorted(path.read_text() for path in folder.iterdir()) == ["both", "two"]
    for path in (folder, *folder.iterdir()):
        assert path.stat().st_mode & 0o077 == 0
        assert path.is_dir() or path.stat().st_nlink == 1


def test_a_copy_that_a_crash_has_spoilt_is_not_used(master: Master) -> None:
    master.deploy({"a": "good"})
    (copy,) = preserved(master).iterdir()
    copy.write_text("bad!")
    (master.live / "a").write_text("by hand")
    staging, _, _ = master.begun({"a": "good"})
    assert len(staging.missing) == 1
    assert not copy.exists()


def test_a_copy_that_a_power_cut_has_torn_is_made_again(master: Master) -> None:
    master.deploy({"a": "good", "b": "well"})
    for copy in preserved(master).iterdir():
        copy.write_text("go")
    master.store = TreeStore(master.store.tree)
    assert sorted(copy.read_text() for copy in preserved(master).iterdir()) == ["good", "well"]


def test_copies_that_somebody_removes_are_made_again(master: Master) -> None:
    """As to make room, while the engine runs."""
    master.deploy({"a": "good"})
    shutil.rmtree(preserved(master))
    master.deploy({"a": "good", "b": "well"})
    assert sorted(copy.read_text() for copy in preserved(master).iterdir()) == ["good", "well"]


def test_of_what_was_edited_in_its_place_peers_get_the_copy(master: Master) -> None:
    """A master that was away gets the version also if it was edited on all others."""
    master.deploy({"a": "good"})
    preserved(master)
    (master.live / "a").write_text("by hand")
    (path,) = master.store.holders([sha256(b"good").digest()])
    assert path is not None
    assert path.read_text() == "good"


@pytest.mark.parametrize("why", ["closed", "gone"])
def test_a_file_that_cannot_be_read_ends_no_copying(
    master: Master, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    master.deploy(FILES)
    opened = os.open

    def refuse(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if str(path).endswith("/versions/" + master.kept[-1].hex() + "/b/3"):
            raise (PermissionError if why == "closed" else FileNotFoundError)(path)
        return opened(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)
    texts = {copy.read_text() for copy in preserved(master).iterdir()}
    assert texts == {*FILES.values()} - {"b3\n"}


def test_the_copying_of_a_large_file_is_given_up_when_it_is_to_be(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("saltext_ha.trees.pristine._cloned", lambda *_: False)
    monkeypatch.setattr("saltext_ha.trees.pristine.BLOCK", 1)
    master.deploy({"a": "large"})
    asked = 0

    def stop() -> None:
        nonlocal asked
        asked += 1
        if asked == 3:
            raise HaError("it stops")

    master.store = TreeStore(master.store.tree, stop)
    with pytest.raises(HaError, match="it stops"):
        preserved(master)
    assert not [*(master.store.tree.folder / "pristine").iterdir()]


def test_contents_are_copied_in_steps(master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes to find out what is lacking, each step copies something."""
    master.deploy(FILES)
    monkeypatch.setattr("saltext_ha.trees.store.AT_A_TIME", -1)
    lacking = master.store.lacking(set())
    for number in range(1, len(FILES) + 1):
        master.store.preserve(lacking)
        assert len([*(master.store.tree.folder / "pristine").iterdir()]) == number
    assert not lacking
    assert not master.store.lacking(set())


def test_copies_leave_a_tenth_of_the_disk_and_give_way_to_a_version(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 90
    free_space(monkeypatch, lambda _: free, blocks=1000)
    monkeypatch.setattr("saltext_ha.trees.pristine._cloned", lambda *_: False)
    master.deploy({"a": "one"})
    assert not [*preserved(master).iterdir()]
    free = 200
    (copy,) = preserved(master).iterdir()
    free = 5
    with pytest.raises(OSError, match="are free"):
        master.begun({"a": "123456789"})
    assert copy.exists(), "without it, there would still be no room"
    with pytest.raises(OSError, match="are free"):
        master.begun({"a": "12345678"})
    assert not copy.exists()


def test_of_the_copies_no_more_give_way_than_must(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    master.deploy({"a": "1", "b": "333", "c": "55555"})
    folder = preserved(master)
    free_space(monkeypatch, lambda _: 13 - sum(copy.stat().st_size for copy in folder.iterdir()))
    master.begun({"new": "88888888"})
    assert sorted(copy.read_text() for copy in folder.iterdir()) == ["1", "333"]


def test_an_undeployed_version_gives_way_before_the_copies(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    undeployed = master.stage({"large": "large"})
    there = master.store.versions.path_of(undeployed)
    master.kept = [undeployed]
    folder = preserved(master)
    free_space(monkeypatch, lambda _: 0 if there.exists() else 4)
    master.begun({"new": "new"}, [])
    assert not there.exists()
    assert [copy.read_text() for copy in folder.iterdir()] == ["large"]


def test_there_is_room_before_a_copy_is_used(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    master.deploy({"a": "good"})
    (copy,) = preserved(master).iterdir()
    (master.live / "a").write_text("by hand")
    free = 3
    free_space(monkeypatch, lambda _: free)
    with pytest.raises(OSError, match="are free"):
        master.begun({"a": "good"})
    assert copy.read_text() == "good", "it may be the last of its kind"
    free = 4
    staging, _, _ = master.begun({"a": "good"})
    assert not staging.missing


def test_what_was_fetched_and_is_another_content_is_thrown_away(master: Master) -> None:
    staging, found, _ = master.begun(FILES)
    first, source = next(iter(staging.missing)), master.root / "source"
    staging.parts.append(first, 0, b"x" * staging.size(first))
    assert not staging.settle(first)
    assert staging.parts.length(first) == 0
    (source / "link").symlink_to(found.folder / staging.missing[first][0])
    with pytest.raises(OSError, match="link"):
        staging.copy(first, source / "link")


def test_files_have_the_modes_of_the_source(master: Master) -> None:
    master.read(FILES)
    (master.root / "source" / "a" / "0").chmod(0o755)
    master.deploy(FILES)
    assert (master.live / "a" / "0").stat().st_mode & 0o777 == 0o755


def test_edits_of_equal_files_are_kept(master: Master) -> None:
    files = {"a": "same\n", "b": "same\n", "c": "1\n"}
    master.deploy(files)
    for name in "ab":
        (master.live / name).write_text("by hand")
    master.deploy({**files, "c": "2\n"})
    before = master.store.tree.folder / "versions" / master.kept[0].hex()
    assert [(before / name).read_text() for name in "ab"] == ["by hand"] * 2


def test_links_are_put_and_what_somebody_made_of_them_is_told(master: Master) -> None:
    (master.root / "source").mkdir()
    (master.root / "source" / "link").symlink_to("a")
    master.deploy(FILES)
    link, folder = master.live / "link", master.live / "c"
    assert str(link.readlink()) == "a"
    for make in (lambda: link.symlink_to("b"), link.mkdir, link.touch):
        link.rmdir() if link.is_dir() and not link.is_symlink() else link.unlink()
        make()
        assert master.store.versions.edits(master.kept[-1]).changed == ["link"]
    folder.rename(master.root / "aside")
    folder.symlink_to("a")
    assert master.store.versions.edits(master.kept[-1]).changed == ["c", "link"]
    master.deploy(changed(1))
    assert str(link.readlink()) == "a"


def test_a_spare_that_somebody_wrote_into_is_cleaned(master: Master) -> None:
    master.deploy(FILES)
    (spare,) = (master.store.tree.folder / "staging").glob("*.spare")
    (spare / "a" / "mine").write_text("x")
    (spare / "a" / "1").unlink()
    (spare / "b" / "1").unlink()
    (spare / "b" / "1").mkdir()
    (spare / "b" / "1" / "deep").touch()
    master.deploy(changed(1))


def test_what_a_crash_left_over_is_removed_and_nothing_else(master: Master) -> None:
    master.deploy(FILES)
    top = master.store.tree.folder
    there = sorted(top.rglob("*"))
    kept = [top / "versions" / name for name in ("of somebody", f"{'a' * 64}.edited-1")]
    left = [top / "versions" / name for name in ("b" * 64, f"{'c' * 64}.manifest")]
    left += [top / "versions" / f"{'c' * 64}.marks", top / "staging" / ("d" * 64)]
    for folder in (*kept, *left):
        folder.mkdir()
    (top / "staging" / "parts" / ("e" * 64)).touch()
    master.store.keep(set(master.kept))
    assert sorted(top.rglob("*")) == sorted([*there, *kept])


def test_whole_files_of_an_attempt_that_was_cut_are_not_fetched_again(master: Master) -> None:
    staging, found, version = master.begun(FILES)
    first = next(iter(staging.missing))
    staging.copy(first, found.folder / staging.missing[first][0])
    assert staging.settle(first)
    again = master.store.begin(version, found.manifest)
    assert again.parts.length(first) == again.size(first)
    assert again.settle(first)


def test_what_an_attempt_at_another_version_left_is_removed(master: Master) -> None:
    """A version that was too large must not keep the disk full for the next."""
    master.deploy(FILES)
    staging, found, version = master.begun({**FILES, "a/0": "too large", "b/0": "wanted"})
    (large,) = (digest for digest, paths in staging.missing.items() if paths == ["a/0"])
    (wanted,) = staging.missing.keys() - {large}
    for digest in staging.missing:
        staging.copy(digest, found.folder / staging.missing[digest][0])
    left = master.store.tree.folder / "staging" / version.hex()
    assert left.is_dir()
    staging, _, _ = master.begun({**FILES, "b/0": "wanted"})
    assert not left.exists()
    assert (staging.parts.length(large), staging.parts.length(wanted)) == (0, len("wanted"))


def test_a_version_that_does_not_fit_on_the_disk_is_not_begun(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 10
    free_space(monkeypatch, lambda _: free)
    # Two files with that content need it twice.
    with pytest.raises(OSError, match=r"new files need 0.0 MB, and 0.0 MB are free") as caught:
        master.begun({"a": "sixsix", "b": "sixsix"})
    assert caught.value.errno == errno.ENOSPC
    free = 12
    staging, found, version = master.begun({"a": "sixsix", "b": "sixsix"})
    (digest,) = staging.missing
    staging.parts.append(digest, 0, b"six")
    free = 9  # what is there needs no more room
    assert master.store.begin(version, found.manifest).missing


def test_a_version_that_was_never_deployed_gives_way(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was staged here, and another master could not."""
    master.deploy(FILES)
    large, edited = (master.stage(files) for files in ({"large": "large"}, {"edited": "x"}))
    (master.store.versions.path_of(edited) / "edited").write_text("by hand")
    free_space(monkeypatch, lambda _: 0 if master.store.versions.path_of(large).exists() else 100)
    for in_use in (None, [large]):
        with pytest.raises(OSError, match="are free"):
            master.begun({**FILES, "new": "new"}, in_use)
    master.begun({**FILES, "new": "new"}, [])
    assert set(master.store.versions.here()) == {*master.kept, edited}


def test_thousands_of_equal_files(master: Master) -> None:
    master.deploy({f"{number}": "" for number in range(3000)})
    master.deploy({f"other/{number}": "" for number in range(3000)})


def test_equal_size_and_time_is_not_equal_content(master: Master) -> None:
    """Salt's fileserver keeps the hash of a file as long as its modification time is the same."""
    master.deploy(FILES)
    served = (master.live / "a" / "1").stat().st_mtime
    file = master.root / "source" / "a" / "1"
    before = file.stat()
    with file.open("r+") as opened:
        opened.write("A1\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_ino == before.st_ino
    master.deploy({**FILES, "a/1": "A1\n"})
    assert (master.live / "a" / "1").stat().st_mtime != served


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_master_that_runs_as_another_user() -> None:
    """``user: salt``: what it may not read is named, and what it deploys is its own."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        (root / "source").mkdir()
        for name, mode in (("open", 0o644), ("closed", 0o600)):
            (root / "source" / name).touch()
            (root / "source" / name).chmod(mode)
        (root / "srv").mkdir()
        os.chown(root / "srv", 65534, 65534)
        os.seteuid(65534)
        try:
            with pytest.raises(HaError, match="closed: permission denied"):
                take(root / "source", (), False, root / "srv" / "digests")
            found = take(root / "source", ["closed"], False, root / "srv" / "digests")
            assert found.owners == ["root"]
            store = TreeStore(Tree("states", root / "srv" / "live"))
            version = manifests.version_of(found.manifest)
            staging = store.begin(version, found.manifest)
            copy_all(staging, found)
            store.finish(version, staging)
            store.switch(version)
            store.keep(set())
            assert not any(store.versions.edits(version))
        finally:
            os.seteuid(0)
        status = (root / "srv" / "live" / "open").stat()
        assert (status.st_uid, status.st_mode & 0o777) == (65534, 0o644)


@contextmanager
def site_of_salt() -> Iterator[Path]:
    """Folders for a source and for a tree, of which the second is another user's."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        (root / "source").mkdir()
        (root / "srv").mkdir()
        os.chown(root / "srv", 65534, 65534)
        yield root


def deployed_by_salt(
    store: TreeStore, root: Path, text: str, keep: bool = True
) -> tuple[bytes, str]:
    """That other user deploys *text*: the version, and what it could not remove of the others."""
    (root / "source" / "a.sls").write_text(text)
    os.seteuid(65534)
    try:
        found = take(root / "source", (), store.tree.secret, root / "srv" / "digests")
        version = manifests.version_of(found.manifest)
        staging = store.begin(version, found.manifest)
        copy_all(staging, found)
        store.finish(version, staging)
        store.switch(version)
        return version, store.keep({version}) if keep else ""
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_what_python_of_another_user_compiled_keeps_nobody_from_deploying() -> None:
    """``user: salt``, and root renders pillar by salt-ssh: only root removes what that leaves."""
    with site_of_salt() as root:
        store = TreeStore(Tree("pillar", root / "srv" / "live", secret=True))
        for number in range(3):
            version, _ = deployed_by_salt(store, root, f"{number}")
            (root / "srv" / "live" / "__pycache__").mkdir()
            (root / "srv" / "live" / "__pycache__" / "who.pyc").touch()
        assert store.live() == (LINKED, version)
        # Who can remove it need not see it.
        assert store.versions.edits(version).added == []
        os.seteuid(65534)
        try:
            assert store.versions.edits(version).added == ["__pycache__", "__pycache__/who.pyc"]
        finally:
            os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
@pytest.mark.parametrize("secret", [False, True])
def test_a_version_that_was_given_to_another_user_keeps_nothing_else(secret: bool) -> None:
    """``user: salt``, and somebody runs ``chown -R root: /srv/salt/``."""
    with site_of_salt() as root:
        store = TreeStore(Tree("states", root / "srv" / "live", secret=secret))
        first, _ = deployed_by_salt(store, root, "0")
        os.chown(store.versions.path_of(first), 0, 0)
        for number in range(1, 4):
            last, left = deployed_by_salt(store, root, f"{number}", keep=number != 1)
        there = {path.name for path in store.versions.path_of(first).parent.glob("?" * 64)}
        assert there == {first.hex(), last.hex()}
        assert (store.tree.folder / "staging" / f"{last.hex()}.spare").is_dir()
        where = store.tree.folder if secret else store.versions.path_of(first)
        assert left.startswith(f"{where}")
        assert left.endswith(": Permission denied")
        assert secret is (first.hex() not in left)
        # What is left of it is no version to be served. A closed one is left as it is.
        assert secret or store.versions.manifest(first) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_file_that_the_master_may_not_read_any_more_is_edited() -> None:
    """As after  chown -R root: /srv/salt/ : no minion gets it, and a link to it is no better."""
    with site_of_salt() as root:
        store = TreeStore(Tree("states", root / "srv" / "live"))
        for name, mode in (("open", 0o644), ("closed", 0o640)):
            (root / "source" / name).write_text(name)
            (root / "source" / name).chmod(mode)
            os.chown(root / "source" / name, 65534, 65534)
        for number in range(2):
            os.seteuid(65534)
            try:
                found = take(root / "source", (), False, root / "srv" / "digests")
                version = manifests.version_of(found.manifest)
                staging = store.begin(version, found.manifest)
                missing = {path for paths in staging.missing.values() for path in paths}
                copy_all(staging, found)
                store.finish(version, staging)
                store.switch(version)
                assert not any(store.versions.edits(version))
            finally:
                os.seteuid(0)
            (root / "source" / f"{number}").touch()
            for name in ("open", "closed"):
                os.chown(root / "srv" / "live" / name, 0, 65533)
            os.seteuid(65534)
            try:
                assert store.versions.edits(version).changed == ["closed"]
            finally:
                os.seteuid(0)
        assert missing >= {"closed", "0"}


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_what_cannot_be_removed_is_named_by_its_whole_path() -> None:
    """As after  chown -R root: /srv/salt/nginx : that folder goes from version to version."""
    with site_of_salt() as root:
        store = TreeStore(Tree("states", root / "srv" / "live"))
        os.seteuid(65534)
        try:
            store.begin(b"1" * 32, {})
            left = root / "srv" / ".live.ha" / "staging" / (b"1" * 32).hex()
            (left / "nginx").mkdir()
            (left / "nginx" / "init.sls").touch()
        finally:
            os.seteuid(0)
        os.chown(left / "nginx", 0, 0)
        os.seteuid(65534)
        try:
            with pytest.raises(PermissionError) as caught:
                store.begin(b"2" * 32, {})
        finally:
            os.seteuid(0)
        assert caught.value.filename == str(left)
