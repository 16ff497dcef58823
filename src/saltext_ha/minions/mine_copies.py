"""
Copies of mines and grains: which of this master's changed, which of a peer's are newer, and how
peers tell of them.
"""

from __future__ import annotations

import math
import secrets
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from saltext_ha.common.errors import InvalidRecord
from saltext_ha.minions.mines import TOLERANCE
from saltext_ha.minions.minion_cache import KINDS, Name, may_have
from saltext_ha.transport import wire

PAGE = 2_000
"""Changes in one answer: at most some 600 KB."""
LARGEST = 256 * 1024
"""Bytes of the largest copy that is shared."""
MOST_BYTES = 500_000
"""Bytes of contents in one answer: unpacked, they may take seventy times as many."""


class Offer(NamedTuple):
    """A copy of a peer: when it was written, by the clock of this master, and its mark there."""

    at: float
    mark: int


class Taken(NamedTuple):
    """Where a copy here came from: a peer, its mark there, and its mark here."""

    peer: str
    there: int
    here: int


class _Copy(NamedTuple):
    mark: int
    n: int


class Copies:
    """The copies of this master, in the order in which they changed; in memory only."""

    def __init__(self) -> None:
        self.epoch = secrets.token_hex(8)
        """Numbers of changes mean nothing in another one."""
        self._n = 0
        self._copies: dict[Name, _Copy] = {}
        self._listed: list[tuple[Name, _Copy]] | None = None
        """The same, to be told; None: it has changed."""
        self._taken: dict[Name, Taken] = {}

    def look(self, marks: Mapping[Name, int]) -> None:
        """Take in what is in the cache now."""
        for name in self._copies.keys() - marks.keys():
            self.changed(name, 0)
        for name, mark in marks.items():
            self.changed(name, mark)

    def changed(self, name: Name, mark: int) -> None:
        """Note the mark of a copy, if that is new; 0: the copy is gone."""
        if self.mark(name) == mark:
            return
        self._copies.pop(name, None)
        self._taken.pop(name, None)
        self._listed = None
        if mark:
            self._n += 1
            self._copies[name] = _Copy(mark, self._n)

    def took(self, name: Name, taken: Taken) -> None:
        """Note that a copy of a peer was written here."""
        self.changed(name, taken.here)
        self._taken[name] = taken

    def mark(self, name: Name) -> int:
        """The mark of a copy; 0: there is none."""
        found = self._copies.get(name)
        return found.mark if found else 0

    def taken(self, name: Name) -> Taken | None:
        """Where the copy came from, if a peer sent it and nobody has written it since."""
        return self._taken.get(name)

    def since(self, epoch: str, n: int) -> tuple[list[tuple[Name, int]], int, bool]:
        """A page of what changed after the *n*th change, up to which one, and if there is more."""
        after = n if epoch == self.epoch else 0
        if self._listed is None:
            self._listed = list(self._copies.items())
        first = bisect_right(self._listed, after, key=lambda each: each[1].n)
        page = self._listed[first : first + PAGE]
        more = first + PAGE < len(self._listed)
        upto = page[-1][1].n if more else self._n
        return [(name, copy.mark) for name, copy in page], upto, more


def newer(offer: Offer, peer: str, mark: int, at: float, taken: Taken | None) -> bool:
    """
    Whether the copy of a peer is newer than the one here.

    :param mark: of the copy here; 0: there is none. :param at: when it was written.
    :param taken: where the copy here came from, if not from the minion.
    """
    if not mark:
        return True
    if taken and taken.peer == peer:
        # The minion may send two within the tolerance.
        return offer.mark != taken.there and offer.at > at - TOLERANCE
    return offer.at > at + TOLERANCE


class Sent(NamedTuple):
    name: Name
    offer: Offer
    packed: bytes


def read_changes(answer: Mapping[str, Any], now: float) -> dict[Name, Offer]:
    """What changed on a peer that was asked at *now*. :raises InvalidRecord: it makes no sense."""
    rows = wire.rows(answer.get("changed"), "changed copies", str, str, float, int)
    if len(rows) > PAGE:
        raise InvalidRecord(f"more than {PAGE} changes")
    return {_name(kind, minion_id): _offer(age, mark, now) for kind, minion_id, age, mark in rows}


def read_copies(answer: Mapping[str, Any], wanted: Iterable[Name], now: float) -> list[Sent]:
    """The copies of a peer that was asked at *now*. :raises InvalidRecord: they make no sense."""
    left, found, size = set(wanted), [], 0
    for kind, minion_id, age, mark, packed in wire.rows(
        answer.get("copies"), "copies", str, str, float, int, bytes
    ):
        name = _name(kind, minion_id)
        if name not in left:
            raise InvalidRecord("a copy that was not asked for")
        if len(packed) > LARGEST:
            raise InvalidRecord("a copy is too large")
        size += len(packed)
        if size > MOST_BYTES:
            raise InvalidRecord(f"copies of more than {MOST_BYTES} bytes")
        left.remove(name)
        found.append(Sent(name, _offer(age, mark, now), packed))
    return found


def _name(kind: str, minion_id: str) -> Name:
    if kind not in KINDS or not may_have(minion_id):
        raise InvalidRecord("malformed name of a copy")
    return kind, minion_id


def _offer(age: float, mark: int, now: float) -> Offer:
    if not (math.isfinite(age) and age >= 0):
        raise InvalidRecord("malformed age of a copy")
    return Offer(max(1.0, now - age), mark)
