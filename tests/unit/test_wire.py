"""What is accepted as a message between masters."""

from __future__ import annotations

import pytest

from saltext_ha.peering import wire


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
