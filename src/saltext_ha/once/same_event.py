"""
Tells which events of several masters are the same event: pure, so that every case can be tried.

Nothing in Salt names an event. A minion that is connected to several masters tells each of them
the same thing at about the same time; each master adds marks of its own. So two events of two
masters are one event if their sender said the same in both, and the masters heard them within
:data:`WINDOW`. An event that one master hears twice was sent twice: its first copy on one master is
the first on another, its second the second.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from saltext_ha.salt_bus.intake import FROM_MINION

WINDOW = 60.0
"""Most seconds between two copies of one event: for so long minions try to reach a master."""
KEPT = 600.0
"""Seconds for which an event is remembered; no reactor reacts to an older one."""
MOST = 50_000
MOST_ALIKE = 1_000
"""Occurrences of one event that are remembered: a minion that repeats one without end costs no
more."""
SAID_BY_MINION = ("id", "data", "grains")
"""The keys that count in an event that Salt makes for a minion; others differ between masters."""
OF_SENDER = {"fired", "proof", "traceparent", "tracestate", "baggage", "proxy_target"}


def key_of(tag: str, data: Mapping[str, Any]) -> bytes:
    """A short name for all that the sender of an event said. :raises ValueError: too deep."""
    if data.get("cmd") == FROM_MINION:
        # A minion fires its start for each master that it connects to, with the time in the text.
        names = ("id",) if _is_start(tag) else SAID_BY_MINION
        said = {name: data[name] for name in names if name in data}
    else:
        said = {
            name: value
            for name, value in data.items()
            if name not in OF_SENDER and not str(name).startswith("_")
        }
    try:
        text = json.dumps([tag, said], sort_keys=True, default=repr)
    except (TypeError, ValueError, RecursionError):
        try:
            text = f"{tag} {said!r}"
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=16).digest()


def _is_start(tag: str) -> bool:
    return tag == "minion_start" or (tag.startswith("salt/minion/") and tag.endswith("/start"))


@dataclass
class Occurrence:
    """
    One event, which one master or several have heard.

    :ivar at: when its first known copy was heard, on the caller's clock.
    :ivar by: the masters that have heard it.
    :ivar done: whether a reactor has reacted to it.
    """

    at: float
    by: set[str] = field(default_factory=set)
    done: bool = False


class _Alike:
    """The occurrences of one event, in the order in which they became known."""

    def __init__(self) -> None:
        self._found: deque[Occurrence] = deque()
        self._gone = 0
        """How many occurrences were forgotten."""
        self._passed: Counter[str] = Counter()
        """Master → how many occurrences, from the first on, its next copy cannot belong to."""

    def note(self, by: str, at: float, now: float) -> Occurrence:
        while self._found and now - self._found[0].at > KEPT:
            self._forget_first()
        gone = self._gone
        passed = place = max(0, self._passed[by] - gone)
        while place < len(self._found):
            one = self._found[place]
            if by not in one.by and abs(one.at - at) <= WINDOW:
                one.by.add(by)
                break
            if passed == place and (by in one.by or one.at < at):
                passed += 1
            place += 1
        else:
            one = Occurrence(at, {by})
            self._found.append(one)
            if len(self._found) > MOST_ALIKE:
                self._forget_first()
        self._passed[by] = gone + passed
        return one

    def _forget_first(self) -> None:
        self._found.popleft()
        self._gone += 1

    def is_old(self, now: float) -> bool:
        return all(now - one.at > KEPT for one in self._found)


class Occurrences:
    """The events of the last :data:`KEPT` seconds."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, _Alike] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def note(self, key: bytes, by: str, at: float, now: float) -> Occurrence:
        """Note that the master *by* has heard the event *key*, at the time *at*."""
        self._forget(now)
        alike = self._known.setdefault(key, _Alike())
        self._known.move_to_end(key)
        return alike.note(by, at, now)

    def _forget(self, now: float) -> None:
        while self._known:
            oldest = next(iter(self._known.values()))
            if not oldest.is_old(now) and len(self._known) < MOST:
                return
            self._known.popitem(last=False)
