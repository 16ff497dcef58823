"""Keys in answers: one key, what a store shows for an id, a change, a conflict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from saltext_ha.keystore import minion_key
from saltext_ha.replication.placement import Stored, accepted_keys
from saltext_ha.replication.record import ACCEPTED, DENIED, Record

NO_KEY = "absent"
ELSEWHERE = "elsewhere"  # on no master that answers


def key_text(state: str | None, key: bytes) -> str:
    """``accepted 3a:9f:…``"""
    return f"{state} {minion_key.show(key)}"


def text(stored: Stored) -> str:
    """``accepted 3a:9f:…, denied 77:01:…``; empty if the store shows nothing."""
    shown = [key_text(*stored.slot)] if stored.slot else []
    return ", ".join([*shown, *(key_text(DENIED, key) for key in sorted(stored.denied))])


def change_row(master: str, minion_id: str, before: str, after: str) -> dict[str, Any]:
    """A change, made or planned, as ``ha.sync``, ``ha.join`` and deciding commands print it."""
    return {"master": master, "id": minion_id, "from": before, "to": after}


def moved_row(master: str, minion_id: str, before: Stored, after: Stored) -> dict[str, Any]:
    """:func:`change_row` from what a store shows before and after the change."""
    gone = "deleted" if before.slot or before.denied else NO_KEY
    return change_row(master, minion_id, text(before) or NO_KEY, text(after) or gone)


def conflict_row(
    minion_id: str, shown: Mapping[str, Stored], records: Iterable[Record]
) -> dict[str, Any]:
    """
    One conflict: the id, and its key on each master (None: no key).

    :param shown: master → what its store shows.
    :param records: the id's records; their accepted keys that no store shows are added.
    """
    keys = {name: key_text(*stored.slot) if stored.slot else None for name, stored in shown.items()}
    there = {stored.key for stored in shown.values()}
    others = [key for key in accepted_keys(records) if key not in there]
    if others:
        keys[ELSEWHERE] = ", ".join(key_text(ACCEPTED, key) for key in others)
    return {"id": minion_id, "keys": keys}
