"""What a peer sends of a tree is believed only as far as its hash goes."""

from __future__ import annotations

import hashlib
import os
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from saltext_ha.common.errors import HaError, InvalidRecord, PeerUnreachable
from saltext_ha.config.trees import Tree
from saltext_ha.transport import wire
from saltext_ha.trees import content
from saltext_ha.trees import manifest as manifests
from saltext_ha.trees.content import PART, Content
from saltext_ha.trees.manifest import FILE, FOLDER, Manifest, Node
from saltext_ha.trees.source import take
from saltext_ha.trees.store import TreeStore
from saltext_ha.trees.tree_disk import TreeDisk
from tests.asking import Answering
from tests.loop import in_a_loop

Answer = Callable[[dict[str, Any]], Any]
SMALL, LARGE = b"small\n", os.urandom(3 * PART + 5)


def store_in(folder: Path) -> TreeStore:
    folder.mkdir()
    return TreeStore(Tree("states", folder / "live"))


def holding(folder: Path, files: dict[str, bytes]) -> tuple[TreeStore, bytes, Manifest]:
    """A master that has a version with these *files*."""
    store = store_in(folder)
    source = folder / "source"
    for path, data in files.items():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_bytes(data)
    manifest = take(source, (), False, folder / "digests").manifest
    version = manifests.version_of(manifest)
    staging = store.begin(version, manifest)
    for digest in list(staging.missing):
        staging.copy(digest, source / staging.missing[digest][0])
        assert staging.settle(digest)
    store.finish(version, staging)
    return store, version, manifest


def peer_of(
    store: TreeStore, **bent: Callable[[dict[str, Any]], Awaitable[Any] | Any]
) -> Answering:
    """That master as a peer; of some methods something else is answered."""
    handlers = Content({"states": TreeDisk(store)}).for_peers()

    @Answering
    async def peer(method: str, payload: dict[str, Any]) -> dict[str, Any]:
        answer = dict(await handlers[method](None, payload))  # type: ignore[arg-type]
        return bent[method](answer) if method in bent else answer  # type: ignore[no-any-return]

    return peer


async def fetch(
    store: TreeStore, version: bytes, manifest: Manifest, **peers: Answering
) -> list[str]:
    """Who was refused."""
    refused: list[str] = []
    staging = store.begin(version, manifest)
    await content.fetch_files(
        peers, TreeDisk(store), staging, lambda done, of: None, refused.append
    )
    store.finish(version, staging)
    return refused


def outside(folder: Path) -> set[str]:
    """All that lies in the folder of a master, but below its versions."""
    return {path.name for path in folder.iterdir()}


def parts(change: Callable[[list[Any]], Any]) -> Answer:
    return lambda answer: {"parts": change(answer["parts"])}


@pytest.mark.parametrize(
    ("bend", "words"),
    [
        (lambda got: [[d, o, b"x" * len(data)] for d, o, data in got], "other bytes"),
        (lambda got: [[d, o, data + b"x"] for d, o, data in got], "more or less"),
        (lambda got: [[d, o, b""] for d, o, _ in got], "more or less"),
        (lambda got: [[d, o + 1, data] for d, o, data in got], "not asked for"),
        (lambda got: [[b"?" * 32, 0, b"x"], *got], "not asked for"),
        (lambda got: [], "does not have all"),
        (lambda got: "nonsense", "nonsense"),
        (lambda got: [[1, 2, 3]], "nonsense"),
    ],
    ids=["other", "more", "fewer", "elsewhere", "unasked", "nothing", "text", "numbers"],
)
@in_a_loop
async def test_what_is_not_that_file_is_refused_and_the_next_is_asked(
    tmp_path: Path, bend: Callable[[list[Any]], Any], words: str
) -> None:
    files = {"a": SMALL, "folder/b": LARGE}
    there, version, manifest = holding(tmp_path / "m1", files)
    store = store_in(tmp_path / "m2")
    liar = peer_of(there, tree_parts=parts(bend))
    with pytest.raises(HaError, match=words):
        await fetch(store, version, manifest, liar=liar)
    assert store.versions.here() == []
    assert outside(tmp_path / "m2") == {".live.ha"}
    refused = await fetch(store, version, manifest, liar=liar, honest=peer_of(there))
    assert refused == ([] if words == "does not have all" else ["liar"])
    path = store.versions.path_of(version)
    assert {name: (path / name).read_bytes() for name in files} == files
    assert not any(store.versions.edits(version))


