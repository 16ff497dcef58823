"""
The steps that bring a key store from what it shows to what it should show.

Every step is atomic, and the new entry is written before the old one is removed. So at any moment
Salt finds a key under the id, and the stricter state wins: Salt reads a rejected file before any
other, and on 3008 a pending one before an accepted one. After a crash the same function gives the
remaining steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from saltext_ha.replication.placement import ABSENT, Stored
from saltext_ha.replication.record import ACCEPTED, DENIED

PUT = "put"
REMOVE = "remove"
DENY = "deny"
UNDENY = "undeny"


class Step(NamedTuple):
    """
    One change of the store: ``put`` or ``remove`` a slot entry in ``state``, or ``deny`` or
    ``undeny`` a key (``state`` is empty then).
    """

    action: str
    state: str
    key: bytes


def steps(
    current: Stored, desired: Stored, known: frozenset[bytes], one_denied: bool = False
) -> list[Step]:
    """
    The steps from *current* to *desired*.

    *known* are the keys that have records; an entry without a record is left alone.
    *one_denied*: the store, like files, can hold only one denied key an id, so one is enough.
    """
    plan: list[Step] = []
    if current == desired:  # the usual case
        return plan
    if current == ABSENT and not desired.denied:  # a key that is new here
        return [Step(PUT, *desired.slot)] if desired.slot else plan
    if desired.slot and current.slot != desired.slot:
        plan.append(Step(PUT, *desired.slot))
    missing = sorted(desired.denied - current.denied)
    stale = (current.denied - desired.denied) & known
    if one_denied:
        # Writing a denied key replaces the one that is there.
        missing = missing[:1] if current.denied <= stale else []
        stale = frozenset() if missing else stale
    plan += [Step(DENY, "", key) for key in missing]
    for state, key in sorted(current.entries):
        # Entries of one state have one place: writing the new entry replaced this one.
        replaced = desired.slot is not None and state == desired.state
        if (state, key) != desired.slot and not replaced and key in known:
            plan.append(Step(REMOVE, state, key))
    plan += [Step(UNDENY, "", key) for key in sorted(stale)]
    return plan


def outcome(now: Stored, desired: Stored, todo: Sequence[Step], one_denied: bool) -> Stored:
    """What the store shows when *todo*, planned by :func:`steps`, is done."""
    new = {step.key for step in todo if step.action == DENY}
    gone = {step.key for step in todo if step.action == UNDENY}
    denied = new if new and one_denied else (now.denied | new) - gone
    return Stored(desired.state, desired.key, frozenset(denied))


def revokes(before: Stored, after: Stored) -> bool:
    """Whether the change from *before* to *after* revokes an accepted key."""
    return before.state == ACCEPTED and after.slot != before.slot


def aims(desired: Stored) -> frozenset[tuple[str, bytes]]:
    """What a store on its way to *desired* may show: entries, and denied keys as such."""
    return desired.entries | {(DENIED, key) for key in desired.denied}


def is_between(seen: Stored, before: Stored, aimed: frozenset[tuple[str, bytes]]) -> bool:
    """
    Whether our own interrupted move from *before* may have left *seen*.

    *aimed* has its :func:`aims`; those of several moves, if the records changed before it ended.
    """
    return bool(seen.entries) and aims(seen) <= aims(before) | aimed
