"""What is reconciled together: ids, and how they are looked at. Each constructor is one kind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from saltext_ha.replica.history import Receipt
from saltext_ha.replica.replica import Records
from saltext_ha.replication.record import Record

Revise = Callable[[str, Records], Iterator[Record]]
"""Takes an id and its records, yields those that change; each is written before it goes on."""


class Task(NamedTuple):
    """
    For :meth:`.Reconciler.reconcile`; made by a constructor below, or for fewer ids from another.
    """

    ids: Collection[str]
    by: str = ""
    """Who decided, as far as known; for people to read."""
    certain: bool = False
    """
    Believe that an absent key is gone. Otherwise its id is only unsettled: Salt 3008 removes a key
    for an instant before it writes the new state.
    """
    deleted: bool = False
    """
    Salt reported that these ids were deleted. A key that is pending as before has then knocked
    again since.
    """
    released: bool = False
    """An operator confirmed the disappearance of these ids."""
    adopted: bool = False
    """What these ids show is nobody's decision; see :meth:`.Reconciler.adopt`."""
    outdated: bool = False
    """With ``adopted``: the store may predate the dropping of records."""
    blind: bool = False
    """Do not look at the store."""
    revise: Revise | None = None
    """
    Called for each id after what changed here is recorded, with the records as they are then: so a
    local decision is recorded with what the operator could know.
    """
    receipt: Receipt | None = None
    """Who sent what :attr:`revise` yields; None: it is made here."""

    @classmethod
    def look(
        cls, ids: Collection[str], by: str = "", *, certain: bool = False, deleted: bool = False
    ) -> Task:
        """*ids* may have changed in the store: an event or a pass named them, or they are due."""
        return cls(ids, by, certain=certain, deleted=deleted)

    @classmethod
    def release(cls, ids: Collection[str], by: str) -> Task:
        """The operator *by* confirmed what the store shows of the held *ids*."""
        return cls(ids, by, released=True)

    @classmethod
    def adopt(cls, ids: Collection[str], *, outdated: bool = False) -> Task:
        """What the store shows of *ids* is to be recorded as nobody's decision."""
        return cls(ids, certain=True, adopted=True, outdated=outdated)

    @classmethod
    def merge(cls, ids: Collection[str], revise: Revise, receipt: Receipt) -> Task:
        """A peer sent records of *ids*; look at the store first."""
        return cls(ids, revise=revise, receipt=receipt)

    @classmethod
    def rewrite(
        cls, ids: Collection[str], revise: Revise, *, receipt: Receipt | None = None
    ) -> Task:
        """The records of *ids* change for a reason that the store does not show."""
        return cls(ids, blind=True, revise=revise, receipt=receipt)
