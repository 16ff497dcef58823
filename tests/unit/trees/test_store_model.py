"""
Promises T2 to T5 of docs/design.md §8, of one store: whatever is staged, given up, switched,
removed, edited by hand, and started anew after a crash between any two steps, in any order.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from saltext_ha.config.trees import Tree
from saltext_ha.trees import manifest as manifests
from saltext_ha.trees.live_path import FOREIGN, LINKED
from saltext_ha.trees.manifest import FILE, FOLDER, LINK, Node
from saltext_ha.trees.staging import Staging
from saltext_ha.trees.store import TreeStore
from tests.disk_steps import Files, crashing, read

# Few, so that histories come back to one that was edited; they share files, by path and across.
contents = st.sampled_from(
    [
        {"a": "one", "b": "two", "folder/c": ""},
        {"a": "one", "b": "three", "folder/c": ""},
        {"a": "two", "folder/a": "one"},
        {},
    ]
)
ways = st.sampled_from(["beside", "in its place", "by a new file", "removed"])


def described(files: Files) -> dict[str, Node]:
    """What a source with *files* would be described as; with a link where there is an ``a``."""
    rows = {path: Node(FILE, 0o600, len(text), _hash(text)) for path, text in files.items()}
    if any(path.startswith("folder/") for path in files):
        rows["folder"] = Node(FOLDER, 0o700, 0, b"")
    if "a" in files:
        rows["link"] = Node(LINK, 0o777, 0, b"a")
    return rows


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


class StoreMachine(RuleBasedStateMachine):
    """One store, its operator who edits what is live, and who restarts the engine."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.tree = Tree("states", self.root / "live", secret=True)
        self.store = TreeStore(self.tree)
        self.versions: dict[bytes, Files] = {}
        self.expected: Files | None = None
        """What is live; None: nothing is, as far as this store goes."""
        self.by_hand: set[str] = set()
        """What an operator wrote, and did not remove since; each text is written once."""
        self.written = 0

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    @initialize(adopted=st.booleans())
    def there_was_a_folder(self, adopted: bool) -> None:
        if adopted:
            self.tree.live.mkdir()
            self._write(self.tree.live / "before")
            assert self.store.live() == (FOREIGN, None)

    def _write(self, path: Path) -> None:
        self.written += 1
        path.write_text(f"by hand {self.written}")
        self.by_hand.add(f"by hand {self.written}")

    # -- what the engine does

    def _begin(self, files: Files) -> tuple[bytes, Staging]:
        manifest = described(files)
        version = manifests.version_of(manifest)
        self.versions[version] = files
        return version, self.store.begin(version, manifest)

    def _fetch(self, staging: Staging, files: Files, wrong: bool = False) -> None:
        digest = next(iter(staging.missing))
        text = files[staging.missing[digest][0]].encode()
        have = staging.parts.length(digest)
        staging.parts.append(digest, have, bytes(len(text) - have) if wrong else text[have:])
        taken = staging.settle(digest)
        assert taken is (not wrong or not text[have:])
        if taken:
            del staging.missing[digest]

    @rule(files=contents, adopt=st.booleans())
    def serve(self, files: Files, adopt: bool) -> None:
        """What is deployed is served as it was described, whatever was done by hand before."""
        version = self._stage(files)
        assert not any(self.store.versions.edits(version))
        if self.store.live()[0] == FOREIGN and not adopt:
            return
        self.store.switch(version, adopt)
        assert self.store.live() == (LINKED, version)
        self.expected = files
        assert not any(self.store.versions.edits(version))

    def _stage(self, files: Files) -> bytes:
        version = manifests.version_of(described(files))
        if self.store.versions.manifest(version) is None or any(self.store.versions.edits(version)):
            _, staging = self._begin(files)
            while staging.missing:
                self._fetch(staging, files)
            self.store.finish(version, staging)
        return version

    @rule(files=contents, adopt=st.booleans(), after=st.integers(0, 80))
    def crash(self, files: Files, adopt: bool, after: int) -> None:
        """What is live is what was, or what was to be; and all goes on from there."""
        version = manifests.version_of(described(files))
        foreign = self.store.live()[0] == FOREIGN
        with crashing(after):
            self._stage(files)
            if adopt or not foreign:
                self.store.switch(version, adopt)
            self.store.keep(set())
            self.store.preserve(self.store.lacking(set()))
        self.versions[version] = files
        self.store = TreeStore(self.tree)
        if self.expected is None and self.store.live()[0] != LINKED:
            return
        now = read(self.tree.live.resolve())
        assert now in (self.expected, files)
        self.expected = now

    @rule(files=contents, some=st.integers(0, 3))
    def give_up(self, files: Files, some: int) -> None:
        """A master is cut off while it fetches."""
        _, staging = self._begin(files)
        while staging.missing and some:
            self._fetch(staging, files)
            some -= 1
        for digest, paths in staging.missing.items():
            if not staging.parts.length(digest):
                staging.parts.append(digest, 0, files[paths[0]].encode()[:2])

    @rule(files=contents)
    def be_sent_other_bytes(self, files: Files) -> None:
        _, staging = self._begin(files)
        if staging.missing:
            self._fetch(staging, files, wrong=True)

    @rule(some=st.integers(0, 1))
    def remove_old_ones(self, some: int) -> None:
        stay = set(self.store.versions.here()[:some])
        self.store.keep(stay)
        assert stay <= set(self.store.versions.here())

    @rule(some=st.integers(0, 3))
    def copy_contents(self, some: int) -> None:
        self.store.preserve(self.store.lacking(set(self.store.versions.here()[:some])))

    @rule()
    def start_anew(self) -> None:
        self.store = TreeStore(self.tree)

    @rule()
    def move(self) -> None:
        """To another disk, and without hard links."""
        if self.tree.folder.is_dir():
            shutil.copytree(self.tree.folder, self.root / "copy", symlinks=True)
            shutil.rmtree(self.tree.folder)
            (self.root / "copy").rename(self.tree.folder)
        self.start_anew()

    # -- what its operator does, in the live folder

    @rule(data=st.data(), way=ways)
    def edit(self, data: st.DataObject, way: str) -> None:
        top = self.tree.live
        files = sorted(read(top.resolve())) if self.expected is not None else []
        if way == "beside" and self.expected is not None:
            self._write(top / f"mine{self.written}")
        elif files:
            path = top / data.draw(st.sampled_from(files))
            self.by_hand.discard(path.read_text())
            if way == "in its place":
                self._write(path)
            else:
                path.unlink()
                if way == "by a new file":
                    self._write(path)
        if self.expected is not None:
            self.expected = read(top.resolve())

    # -- what is promised

    @invariant()
    def what_is_live_is_whole(self) -> None:
        """T2, T3: nothing but a switch or the operator changes what is live."""
        if self.expected is None:
            assert self.store.live()[0] != LINKED
            return
        assert read(self.tree.live.resolve()) == self.expected

    @invariant()
    def edits_are_seen(self) -> None:
        live, version = self.store.live()
        if live == LINKED and version is not None:
            assert any(self.store.versions.edits(version)) is (
                self.expected != self.versions[version]
            )

    @invariant()
    def other_users_read_nothing(self) -> None:
        """T5: the versions are in a folder that is closed."""
        if self.tree.folder.exists() and (self.tree.folder / "versions").exists():
            assert stat.S_IMODE(self.tree.folder.stat().st_mode) == 0o700

    @invariant()
    def nothing_written_by_hand_is_lost(self) -> None:
        """T4."""
        folders = [top for top in (self.tree.live, self.tree.folder) if os.path.lexists(top)]
        kept = {text for top in folders for text in read(top.resolve()).values()}
        assert self.by_hand <= kept


TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    max_examples=100,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.parametrize("before", ["a version", "a folder", "an edited version", "it, edited"])
def test_a_crash_between_any_two_steps_of_a_deployment(tmp_path: Path, before: str) -> None:
    old, new = {"a": "one", "folder/c": ""}, {"a": "two", "b": "three", "folder/c": ""}
    new = old if before == "it, edited" else new
    after, ended = 0, False
    while not ended:
        tree = Tree("states", tmp_path / f"{after}" / "live", secret=True)
        tree.live.parent.mkdir()
        served = _as_it_was(tree, before, old)
        with crashing(after):
            _deployed(TreeStore(tree), new)
            ended = True
        assert read(tree.live.resolve()) in (served, new), after
        # It goes on from there, and nothing that was done by hand is lost.
        _deployed(TreeStore(tree), new)
        assert read(tree.live.resolve()) == new, after
        kept = set(read(tree.live.resolve()).values()) | set(read(tree.folder).values())
        assert before == "a version" or "by hand" in kept, after
        after += 1
    assert after > 10


def _as_it_was(tree: Tree, before: str, files: Files) -> Files:
    if before == "a folder":
        tree.live.mkdir()
        (tree.live / "mine").write_text("by hand")
        return read(tree.live)
    _deployed(TreeStore(tree), files)
    if "edited" in before:
        (tree.live / "mine").write_text("by hand")
    return read(tree.live.resolve())


def _deployed(store: TreeStore, files: Files) -> None:
    manifest = described(files)
    version = manifests.version_of(manifest)
    if store.versions.manifest(version) is None or any(store.versions.edits(version)):
        staging = store.begin(version, manifest)
        for digest, paths in list(staging.missing.items()):
            staging.parts.forget(digest)
            staging.parts.append(digest, 0, files[paths[0]].encode())
            assert staging.settle(digest)
        store.finish(version, staging)
    store.switch(version, adopt=True)
    store.keep(set())
    store.preserve(store.lacking(set()))
