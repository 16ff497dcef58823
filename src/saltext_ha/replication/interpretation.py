"""
Says what happened on a master if its key store differs from what was last seen or applied.

``salt-key`` speaks of ids, not of keys: deleting or rejecting an id is meant for every key that
this master knows under it. The answer is a list of writes; each becomes one value of a record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from saltext_ha.replication.placement import Stored
from saltext_ha.replication.record import (
    ACCEPTED,
    DECISIONS,
    DELETED,
    DENIED,
    PENDING,
    REJECTED,
)


class StateWrite(NamedTuple):
    """One state to be written to the record of one key."""

    key: bytes
    state: str


def interpret(before: Stored, now: Stored, states: Mapping[bytes, str | None]) -> list[StateWrite]:
    """
    The writes that explain how the store went from *before* to *now*.

    *states* are the visible states of the id's records as this master had applied them.
    """
    writes: list[StateWrite] = []
    if still_accepted(before, now):
        # Other entries are from minions that knocked while the key was away, and will knock again.
        knocks = (key for state, key in sorted(now.entries) if state == PENDING)
        writes += [StateWrite(key, PENDING) for key in knocks if key not in states]
    elif now.slot != before.slot:
        writes += _slot_writes(before, now, states)
    if now.denied == before.denied:  # the usual case
        return writes
    written = {write.key for write in writes}
    for key in sorted(now.denied - before.denied - written):
        # A key that is in the slot, or lost it to another pending key, needs no new observation.
        if states.get(key) in (None, DELETED):
            writes.append(StateWrite(key, DENIED))
    gone = before.denied - now.denied - written
    if not now.denied - before.denied:
        # If there is a new denied key, Salt replaced the old one; no operator removed it.
        writes += [
            StateWrite(k, DELETED) for k in sorted(gone) if states.get(k) in (PENDING, DENIED)
        ]
    return writes


def is_gone(before: Stored, now: Stored) -> bool:
    """
    Whether the key that had the slot is gone: nothing is there, or in the place of a decided key
    one that has only knocked, for instance at a folder that was emptied.
    """
    if not before.slot or before.slot in now.entries:
        return False
    return not now.slot or (before.state in DECISIONS and now.state == PENDING)


def still_accepted(before: Stored, now: Stored) -> bool:
    """
    Whether the accepted key of *before* is still there, even if Salt reads another entry first, as
    3008 reads a pending one. Salt wrote that entry while the key folder was away.
    """
    return before.state == ACCEPTED and now.state != REJECTED and before.slot in now.entries


def unversioned(now: Stored, outdated: bool) -> list[StateWrite]:
    """
    The writes for what a store shows, if nobody knows how it came there.

    *outdated*: the store may show keys whose tombstones were dropped; then an accepted key counts
    only as a knock.
    """
    writes = [StateWrite(key, DENIED) for key in sorted(now.denied)]
    if now.slot:
        state, key = now.slot
        writes.append(StateWrite(key, PENDING if outdated and state == ACCEPTED else state))
    return writes


def knocked_again(now: Stored) -> list[StateWrite]:
    """The writes for a pending key that was deleted, and is pending again."""
    return [StateWrite(now.key, DELETED), StateWrite(now.key, PENDING)] if now.key else []


def deleted(before: Stored, now: Stored, states: Mapping[bytes, str | None]) -> list[StateWrite]:
    """The writes for an id that was deleted while *before* was being applied, and shows *now*."""
    return _delete_all(states, Stored(denied=now.denied - before.denied))


def _slot_writes(
    before: Stored, now: Stored, states: Mapping[bytes, str | None]
) -> list[StateWrite]:
    if now.slot is None:
        return _delete_all(states, now)
    state, key = now.slot
    if state == ACCEPTED:
        # If an operator replaced an accepted key by another, that operator saw both.
        ousted = before.key if before.state == ACCEPTED and before.key != key else None
        return [*(_delete(ousted, now) if ousted else ()), StateWrite(key, ACCEPTED)]
    if state == REJECTED:
        others = [k for k in sorted(states) if states[k] == ACCEPTED and k != key]
        return [*(write for k in others for write in _delete(k, now)), StateWrite(key, REJECTED)]
    writes = []
    if before.slot:
        # Salt never replaces a decided key, or another pending one, by this pending one: an
        # operator deleted the id in between, and the minion knocked again.
        writes = _delete_all(states, now)
        if states.get(key) in (ACCEPTED, REJECTED):
            writes.append(StateWrite(key, DELETED))
    # Otherwise no operator did: a known decision that does not show here is still to be applied.
    if states.get(key) != PENDING:
        writes.append(StateWrite(key, PENDING))
    return writes


def _delete_all(states: Mapping[bytes, str | None], now: Stored) -> list[StateWrite]:
    """Delete every key, except the one in the slot, and undecided ones that are denied now."""
    writes = []
    for key in sorted(states):
        undecided = key in now.denied and states[key] in (PENDING, DENIED)
        if states[key] not in (None, DELETED) and key != now.key and not undecided:
            writes += _delete(key, now)
    return writes


def _delete(key: bytes, now: Stored) -> list[StateWrite]:
    """Delete *key*; if it is denied now, its minion has knocked again."""
    deleted = [StateWrite(key, DELETED)]
    return [*deleted, StateWrite(key, DENIED)] if key in now.denied else deleted
