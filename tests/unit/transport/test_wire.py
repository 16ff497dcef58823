"""What is accepted as a message between masters."""

from __future__ import annotations

import contextlib

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saltext_ha.common.errors import InvalidRecord
from saltext_ha.transport import wire

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=20)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=20,
)
# What msgpack can say, and is not spoken here: other keys, other outermost values, extensions.
foreign = st.recursive(
    scalars | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=20)),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(scalars, inner, max_size=5),
    max_leaves=20,
)


def taken(data: bytes) -> None:
    """Unpack *data*: a map with text keys comes of it, or a ValueError."""
    with contextlib.suppress(ValueError):
        assert all(isinstance(key, str) for key in wire.unpack(data, max_items=8))


def test_round_trip() -> None:
    payload = {"text": "ü", "bytes": b"\x00\xff", "list": [1, -1, 2.5, None, True, {}]}
    assert wire.unpack(wire.pack(payload)) == payload


@pytest.mark.parametrize("value", [[0] * 65, {str(n): 0 for n in range(65)}])
def test_more_entries_than_allowed(value: object) -> None:
    data = wire.pack({"a": value})
    assert wire.unpack(data, max_items=65) == {"a": value}
    with pytest.raises(ValueError, match="not valid msgpack"):
        wire.unpack(data, max_items=64)


def test_only_maps_with_text_keys() -> None:
    for data in (b"\x01", b"\x90", b"\xc0", b"\x81\xc4\x01k\x01"):
        with pytest.raises(ValueError, match="not a map with text keys"):
            wire.unpack(data)


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (bool, False, (0, None, "no")),
        (bytes, b"", ("", None, [])),
        (dict, {}, ([], None)),
        (int, 7, (True, 7.0, "7", None)),
        (list, [], ({}, "ab", None)),
        (str, "", (b"", None, ["a"])),
    ],
)
def test_a_field_is_of_its_kind(kind: type, good: object, bad: tuple[object, ...]) -> None:
    assert wire.field({"a": good}, "a", kind) == good
    assert wire.field({}, "a", kind, good) == good
    for payload in ({}, *({"a": value} for value in bad)):
        with pytest.raises(InvalidRecord, match=r"malformed a: .* was expected, not "):
            wire.field(payload, "a", kind)


def test_texts() -> None:
    assert wire.texts({"ids": ["web1", ""]}, "ids") == ["web1", ""]
    for raw in (None, "web1", ["web1", b"web2"], {"web1": 1}):
        with pytest.raises(InvalidRecord, match="malformed ids"):
            wire.texts({"ids": raw}, "ids")


def test_rows_are_cut_to_what_is_known_of_them() -> None:
    raw = [["web1", b"k", 7], ["web2", b"k", None, "of a later release"]]
    assert wire.rows(raw, "pairs", str, bytes) == [["web1", b"k"], ["web2", b"k"]]
    assert wire.rows(raw, "pairs", object, bytes, object)[1] == ["web2", b"k", None]
    assert wire.rows([], "pairs", str) == []


@pytest.mark.parametrize(
    "raw",
    [None, 7, {}, "ab", ["ab"], [{}], [["web1"]], [["web1", "k"]], [["web1", b"k"], [1, b"k"]]],
)
def test_what_are_no_rows(raw: object) -> None:
    with pytest.raises(InvalidRecord, match=r"malformed pairs: .* was expected, not "):
        wire.rows(raw, "pairs", str, bytes)


@given(st.dictionaries(st.text(max_size=5), values, max_size=5))
def test_what_is_packed_comes_back(payload: dict[str, object]) -> None:
    assert wire.unpack(wire.pack(payload)) == payload


@given(st.binary(max_size=300))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    taken(data)
    taken(b"\x81\xa1x" + data)


@given(foreign, st.integers(0, 2000), st.binary(max_size=3))
def test_any_msgpack_is_a_message_or_refused(value: object, at: int, put: bytes) -> None:
    data = msgpack.packb(value, use_bin_type=True)
    taken(data)
    taken(data[:at] + put + data[at + len(put) :])
