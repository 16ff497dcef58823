"""``ha: consistency:`` — how often the check runs by itself, and what it lets pass."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

DEFAULT_INTERVAL = 600.0
_KEYS = ("interval", "ignore")


@dataclass(frozen=True)
class Settings:
    """
    :param interval: seconds between two checks that the engine makes by itself; 0: none.
    :param ignore: paths, or globs over paths, that may differ here; see :meth:`ignores`.
    """

    interval: float = DEFAULT_INTERVAL
    ignore: tuple[str, ...] = ()

    def ignores(self, section: str, path: str) -> bool:
        """
        Whether a difference at *path* is let pass: it, or something above it, is named, alone
        (``external_auth:pam``) or after the section (``access:external_auth:pam``).
        """
        return any(
            fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}:*")
            for pattern in self.ignore
            for name in (path, f"{section}:{path}")
        )


def parse(value: Any) -> Settings:
    """
    Read the value of ``ha: consistency:``.

    :raises ValueError: begins with the key that is wrong; says what it takes.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f": takes a mapping with the keys {' and '.join(_KEYS)}")
    for key in value:
        if key not in _KEYS:
            near = difflib.get_close_matches(str(key), _KEYS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(_KEYS)}"
            raise ValueError(f": unknown key {key!r}; {hint}")
    interval = value.get("interval", DEFAULT_INTERVAL)
    number = isinstance(interval, (int, float)) and not isinstance(interval, bool)
    if not number or not (interval == 0 or 10 <= interval <= 86400):
        raise ValueError(f": interval: {interval!r} takes seconds from 10 to 86400, or 0 for never")
    ignore = value.get("ignore") or []
    if not isinstance(ignore, list) or not all(isinstance(p, str) and p for p in ignore):
        raise ValueError(
            ": ignore: takes a list of paths or globs, such as nodegroups:* or options:timeout"
        )
    return Settings(float(interval), tuple(ignore))
