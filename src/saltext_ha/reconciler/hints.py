"""
Hints from Salt's event bus: ids to look at now, instead of at the next pass over the store.

Salt fires ``salt/key`` after ``salt-key`` and the key wheel, ``salt/auth`` when a minion knocks.
These are only hints: ``wheel.key.gen_accept`` and a file copied by hand fire nothing. Only events
of the key wheel name the user: see :mod:`saltext_ha.reconciler.wheel_calls`.

In Salt's own cluster the bus also carries the events of the other masters, with ``__peer_id``. They
say what was done on another master; a process of Salt may do the same here at this moment.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from saltext_ha.common.batches import BATCH
from saltext_ha.reconciler.own_writes import MINION, OPERATOR
from saltext_ha.reconciler.task import Task
from saltext_ha.reconciler.wheel_calls import ONE_CALL, WheelCalls
from saltext_ha.replication.record import ACCEPTED, DELETED, REJECTED
from saltext_ha.salt_bus.intake import FROM_PEER

# Minions can make Salt fire such events. Beyond this number, passes over the store find changes.
MOST_WAITING = 10_000
KEY_TAG = "salt/key"
AUTH_TAG = "salt/auth"
# Salt's names: the first of each in 3006 and 3007, the second in 3008.
ACTS = {
    "accept": ACCEPTED,
    "accepted": ACCEPTED,
    "reject": REJECTED,
    "rejected": REJECTED,
    "delete": DELETED,
}


class Hint(NamedTuple):
    """
    *minion_id* may have changed; ``deleted``: Salt says that it was deleted.

    ``by``: the user who decided that; empty if none is known.
    """

    minion_id: str
    by: str
    deleted: bool


def read_hint(tag: str, data: Any, calls: WheelCalls) -> Hint | None:
    """The hint that an event gives, if any; *calls* are the wheel calls heard before it."""
    if not isinstance(data, Mapping) or not isinstance(data.get("id"), str):
        return None
    if tag == KEY_TAG and data.get(FROM_PEER):
        return Hint(data["id"], "cluster", False)
    minion_id, act = data["id"], data.get("act")
    if tag == KEY_TAG:
        state = ACTS.get(act, "") if isinstance(act, str) else ""
        by = calls.who(minion_id, state, ONE_CALL) or OPERATOR
        return Hint(minion_id, by, state == DELETED)
    if tag == AUTH_TAG:
        # Automatic acceptance fires no other event.
        by = (calls.who(minion_id, ACCEPTED) or MINION) if act == "accept" else ""
        return Hint(minion_id, by, False)
    return None


class Hints:
    """
    Takes in the events of the bus, and keeps the hints among them for the engine.

    Construct it inside the event loop; it may be called from any thread.

    :param calls: the wheel calls heard on the same bus.
    """

    def __init__(self, calls: WheelCalls) -> None:
        self._calls = calls
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Hint, None] = {}
        self._lock = threading.Lock()
        self._came = asyncio.Event()

    def __call__(self, tag: str, data: Any) -> None:
        """An event of the bus."""
        hint = read_hint(tag, data, self._calls)
        if hint:
            # Knocks leave room for hints of what operators did.
            most = MOST_WAITING if is_knock(hint) else 2 * MOST_WAITING
            with self._lock:  # count here: the event loop's queue is unlimited
                first = not self._waiting
                if len(self._waiting) < most:
                    self._waiting[hint] = None
            if first:
                self._loop.call_soon_threadsafe(self._came.set)

    async def next(self) -> list[Hint]:
        """
        Wait for hints, and return a batch of them: deletions first and knocks last, so that a flood
        of knocks does not delay operators.
        """
        await self._came.wait()
        with self._lock:
            order = sorted(self._waiting, key=rank)
            for hint in order[:BATCH]:
                del self._waiting[hint]
            if not self._waiting:
                self._came.clear()
        return order[:BATCH]


def is_knock(hint: Hint) -> bool:
    """Whether no operator caused *hint*."""
    return not hint.deleted and hint.by in ("", MINION)


def rank(hint: Hint) -> tuple[bool, bool]:
    """The sort key of *hint*: deletions, then what else operators did, then knocks."""
    return not hint.deleted, is_knock(hint)


def tasks(hints: Iterable[Hint]) -> list[Task]:
    """
    The tasks for *hints*, deletions first, knocks last. All that one operator did is one task, and
    so is all that minions did: a transaction for each id would take ten times as long.
    """
    together: dict[tuple[str, bool], dict[str, None]] = {}
    for hint in sorted(hints, key=rank):
        together.setdefault((hint.by, hint.deleted), {})[hint.minion_id] = None
    return [Task.look(list(ids), by, deleted=deleted) for (by, deleted), ids in together.items()]
