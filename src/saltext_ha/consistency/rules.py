"""How an option is compared, the severity of a difference, and its fix: as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class How(Enum):
    """How two leaves of an option are compared."""

    EXACT = "exact"
    SET = "set"  # Salt asks "does any entry match?": order and repetition mean nothing


DRIFT = "drift"  # counts: status "differ", exit code 1
NOTE = "note"  # shown, changes neither status nor exit code

EDIT = "make {option} the same in the master configuration of {masters}, restart salt-master there"
FILE = (
    "make the file of {option} the same on {masters} (no restart needed); where {option} is not "
    "set, set it, too, and restart salt-master"
)
INSTALL = "install the same version on {masters}"


@dataclass(frozen=True)
class EqualityRule:
    """
    One thing that must be the same everywhere.

    ``fix`` may use ``{option}`` and ``{masters}`` (those in the minority). ``expect``: equality is
    not enough, every master must have this value. ``secret`` hides all of the option's values.
    ``without`` are keys of its mapping that each master may have of its own. ``unset``: path → what
    Salt takes where it is not set. ``listed``: Salt takes a text for a list with this entry. Both
    count when masters are compared, and not in what they tell: another release tells it as its
    files have it.
    """

    option: str
    how: How = How.EXACT
    fix: str = EDIT
    severity: str = DRIFT
    expect: Any = None
    secret: bool = False
    without: tuple[str, ...] = ()
    unset: Mapping[str, Any] = field(default_factory=dict)
    listed: bool = False
