"""Nonsense: values that no honest caller sends, and ways to put them into honest messages."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

# Ids that try to leave their folder, to break a line, or to pass for another id.
IDS = (
    "..",
    ".",
    "../../canary",
    "/etc/shadow",
    "a/b",
    "a\\b",
    "web1\0",
    "web1\n",
    "web1\r\nX-Injected: 1",
    "-rf",
    ".hidden",
    "wеb1",  # Cyrillic e
    "ｗｅｂ１",  # full width
    "web1\u202e1bew",  # right to left from here on
    "we\u200bb1",  # a space of no width
    "web1\ud7ff",
    "%2e%2e%2fcanary",
    "{{ 7 * 7 }}",
    "'; DROP TABLE record; --",
    "[a-z]*" * 20,
    "x" * 256,
    "é" * 200,
    "y" * 10_240,
)
TEXTS = (
    "",
    " ",
    "accepted",
    "deleted",
    "0" * 16,
    "-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----",
    "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----",
    "https://127.0.0.1:1",
    "https://[::",
    "file:///etc/shadow",
    "*" * 2000,
    *IDS,
)
NUMBERS = (0, -1, 1, 2**31, 2**53, 2**63 - 1, -(2**63), 2**64 - 1)
FLOATS = (0.5, -1e300, 1e308, float("inf"), float("-inf"), float("nan"))
TOP = 2**63 - 1


def scalar(rng: Random) -> Any:
    """One value without parts."""
    kind = rng.randrange(7)
    if kind == 0:
        return rng.choice((None, True, False))
    if kind == 1:
        return rng.choice(NUMBERS)
    if kind == 2:
        return rng.choice(FLOATS)
    if kind == 3:
        return rng.randbytes(rng.choice((0, 1, 8, 16, 32, 33, 500)))
    if kind == 4:
        return rng.randint(-TOP, TOP)
    return rng.choice(TEXTS)


def junk(rng: Random) -> Any:
    """One value of any shape: deep, wide, long or plain."""
    kind = rng.randrange(12)
    if kind == 0:
        value: Any = scalar(rng)
        for _ in range(rng.choice((2, 20, 500, 2000))):
            value = [value] if rng.random() < 0.5 else {"a": value}
        return value
    if kind == 1:
        return [scalar(rng)] * rng.choice((0, 1, 3, 300, 5000))
    if kind == 2:
        return {str(n): scalar(rng) for n in range(rng.choice((0, 1, 5, 50)))}
    if kind == 3:
        return rng.choice("aé\0") * rng.choice((64, 65, 4097, 20_000))
    return scalar(rng)


def mutated(rng: Random, value: Any, most: int = 3) -> Any:
    """
    A copy of *value* with one to three things wrong somewhere in it; *value* may be a list.

    :param most: 1 for a value that is bent again and again, so that it grows slowly.
    """
    value = copy.deepcopy(value)
    for _ in range(min(most, rng.choice((1, 1, 2, 3)))):
        value = _mutate(rng, value)
    return value


def _mutate(rng: Random, value: Any) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        how = rng.randrange(8)
        if how == 0:
            del value[key]
        elif how == 1:
            value[rng.choice(TEXTS)[:300]] = junk(rng)
        else:
            value[key] = _mutate(rng, value[key])
        return value
    if isinstance(value, list) and value and rng.random() < 0.85:
        index = rng.randrange(len(value))
        how = rng.randrange(10)
        if how == 0:
            del value[index]
        elif how == 1:
            value.insert(index, junk(rng))
        elif how == 2:
            value.extend([value[index]] * rng.choice((1, 200)))
        elif how == 3:
            rng.shuffle(value)
        else:
            value[index] = _mutate(rng, value[index])
        return value
    if isinstance(value, (str, bytes)) and value and rng.random() < 0.5:
        return _bend(rng, value)
    if isinstance(value, int) and not isinstance(value, bool) and rng.random() < 0.5:
        return max(-(2**63), min(2**64 - 1, value + rng.choice((-1, 1, 2**40, -(2**40)))))
    return junk(rng)


def _bend(rng: Random, value: Any) -> Any:
    """A value of the same kind, nearly right."""
    at = rng.randrange(len(value))
    how = rng.randrange(4)
    if how == 0:
        return value[:at]
    if how == 1:
        return value + value
    if isinstance(value, bytes):
        return value[:at] + rng.randbytes(1) + value[at + 1 :]
    return value[:at] + rng.choice("\0\n/.é\u202eA0 -") + value[at + rng.randrange(2) :]


def bent_bytes(rng: Random, data: bytes) -> bytes:
    """*data* with some of its bytes gone, changed, repeated, or others put in."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(changed) + 1)
        how = rng.randrange(6)
        if how == 0:
            del changed[at:]
        elif how == 1:
            del changed[at : at + rng.choice((1, 4, 40))]
        elif how == 2:
            changed[at:at] = rng.randbytes(rng.choice((1, 4, 100)))
        elif how == 3:
            # msgpack: lists, maps, texts and bytes that claim to be enormous; an extension type.
            heads = (b"\xdd", b"\xdf", b"\xdb", b"\xc6", b"\xc9")
            changed[at:at] = rng.choice(heads) + b"\xff\xff\xff\xff"
        elif how == 4:
            changed[at:at] = rng.choice((b"\x91", b"\x81\xa1a", b"\x90", b"\xc1")) * 3000
        elif at < len(changed):
            changed[at] = rng.randrange(256)
    return bytes(changed)
