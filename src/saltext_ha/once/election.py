"""
The election, from what masters tell each other: a pure function, so that every case can be tried.

Among the masters that see each other, directly or through others, one that serves leads: the one
that leads already, else the first in order. A master that comes back takes nothing over, so the
leader changes only when it must. Each half of a partition has a leader of its own: two masters have
no majority, and neither may wait for the other for ever. When the halves meet again, the first in
order of the two leaders goes on, and the other ceases.

A view counts for :data:`FRESH` seconds from when it was true, also if it comes through others: no
master believes in another one longer than the masters that see that one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

FRESH = 5.0  # seconds


@dataclass(frozen=True)
class MasterView:
    """
    What a master tells the others of itself.

    :ivar unfit: why it may not lead; empty when it may.
    :ivar sees: the masters that have answered it just now.
    :ivar order: the order in its configuration; see :class:`.config.leader.LeaderSettings`.
    :ivar at: when the view was true, at the earliest, by the clock of the master that keeps it.
    """

    name: str
    unfit: str = ""
    sees: frozenset[str] = frozenset()
    leads: bool = False
    order: tuple[str, ...] = ()
    at: float = 0.0


@dataclass(frozen=True)
class Election:
    """
    :ivar leader: the name of the leader; empty while no master leads.
    :ivar lead: whether this master is to lead from now on.
    :ivar half: the masters that see each other, this one among them.
    :ivar why: why no master leads; empty when one does.
    """

    leader: str
    lead: bool
    half: frozenset[str]
    why: str


def decide(
    me: MasterView,
    others: Mapping[str, MasterView],
    now: float,
    unasked: Iterable[str],
    new: bool = False,
) -> Election:
    """
    Elect the leader of the half of the group that *me* belongs to.

    :param me: this master. :param others: the latest views of the others, by name.
    :param unasked: masters that have neither answered nor failed to answer since this master began
        to look: one of them may lead.
    :param new: whether this master began to look only seconds ago: a master that it sees may not
        yet have seen it.
    """
    views = {name: view for name, view in others.items() if now - view.at <= FRESH}
    views[me.name] = me
    half = _half(me.name, views)
    serving = [views[name] for name in half if not views[name].unfit]
    if not serving:
        reasons = "; ".join(f"{name}: {views[name].unfit}" for name in sorted(half))
        return Election("", False, half, f"no master that is reached here may lead: {reasons}")
    order = _order_of(views[name] for name in half)
    leading = [view for view in serving if view.leads]
    names = {view.name for view in leading or serving}
    first = next((name for name in order if name in names), min(names))
    unmet = {name for name in me.sees if name in views and name not in half} if new else set()
    if not leading and (waiting := sorted({*unasked, *unmet})):
        return Election("", False, half, f"not yet met: {', '.join(waiting)}")
    if first == me.name:
        return Election(first, True, half, "")
    if leading:
        return Election(first, False, half, "")
    return Election("", False, half, f"{first} is about to lead")


def _order_of(views: Iterable[MasterView]) -> tuple[str, ...]:
    """
    Which of the masters that know each other come first; the others follow by name. If their
    configurations differ, all of them go by the same one: otherwise two could both be the first.
    """
    return min((view.order for view in views if view.order), default=())


def orders_differ(views: Iterable[MasterView]) -> bool:
    """Whether their configurations have different orders."""
    return len({view.order for view in views}) > 1


def _half(me: str, views: Mapping[str, MasterView]) -> frozenset[str]:
    """The masters that *me* reaches, directly or through others; each step is mutual sight."""
    found, ahead = {me}, [me]
    while ahead:
        here = views[ahead.pop()]
        for name in here.sees - found:
            if name in views and here.name in views[name].sees:
                found.add(name)
                ahead.append(name)
    return frozenset(found)
