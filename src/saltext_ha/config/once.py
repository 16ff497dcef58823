"""``ha: once:`` — what happens on one master only, besides [``ha.once``](once.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from saltext_ha.common.validators import checks, flag, read, setting


@dataclass(frozen=True)
class OnceSettings:
    """
    :ivar reactor: whether Salt's reactor reacts on the leader only, and is handed what the other
        masters hear; see [Reactors](once.md#reactors). The same on all masters.
    """

    reactor: bool = setting(flag, False)


def parse(value: Any) -> OnceSettings:
    """Read the value of ``ha: once:``."""
    if value is not None and not isinstance(value, Mapping):
        keys = ", ".join(checks(OnceSettings))
        raise ValueError(f": takes a mapping with some of the keys {keys}")
    return OnceSettings(**read(value or {}, checks(OnceSettings)))
