"""
How the versions of one tree come and go on this disk, beside the folder that is served::

    /srv/salt -> .salt.ha/versions/<id>     the served version: a link (live_path.py)
    /srv/.salt.ha/served -> versions/<id>   only of a secret tree, whose live path leads to this
    /srv/.salt.ha/versions/<id>/            a version, whole and verified
    /srv/.salt.ha/versions/<id>.manifest    its manifest
    /srv/.salt.ha/versions/<id>.marks       inode, time and size that its files had when verified
    /srv/.salt.ha/staging/<id>/             a version that is being put together
    /srv/.salt.ha/staging/<id>.spare/       the served version again, for the next to begin with
    /srv/.salt.ha/staging/parts/<sha256>    a file that is being fetched
    /srv/.salt.ha/pristine/<sha256>         a copy of a content, which no version shares
    /srv/.salt.ha/before-<time>             the folder served before the first deployment

Files that did not change are hard links between versions. Making ten thousands of them takes a
second, and making them durable another. So a spare is made after each deployment, if possible out
of a version that is no longer kept. The next deployment then only exchanges what changes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from pathlib import Path

from saltext_ha.common.errors import HaError, reason_of
from saltext_ha.common.fail_points import point
from saltext_ha.common.files import as_text, sync_dir
from saltext_ha.config.trees import Tree
from saltext_ha.trees import entries
from saltext_ha.trees import manifest as manifests
from saltext_ha.trees.entries import Mark, Marks
from saltext_ha.trees.live_path import NEXT, VERSIONS, LivePath, exchange
from saltext_ha.trees.manifest import FILE, Manifest, Node, digest_named
from saltext_ha.trees.pristine import Pristine
from saltext_ha.trees.room import make_room
from saltext_ha.trees.staging import Parts, Staging
from saltext_ha.trees.versions import MANIFEST, MARKS, Versions, packed

ENDS = (MANIFEST, MARKS)
SPARE = ".spare"
AT_A_TIME = 0.2


class TreeStore:
    """
    The versions of one *tree*. Several threads may read while one writes. Failures raise OSError or
    HaError.

    :param stop: raises to end long work.
    """

    def __init__(self, tree: Tree, stop: Callable[[], None] = lambda: None) -> None:
        self.tree = tree
        self._stop = stop
        self._mode = 0o700 if tree.secret else 0o755
        self.place = LivePath(tree)
        self.versions = Versions(tree.folder / VERSIONS, stop)
        self._staging = tree.folder / "staging"
        self.parts = Parts(self._staging / "parts")
        self._pristine = Pristine(tree.folder / "pristine", stop)

    def live(self) -> tuple[str, bytes | None]:
        """See :meth:`.LivePath.look`."""
        return self.place.look()

    def holders(self, digests: Iterable[bytes]) -> Iterator[Path | None]:
        """For each of *digests*, a file here with that content, judged without reading it."""
        order = self._in_order()
        for digest in digests:
            self._stop()
            yield self.versions.holder(digest, order) or self._pristine.whole(digest)

    def _in_order(self) -> list[bytes]:
        """The versions that are here, the served one first."""
        live = self.live()[1]
        return sorted(self.versions.here(), key=lambda version: version != live)

    # -- a new version

    def begin(
        self, version: bytes, manifest: Manifest, in_use: Collection[bytes] | None = None
    ) -> Staging:
        """
        Put together the parts of a version that are here: folders, links, files of other versions.

        It uses files that earlier attempts have fetched, and removes everything else of them.

        :param in_use: all versions but these and the served one are removed if there is no room;
            None: none is.
        :raises OSError: among others, ENOSPC: there is no room for what is still to come.
        """
        self._make_folders()
        folder = self._staging / version.hex()
        self._save_fetched(folder, manifest)
        self.clear_staging(manifest)
        live = self.live()[1]
        if live and self._spare(live).is_dir():
            self._spare(live).rename(folder)
            before = self.versions.manifest(live) or {}, self.versions.marks(live)
        else:
            folder.mkdir(mode=0o700)
            before = {}, {}
        staging = Staging(folder, manifest, self.parts, self._stop)
        staging.fill(*before, self._finder())
        point("tree.linked")
        needless = set() if in_use is None else {*self.versions.here()} - {*in_use, version, live}
        removable = (partial(self.take_out, v) for v in needless if not self._holds_edits(v))
        make_room(self._staging, staging, removable, self._pristine)
        for digest in self._pristine.digests & staging.missing.keys():
            self._restore(staging, digest)
        return staging

    def _restore(self, staging: Staging, digest: bytes) -> None:
        """Take a content that no version has any more from its copy."""
        with contextlib.suppress(FileNotFoundError):
            staging.copy(digest, self._pristine.path(digest))
            if staging.settle(digest):
                del staging.missing[digest]
                return
        self._pristine.forget(digest)

    def clear_staging(self, manifest: Manifest | None = None) -> None:
        """Remove what earlier attempts left, except the spare and contents in *manifest*."""
        live = self.live()[1]
        spare = self._spare(live) if live else None
        for path in _in(self._staging):
            if path not in (self.parts.folder, spare):
                _remove(path)
        wanted = {node.what.hex() for node in (manifest or {}).values()}
        for path in _in(self.parts.folder):
            if path.name not in wanted:
                _remove(path)

    def _save_fetched(self, folder: Path, manifest: Manifest) -> None:
        """Save whole files that a cut attempt has fetched: those that no other version has."""
        for path, status in entries.entries(folder).items() if folder.is_dir() else ():
            node = manifest.get(path)
            fetched = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
            if node and fetched and node.kind == FILE and node.size == status.st_size:
                (folder / path).replace(self.parts.path(node.what))

    def _spare(self, version: bytes) -> Path:
        return self._staging / f"{version.hex()}{SPARE}"

    def _finder(self) -> Callable[[str, Node], tuple[str, Mark] | None]:
        """Finds verified files in all versions; tries the same path in the served version first."""
        live, order = self.live()[1], self._in_order()
        served: Manifest = {}
        marks, top = Marks(), ""
        if live:
            served, marks = self.versions.manifest(live) or {}, self.versions.marks(live)
            top = f"{self.versions.path_of(live)}/"

        def find(path: str, node: Node) -> tuple[str, Mark] | None:
            if served.get(path) == node and path in marks:
                return top + path, marks[path]
            for version, other in self.versions.with_content(node.what, order):
                mark = self.versions.marks(version).get(other)
                if mark is not None and (self.versions.manifest(version) or {}).get(other) == node:
                    return f"{self.versions.path_of(version)}/{other}", mark
            return None

        return find

    def finish(self, version: bytes, staging: Staging) -> None:
        """Make a whole version durable, and put it among the versions."""
        name = version.hex()
        marks = packed(staging.marks)
        beside = {
            self._staging / f"{name}{end}": data
            for end, data in zip(ENDS, (manifests.pack(staging.manifest), marks), strict=True)
        }
        for path, data in beside.items():
            path.touch(mode=0o600)
            path.write_bytes(data)
        staging.make_durable(self._mode, [*beside])
        point("tree.staged")
        for path in beside:
            path.rename(self.versions.folder / path.name)
        there = self.versions.path_of(version)
        if there.exists():  # damaged, or edited by hand: keep it, out of the way
            # Under its last name at once: tidying after a crash must not remove the edits.
            aside = self._edited(version)
            staging.folder.rename(aside)
            exchange(aside, there)
        else:
            staging.folder.rename(there)
        sync_dir(self.versions.folder)
        self.versions.came(version, staging.manifest, staging.marks)

    # -- what is served

    def switch(self, version: bytes, adopt: bool = False) -> Path | None:
        """Serve *version*, as :meth:`.LivePath.switch`. :raises HaError: also if it is gone."""
        if self.versions.manifest(version) is None:
            raise HaError(f"a version of tree {self.tree.name} is gone from {self.versions.folder}")
        return self.place.switch(version, adopt)

    def keep(self, versions: set[bytes]) -> str:
        """
        Remove all versions except *versions* and the served one. Those that hold something edited
        by hand which is nowhere else stay beside, under another name.

        :return: what could not be removed, as it belongs to another user, and why; empty: nothing.
        """
        live = self.live()[1]
        self.clear_staging()
        failed = self._remove_left_over(live)
        rest = self._staging / NEXT
        before: tuple[Manifest, Marks] = {}, {}
        for version in set(self.versions.here()) - versions - {live}:
            try:
                if self._holds_edits(version):
                    # In one step: tidying after a crash must not remove the edits.
                    self.versions.path_of(version).rename(self._edited(version))
                    self._forget(version)
                    continue
                _remove(rest)
                was = self.versions.manifest(version) or {}, self.versions.marks(version)
                self._set_aside(version)
                before = was
            except PermissionError as exc:
                failed = failed or exc
        if live:
            self._prepare(rest, *before, live)
        _remove(rest)
        return explanation(self.tree, failed) if failed else ""

    def _holds_edits(self, version: bytes) -> bool:
        """
        Whether something that was edited by hand in a version is in no other. What was edited in
        its place is in all versions that share the file, and one of them is enough.
        """
        found, top = self.versions.edits(version), self.versions.path_of(version)
        others = [path for path in _in(self.versions.folder) if path.is_dir() and path != top]
        return bool(found.added) or not all(
            any(_is_same(top / path, other / path) for other in others) for path in found.changed
        )

    def take_out(self, version: bytes) -> None:
        """Remove a version, with all edits in it, unless it is served."""
        if version in self.versions.here() and version != self.live()[1]:
            _remove(self._staging / NEXT)
            self._set_aside(version)
            _remove(self._staging / NEXT)

    def _set_aside(self, version: bytes) -> None:
        """Move a version from the others to a folder that is reused, or removed."""
        # The manifest first: without it, the rest of a version does not count as one.
        self._forget(version)
        self.versions.path_of(version).rename(self._staging / NEXT)

    def _forget(self, version: bytes) -> None:
        """Remove what lies beside a version."""
        path = self.versions.path_of(version)
        for end in ENDS:
            path.with_name(f"{path.name}{end}").unlink(missing_ok=True)
        self.versions.forget(version)

    def _edited(self, version: bytes) -> Path:
        """The folder of a version that was edited by hand, and is kept beside the others."""
        return self.versions.folder / f"{version.hex()}.edited-{time.time_ns()}"

    def lacking(self, versions: set[bytes]) -> list[bytes]:
        """
        The contents of *versions* and of the served one that have no copy. Removes copies of
        others.
        """
        sizes: dict[bytes, int] = {}
        for version in filter(None, versions | {self.live()[1]}):
            nodes = (self.versions.manifest(version) or {}).values()
            sizes.update((node.what, node.size) for node in nodes if node.kind == FILE)
        self._pristine.keep(sizes)
        return [*(sizes.keys() - self._pristine.digests)]

    def preserve(self, lacking: list[bytes]) -> None:
        """
        Copy some of the contents *lacking*, out of reach of edits in place, for ``AT_A_TIME``
        seconds, but at least one; remove these from *lacking*. Without room, that is emptied.
        """
        until = time.monotonic() + AT_A_TIME
        order = self._in_order()
        while lacking:
            digest = lacking.pop()
            path = self.versions.holder(digest, order)
            if path is not None and not self._pristine.add(digest, path):
                lacking.clear()
            if time.monotonic() > until:
                return
            self._stop()

    def _prepare(self, folder: Path, before: Manifest, marks: Marks, live: bytes) -> None:
        """Make the spare of the version *live* out of a *folder* that holds *before*."""
        manifest = self.versions.manifest(live)
        if manifest is None or self._spare(live).is_dir():
            return
        folder.mkdir(mode=0o700, exist_ok=True)
        spare = Staging(folder, manifest, self.parts, self._stop)
        spare.fill(before, marks, self._finder())
        if not spare.missing:  # otherwise somebody has edited the served version
            spare.make_durable(0o700)
            folder.rename(self._spare(live))

    def _remove_left_over(self, live: bytes | None) -> OSError | None:
        """
        Remove leftovers of versions whose making or removal was cut off. The one that is served,
        *live*, is none, even if somebody, or a disk, has lost its manifest.

        :return: why one of them could not be removed, if so.
        """
        failed: OSError | None = None
        for path in _in(self.versions.folder):
            name, end = path.name[:64], path.name[64:]
            if digest_named(name) in (None, live):
                continue
            whole = (self.versions.folder / name).is_dir()
            manifest = (self.versions.folder / f"{name}{MANIFEST}").exists()
            if (end in ENDS and not whole) or (not end and not manifest):
                try:
                    _remove(path)
                except PermissionError as exc:
                    failed = failed or exc
        return failed

    def close(self) -> None:
        """Close the folders to other users if the tree is secret, else open them, if they exist."""
        for folder in (self.tree.folder, self.versions.folder):
            with contextlib.suppress(FileNotFoundError):
                folder.chmod(self._mode)

    # -- below

    def _make_folders(self) -> None:
        for folder in (self.tree.folder, self.versions.folder):
            folder.mkdir(mode=self._mode, exist_ok=True)
        self.close()
        for folder in (self._staging, self.parts.folder):
            folder.mkdir(mode=0o700, exist_ok=True)


def explanation(tree: Tree, exc: OSError) -> str:
    """What failed where, for people; of a secret tree without the path, which names a version."""
    where = tree.folder if tree.secret else exc.filename or tree.folder
    return f"{as_text(str(where))}: {reason_of(exc)}"


def _in(folder: Path) -> list[Path]:
    return [*folder.iterdir()] if folder.is_dir() else []


def _is_same(one: Path, other: Path) -> bool:
    try:
        return os.path.samestat(one.lstat(), other.lstat())
    except OSError:
        return False


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        try:
            shutil.rmtree(path)
        except OSError as exc:  # before Python 3.13 it names what lies in *path* by its name alone
            raise OSError(exc.errno, exc.strerror, str(path)) from None
    else:
        path.unlink(missing_ok=True)
