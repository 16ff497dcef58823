"""
Values of a configuration, checked: every ``ha:`` mapping is read by these.

A check returns the value as it is used, or raises ``ValueError`` with what the key takes.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

Check = Callable[[Any], Any]


def flag(value: Any) -> bool:
    """``true`` or ``false``."""
    if not isinstance(value, bool):
        raise ValueError("takes true or false")
    return value


def number(low: float, high: float, what: str = "a number", or_zero: str = "") -> Check:
    """
    From *low* to *high*.

    :param what: as the error calls it. :param or_zero: what 0 means, where it may be that as well.
    """

    def check(value: Any) -> float:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not (low <= value <= high or (or_zero and value == 0)):
            more = f", or 0 for {or_zero}" if or_zero else ""
            raise ValueError(f"takes {what} from {low:g} to {high:g}{more}")
        return float(value)

    return check


def seconds(low: float, high: float, or_zero: str = "") -> Check:
    """A duration."""
    return number(low, high, "seconds", or_zero)


def whole(low: int, high: int) -> Check:
    """A whole number."""

    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"takes a whole number from {low} to {high}")
        return value

    return check


def host(value: Any) -> str:
    """A host name or an IP address, without scheme or port; brackets are taken off."""
    what = "takes a host name or an IP address, without scheme or port"
    if not isinstance(value, str) or not value or set(value) & set("/ @"):
        raise ValueError(what)
    bare = value[1:-1] if value.startswith("[") and value.endswith("]") else value
    if ":" in bare:
        try:
            ipaddress.IPv6Address(bare)
        except ValueError:
            raise ValueError(f"{what}; the port stands by itself, as port:") from None
    elif not bare or set(bare) & set("[]"):
        raise ValueError(what)
    try:
        bare.encode("idna")  # as it is when it is looked up
    except UnicodeError:
        raise ValueError(f"{what}; this name cannot be looked up") from None
    return bare


def one_of(*choices: str) -> Check:
    """One of these words."""

    def check(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"takes one of: {', '.join(choices)}")
        return str(value)

    return check


def word(value: Any) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value:
        raise ValueError("takes a name")
    return value


def path(value: Any) -> Path:
    """An absolute path."""
    if not isinstance(value, str) or not Path(value).is_absolute():
        raise ValueError("takes an absolute path")
    return Path(value)


def unknown(key: object, known: Iterable[str]) -> str:
    """The error for a key that is not known."""
    names = list(known)
    near = difflib.get_close_matches(str(key), names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(names)}"
    return f"unknown key {key!r}; {hint}"


def read(value: Mapping[Any, Any], checks: Mapping[str, Check]) -> dict[str, Any]:
    """
    The values of a mapping, each through its check.

    :raises ValueError: begins with ``: key:``; says what the key takes.
    """
    found = {}
    for key, given in value.items():
        if key not in checks:
            raise ValueError(f": {unknown(key, checks)}")
        try:
            found[key] = checks[key](given)
        except ValueError as exc:
            raise ValueError(f": {wrong(key, given, exc)}") from None
    return found


def wrong(key: str, given: Any, why: object) -> str:
    """
    What is said of a wrong value. One of ``…_file`` may be the secret that belongs into it, and a
    password may stand before the host of a URL.
    """
    shown = "" if key.endswith("_file") else f"{hidden(repr(given))} "
    return f"{key}: {shown}{why}"


def kind(value: Any) -> str:
    """What *value* is, for people; Salt's own lists have names of their own (``ListProxy``)."""
    return "list" if isinstance(value, list) else type(value).__name__


def hidden(text: str) -> str:
    """*text* without user and password in URLs."""
    return re.sub(r"//[^\s\'\"]*@", "//***@", text)


def source(opts: Mapping[str, Any], otherwise: str) -> str:
    """
    The source of *opts*: the configuration file, and its default includes.

    :param otherwise: returned if that is not known.
    """
    file, included = opts.get("conf_file"), opts.get("default_include")
    return f"{file} (or {included})" if file and included else str(file or otherwise)


def switch(value: Any, checks: Mapping[str, Check]) -> dict[str, Any] | None:
    """
    As :func:`read`, of a mapping that may be left out, or be ``false``: None then.

    :raises ValueError: as :func:`read`.
    """
    if value is False:
        return None
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(f": takes false, or a mapping with some of the keys {', '.join(checks)}")
    return read(value or {}, checks)
