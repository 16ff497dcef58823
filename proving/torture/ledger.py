"""
Who did what to which key, what each of them could know, and what may follow from that.

Pure: no processes, no files. An act knows an earlier one *surely* if both masters had settled in
between (or if it was made on the same master after the earlier one was noticed), and *perhaps* if
news of it may have come in any way at all. Between the two it is open, and both outcomes are
allowed; no others are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Pair = tuple[str, str]
"""(minion id, name of the key)."""

GRANT, DELETE, REJECT, KNOCK = "grant", "delete", "reject", "knock"
REVOCATIONS = (DELETE, REJECT)


@dataclass(eq=False)
class Act:
    """
    One act about one pair.

    ``certain``: it must count. Otherwise it may have left no trace, or not have happened.
    """

    number: int
    step: int
    operation: int
    on: str
    kind: str
    pair: Pair
    surely: frozenset[int]
    perhaps: set[int]
    certain: bool

    def __str__(self) -> str:
        sure = "" if self.certain else " (perhaps)"
        return f"#{self.number} step {self.step} {self.on}: {self.kind} {'/'.join(self.pair)}{sure}"


class Ledger:
    """All acts of one history, kept while it is acted out."""

    def __init__(self) -> None:
        self.acts: list[Act] = []
        self.step = 0
        self._operation = 0
        self._surely: dict[str, set[int]] = defaultdict(set)
        self._perhaps: dict[str, set[int]] = defaultdict(set)
        self._unnoticed: dict[tuple[str, str], list[Act]] = defaultdict(list)
        self._spread: set[int] = set()
        self._doubtful: set[str] = set()

    # -- what happens

    def begin(self) -> None:
        """Begin an operation: all entries until the next call belong to it."""
        self._operation += 1

    def act(self, on: str, kind: str, pair: Pair, certain: bool = True) -> Act:
        """
        Enter what was done on master *on*.

        What comes and goes between two looks of the engine leaves no trace: if an earlier operation
        on the same id was not noticed yet, neither of the two need count. A knock in between
        changes only what a deletion leaves behind.
        """
        earlier = [a for a in self._unnoticed[on, pair[0]] if a.operation != self._operation]
        decisions = [a for a in earlier if a.kind != KNOCK]
        blurred = bool(decisions) or (kind == DELETE and bool(earlier))
        for other in decisions:
            other.certain = False
        act = Act(
            len(self.acts),
            self.step,
            self._operation,
            on,
            kind,
            pair,
            frozenset(self._surely[on]),
            set(self._perhaps[on]),
            certain and not blurred and on not in self._doubtful,
        )
        self.acts.append(act)
        self._perhaps[on].add(act.number)
        self._unnoticed[on, pair[0]].append(act)
        return act

    def ghost(self, on: str, kind: str, pair: Pair, known: Iterable[int] = ()) -> None:
        """Note that the engine of *on* may take what it finds for an act made knowing *known*."""
        act = Act(
            len(self.acts),
            self.step,
            self._operation,
            on,
            kind,
            pair,
            frozenset(),
            set(known),
            False,
        )
        self.acts.append(act)
        self._perhaps[on].add(act.number)

    def raced(self, acts: Sequence[Act], can_reach: Iterable[Sequence[str]]) -> None:
        """Note that *acts* happened at once: masters that reach each other may know all of them."""
        for group in can_reach:
            among = [act for act in acts if act.on in group]
            for act in among:
                act.perhaps.update(other.number for other in among if other.on != act.on)

    def can_flow(self, groups: Iterable[Sequence[str]]) -> None:
        """Note that within each group, all masters may have heard what one of them knows."""
        for group in groups:
            known = set().union(*(self._perhaps[name] for name in group))
            for name in group:
                self._perhaps[name] |= known

    def carried(self, known: set[int], to: str) -> None:
        """Note that *known* was brought from elsewhere, by another way than the network."""
        self._perhaps[to] |= known

    def forgotten(self, known: set[int], before: str) -> None:
        """Note that the revocations in *known* may have been dropped before *before* came."""
        for act in self.acts:
            if act.on == before:
                act.perhaps |= known

    def known_to(self, name: str) -> set[int]:
        """The acts that master *name* perhaps knows."""
        return set(self._perhaps[name])

    def unsettled(self, on: str, minion_id: str) -> bool:
        """Whether news of what others did to *minion_id* may be arriving at *on* just now."""
        coming = self._perhaps[on] - self._surely[on]
        return any(self.acts[n].on != on and self.acts[n].pair[0] == minion_id for n in coming)

    def noticed(self, on: str, minion_id: str) -> None:
        """Note that the engine of *on* has recorded what was done there to *minion_id*."""
        acts = self._unnoticed.pop((on, minion_id), [])
        self._surely[on].update(act.number for act in acts)

    def settled(self, group: Sequence[str]) -> None:
        """Note that the masters of *group* have noticed everything, and know the same."""
        for on, minion_id in list(self._unnoticed):
            if on in group:
                self.noticed(on, minion_id)
        known = set().union(*(self._surely[name] for name in group))
        for name in group:
            self._surely[name] |= known
        if len(group) > 1:
            self._spread |= known
            self._doubtful -= set(group)
        self.can_flow([group])

    def forgot(self, on: str) -> None:
        """
        Note that what only *on* knows may be lost: its replica is gone, or an older one.

        Until it has settled with others, what is done there need not count.
        """
        for act in self.acts:
            if act.on == on and act.number not in self._spread:
                act.certain = False
        self._surely[on] = set()
        self._doubtful.add(on)

    # -- what may follow

    def about(self, pair: Pair, *kinds: str) -> list[Act]:
        return [act for act in self.acts if act.pair == pair and act.kind in kinds]

    def standing(self, pair: Pair) -> list[Act]:
        """The revocations of *pair* that must count, and that no grant can have known."""
        grants = self.about(pair, GRANT)
        return [
            act
            for act in self.about(pair, *REVOCATIONS)
            if act.certain and not any(act.number in grant.perhaps for grant in grants)
        ]

    def may_be_accepted(self, pair: Pair) -> bool:
        return bool(self.about(pair, GRANT)) and not self.standing(pair)

    def must_be_accepted(self, pair: Pair) -> bool:
        """Whether *pair* must end accepted: for every revocation, a grant surely knew of it."""
        grants = [act for act in self.about(pair, GRANT) if act.certain]
        return bool(grants) and all(
            any(act.number in grant.surely for grant in grants)
            for act in self.about(pair, *REVOCATIONS)
        )

    def must_be_rejected(self, pair: Pair) -> bool:
        """Whether a rejection of *pair* stands that no other decision about it can have known."""
        decisions = self.about(pair, GRANT, DELETE)
        return any(
            act.certain and not any(act.number in other.perhaps for other in decisions)
            for act in self.about(pair, REJECT)
        )

    def may_be_pending(self, pair: Pair) -> bool:
        """Whether *pair* may have knocked since it was deleted."""
        deletions = [act for act in self.about(pair, DELETE) if act.certain]
        return any(
            not any(knock.number in deletion.surely for deletion in deletions)
            for knock in self.about(pair, KNOCK)
        )
