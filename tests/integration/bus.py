"""What is heard on a master's event bus, as a reactor hears it, and what is documented of it."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import salt.utils.event

from lab import Master
from tests.integration.group import SOON

Events = list[tuple[str, dict[str, Any]]]

DOCUMENT = Path(__file__).parents[2] / "docs" / "events.md"
DEPLOYED = ("salt/ha/deployed", "salt/ha/deploy/failed")  # of trees
LED = "salt/ha/leader"  # heard in test_once.py
LISTENS = "marker/listens"  # of this module only
CHECKED = ("salt/ha/drift", "salt/ha/consistent")  # of the consistency check


def documented() -> dict[str, set[str]]:
    """The tags that the documentation lists, with the keys of their data."""
    lines = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("|")]
    rows = [line.split("|")[1:4] for line in lines]
    found: dict[str, set[str]] = {}
    for first, _, last in rows:
        for tag in re.findall(r"`(salt/ha/[a-z/]+)`", first):
            keys = re.findall(r"`([a-z_]+)`", last)
            found.setdefault(tag, set(keys))
    return found


@contextmanager
def heard(master: Master, prefix: str = "salt/") -> Iterator[Events]:
    """The events of a master's bus from now on whose tag begins with *prefix*, as (tag, data)."""
    events: Events = []
    ready, over = threading.Event(), threading.Event()

    def listen() -> None:
        opts = dict(master.opts)
        with salt.utils.event.get_event(
            "master", sock_dir=opts["sock_dir"], opts=opts, listen=True
        ) as bus:
            # Connected is a little earlier than subscribed.
            while not over.is_set() and not bus.get_event(wait=0.2, tag=LISTENS, full=True):
                bus.fire_event({}, LISTENS)
            ready.set()
            while not over.is_set():
                event = bus.get_event(wait=0.2, tag=prefix, full=True)
                if event and event["tag"] != LISTENS:
                    events.append((event["tag"], event["data"]))

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        assert ready.wait(SOON)
        yield events
    finally:
        over.set()
        thread.join()


def tags(events: Events, minion_id: str) -> list[str]:
    """The tags of all events about an id."""
    return [tag for tag, data in events if data.get("id") == minion_id]
