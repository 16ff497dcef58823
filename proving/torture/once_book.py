"""
What ran once, and who leads, as seen from outside: each reaction and each run leaves a mark here.

A half is a set of masters that reach each other and that agreed on a leader at the last look. From
then on until the next fault it is *calm*, and these promises hold:

- L1: exactly one leads in each half, and all of it name that one.
- L2: what runs by ``ha.once`` runs in each half that calls it: once, and not again under that name.
- L3: an event is reacted to, unless all masters that heard it ended.
- L4: each half reacts to it once.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Half = frozenset[str]
FOLLOWS = 3.0
"""Most seconds until a change of leaders is told."""


@dataclass(frozen=True)
class Event:
    """
    An event that a minion sent to the masters *heard*.

    :ivar halves: the calm halves of these masters; empty if one of them was in none.
    :ivar since: since when these were calm.
    """

    number: int
    heard: Half
    at: float
    halves: frozenset[Half]
    since: float


@dataclass(frozen=True)
class Reaction:
    """The reactor of the master *on* reacted to the event *number*."""

    number: int
    on: str
    at: float


@dataclass
class OnceBook:
    """
    :ivar calm: the halves that are calm now. :ivar since: since when.
    :ivar ended: master → when it ended, or was taken out of the group.
    :ivar due: event → when a reaction was due: all masters that heard it were calm then.
    :ivar ran: name → the masters on which it ran.
    :ivar cut_off: names of calls during which a master died: it may have been begun there, and does
        not run again then, though it never ran.
    :ivar troubles: when faults began and were over.
    :ivar changes: when masters told of another leader. In calm, a busy machine causes that.
    """

    calm: list[Half] = field(default_factory=list)
    since: float = math.inf
    ended: dict[str, list[float]] = field(default_factory=dict)
    due: dict[int, float] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    ran: dict[str, list[str]] = field(default_factory=dict)
    cut_off: set[str] = field(default_factory=set)
    troubles: list[tuple[float, float]] = field(default_factory=list)
    changes: list[float] = field(default_factory=list)

    def agreed(self, halves: list[Half], now: float) -> None:
        """Note that *halves* are calm from now on, and that nothing waits in them."""
        self.calm, self.since = halves, now
        names = frozenset[str]().union(*halves)
        for event in self.events:
            if event.heard <= names:
                self.due.setdefault(event.number, now)

    def changed(self, since: float, until: float) -> bool:
        """Whether leaders changed in that time."""
        return any(since <= at <= until for at in self.changes)

    def halves_of(self, names: Iterable[str]) -> frozenset[Half]:
        """The calm halves of these masters; empty if one of them is in none."""
        found = {name: half for half in self.calm for name in half}
        masters = set(names)
        return frozenset(found[n] for n in masters) if masters <= found.keys() else frozenset()


def leading(told: Mapping[str, Mapping[str, object]]) -> str:
    """
    What is wrong with the lead in a half; empty when it is as promised (L1).

    :param told: what each master of the half says, see ``ha.leader``.
    """
    leaders = sorted(name for name, each in told.items() if each["leads"])
    named = {name: each["leader"] for name, each in told.items()}
    if len(leaders) != 1:
        why = {name: each["why"] for name, each in told.items()}
        return f"{', '.join(leaders) or 'nobody'} leads among {', '.join(sorted(told))}: {why}"
    return "" if set(named.values()) == set(leaders) else f"{leaders[0]} leads, named: {named}"


def reacting(
    told: Mapping[str, Mapping[str, object]], cut_off: Collection[str] = frozenset()
) -> str:
    """
    The reactor that is not as it should be in a half with a leader; empty if all are.

    :param cut_off: masters that reach the leader only through others: their events wait.
    """
    for name, each in told.items():
        reactor = each["reactor"]
        assert isinstance(reactor, Mapping)
        waits = reactor["waiting"] and name not in cut_off
        if reactor["reacts"] is not each["leads"] or waits:
            return f"the reactor of {name}: {dict(reactor)}"
    return ""


def wrong_runs(
    name: str, half: Half, ran: Sequence[str], earlier: Iterable[str], begun: bool = False
) -> str:
    """
    What is wrong with a call of ``ha.once`` on all masters of a calm *half* (L2); empty if nothing.

    :param ran: on which masters it ran. :param earlier: where it ran in calls before.
    :param begun: whether one of these was cut off.
    """
    before = set(earlier)
    may = {0} if before & half else {0, 1} if before or begun else {1}
    if len(ran) in may:
        return ""
    where = f"{', '.join(ran) or 'no master'} of {_told([half])}"
    return f"L2 {name} ran on {where}; before: {', '.join(sorted(before)) or 'never'}"


def verdict(book: OnceBook, reactions: Iterable[Reaction]) -> list[str]:
    """What is wrong with the reactions to events (L3, L4), once no event waits."""
    flaws: list[str] = []
    found: dict[int, list[Reaction]] = {event.number: [] for event in book.events}
    for reaction in reactions:
        found.setdefault(reaction.number, []).append(reaction)
    for event in book.events:
        done = found[event.number]
        where = ", ".join(each.on for each in done) or "no master"
        text = f"event {event.number}, heard by {', '.join(sorted(event.heard))}: {where} reacted"
        if not done and any(_lived(book, event, name) for name in event.heard):
            flaws.append(f"L3 {text}")
        last = max((each.at for each in done), default=event.at)
        calm = not any(begun <= last and over >= event.at for begun, over in book.troubles)
        calm = calm and not book.changed(event.since, last + FOLLOWS)
        if event.halves and calm and len(done) > len(event.halves):
            flaws.append(f"L4 {text}, in {_told(event.halves)}")
    return flaws


def _lived(book: OnceBook, event: Event, name: str) -> bool:
    """Whether the master *name* did not end before it must have handed *event* over."""
    due = book.due.get(event.number, math.inf)
    return not any(event.at <= at <= due for at in book.ended.get(name, ()))


def _told(halves: Iterable[Half]) -> str:
    return " and ".join("{" + ", ".join(sorted(half)) + "}" for half in halves) or "trouble"
