"""
The last runs under a name: a register that all masters write (see :mod:`.register`).

A run that begins replaces all runs that its master knew; a run that ends replaces only itself. So
two runs that began in a partition, without knowing of each other, are both seen afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from dataclasses import replace
from typing import NamedTuple

from saltext_ha.replication.record import Dot
from saltext_ha.replication.register import SharedRegister
from saltext_ha.replication.vouching import MOST_UNKNOWN

RUNNING, DONE, FAILED, UNFINISHED = "running", "done", "failed", "unfinished"
STATES = (RUNNING, DONE, FAILED, UNFINISHED)
FRESH = 5.0
"""Seconds for which a run that began may yet be withdrawn."""
MOST_SEEN = MOST_UNKNOWN
"""
So many nodes in a register's context are enough: a peer takes these, whatever their masters are. A
master takes a new node at each start, so a context would grow for ever.
"""


class Run(NamedTuple):
    """
    One run. ``began`` and ``ended`` are in Unix seconds by the clock of the master that keeps this:
    masters tell each other how long ago that was. ``ended`` is 0 while it runs, and if that is
    unknown. ``fence`` is 0 if the leader had none. ``start`` names the write by which it began.
    """

    dot: Dot
    state: str
    on: str
    by: str
    function: str
    began: float
    ended: float
    fence: int
    start: Dot


class InTheWay(NamedTuple):
    """
    A run because of which another must not begin now.

    :ivar why: what is said of it.
    :ivar overdue: it has not ended, though its period is over: the next one is due.
    :ivar fresh: it began so lately that it may yet be withdrawn.
    """

    run: Run
    why: str
    overdue: bool = False
    fresh: bool = False


class RunRegister(SharedRegister[Run]):
    """All that is known of the last runs under a name."""

    @staticmethod
    def rank(value: Run) -> tuple[float, Dot]:
        """The one that began last."""
        return value.began, value.dot

    @staticmethod
    def text(value: Run) -> str:
        """Its state."""
        return value.state

    @staticmethod
    def may_vanish(value: Run) -> bool:
        """Whether it may be withdrawn: two that began at once may each have given way."""
        return value.state == RUNNING

    def written(self, dot: Dot, values: Iterable[Run]) -> RunRegister:
        """
        As any register; but from a full context only what this write replaces is kept. A run that
        was replaced long before, and that a master which was away tells again, is then seen beside
        the newer ones until the next run.
        """
        known = self if len(self.context) < MOST_SEEN else self._only(())
        return super(RunRegister, known).written(dot, values)

    def merged(self, theirs: RunRegister) -> RunRegister:
        """
        As any register; but if the context would be too full, the nodes count that both know: so
        what a writer left out does not come back.
        """
        both = super().merged(theirs)
        if len(both.context) <= MOST_SEEN:
            return both
        return both._only(dict(self.context).keys() & dict(theirs.context).keys())

    def _only(self, nodes: Collection[str]) -> RunRegister:
        """This register with a context of *nodes*, and of those of its values."""
        wanted = {*nodes, *(run.dot.node for run in self.values)}
        return replace(self, context=tuple(seen for seen in self.context if seen[0] in wanted))

    @property
    def last(self) -> Run | None:
        """The run that began last."""
        return max(self.values, key=self.rank, default=None)


def end(known: RunRegister, dot: Dot, start: Dot, state: str, now: float) -> RunRegister:
    """
    *known* after the run that began by *start* ended in *state*; unchanged if that run is gone.
    """
    ended = [run for run in known.values if run.start == start]
    if not ended:
        return known
    others = [run for run in known.values if run.start != start]
    over = 0.0 if state == UNFINISHED else now
    new = ended[0]._replace(dot=dot, state=state, ended=over)
    return known.written(dot, [*others, new])


def withdraw(known: RunRegister, start: Dot) -> RunRegister:
    """*known* without the run that began by *start*, which has done nothing yet."""
    left = tuple(run for run in known.values if run.start != start)
    return RunRegister(left, known.context)


def put_back(known: RunRegister, dot: Dot, run: Run) -> RunRegister:
    """*known* with *run* beside its values: one that was withdrawn had replaced it."""
    return known.written(dot, [*known.values, run._replace(dot=dot)])


def in_the_way(
    known: RunRegister, now: float, within: float, reached: Container[str]
) -> InTheWay | None:
    """
    The run because of which another must not begin now; None if it may.

    :param within: seconds in which one run is enough. :param reached: the masters that are reached:
        what they say of their runs is current.
    """
    for run in known.values:
        if run.state == RUNNING and run.on in reached:
            since = abs(now - run.began)
            why = f"{run.on} runs it, since {age(run, now)}"
            return InTheWay(run, why, since >= within, since < FRESH)
    for run in known.values:
        # A clock that was set back leaves runs in its future; those do not count.
        if abs(now - run.began) < within:
            how = {DONE: "ran it", FAILED: "ran it, and it failed,"}.get(run.state, "began it")
            return InTheWay(run, f"{run.on} {how} {age(run, now)} ago")
    return None


def yields(known: RunRegister, start: Dot, reached: Container[str]) -> str:
    """
    The master to which the run that began by *start* gives way, or empty. If several masters began
    without knowing of each other, all but the first by name give way.
    """
    own = next((run for run in known.values if run.start == start), None)
    others = [
        run.on
        for run in known.values
        if own and run.state == RUNNING and run.on in reached and run.on < own.on
    ]
    return min(others, default="")


def age(run: Run, now: float) -> str:
    """How long ago *run* began, in words."""
    seconds = max(0.0, now - run.began)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"
