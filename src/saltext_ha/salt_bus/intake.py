"""
Which parts of the events on Salt's bus are let in: the one door for what minions send.

An accepted minion can make Salt fire any event, under any tag, with any data
(``_minion_event``, 3006 to 3008: with ``pretag`` no tag is out of its reach). So tag and ids are
checked here, only fields that are read somewhere are let in, and each of them has to be small. Code
behind this door need not check sizes; it still has to bound how many events it keeps.
"""

from __future__ import annotations

import datetime
import sys
import threading
import time
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, NamedTuple

from saltext_ha.keystore.minion_key import is_id

FROM_MINION = "_minion_event"
"""The command by which Salt takes events of minions."""
FROM_PEER = "__peer_id"
"""Beside the data of an event that Salt's own cluster brought from another of its members."""

HEARD = "_ha_heard"
"""In the data of an event that another master heard and handed over to this one: ``by`` is that
master, ``at`` the event's ``_stamp`` there. It is for the reactor only; nothing happened here."""

LONGEST_TAG = 1000
"""Characters; salt/ha/minion/<id>/failover has 280 at most."""
MOST_PRESENT = 100_000
DEEPEST = 12
A_DATE = 32  # characters, at most


class Size(NamedTuple):
    """The limits of a field: values in all its lists and maps, characters in all its texts."""

    values: int
    characters: int


SMALL = Size(200, 10_000)
# Of a return only what job_specs.answer or reports.shorten makes of it is kept.
ANSWER = Size(20_000, 1_000_000)  # more than 1 000 states
FIELDS: Mapping[str, Size] = {
    **dict.fromkeys(
        ("act", "cmd", "data", "fired", "from", "fun", "id", "jid", "master", "proof", "retcode"),
        SMALL,
    ),
    **dict.fromkeys(("schedule", "to", "turn", "user", "why", FROM_PEER), SMALL),
    "fun_args": Size(20_000, 1_000_000),  # names and globs, as operators list them
    "return": ANSWER,
}
"""The fields that are read, besides ``present``; all others are left out."""
TOO_MUCH = (
    f"answered more than {ANSWER.characters} characters or {ANSWER.values} values, or nested "
    f"deeper than {DEEPEST}: left out"
)

# Bytes that may be kept of minions in all: this many, and so many more for each accepted one.
HELD_AT_LEAST = 32 * 1024 * 1024
HELD_EACH = 2048
# Seconds for which an operator is told that there was no room.
TOLD = 600.0


def take(tag: Any, data: Any) -> dict[str, Any] | None:
    """
    The fields of an event that are let in; None if it is malformed.

    A return that is too large is replaced by a text that says so: its minion did answer.
    """
    if not isinstance(tag, str) or len(tag) > LONGEST_TAG or not isinstance(data, Mapping):
        return None
    if "id" in data and not is_id(data["id"]):
        return None
    taken = {
        name: data[name]
        for name, size in FIELDS.items()
        if name in data and fits(data[name], size, dates=name == "return")
    }
    if "return" in data and "return" not in taken:
        taken["return"] = TOO_MUCH
    present = data.get("present")
    if isinstance(present, list):
        taken["present"] = [each for each in islice(present, MOST_PRESENT) if is_id(each)]
    return taken


def fits(value: Any, size: Size, dates: bool = False) -> bool:
    """
    Whether *value* is plain data within *size*, nested at most ``DEEPEST`` deep.

    :param dates: whether dates and times, which Salt carries too, are plain.
    """
    values, characters = size
    level: list[Any] = [value]
    # Level by level: however deep it is nested, nothing here calls itself.
    for _ in range(DEEPEST):
        below: list[Any] = []
        for each in level:
            if isinstance(each, (str, bytes)):
                characters -= len(each)
            elif dates and isinstance(each, (datetime.date, datetime.time)):
                characters -= A_DATE
            elif isinstance(each, int):
                if each.bit_length() > 64:
                    return False
            elif isinstance(each, Mapping):
                values -= len(each)
                if values >= 0:
                    below += each.keys()
                    below += each.values()
            elif isinstance(each, (list, tuple)):
                values -= len(each)
                if values >= 0:
                    below += each
            elif not (each is None or isinstance(each, float)):
                return False
            if values < 0 or characters < 0:
                return False
        if not below:
            return True
        level = below
    return False


def weigh(value: Any) -> int:
    """About how many bytes of memory *value* takes, which :func:`take` let in."""
    total, waiting = 0, [value]
    while waiting:
        each = waiting.pop()
        total += sys.getsizeof(each)
        if isinstance(each, Mapping):
            waiting += each.keys()
            waiting += each.values()
        elif isinstance(each, (list, tuple, set, frozenset)):
            waiting += each
    return total


class MemoryBudget:
    """
    Limits the memory for what is kept of minions, over all parts that keep something. Any thread
    may use it.

    :param clock: any steadily growing time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._most = HELD_AT_LEAST
        self.held = 0
        """Bytes that are kept now."""
        self._refused = 0
        self._last = -TOLD

    def suit(self, minions: int) -> None:
        """Set the limit for that many accepted minions."""
        self._most = HELD_AT_LEAST + HELD_EACH * minions

    def take(self, size: int) -> bool:
        """
        Whether *size* more bytes may be kept; if so, they are counted from now on.

        What is larger than :data:`HELD_EACH` has no part in the room that grows with the number of
        minions: that is for the fact that each of them has answered, which is kept instead.
        """
        with self._lock:
            large = size > HELD_EACH
            if self.held + size <= (HELD_AT_LEAST if large else self._most):
                self.held += size
                return True
            if large:
                return False
            if self._clock() - self._last > TOLD:
                self._refused = 0
            self._refused, self._last = self._refused + 1, self._clock()
            return False

    def give(self, size: int) -> None:
        """Count *size* bytes as freed."""
        with self._lock:
            self.held -= size

    def note(self) -> str:
        """A note for operators; empty when there was room for everything lately."""
        if not self._refused or self._clock() - self._last > TOLD:
            return ""
        return (
            f"minions answered more than the {self._most >> 20} MB that are kept: "
            f"{self._refused} answers were left out in the last minutes, so commands that ask "
            "minions may count some of them as silent. One that floods its master shows in "
            "salt-run state.event"
        )


def fitted(answers: Mapping[str, Any], most: int, instead: Any) -> dict[str, Any]:
    """
    *answers* by minion, made to fit into a message of *most* bytes: the largest are replaced by
    *instead*, so that a minion that answers too much takes no room from the others.
    """
    sizes = {name: _written(name) + _written(value) for name, value in answers.items()}
    over = sum(sizes.values()) - most
    found = dict(answers)
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        if over <= 0:
            break
        found[name] = instead
        over -= sizes[name] - _written(name) - _written(instead)
    return found


def _written(value: Any) -> int:
    """About how many bytes *value* has in a message, at most."""
    total, waiting = 0, [value]
    while waiting:
        each = waiting.pop()
        total += 9
        if isinstance(each, str):
            total += 4 * len(each) if not each.isascii() else len(each)
        elif isinstance(each, bytes):
            total += len(each)
        elif isinstance(each, Mapping):
            waiting += each.keys()
            waiting += each.values()
        elif isinstance(each, (list, tuple)):
            waiting += each
    return total
