"""
Accounts: they tell people why an id's records say what they say.

A record keeps concurrent decisions side by side, and shows one state. An operator whose decision is
overruled wants to know which other decision holds, and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from saltext_ha.replication.placement import accepted_keys
from saltext_ha.replication.record import ACCEPTED, DECISIONS, Record, Value, visible

HOLDS = "holds"
"""Different concurrent decisions about one key met; the outcome is the state that holds."""
BEGAN = "conflict"
"""Two or more keys of one id are accepted now."""
ENDED = "conflict over"
"""There were several accepted keys; now there is one, or none."""


class Decision(NamedTuple):
    """One of the decisions that led to what happened."""

    key: bytes
    state: str
    at: float
    by: str
    on: str


class Account(NamedTuple):
    """
    What happened, and the decisions that led to it.

    ``key`` is the key that this is about, empty for several; ``outcome`` the state that holds
    (:data:`HOLDS` only). Accepted decisions of :data:`ENDED` are those that stay.
    """

    kind: str
    key: bytes
    outcome: str
    decisions: tuple[Decision, ...]


def accounts(before: Mapping[bytes, Record], after: Mapping[bytes, Record]) -> list[Account]:
    """The accounts of a change of one id's records from *before* to *after*."""
    told = [
        account
        for key, record in after.items()
        if len(record.values) > 1 and (account := _met(before.get(key), record))
    ]
    if len(after) < 2:  # the usual case; no change removes a record
        return told
    were, are = accepted_keys(before.values()), accepted_keys(after.values())
    if len(are) > 1 and not set(are) <= set(were):
        told.append(Account(BEGAN, b"", "", _accepted(after, are)))
    elif len(were) > 1 and len(are) < 2:
        ends = [end for key in were for end in _revoked(after[key])]
        told.append(Account(ENDED, b"", "", (*ends, *_accepted(after, are))))
    return told


def _met(before: Record | None, record: Record) -> Account | None:
    """The account of different concurrent decisions, if one of them is new here."""
    decisions = _decisions(record)
    outcome = visible({value.state for value in decisions})
    if outcome is None or all(value.state == outcome for value in decisions):
        return None
    if before and set(decisions) <= set(before.values):
        return None
    # The decision that holds comes first, the others by time.
    ordered = sorted(decisions, key=lambda value: (value.state != outcome, value.at, value.dot))
    return Account(HOLDS, record.fingerprint, outcome, _told(record, ordered))


def _accepted(records: Mapping[bytes, Record], keys: list[bytes]) -> tuple[Decision, ...]:
    """The decisions that accepted *keys*."""
    return tuple(each for key in keys for each in _told(records[key], _decisions(records[key])))


def _revoked(record: Record) -> tuple[Decision, ...]:
    """
    The decisions that revoked a key; none if it is accepted. All are new: an earlier one would have
    revoked it before.
    """
    return _told(record, [value for value in _decisions(record) if value.state != ACCEPTED])


def _decisions(record: Record) -> list[Value]:
    return [value for value in record.values if value.state in DECISIONS]


def _told(record: Record, values: list[Value]) -> tuple[Decision, ...]:
    return tuple(Decision(record.fingerprint, v.state, v.at, v.by, v.on) for v in values)
