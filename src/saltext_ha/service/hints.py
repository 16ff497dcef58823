"""
Hints from Salt's event bus: an id to look at now, instead of at the next pass over the store.

``salt/key`` follows ``salt-key`` and the key wheel, ``salt/auth`` a minion that knocks. Neither is
the truth: ``wheel.key.gen_accept`` and a file copied by hand fire nothing.

In Salt's own cluster the bus carries the events of the other masters, too, with ``__peer_id``.
They say what was done there; a process of Salt's may do the same here in this moment.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import salt.utils.event

log = logging.getLogger(__name__)

KEY_TAG = "salt/key"
AUTH_TAG = "salt/auth"
FROM_PEER = "__peer_id"


class Hint(NamedTuple):
    """*minion_id* may have changed, by *by*; ``gone``: Salt says that it was deleted here."""

    minion_id: str
    by: str
    gone: bool


def read_hint(tag: str, data: Any) -> Hint | None:
    """What an event says about keys, if anything."""
    if not isinstance(data, Mapping) or not isinstance(data.get("id"), str):
        return None
    if tag == KEY_TAG and data.get(FROM_PEER):
        return Hint(data["id"], "cluster", False)
    if tag == KEY_TAG:
        return Hint(data["id"], "operator", data.get("act") == "delete")
    if tag == AUTH_TAG:
        return Hint(data["id"], "minion", False)
    return None


def listen(opts: Mapping[str, Any], tell: Callable[[Hint], None], stop: threading.Event) -> None:
    """
    Call *tell* for every hint until *stop* is set; blocks, so give it a thread.

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
                    hint = read_hint(event.get("tag", ""), event.get("data")) if event else None
                    if hint:
                        tell(hint)
        except Exception:
            # Whatever the bus does, passes over the store go on; only the speed is lost.
            log.exception("event bus lost; keys are found by passes over the store meanwhile")
            stop.wait(1)
