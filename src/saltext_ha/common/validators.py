"""
Checks of configuration values: every ``ha:`` mapping is read with them.

A check returns the value for use, or raises ``ValueError``, which says what the key takes.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, field, fields
from pathlib import Path
from typing import Any

Check = Callable[[Any], Any]


def is_number(value: Any) -> bool:
    """Whether *value* is a number; True and False, which Python counts as such, are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def flag(value: Any) -> bool:
    """``true`` or ``false``."""
    if not isinstance(value, bool):
        raise ValueError("takes true or false")
    return value


def on_off(value: Any) -> bool:
    """
    ``True`` or ``False``, also as text, as a form of salt-api has it. Any other text is wrong: it
    would count as on.
    """
    read = {"true": True, "false": False}.get(value.lower()) if isinstance(value, str) else value
    if read not in (True, False):
        raise ValueError("takes True or False")
    return bool(read)


def number(low: float, high: float, what: str = "a number", or_zero: str = "") -> Check:
    """
    A number from *low* to *high*.

    :param what: its name in the error. :param or_zero: the meaning of 0, if 0 is allowed, too.
    """

    def check(value: Any) -> float:
        if not is_number(value) or not (low <= value <= high or (or_zero and value == 0)):
            more = f", or 0 for {or_zero}" if or_zero else ""
            raise ValueError(f"takes {what} from {low:g} to {high:g}{more}")
        return float(value)

    return check


def seconds(low: float, high: float, or_zero: str = "") -> Check:
    """A duration in seconds."""
    return number(low, high, "seconds", or_zero)


def whole(low: int, high: int) -> Check:
    """A whole number."""

    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"takes a whole number from {low} to {high}")
        return value

    return check


def words(value: str) -> list[str]:
    """The words of a command, split as a shell does. :raises ValueError: a quote is not closed."""
    try:
        return shlex.split(value)
    except ValueError as exc:
        raise ValueError(f"cannot be split into words: {str(exc).lower()}") from None


def host(value: Any) -> str:
    """A host name or an IP address, without scheme or port; takes brackets off."""
    what = "takes a host name or an IP address, without scheme or port"
    _one_line(value)
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
        bare.encode("idna")  # as a lookup does
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
    _one_line(value)
    if not isinstance(value, str) or not value:
        raise ValueError("takes a name")
    return value


def path(value: Any) -> Path:
    """An absolute path."""
    _one_line(value)
    if not isinstance(value, str) or not Path(value).is_absolute():
        raise ValueError("takes an absolute path")
    return Path(value)


def _one_line(value: Any) -> None:
    """:raises ValueError: a text has a line break, as at its end by YAML's ``|``, or the like."""
    if isinstance(value, str) and value and min(value) < " ":
        raise ValueError(
            "takes one line, without a line break (as  |  in YAML leaves one at the end) or tab"
        )


def unknown(key: object, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(str(key), names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(names)}"
    return f"unknown key {key!r}; {hint}"


def setting(check: Check, default: Any = MISSING, file: bool = False) -> Any:
    """
    A field of a class of settings.

    :param check: of the value in the configuration.
    :param file: its key ends with ``_file``, and has the name of a file; what is read from that is
        never shown.
    """
    told = {"check": check, "file": file}
    return field(default=default, metadata=told, repr=not file, compare=not file)


def checks(cls: type) -> dict[str, Check]:
    """Key → the check of its value, of each :func:`setting` of *cls*."""
    found = [each for each in fields(cls) if "check" in each.metadata]
    return {f"{f.name}{'_file' * f.metadata['file']}": f.metadata["check"] for f in found}


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
    The text about a wrong value. The value of ``…_file`` may be the secret that belongs into that
    file, and a URL may have a password before its host: neither is shown.
    """
    shown = "" if key.endswith("_file") else f"{hidden(repr(given))} "
    return f"{key}: {shown}{why}"


def kind(value: Any) -> str:
    """The type of *value*, for people; Salt's own lists have other type names (``ListProxy``)."""
    return "list" if isinstance(value, list) else type(value).__name__


def hidden(text: str) -> str:
    """*text* without user and password in URLs, also in those that lack ``https://``."""
    return re.sub(r"(//|['\"](?=[^\s'\"/@:]*:(?!//)))[^\s'\"]*@", r"\1***@", text)


def source(opts: Mapping[str, Any], otherwise: str) -> str:
    """
    The source of *opts*: the configuration file, and its default includes.

    :param otherwise: returned if *opts* do not name the file.
    """
    file, included = opts.get("conf_file"), opts.get("default_include")
    return f"{file} (or {included})" if file and included else str(file or otherwise)


def switch(value: Any, checks: Mapping[str, Check]) -> dict[str, Any] | None:
    """
    As :func:`read`, for a mapping that may be left out, or be ``false``; None if it is ``false``.

    :raises ValueError: as :func:`read`.
    """
    if value is False:
        return None
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(f": takes false, or a mapping with some of the keys {', '.join(checks)}")
    return read(value or {}, checks)
