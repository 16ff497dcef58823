"""
Who changes keys, as far as Salt's event bus says.

``salt/key`` names no user. But a call of the key wheel (salt-api, eauth, the reactor) fires it
between two events that do::

    salt/wheel/<jid>/new    fun: wheel.key.accept, user: alice, fun_args: [web*]
    salt/key                id: web1, act: accept
    salt/wheel/<jid>/ret

Salt 3006 and 3007 make two nested calls: the outer one has the name of the user and no arguments,
the inner one the arguments and the user ``UNKNOWN``. For ``salt-key`` run as root, and for Python
code on the master, the user stays unknown: they use no wheel, or name no user.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

from saltext_ha.common.printable import is_printable
from saltext_ha.keystore.minion_key import is_id
from saltext_ha.replica.history import MAX_GLOB, MAX_STARS
from saltext_ha.replication.record import ACCEPTED, DELETED, REJECTED

PREFIX = "salt/wheel/"
UNKNOWN = "UNKNOWN"
MAKES = {
    "wheel.key.accept": ACCEPTED,
    "wheel.key.accept_dict": ACCEPTED,
    "wheel.key.gen_accept": ACCEPTED,
    "wheel.key.reject": REJECTED,
    "wheel.key.reject_dict": REJECTED,
    "wheel.key.delete": DELETED,
    "wheel.key.delete_dict": DELETED,
}
# Calls that are remembered at most, under way or just ended.
MAX_CALLS = 64
LINGER = 5.0  # seconds; a change that fires no event is found by a pass over the store
ONE_CALL = 0.5  # seconds; events of one call come over several connections
LONGEST = 600.0  # seconds; the end of a call may never be reported
LONGEST_NAME = 40
LONGEST_JID = 40
# Minions can make Salt fire such events: they must cost neither memory nor time per change.
MOST_NAMED = 10_000
MOST_NAMED_IN_ALL = 40_000
MOST_GLOBS = 50


@dataclass
class _Call:
    user: str
    fun: str
    began: float
    asked: bool = False
    """Whether the arguments of just this call are known."""
    names: set[str] = field(default_factory=set)
    globs: set[str] = field(default_factory=set)
    over: float | None = None

    def add(self, arguments: Any) -> None:
        for text in islice(_texts(arguments), MOST_NAMED):
            if not set(text) & set("*?["):
                if is_id(text):
                    self.names.add(text)
            elif len(self.globs) < MOST_GLOBS and _is_cheap(text):
                self.globs.add(text)

    def covers(self, minion_id: str) -> bool:
        return minion_id in self.names or any(fnmatchcase(minion_id, g) for g in self.globs)


class WheelCalls:
    """
    The calls of the key wheel that are under way on this master. Used from several threads.

    :param clock: any steadily growing time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._calls: dict[str, _Call] = {}
        self._lock = threading.Lock()

    def heard(self, tag: str, data: Any) -> None:
        """Take in any event of the master's bus."""
        jid, _, end = tag.removeprefix(PREFIX).partition("/")
        if not tag.startswith(PREFIX) or not isinstance(data, Mapping) or len(jid) > LONGEST_JID:
            return
        # Most of a minion's events have its id. With "pretag" it can make Salt fire one without.
        # That is harmless: the names are only for people to read.
        fun = data.get("fun")
        if "id" in data or not isinstance(fun, str) or fun not in MAKES:
            return
        with self._lock:
            self._forget()
            if end == "new":
                self._begin(jid, fun, data)
            elif end == "ret" and jid in self._calls:
                self._calls[jid].over = self._clock()

    def _begin(self, jid: str, fun: str, data: Mapping[str, Any]) -> None:
        user, arguments = data.get("user"), data.get("fun_args")
        if user != UNKNOWN:
            call = _Call(name(user), fun, self._clock(), asked=arguments is not None)
            call.add(arguments)
            self._calls[jid] = call
            return
        outer = [c for c in self._calls.values() if (c.fun, c.asked, c.over) == (fun, False, None)]
        for call in outer:
            # The arguments are of one of them; Salt does not say of which.
            call.add(arguments)
            call.asked = len(outer) == 1

    def _forget(self) -> None:
        now = self._clock()
        for jid, call in list(self._calls.items()):
            ended = call.over is not None and now - call.over > LINGER
            if ended or now - call.began > LONGEST or self._is_full():
                del self._calls[jid]

    def _is_full(self) -> bool:
        """Whether the oldest call must make room for another."""
        named = sum(len(call.names) for call in self._calls.values())
        return len(self._calls) >= MAX_CALLS or named > MOST_NAMED_IN_ALL

    def who(self, minion_id: str, state: str, within: float = LINGER) -> str:
        """
        The user who is bringing *minion_id* into *state* (accepted, rejected, deleted), or just
        did.

        :param within: how many seconds ago the call may have ended.
        :return: a user name; ``alice or bob`` if it may be either; empty if none is known.
        """
        if not self._calls:  # the usual case
            return ""
        with self._lock:
            self._forget()
            now = self._clock()
            able = [c for c in self._calls.values() if c.user and MAKES[c.fun] == state]
            able = [c for c in able if c.over is None or now - c.over <= within]
            found = [c for c in able if c.covers(minion_id)]
            running = [c for c in found if c.over is None]
        return " or ".join(sorted({c.user for c in running or found[-1:]}))[:LONGEST_NAME]


def name(user: Any) -> str:
    """*user* as a name that may be shown and sent to peers; empty when it is no name."""
    text = user if isinstance(user, str) else ""
    return "".join(char if is_printable(char) else "?" for char in text)[:LONGEST_NAME].strip()


def _is_cheap(glob: str) -> bool:
    return len(glob) <= MAX_GLOB and glob.count("*") <= MAX_STARS


def _texts(value: Any) -> Iterator[str]:
    """All that may name minions in the arguments of a wheel function, at any position."""
    if isinstance(value, str):
        yield from value.split(",")
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)
