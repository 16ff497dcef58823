"""
Who repairs which branches at present, so that no two peers send this master the same records.

A master that was away is asked by all its peers at once, and asks all of them. Each branch of the
digest tree is then repaired with one of them; the others leave it out of that round, and find
nothing to do in the next. Every lease ends by itself: a peer that died in mid repair holds nobody
up for long. Pushed decisions know nothing of leases; but while a peer pushes hundreds of them, this
master does not ask for what is on its way.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from saltext_ha.common.batches import BATCH
from saltext_ha.replication.digest import BUCKETS, FANOUT, bucket_of

HELD = 20.0
"""Seconds that a lease holds; a message of records takes a few."""
SHARED = "shared"
"""In a question: the caller comes again, so what others repair may be left out of the answer."""
OUR = "our link to "
MANY = BATCH // 2
"""Records in one message, after which more may be expected: an operator accepts all at once."""
EXPECTED = 2.0
"""Seconds from when these are known until the next are there, at most."""


class RepairLeases:
    """
    The leases of one master; may be used from any thread.

    :param own: its name.
    """

    def __init__(self, own: str) -> None:
        self._own = own
        self._held: dict[int, tuple[str, float]] = {}
        self._receiving = 0
        self._expected = float("-inf")
        self._lock = threading.Lock()

    def take(self, branches: Iterable[int], link: str, now: float) -> list[int]:
        """
        Claim those of *branches* that nobody else holds, for our own link to the peer *link*.

        :param now: in seconds, of one clock for all calls.
        :return: those that are its own now; to be given back with :meth:`free`.
        """
        return self._take(branches, OUR + link, "", now)

    def free(self, branches: Iterable[int], link: str) -> None:
        """Give back what :meth:`take` gave."""
        self._free(branches, OUR + link)

    def open_to(self, branch: int, peer: str, now: float) -> bool:
        """
        Whether *peer* may repair *branch* with us now.

        Where two masters hold a branch for each other, the lower name goes first.
        """
        holder, until = self._held.get(branch, ("", now))
        return until <= now or holder == peer or (holder == OUR + peer and peer < self._own)

    def admit(
        self, question: Mapping[str, Any], peer: str, now: float
    ) -> tuple[dict[str, Any], list[int]]:
        """
        What is to be answered of a *question* (``compare``) that *peer* asks.

        :return: the question without buckets that are repaired with somebody else, and the branches
            that are leased to the peer now; to be passed to :meth:`answered`.
        """
        entries = question.get("buckets")
        if question.get(SHARED) is not True or not isinstance(entries, list):
            return dict(question), []
        asked = {branch for branch in map(_branch, entries) if branch is not None}
        taken = self._take(asked, peer, OUR + peer if peer < self._own else "", now)
        # What makes no sense is for others to refuse.
        others = asked.difference(taken)
        kept = [entry for entry in entries if _branch(entry) not in others]
        return {**question, "buckets": kept}, taken

    def answered(self, taken: Iterable[int], answer: Mapping[str, Any], peer: str) -> None:
        """*peer* was answered: of what was *taken* for it, it keeps that from which it sends."""
        wanted = {bucket_of(minion_id) // FANOUT for minion_id, _ in answer["want"]}
        self._free(set(taken) - wanted, peer)

    def received(self, ids: Iterable[str], peer: str) -> None:
        """The records of *ids* that *peer* sent are known now."""
        if self._held:
            self._free({bucket_of(minion_id) // FANOUT for minion_id in ids}, peer)

    @contextlib.contextmanager
    def receiving(self, count: int, clock: Callable[[], float]) -> Iterator[None]:
        """While *count* records that a peer pushed are taken in; *clock* as *now* of the others."""
        many = count >= MANY
        self._receiving += many
        try:
            yield
        finally:
            self._receiving -= many
            if many:
                self._expected = clock() + EXPECTED

    def expects_more(self, now: float) -> bool:
        """Whether hundreds of records that are being pushed are not there yet."""
        return self._receiving > 0 or now < self._expected

    def _take(self, branches: Iterable[int], who: str, yielding: str, now: float) -> list[int]:
        taken = []
        with self._lock:
            for branch in branches:
                holder, until = self._held.get(branch, (who, now))
                if holder in (who, yielding) or until <= now:
                    # Not longer for asking again: what is refused for ever is leased for ever.
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
