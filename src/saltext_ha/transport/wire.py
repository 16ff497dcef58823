"""
Messages between masters: msgpack maps with text keys in HTTP bodies, strictly limited, and read
:func:`field` by field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgpack

from saltext_ha.common.errors import InvalidRecord

PROTOCOL = 1
PROTOCOLS = (1,)
PROTOCOL_HEADER = "X-HA-Protocol"
CONTENT_TYPE = "application/msgpack"

MAX_BODY = 8 * 1024 * 1024
MAX_JOIN_BODY = 16 * 1024
# A five-byte header may claim any number of entries; the decoder allocates memory for all of them.
MAX_ITEMS = 1_000_000
MAX_JOIN_ITEMS = 64
# Most lists and maps in one message: an empty one takes one byte there, and sixty here.
MAX_PARTS = 1_000_000

T = TypeVar("T")
_NAMES: Mapping[type, str] = {
    bool: "true or false",
    bytes: "bytes",
    dict: "a map",
    float: "a number with a fraction",
    int: "a whole number",
    list: "a list",
    str: "a text",
}


def pack(payload: Mapping[str, Any]) -> bytes:
    """Encode *payload*: a map of text keys to None, bool, int, float, str, bytes, list, dict."""
    data: bytes = msgpack.packb(dict(payload), use_bin_type=True)
    return data


def unpack(data: bytes, max_items: int = MAX_ITEMS) -> dict[str, Any]:
    """
    Decode one message.

    :param max_items: most entries of one list or map inside.
    :raises ValueError: *data* is not exactly one map, or breaks a limit.
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


def field(payload: Mapping[str, Any], name: str, kind: type[T], otherwise: T | None = None) -> T:
    """
    The field *name* of a peer's message.

    :param kind: its exact type: a bool is no number.
    :param otherwise: the value if the field is missing.
    :raises InvalidRecord: the field has another type.
    """
    return _of(kind, payload.get(name, otherwise), name)


def texts(payload: Mapping[str, Any], name: str) -> list[str]:
    """Like :func:`field`, for a list of texts."""
    return [_of(str, each, name) for each in field(payload, name, list)]


def rows(raw: Any, what: str, *kinds: type) -> list[Sequence[Any]]:
    """
    *raw* as a list of lists, each cut to as many entries as there are *kinds*: a later release may
    send more.

    Call this before you use any of *raw*: what ``x[:6]`` or ``a, b = x`` do with a map or a text
    depends on the release of Python.

    :param what: names *raw* in the error. :param kinds: the types of the entries; ``object``: any.
    :raises InvalidRecord: *raw* is something else, or a list in it is too short.
    """
    return [row(each, what, *kinds) for each in _of(list, raw, what)]


def row(raw: Any, what: str, *kinds: type) -> Sequence[Any]:
    """Like :func:`rows`, for one of the lists."""
    size = len(kinds)
    if len(_of(list, raw, what)) < size:
        raise InvalidRecord(f"malformed {what}: a list of {size} was expected, not of {len(raw)}")
    for kind, part in zip(kinds, raw, strict=False):
        if kind is not object:
            _of(kind, part, what)
    found: Sequence[Any] = raw[:size]
    return found


def _of(kind: type[T], value: Any, what: str) -> T:
    if type(value) is kind:
        return value
    found = type(value).__name__
    raise InvalidRecord(f"malformed {what}: {_NAMES[kind]} was expected, not {found}")


def _no_extensions(code: int, data: bytes) -> Any:
    raise ValueError("extension types are not spoken here")
