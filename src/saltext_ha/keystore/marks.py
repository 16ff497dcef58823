"""The marks of all ids of a key store, packed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import mul

import msgpack

PARTS = 1 << 16
EMPTY = msgpack.packb({})


class Marks:
    """
    The mark of each minion id that was read.

    A dict of marks was the largest object of an engine at rest: 160 bytes an id, mostly for
    Python's objects. Here one object has the few ids of one part packed, in 60 bytes each. One
    thread may change marks while others go through them.
    """

    def __init__(self) -> None:
        self._pack = msgpack.Packer().pack  # msgpack.packb makes a Packer for each call
        # Strangers choose ids, but cannot fill one part: each process hashes in its own way.
        self._parts: list[bytes] = [EMPTY] * PARTS
        self._sum = 0
        """
        Of all marks, each times the hash of its id. Two stores that differ have the same sum with a
        chance of 1 in 2^64, as nobody outside this process knows the hashes.
        """

    def __setitem__(self, minion_id: str, mark: int) -> None:
        """Note the mark of an id; 0: forget the id."""
        part = hash(minion_id) % PARTS
        marks = msgpack.unpackb(self._parts[part])
        self._sum += hash(minion_id) * (mark - marks.pop(minion_id, 0))
        if mark:
            marks[minion_id] = mark
        self._parts[part] = self._pack(marks) if marks else EMPTY

    def update(self, marks: Iterable[tuple[str, int]]) -> None:
        """Note many marks, as (id, mark)."""
        for minion_id, mark in marks:
            self[minion_id] = mark

    def __iter__(self) -> Iterator[tuple[str, int]]:
        for part in self._parts:
            if part is not EMPTY:
                yield from msgpack.unpackb(part).items()

    def changed(self, found: dict[str, int]) -> set[str]:
        """The ids whose marks differ from *found*, which is used up."""
        if sum(map(mul, map(hash, found), found.values())) == self._sum:  # mostly: nothing has
            found.clear()
            return set()
        ids = {minion_id for minion_id, mark in self if found.pop(minion_id, 0) != mark}
        ids.update(found)
        return ids
