"""Reads the arguments of commands, and shows a wrong one in a message."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from saltext_ha.commands.runner_arguments import shown, text
from saltext_ha.common.errors import HaError, InvalidRecord
from saltext_ha.common.validators import is_number
from saltext_ha.minions.job_specs import LONGEST, check_glob
from saltext_ha.reconciler.own_writes import OPERATOR
from saltext_ha.reconciler.wheel_calls import name
from saltext_ha.replica.history import VIA

_SPECIAL = re.compile(r"[*?\[]")
_SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")


def glob_of(payload: Mapping[str, Any]) -> str:
    """
    The ``glob`` of a command; without one, all minions.

    :raises InvalidRecord: it is no glob.
    """
    return check_glob(payload.get("glob", "*"))


def is_glob(text: str) -> bool:
    """Whether *text* may name several minions."""
    return bool(_SPECIAL.search(text))


def timeout_of(payload: Mapping[str, Any], default: float) -> float:
    """
    The ``timeout`` of a command, in seconds.

    :raises InvalidRecord: it is not a number of seconds, or too large.
    """
    value = payload.get("timeout")
    if value is None:
        return default
    if not is_number(value) or not 0 < value <= LONGEST:
        raise InvalidRecord(
            f"timeout={shown(value)}: takes seconds, more than 0, at most {LONGEST:g}"
        )
    return float(value)


def whole_of(payload: Mapping[str, Any], name: str, default: int, most: int) -> int:
    """
    The argument *name* of a command, a whole number from 1 to *most*.

    :raises InvalidRecord: it is no such number.
    """
    value = payload.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidRecord(f"{name}={shown(value)}: takes a whole number from 1 to {most}")
    return value


def span(text: Any) -> float:
    """
    A span of time in seconds.

    :param text: seconds, or a number with s, m, h or d.
    :raises HaError: it is neither.
    """
    found = _SPAN.fullmatch(str(text))
    if not found:
        raise HaError(f"{shown(text)} is no span of time; takes for instance 90s, 30m, 2h, 1d")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[found[2] or "s"]


def author(payload: Mapping[str, Any], command: str) -> str:
    """Who made a decision, and by which command: the text that history keeps."""
    return f"{name(payload.get('by')) or OPERATOR}{VIA}{command}"


def no_master(names: Iterable[object], masters: Collection[str]) -> HaError:
    """
    The error that *names* are no masters of the group.

    :param masters: all of them, as :attr:`.Group.masters`.
    """
    strange = ", ".join(sorted(map(shown, names)))
    return HaError(
        f"there is no master {strange} in this group; its masters: {', '.join(masters)}. Give one "
        "of these names"
    )


def left_out(without: Any, own: str, masters: Collection[str]) -> set[str]:
    """
    The masters that ``without=`` leaves out: a list of names, or one text with commas.

    :param own: this master's name. :param masters: all of the group.
    :raises HaError: a name is none of *masters*, or this master's.
    """
    names = without if isinstance(without, list) else text(without).split(",")
    found = {str(name).strip() for name in names} - {""}
    if strangers := found.difference(masters):
        raise no_master(strangers, masters)
    if own in found:
        raise HaError(f"without={own}: that is this master; run it on another one")
    return found
