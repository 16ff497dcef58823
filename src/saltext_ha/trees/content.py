"""Sends and fetches the content of trees: manifests as differences, files by hash and in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from saltext_ha.common.errors import HaError, InvalidRecord, PeerError
from saltext_ha.common.files import open_itself
from saltext_ha.sync.contact import Asking
from saltext_ha.transport import wire
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.peer import Peer
from saltext_ha.trees import manifest as manifests
from saltext_ha.trees.manifest import Manifest, Node
from saltext_ha.trees.staging import Staging
from saltext_ha.trees.store import TreeStore
from saltext_ha.trees.tree_disk import TreeDisk

# Most bytes of one file in one message, and of all files in one message.
PART = 1 << 20
MOST = 4 << 20
# So many are asked for at a time: they must come within 60 s, also where several masters fetch
# files over one slow link.
ASKED = 1 << 20
MOST_WANTED = 4096
# Most bytes in a message of one entry of a manifest or of a list of paths, beside its texts.
ROW = 32

Progress = Callable[[int, int], None]
"""Takes the number of files that are there, and of those that will be there."""


class Content:
    """Gives peers the content of trees that this master has."""

    def __init__(self, disks: Mapping[str, TreeDisk]) -> None:
        self._disks = disks

    def for_peers(self) -> dict[str, Handler]:
        return {"tree_manifest": self._manifest, "tree_parts": self._parts}

    async def _manifest(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        disk, version = self._of(payload)
        base = wire.field(payload, "base", bytes, b"")
        after = wire.field(payload, "after", str, "")
        return await disk.sending(_page, disk.store, version, base, after)

    async def _parts(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        disk, _ = self._of(payload)
        wanted = wire.rows(payload.get("wanted"), "wanted", bytes, int)[:MOST_WANTED]
        return {"parts": await disk.sending(_read, disk.store, wanted)}

    def _of(self, payload: dict[str, Any]) -> tuple[TreeDisk, bytes]:
        return disk_of(self._disks, payload), wire.field(payload, "version", bytes, b"")


def disk_of(disks: Mapping[str, TreeDisk], payload: Mapping[str, Any]) -> TreeDisk:
    """The disk of the tree that a peer names. :raises HaError: there is none."""
    name = wire.field(payload, "tree", str)
    if name not in disks:
        raise HaError(f"there is no tree {name!r:.40} in  ha: trees:  here")
    return disks[name]


def _page(store: TreeStore, version: bytes, base: bytes, after: str) -> dict[str, Any]:
    """Entries of *version* that *base* lacks, in the order of paths; and paths only in *base*."""
    manifest = store.versions.manifest(version)
    if manifest is None:
        raise HaError("that version is not here")
    before = store.versions.manifest(base) if base else None
    known = before or {}
    gone = sorted(known.keys() - manifest.keys())
    room = MOST - sum(_weight(path) for path in gone)
    if room < 0:  # too many for one message: all pages are without the base
        return _page(store, version, b"", after)
    if after:
        gone, room = [], MOST
    rows: list[list[Any]] = []
    for path in sorted(p for p, node in manifest.items() if p > after and known.get(p) != node):
        node = manifest[path]
        room -= _weight(path) + len(node.what)
        if room < 0 and rows:
            break
        rows.append([path, *node])
    return {"base": before is not None, "rows": rows, "removed": gone, "more": room < 0}


def _weight(path: str) -> int:
    return ROW + len(path.encode())


def _read(store: TreeStore, wanted: Sequence[Sequence[Any]]) -> list[list[Any]]:
    parts: list[list[Any]] = []
    room = MOST
    paths = store.holders(digest for digest, _ in wanted)
    for (digest, offset), path in zip(wanted, paths, strict=True):
        if room <= 0:
            break
        if path is None or offset < 0:
            continue
        try:
            opened = open_itself(path)
        except OSError:
            continue  # that version was removed just now
        with opened as file:
            file.seek(offset)
            data = file.read(min(PART, room))
        parts.append([digest, offset, data])
        room -= len(data)
    return parts


async def fetch_manifest(peer: Asking, disk: TreeDisk, version: bytes, base: bytes) -> Manifest:
    """
    Fetch the manifest of *version* from *peer*: its differences from *base*, if both have that.

    :raises HaError: the peer lacks the version, or sends a manifest of another one.
    """
    entries: dict[str, Node] = {}
    after, first = "", True
    ask = {"tree": disk.tree.name, "version": version, "base": base}
    while True:
        answer = await peer.call_large("tree_manifest", {**ask, "after": after})
        rows = wire.rows(answer.get("rows"), "manifest", str, str, int, int, bytes)
        if first and answer.get("base") is True:
            known = await disk.deploying(disk.store.versions.manifest, base)
            entries = dict(known or {})
            for path in wire.texts(answer, "removed"):
                entries.pop(path, None)
        elif first:  # else the next pages might be differences from it
            ask["base"] = b""
        first = False
        entries.update(map(manifests.read_row, rows))
        if len(entries) > manifests.MOST_ENTRIES:
            raise InvalidRecord(f"a tree has at most {manifests.MOST_ENTRIES} entries")
        if answer.get("more") is not True:
            break
        if not rows or rows[-1][0] <= after:
            raise InvalidRecord("a manifest without end")
        after = rows[-1][0]

    def named() -> bytes:
        manifests.check(entries)
        return manifests.version_of(entries)

    if await disk.deploying(named) != version:
        raise InvalidRecord("a manifest that is not the one of that version")
    return entries


async def fetch_files(
    peers: Mapping[str, Asking],
    disk: TreeDisk,
    staging: Staging,
    progress: Progress,
    refused: Callable[[str], None],
) -> None:
    """
    Fetch all missing files, each from the first peer that has it and answers.

    :param peers: by name; they are asked in this order.
    :param refused: takes the name of a peer that sent nonsense.
    :raises HaError: no peer has some of the files; says which were asked, and why not.
    """
    left = dict.fromkeys(staging.missing)
    of = len(left)
    troubles: dict[str, str] = {}
    for name, peer in peers.items():
        hoped = dict(left)  # what this peer may have
        while hoped:
            progress(of - len(left), of)
            try:
                wanted = await disk.deploying(_wanted, staging, hoped)
                got = await _fetch_some(peer, disk, staging, wanted, left)
            except PeerError as exc:
                troubles[name] = str(exc)
                break
            except InvalidRecord as exc:
                troubles[name] = f"{name} sends nonsense: {exc}"
                refused(name)
                break
            if not got:
                troubles.setdefault(name, f"{name} does not have all of these files")
            for digest, _ in wanted:
                if digest not in left or not got:
                    del hoped[digest]
    progress(of - len(left), of)
    if left:
        path = staging.missing[next(iter(left))][0]
        why = "; ".join(troubles.values()) or "there is no other master to ask"
        raise HaError(f"{len(left)} files could not be fetched, {path} among them: {why}")


async def _fetch_some(
    peer: Asking,
    disk: TreeDisk,
    staging: Staging,
    wanted: list[list[Any]],
    left: dict[bytes, None],
) -> bool:
    """Fetch what is *wanted* of the files *left* in one message; returns whether anything came."""
    answer = await peer.call_large("tree_parts", {"tree": disk.tree.name, "wanted": wanted})
    parts = wire.rows(answer.get("parts"), "parts", bytes, int, bytes)
    return await disk.deploying(_take, staging, left, dict(map(tuple, wanted)), parts)


def _wanted(staging: Staging, left: Iterable[bytes]) -> list[list[Any]]:
    """What to ask for in one message: contents, and how much of each is here."""
    wanted: list[list[Any]] = []
    room = ASKED
    for digest in left:
        have = staging.parts.length(digest)
        wanted.append([digest, have])
        room -= min(PART, staging.size(digest) - have)
        if room <= 0 or len(wanted) == MOST_WANTED:
            break
    return wanted


def _take(
    staging: Staging,
    left: dict[bytes, None],
    wanted: Mapping[bytes, int],
    parts: Sequence[Sequence[Any]],
) -> bool:
    came = False
    for digest, offset, data in parts:
        if digest not in left or wanted.get(digest) != offset:
            raise InvalidRecord("a part of a file that was not asked for")
        size = staging.size(digest)
        if offset + len(data) > size or (not data and offset < size):
            staging.parts.forget(digest)
            raise InvalidRecord("more or less of a file than it has")
        staging.parts.append(digest, offset, data)
        came = True
        if offset + len(data) < size:
            continue
        if not staging.settle(digest):
            raise InvalidRecord("other bytes than those of that file")
        del left[digest]
    return came
