"""
Which events are the same one, heard by several masters: pure, so that every case can be tried.

Nothing in Salt names an event. A minion that is connected to several masters tells each of them
the same thing at about the same time; each master adds marks of its own. So two events of two
masters are one when all that their sender said is the same, and they were heard within
:data:`WINDOW`. What one master hears twice was said twice: the first copy of one master is the
first of another, the second the second.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

WINDOW = 60.0
"""Seconds between two copies of one event at most: for so long minions try to reach a master."""
KEPT = 600.0
"""Seconds for which an event is remembered; an older one is not reacted to any more."""
MOST = 50_000
FROM_MINION = "_minion_event"
SAID_BY_MINION = ("id", "data", "grains")
"""Of what Salt puts together of an event of a minion; the rest differs from master to master."""
OF_SENDER = {"fired", "proof", "traceparent", "tracestate", "baggage", "proxy_target"}


def key_of(tag: str, data: Mapping[str, Any]) -> bytes:
    """A short name of all that the sender of an event said."""
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
        text = f"{tag} {said!r}"
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=16).digest()


def _is_start(tag: str) -> bool:
    return tag == "minion_start" or (tag.startswith("salt/minion/") and tag.endswith("/start"))


@dataclass
class Occurrence:
    """
    One event, which one master or several have heard.

    :ivar at: when it was heard first, on the caller's clock.
    :ivar by: the masters that have heard it.
    :ivar done: whether a reactor has reacted to it.
    """

    at: float
    by: set[str] = field(default_factory=set)
    done: bool = False


class Occurrences:
    """The events of the last :data:`KEPT` seconds."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, list[Occurrence]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def note(self, key: bytes, by: str, at: float, now: float) -> Occurrence:
        """
        The master *by* has heard the event *key*, at the time *at*.

        :return: which event that is; a new one has no other master in ``by``.
        """
        self._forget(now)
        here = self._known.setdefault(key, [])
        for one in here:
            if by not in one.by and abs(one.at - at) <= WINDOW:
                one.by.add(by)
                return one
        here.append(Occurrence(at, {by}))
        here[:] = [one for one in here if now - one.at <= KEPT]
        self._known.move_to_end(key)
        return here[-1] if here else Occurrence(at, {by})

    def _forget(self, now: float) -> None:
        while self._known:
            oldest = next(iter(self._known.values()))
            old = all(now - one.at > KEPT for one in oldest)
            if not old and len(self._known) < MOST:
                return
            self._known.popitem(last=False)
