"""
Leases of branches: each branch is repaired with one peer, so no two peers send the same records.

After a master was down, all its peers ask it at once, and it asks all of them. It then repairs each
branch of the digest tree with one peer; the others leave the branch out of that round, and find
nothing to do in the next. Every lease expires: a peer that died during a repair blocks others only
briefly. Pushes of decisions ignore leases; but while a peer pushes hundreds of them, this master
does not ask for records that are on their way.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from saltext_ha.common.batches import BATCH
from saltext_ha.replication.digest import BUCKETS, FANOUT, bucket_of

HELD = 20.0
"""Seconds for which a lease is valid; a message of records takes a few."""
SHARED = "shared"
"""
In a question: the caller will ask again, so the answer may leave out branches repaired with others.
"""
OUR = "our link to "
MANY = BATCH // 2
"""After so many records in one push, more are expected, as when an operator accepts all keys."""
EXPECTED = 2.0
"""The next of these pushes comes within so many seconds."""


class RepairLeases:
    """
    The leases of one master; any thread may use them.

    :param own: the master's name.
    """

    def __init__(self, own: str) -> None:
        self._own = own
        self._held: dict[int, tuple[str, float]] = {}
        self._receiving = 0
        self._expected = float("-inf")
        self._lock = threading.Lock()

    def take(self, branches: Iterable[int], link: str, now: float) -> list[int]:
        """
        Lease those of *branches* that are free, for our own link to the peer *link*.

        :param now: in seconds, of one clock for all calls.
        :return: the branches that are leased now; give them back with :meth:`free`.
        """
        return self._take(branches, OUR + link, "", now)

    def free(self, branches: Iterable[int], link: str) -> None:
        """Give back leases of :meth:`take`."""
        self._free(branches, OUR + link)

    def open_to(self, branch: int, peer: str, now: float) -> bool:
        """
        Whether *peer* may repair *branch* with us now.

        If two masters hold a branch for each other, the lower name goes first.
        """
        holder, until = self._held.get(branch, ("", now))
        return until <= now or holder == peer or (holder == OUR + peer and peer < self._own)

    def admit(
        self, question: Mapping[str, Any], peer: str, now: float
    ) -> tuple[dict[str, Any], list[int]]:
        """
        Choose the part of a *question* (``compare``) of *peer* to answer now.

        :return: the question without buckets that are being repaired with others, and the branches
            leased to the peer now; pass these to :meth:`answered`.
        """
        entries = question.get("buckets")
        if question.get(SHARED) is not True or not isinstance(entries, list):
            return dict(question), []
        asked = {branch for branch in map(_branch, entries) if branch is not None}
        taken = self._take(asked, peer, OUR + peer if peer < self._own else "", now)
        # Malformed questions are refused elsewhere.
        others = asked.difference(taken)
        kept = [entry for entry in entries if _branch(entry) not in others]
        return {**question, "buckets": kept}, taken

    def answered(self, taken: Iterable[int], answer: Mapping[str, Any], peer: str) -> None:
        """
        *peer* got *answer*: it keeps those leases of *taken* for whose branches it will send
        records.
        """
        wanted = {bucket_of(minion_id) // FANOUT for minion_id, _ in answer["want"]}
        self._free(set(taken) - wanted, peer)

    def received(self, ids: Iterable[str], peer: str) -> None:
        """The records of *ids* that *peer* sent are known now."""
        if self._held:
            self._free({bucket_of(minion_id) // FANOUT for minion_id in ids}, peer)

    @contextlib.contextmanager
    def receiving(self, count: int, clock: Callable[[], float]) -> Iterator[None]:
        """Wrap taking in *count* records that a peer pushed; *clock* returns *now* as above."""
        many = count >= MANY
        self._receiving += many
        try:
            yield
        finally:
            self._receiving -= many
            if many:
                self._expected = clock() + EXPECTED

    def expects_more(self, now: float) -> bool:
        """Whether hundreds of records are being pushed here, and have not all arrived."""
        return self._receiving > 0 or now < self._expected

    def _take(self, branches: Iterable[int], who: str, yielding: str, now: float) -> list[int]:
        taken = []
        with self._lock:
            for branch in branches:
                holder, until = self._held.get(branch, (who, now))
                if holder in (who, yielding) or until <= now:
                    # Asking again does not extend a lease: otherwise a branch that is always
                    # refused would be leased for ever.
                    goes_on = holder == who and until > now
                    self._held[branch] = who, until if goes_on else now + HELD
                    taken.append(branch)
        return taken

    def _free(self, branches: Iterable[int], who: str) -> None:
        with self._lock:
            for branch in branches:
                if self._held.get(branch, ("",))[0] == who:
                    del self._held[branch]


def _branch(entry: Any) -> int | None:
    """The branch of an entry of a question."""
    if isinstance(entry, (list, tuple)) and entry and type(entry[0]) is int:
        return entry[0] // FANOUT if 0 <= entry[0] < BUCKETS else None
    return None
