"""What travels between masters: msgpack maps with text keys in HTTP bodies, strictly limited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgpack

PROTOCOL = 1
PROTOCOLS = (1,)
PROTOCOL_HEADER = "X-HA-Protocol"
CONTENT_TYPE = "application/msgpack"

MAX_BODY = 8 * 1024 * 1024
MAX_JOIN_BODY = 16 * 1024
# A five-byte header may claim any number of entries; the decoder reserves room for all of them.
MAX_ITEMS = 1_000_000
MAX_JOIN_ITEMS = 64
# Lists and maps in one message: an empty one takes one byte there, and sixty here.
MAX_PARTS = 1_000_000


def pack(payload: Mapping[str, Any]) -> bytes:
    """Encode *payload*: a map of text keys to None, bool, int, float, str, bytes, list, dict."""
    data: bytes = msgpack.packb(dict(payload), use_bin_type=True)
    return data


def unpack(data: bytes, max_items: int = MAX_ITEMS) -> dict[str, Any]:
    """
    Decode one message.

    :param max_items: entries that one list or map inside may have.
    :raises ValueError: it is not exactly one map, or breaks a limit.
    """
    max_items = min(max_items, len(data))
    parts = 0

    def count(part: Any) -> Any:
        nonlocal parts
        parts += 1
        if parts > MAX_PARTS:
            raise ValueError("too many lists and maps")
        return part

    try:
        payload = msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=True,
            ext_hook=_no_extensions,
            list_hook=count,
            object_hook=count,
            max_array_len=max_items,
            max_map_len=max_items,
        )
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as exc:
        raise ValueError(f"not valid msgpack: {type(exc).__name__}") from None
    if not isinstance(payload, dict) or not all(isinstance(key, str) for key in payload):
        raise ValueError("not a map with text keys")
    return payload


def rows(raw: Any, size: int) -> list[Sequence[Any]]:
    """
    *raw* as a list of lists, each cut to its first *size* entries: a later release may send more.

    To be asked before any of it is used: what ``x[:6]`` or ``a, b = x`` do with a map or a text
    depends on the release of Python.

    :raises ValueError: it is something else, or one of them is shorter.
    """
    if not isinstance(raw, (list, tuple)):
        raise ValueError(f"a list was expected, not {type(raw).__name__}")
    for row in raw:
        if not isinstance(row, (list, tuple)):
            raise ValueError(f"a list was expected, not {type(row).__name__}")
        if len(row) < size:
            raise ValueError(f"a list of {size} was expected, not of {len(row)}")
    return [row[:size] for row in raw]


def _no_extensions(code: int, data: bytes) -> Any:
    raise ValueError("extension types are not spoken here")
