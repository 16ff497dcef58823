"""
Hints from Salt's event bus: an id to look at now, instead of at the next pass over the store.

``salt/key`` follows ``salt-key`` and the key wheel, ``salt/auth`` a minion that knocks. Neither is
the truth: ``wheel.key.gen_accept`` and a file copied by hand fire nothing. Who did it is told by
the events of the key wheel, if at all: see :mod:`saltext_ha.service.actors`.

In Salt's own cluster the bus carries the events of the other masters, too, with ``__peer_id``.
They say what was done there; a process of Salt's may do the same here in this moment.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import salt.utils.event

from saltext_ha.observer import MINION, OPERATOR
from saltext_ha.replication.record import ACCEPTED, DELETED, REJECTED
from saltext_ha.service.actors import AT_ONCE, WheelCalls

log = logging.getLogger(__name__)

KEY_TAG = "salt/key"
AUTH_TAG = "salt/auth"
FROM_PEER = "__peer_id"
# What Salt calls it: 3006 and 3007 the first of each, 3008 the second.
ACTS = {
    "accept": ACCEPTED,
    "accepted": ACCEPTED,
    "reject": REJECTED,
    "rejected": REJECTED,
    "delete": DELETED,
}


class Hint(NamedTuple):
    """
    *minion_id* may have changed; ``gone``: Salt says that it was deleted.

    ``by``: who decided it; empty when nobody is known to have decided anything.
    """

    minion_id: str
    by: str
    gone: bool


def read_hint(tag: str, data: Any, calls: WheelCalls) -> Hint | None:
    """What an event says about keys, if anything, given the wheel calls that were heard before."""
    if not isinstance(data, Mapping) or not isinstance(data.get("id"), str):
        return None
    if tag == KEY_TAG and data.get(FROM_PEER):
        return Hint(data["id"], "cluster", False)
    minion_id, act = data["id"], data.get("act")
    if tag == KEY_TAG:
        state = ACTS.get(act, "") if isinstance(act, str) else ""
        by = calls.who(minion_id, state, AT_ONCE) or OPERATOR
        return Hint(minion_id, by, state == DELETED)
    if tag == AUTH_TAG:
        # Where keys are accepted automatically, this is all that tells of it.
        by = (calls.who(minion_id, ACCEPTED) or MINION) if act == "accept" else ""
        return Hint(minion_id, by, False)
    return None


def listen(
    opts: Mapping[str, Any],
    tell: Callable[[Hint], None],
    calls: WheelCalls,
    stop: threading.Event,
    hear: Callable[[str, Any], None] = lambda tag, data: None,
) -> None:
    """
    Call *tell* for every hint, *hear* for every event, and keep *calls* up to date, until *stop* is
    set; blocks, so give it a thread.

    Salt's blocking bus client is used because it is the same on 3006, 3007 and 3008.
    """
    options = dict(opts)
    while not stop.is_set():
        try:
            with salt.utils.event.get_event(
                "master", sock_dir=options["sock_dir"], opts=options, listen=True
            ) as bus:
                while not stop.is_set():
                    event = bus.get_event(wait=1, tag="salt/", full=True, auto_reconnect=True)
                    if not event:
                        continue
                    tag, data = event.get("tag", ""), event.get("data")
                    calls.heard(tag, data)
                    hear(tag, data)
                    hint = read_hint(tag, data, calls)
                    if hint:
                        tell(hint)
        except Exception:
            # Whatever the bus does, passes over the store go on; only the speed is lost.
            log.exception("event bus lost; keys are found by passes over the store meanwhile")
            stop.wait(1)
