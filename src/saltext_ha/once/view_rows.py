"""The views of masters (:class:`.election.MasterView`) as rows between masters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from saltext_ha.common.errors import InvalidRecord
from saltext_ha.once.election import FRESH, MasterView
from saltext_ha.transport import wire

MOST = 1000
LONGEST = 64
LONGEST_REASON = 300


def to_row(view: MasterView, now: float) -> dict[str, Any]:
    """A row for a peer, with the age of the view in place of its time."""
    return {
        "name": view.name,
        "unfit": view.unfit[:LONGEST_REASON],
        "sees": sorted(view.sees),
        "leads": view.leads,
        "order": list(view.order),
        "age": max(0.0, now - view.at),
    }


def from_row(raw: Any, asked: float) -> MasterView:
    """
    The view in a peer's row.

    :param asked: when this master asked the peer; the view counts from its age before then.
    :raises InvalidRecord: the row is invalid.
    """
    if not isinstance(raw, Mapping):
        raise InvalidRecord("malformed view: a map was expected")
    age = wire.field(raw, "age", float)
    if not age >= 0:
        raise InvalidRecord("malformed view: its age is no number of seconds")
    return MasterView(
        _name(wire.field(raw, "name", str)),
        wire.field(raw, "unfit", str)[:LONGEST_REASON],
        frozenset(_names(wire.texts(raw, "sees"))),
        wire.field(raw, "leads", bool),
        tuple(_names(wire.texts(raw, "order"))),
        asked - min(age, 2 * FRESH),
    )


def _names(names: Iterable[str]) -> list[str]:
    found = [_name(name) for name in names]
    if len(found) > MOST:
        raise InvalidRecord("malformed view: too many names")
    return found


def _name(name: str) -> str:
    if not 0 < len(name) <= LONGEST:
        raise InvalidRecord("malformed view: no name of a master")
    return name
