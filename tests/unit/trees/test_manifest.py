"""What a peer may say that is in a tree: nothing that leads out of it."""

from __future__ import annotations

from typing import Any

import pytest

from saltext_ha.common.errors import InvalidRecord
from saltext_ha.trees import manifest as manifests
from saltext_ha.trees.manifest import FILE, FOLDER, LINK, LONGEST_PATH, MOST_ENTRIES, Node

HASH = bytes(32)


def file(path: Any, mode: Any = 0o644, size: Any = 3, what: Any = HASH) -> list[Any]:
    return [path, FILE, mode, size, what]


def folder(path: str) -> list[Any]:
    return [path, FOLDER, 0o755, 0, b""]


def link(path: str, target: str) -> list[Any]:
    return [path, LINK, 0o777, 0, target.encode()]


def test_what_is_packed_is_read_again_and_has_one_name() -> None:
    rows = [folder("a"), file("a/b"), link("c", "a/b"), link("a/up", "../c")]
    found = manifests.read(rows)
    assert manifests.unpack(manifests.pack(found)) == found
    assert manifests.version_of(found) == manifests.version_of(manifests.read(rows[::-1]))
    other = {**found, "a/b": Node(FILE, 0o600, 3, HASH)}
    assert manifests.version_of(found) != manifests.version_of(other)
    assert (manifests.files(found), manifests.size(found)) == (1, 3)


@pytest.mark.parametrize(
    "rows",
    [
        [file("../x")],
        [file("/etc/passwd")],
        [file("a/../../x")],
        [file("./a")],
        [file("")],
        [file("a//b")],
        [file("a\0b")],
        [file("x" * 256)],
        [file("\udcff")],
        [file(b"a")],
        [file("a"), file("a")],
        [file("a/b")],
        [file("a"), file("a/b")],
        [file("a", mode=0o4755)],
        [file("a", mode=-1)],
        [file("a", size=-1)],
        [file("a", size=2**53)],
        [file("a", size=True)],
        [file("a", what=b"short")],
        [file("a", what="text")],
        [["a", "device", 0o644, 0, b""]],
        [["a", FOLDER, 0o755, 5, b""]],
        [["a", FILE, 0o644, 3]],
        ["a"],
        {"a": 1},
        [link("a", "/etc/passwd")],
        [link("a", "..")],
        [link("a", "../..")],
        [link("a", "")],
        [link("a", "b\0")],
        [link("a", "x/" * (LONGEST_PATH // 2))],
        [folder("d"), link("d/a", "../../x")],
        [folder("d"), link("d/up", ".."), link("out", "d/up/../..")],
        [link("one", "two"), link("two", "one")],
    ],
    ids=str,
)
def test_what_is_refused(rows: Any) -> None:
    with pytest.raises(InvalidRecord):
        manifests.read(rows)


def test_a_circle_is_found_at_once() -> None:
    """Each turn of this one would make what is left to follow longer by a thousand parts."""
    rows = [folder("d"), link("d/a", "/".join(["..", "d", "a"] + [".", ""] * 500).strip("/"))]
    with pytest.raises(InvalidRecord, match="leads out"):
        manifests.read(rows)


def test_there_are_at_most_so_many() -> None:
    with pytest.raises(InvalidRecord, match="at most"):
        manifests.read([file(f"{number}") for number in range(MOST_ENTRIES + 1)])


@pytest.mark.parametrize(
    "data", [b"", b"\xc0", b"\xc1", b"\x93", b"\xdd\xff\xff\xff\xff", b"\x80" * 9]
)
def test_what_is_no_manifest(data: bytes) -> None:
    with pytest.raises(InvalidRecord):
        manifests.unpack(data)


def test_changes_tell_of_folders_only_what_their_files_do_not() -> None:
    before = manifests.read([folder("old"), file("old/a"), file("same"), file("other")])
    after = manifests.read(
        [folder("new"), folder("new/empty"), file("same"), file("other", size=4), file("new/b")]
    )
    found = manifests.changes(before, after)
    assert found == (["new/b", "new/empty"], ["other"], ["old/a"])
    assert not any(manifests.changes(before, before))
