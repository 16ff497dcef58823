"""
What a master's key store shows for one minion id, and what it should show.

Salt keeps one key an id (accepted, pending or rejected: the *slot*), and beside it the denied keys.
The records of an id know more pairs than that; ``place`` says which of them stand where. It depends
on the records alone, except in a conflict, where every master keeps what it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

from saltext_ha.replication.record import ACCEPTED, DENIED, PENDING, REJECTED, Record


class Stored(NamedTuple):
    """
    The key store's content for one id.

    ``state`` and ``key`` are the slot as Salt reads it. ``denied`` are the denied keys. ``extra``
    are further slot entries, left by an interrupted move. Keys are fingerprints.
    """

    state: str | None = None
    key: bytes | None = None
    denied: frozenset[bytes] = frozenset()
    extra: frozenset[tuple[str, bytes]] = frozenset()

    @property
    def slot(self) -> tuple[str, bytes] | None:
        """The slot as (state, fingerprint), or None if it is empty."""
        return (self.state, self.key) if self.state and self.key else None

    @property
    def entries(self) -> frozenset[tuple[str, bytes]]:
        """All slot entries: the one that counts, and :attr:`extra` ones."""
        return self.extra | {self.slot} if self.slot else self.extra

    @property
    def keys(self) -> frozenset[bytes]:
        """The keys that Salt reads for the id: the one in the slot, and the denied ones."""
        return self.denied | {self.key} if self.key else self.denied

    def state_of(self, key: bytes) -> str | None:
        """The state of *key* as Salt reads it; None if the key is not there."""
        if key == self.key:
            return self.state
        return DENIED if key in self.denied else None


ABSENT = Stored()


def accepted_keys(records: Iterable[Record]) -> list[bytes]:
    """Fingerprints of the pairs whose visible state is accepted; two or more are a conflict."""
    return sorted(record.fingerprint for record in records if record.state == ACCEPTED)


def place(records: Iterable[Record], current: Stored) -> Stored:
    """
    What the key store should show for an id with these *records*, given what it shows now.

    One accepted pair takes the slot. Two or more are a conflict: the slot stays as it is, unless
    its key has been revoked. Without an accepted pair, a rejected one takes the slot (Salt refuses
    the whole id then), else a pending one. Of several, the smallest fingerprint takes it, so that
    all masters choose the same. Pending pairs that find the slot taken are denied, as in Salt.
    """
    records = tuple(records)
    if len(records) == 1:  # the usual case
        return _place_one(*records)
    keys: dict[str | None, set[bytes]] = {}
    for record in records:
        keys.setdefault(record.state, set()).add(record.fingerprint)
    if len(keys.get(ACCEPTED, ())) > 1:
        slot = _kept_in_conflict(keys, current)
    else:
        wanted = (state for state in (ACCEPTED, REJECTED, PENDING) if state in keys)
        slot = next(((state, min(keys[state])) for state in wanted), None)
    knocking = keys.get(PENDING, set()) | keys.get(DENIED, set())
    if slot is None:
        return Stored(denied=frozenset(knocking))
    return Stored(*slot, denied=frozenset(knocking - {slot[1]}))


def _place_one(record: Record) -> Stored:
    if record.state in (ACCEPTED, REJECTED, PENDING):
        return Stored(record.state, record.fingerprint)
    return Stored(denied=frozenset({record.fingerprint})) if record.state == DENIED else ABSENT


def _kept_in_conflict(
    keys: Mapping[str | None, Set[bytes]], current: Stored
) -> tuple[str, bytes] | None:
    if not current.slot:
        return None
    if current.key in keys[ACCEPTED]:
        return current.slot
    states = (state for state in (REJECTED, PENDING) if current.key in keys.get(state, ()))
    return next(((state, current.slot[1]) for state in states), None)