@in_a_loop
async def test_a_large_file_goes_on_where_it_was_cut(tmp_path: Path) -> None:
    there, version, manifest = holding(tmp_path / "m1", {"large": LARGE})
    store = store_in(tmp_path / "m2")
    asked: list[int] = []

    def watched(cut: bool) -> Answering:
        honest = peer_of(there)

        @Answering
        async def peer(method: str, payload: dict[str, Any]) -> dict[str, Any]:
            asked.append(payload["wanted"][0][1])
            if cut and len(asked) == 3:
                raise PeerUnreachable("hung up")
            return await honest.answer(method, payload)

        return peer

    with pytest.raises(HaError, match="hung up"):
        await fetch(store, version, manifest, m1=watched(cut=True))
    await fetch(store, version, manifest, m1=watched(cut=False))
    assert asked == [0, PART, 2 * PART, 2 * PART, 3 * PART]
    assert (store.versions.path_of(version) / "large").read_bytes() == LARGE


@in_a_loop
async def test_a_message_of_files_comes_in_time_on_a_slow_line(tmp_path: Path) -> None:
    files = {f"{number}": os.urandom(PART * 3 // 4) for number in range(6)}
    there, version, manifest = holding(tmp_path / "m1", files)
    sizes: list[int] = []

    def noted(answer: dict[str, Any]) -> dict[str, Any]:
        sizes.append(sum(len(data) for _, _, data in answer["parts"]))
        return answer

    store = store_in(tmp_path / "m2")
    await fetch(store, version, manifest, m1=peer_of(there, tree_parts=noted))
    assert max(sizes) < 2 * PART


def edit(store: TreeStore, version: bytes, path: str) -> None:
    """In its place, so that this master does not have that content any more."""
    with (store.versions.path_of(version) / path).open("ab") as file:
        file.write(b"x")


@in_a_loop
async def test_what_the_others_have_between_them_is_fetched(tmp_path: Path) -> None:
    """Also files that are each more than one message."""
    files = {name: os.urandom(PART * 3 // 2) for name in ("a", "b")}
    one, version, manifest = holding(tmp_path / "m1", files)
    two, _, _ = holding(tmp_path / "m2", files)
    edit(one, version, "a")
    edit(two, version, "b")
    store = store_in(tmp_path / "m3")
    assert await fetch(store, version, manifest, m1=peer_of(one), m2=peer_of(two)) == []


@in_a_loop
async def test_a_copy_that_a_power_cut_has_torn_is_not_sent(tmp_path: Path) -> None:
    files = {"a": b"aaaa", "z": b"zz"}
    before, version, manifest = holding(tmp_path / "m1", files)
    before.preserve(before.lacking({version}))
    for copy in (tmp_path / "m1").rglob("pristine/*"):
        copy.write_bytes(b"\0" * copy.stat().st_size)
    one = TreeStore(before.tree)
    edit(one, version, "a")
    two, _, _ = holding(tmp_path / "m2", files)
    store = store_in(tmp_path / "m3")
    assert await fetch(store, version, manifest, m1=peer_of(one), m2=peer_of(two)) == []


@in_a_loop
async def test_each_file_that_is_sent_is_a_step(tmp_path: Path) -> None:
    files = {f"{number}": b"%d" % number for number in range(20)}
    store, version, _ = holding(tmp_path / "m1", files)
    steps: list[None] = []
    slow = TreeStore(store.tree, lambda: steps.append(None))
    wanted = [[hashlib.sha256(data).digest(), 0] for data in files.values()]
    ask = {"tree": "states", "version": version, "wanted": wanted}
    answer = await peer_of(slow).call("tree_parts", ask)
    assert len(answer["parts"]) == 20
    assert len(steps) >= 20


@in_a_loop
async def test_a_file_is_never_held_whole(tmp_path: Path) -> None:
    source = tmp_path / "m1" / "source"
    there = store_in(tmp_path / "m1")
    source.mkdir()
    size = 64 * PART
    with (source / "huge").open("wb") as file:
        for number in range(64):
            file.write(bytes([number]) * PART)
    manifest = take(source, (), False, tmp_path / "digests").manifest
    version = manifests.version_of(manifest)
    staging = there.begin(version, manifest)
    staging.copy(manifest["huge"].what, source / "huge")
    assert staging.settle(manifest["huge"].what)
    there.finish(version, staging)
    store = store_in(tmp_path / "m2")
    tracemalloc.start()
    try:
        await fetch(store, version, manifest, m1=peer_of(there))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < size / 4
    assert (store.versions.path_of(version) / "huge").stat().st_size == size


@in_a_loop
async def test_only_what_differs_of_a_manifest_is_sent(tmp_path: Path) -> None:
    there, first, manifest = holding(tmp_path / "m1", {f"{n}": b"%d" % n for n in range(100)})
    store = store_in(tmp_path / "m2")
    await fetch(store, first, manifest, m1=peer_of(there))
    changed = dict(manifest)
    del changed["7"]
    changed["new"] = Node(FILE, 0o644, 6, hashlib.sha256(SMALL).digest())
    second = manifests.version_of(changed)
    staging = there.begin(second, changed)
    staging.parts.append(changed["new"].what, 0, SMALL)
    assert staging.settle(changed["new"].what)
    there.finish(second, staging)
    sent: list[int] = []
    peer = peer_of(there, tree_manifest=lambda answer: sent.append(len(answer["rows"])) or answer)
    assert await content.fetch_manifest(peer, TreeDisk(store), second, first) == changed
    assert sent == [1]


@pytest.mark.parametrize(
    "bend",
    [
        lambda answer: {**answer, "rows": [["../x", FILE, 0o644, 1, bytes(32)]]},
        lambda answer: {**answer, "rows": [["x", FILE, 0o644, 1, bytes(32)]]},
        lambda answer: {**answer, "rows": answer["rows"][:1]},
        lambda answer: {**answer, "rows": "nonsense"},
        lambda answer: {**answer, "more": True},
        lambda answer: {**answer, "rows": [], "more": True},
        lambda answer: {},
        lambda answer: {**answer, "rows": [["d", FOLDER, 0o755, 0, b""]], "base": True},
    ],
    ids=["above", "another", "half", "text", "endless", "empty", "nothing", "base"],
)
@in_a_loop
async def test_a_manifest_that_is_not_that_of_the_version(tmp_path: Path, bend: Answer) -> None:
    there, version, _ = holding(tmp_path / "m1", {"a": SMALL, "b": SMALL})
    store = store_in(tmp_path / "m2")
    with pytest.raises(InvalidRecord):
        await content.fetch_manifest(
            peer_of(there, tree_manifest=bend), TreeDisk(store), version, b""
        )
    assert outside(tmp_path / "m2") == set()


@in_a_loop
async def test_a_version_that_is_not_there(tmp_path: Path) -> None:
    there, _, _ = holding(tmp_path / "m1", {"a": SMALL})
    store = store_in(tmp_path / "m2")
    with pytest.raises(HaError, match="not here"):
        await content.fetch_manifest(peer_of(there), TreeDisk(store), bytes(32), b"")


@in_a_loop
async def test_a_manifest_of_long_paths_comes_in_messages_that_fit(tmp_path: Path) -> None:
    there = store_in(tmp_path / "m1")
    here = store_in(tmp_path / "m2")
    long = "/".join(["x" * 250] * 8)
    folders = [long[: 251 * n - 1] for n in range(1, 9)]
    manifest = {path: Node(FOLDER, 0o755, 0, b"") for path in folders}
    empty = hashlib.sha256().digest()
    manifest |= {f"{long}/{n}": Node(FILE, 0o644, 0, empty) for n in range(6000)}
    version = manifests.version_of(manifest)
    staging = there.begin(version, manifest)
    assert staging.settle(empty)
    there.finish(version, staging)
    sizes: list[int] = []

    @Answering
    async def watched(method: str, payload: dict[str, Any]) -> dict[str, Any]:
        answer = await peer_of(there).answer(method, payload)
        sizes.append(len(wire.pack(answer)))
        return answer

    assert await content.fetch_manifest(watched, TreeDisk(here), version, b"") == manifest
    assert len(sizes) > 2
    assert max(sizes) < wire.MAX_BODY
    # What only the other version has is a list of paths as long.
    base = manifests.version_of({})
    there.finish(base, there.begin(base, {}))
    sizes.clear()
    assert await content.fetch_manifest(watched, TreeDisk(here), base, version) == {}
    assert max(sizes) < wire.MAX_BODY


def noted(store: TreeStore, manifest: Manifest) -> bytes:
    """A version of which there is the manifest, and no file."""
    version = manifests.version_of(manifest)
    folder = store.tree.folder / "versions"
    (folder / version.hex()).mkdir(parents=True)
    (folder / f"{version.hex()}.manifest").write_bytes(manifests.pack(manifest))
    return version


@pytest.mark.parametrize("based", [False, True])
@in_a_loop
async def test_a_manifest_that_lost_more_paths_than_fit_into_a_message(
    tmp_path: Path, based: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes without the base, on several pages; also if the peer goes by the base on others."""
    monkeypatch.setattr(content, "MOST", 20_000)
    there, here = store_in(tmp_path / "m1"), store_in(tmp_path / "m2")
    empty = hashlib.sha256().digest()
    stay = {f"a{n:03}{'x' * 100}": Node(FILE, 0o644, 0, empty) for n in range(400)}
    gone = {f"b{n:03}{'x' * 100}": Node(FILE, 0o644, 0, empty) for n in range(400)}
    bases = {noted(store, stay | gone) for store in (there, here)}
    changed = stay | {"new": Node(FILE, 0o644, 0, empty)}
    version, pages = noted(there, changed), 0
    peer = peer_of(there)

    @Answering
    async def by_its_base(method: str, payload: dict[str, Any]) -> dict[str, Any]:
        answer = await peer.answer(method, payload)
        if payload["after"] and payload["base"]:
            answer |= {"base": True, "rows": answer["rows"][-1:], "more": False}
        return answer

    @Answering
    async def counted(method: str, payload: dict[str, Any]) -> dict[str, Any]:
        nonlocal pages
        pages += 1
        return await (by_its_base if based else peer).answer(method, payload)

    assert await content.fetch_manifest(counted, TreeDisk(here), version, bases.pop()) == changed
    assert pages > 2


@in_a_loop
async def test_a_later_page_goes_on_without_a_base_that_the_first_left_out(tmp_path: Path) -> None:
    there = store_in(tmp_path / "m1")
    empty = hashlib.sha256().digest()
    base = {f"b{n:05}{'x' * 240}": Node(FILE, 0o644, 0, empty) for n in range(17_000)}
    stay = {f"a{n}": Node(FILE, 0o644, 0, empty) for n in range(10)}
    before, after = noted(there, base | stay), noted(there, stay)
    page = await peer_of(there).answer(
        "tree_manifest", {"tree": "states", "version": after, "base": before, "after": "a1"}
    )
    assert [row[0] for row in page["rows"]] == sorted(stay)[2:]


@in_a_loop
async def test_a_manifest_with_more_entries_than_a_tree_may_have(tmp_path: Path) -> None:
    """A page at a time, for ever: no more of it is kept than of the largest tree."""
    store = store_in(tmp_path / "m2")
    asked = 0

    @Answering
    async def endless(method: str, payload: dict[str, Any]) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        row = [FILE, 0o644, 1, bytes(32)]
        rows = [[f"{asked:09}-{number:09}", *row] for number in range(50_000)]
        return {"base": False, "rows": rows, "removed": [], "more": True}

    with pytest.raises(InvalidRecord, match="at most"):
        await content.fetch_manifest(endless, TreeDisk(store), bytes(32), b"")
    assert asked == 1 + manifests.MOST_ENTRIES // 50_000
    assert outside(tmp_path / "m2") == set()
