"""``ha: consistency:`` — how often the check runs by itself, and which differences it ignores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from saltext_ha.common.validators import checks, read, seconds, setting


def _patterns(value: Any) -> tuple[str, ...]:
    if not isinstance(value or [], list) or not all(isinstance(p, str) and p for p in value or ()):
        raise ValueError("takes a list of paths or globs, such as nodegroups:* or options:timeout")
    return tuple(value or ())


@dataclass(frozen=True)
class ConsistencySettings:
    """
    :ivar interval: seconds between two checks that the engine makes by itself; 0: none.
    :ivar ignore: paths, or globs over paths, that [may differ
        here](consistency.md#letting-something-pass), such as ``nodegroups:night``.
    """

    interval: float = setting(seconds(10, 86400, or_zero="never"), 600.0)
    ignore: tuple[str, ...] = setting(_patterns, ())

    def ignores(self, section: str, path: str) -> bool:
        """
        Whether a difference at *path* is ignored: ``ignore`` has this path or one above it, alone
        (``external_auth:pam``) or after the section (``access:external_auth:pam``).
        """
        return any(
            # As it is shown, too: the name of a user or target may look like a glob.
            f"{name}:".startswith(f"{pattern}:")
            or fnmatchcase(name, pattern)
            or fnmatchcase(name, f"{pattern}:*")
            for pattern in self.ignore
            for name in (path, f"{section}:{path}")
        )


def parse(value: Any) -> ConsistencySettings:
    """Read the value of ``ha: consistency:``."""
    if not isinstance(value, Mapping):
        keys = " and ".join(checks(ConsistencySettings))
        raise ValueError(f": takes a mapping with the keys {keys}")
    return ConsistencySettings(**read(value, checks(ConsistencySettings)))
