"""What is accepted as a message between masters."""

from __future__ import annotations

import contextlib

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
