"""
When should a minion change its master?

Plain values in, plain values out: :func:`step` takes the state and the latest look, and returns the
new state and what to do. It guarantees:

- no move before ``failures`` looks in a row have failed, and none while no other master is known to
work;
- after a move the minion stays as long as :func:`hold` says, longer with each move within an hour:
it does not swing between two half-working masters; but from a master that does not work it moves at
once to a master that has not failed within this hour;
- no failback before the preferred master has answered every look for ``stable`` seconds;
- a master that did not accept the minion is tried again less and less often.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from saltext_ha.config.watchdog import WatchdogSettings

HOUR = 3600.0
LONGEST_HOLD = 300.0
LONGEST_BAR = 60.0
SEVERAL = 20  # remembered moves; more make no difference to the hold


@dataclass(frozen=True)
class WatchdogLook:
    """
    The result of one look. Masters are named by their entry in the configuration.

    ``at`` is in seconds of a clock that never jumps. ``current`` is the minion's master as far as
    known, None if it has none yet. ``subscribed`` is False when the minion's process has no
    connection to that master's publisher, None when that cannot be seen. ``answers`` says of each
    master that was asked whether it works: it answered in time, and its publisher greets.
    ``pinned``: an operator moved the minion to this master, and only an operator moves it back.
    ``problem`` says why a current master that answers requests does not work; ``doubt``: an answer
    on the connection to it is missing, and may still come. ``order`` is the order in which Salt
    tries the masters when the current one fails (:mod:`saltext_ha.minion.watchdog.order`); empty:
    the order of the configuration.
    """

    at: float
    current: str | None
    subscribed: bool | None
    answers: Mapping[str, bool] = field(default_factory=dict)
    pinned: bool = False
    problem: str | None = None
    doubt: bool = False
    order: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Whether the current master works for this minion."""
        return self.alive and self.subscribed is not False

    @property
    def alive(self) -> bool:
        """Whether the current master answers."""
        return self.current is not None and self.answers.get(self.current, False)


@dataclass(frozen=True)
class Setup:
    """
    Settings that are fixed while the watchdog runs.

    ``masters`` are in the order of the configuration; ``preferred`` is the one to go back to, None
    for none; ``first`` the one that Salt can go to directly, without trying others, None for none;
    ``deaf_after`` says for how many seconds the subscription to a master that answers may be
    missing: usually the transport reconnects by itself.
    """

    settings: WatchdogSettings
    masters: tuple[str, ...]
    preferred: str | None = None
    first: str | None = None
    deaf_after: float = 15.0


@dataclass(frozen=True)
class State:
    """The state between looks."""

    current: str | None = None
    bad: int = 0
    bad_since: float | None = None
    due: float | None = None
    good_since: float | None = None
    moves: tuple[float, ...] = ()
    left: Mapping[str, float] = field(default_factory=dict)
    """
    When each master last failed: it did not work while it was the current one, or the minion was
    moved to it and did not arrive.
    """
    refused: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """Masters that did not accept the minion: how often in a row, and when last."""


@dataclass(frozen=True)
class MinionMove:
    """
    A change from one master to another; to the same one, it is a new connection. ``failback``: use
    Salt's failback, which leads directly to the first master.
    """

    source: str
    target: str
    why: str
    failback: bool = False


@dataclass(frozen=True)
class Next:
    """What to do: a move, if any; then look again after ``wait`` seconds, and ask ``ask``."""

    wait: float
    ask: frozenset[str]
    move: MinionMove | None = None
    note: str | None = None


def hold(settings: WatchdogSettings, moves: int) -> float:
    """Seconds for which a minion stays after the last of *moves* within an hour."""
    if not moves:
        return 0.0
    return min(
        settings.interval * 2.0 ** min(moves + 1, SEVERAL), max(LONGEST_HOLD, settings.interval)
    )


def step(setup: Setup, state: State, look: WatchdogLook, chance: float) -> tuple[State, Next]:
    """The next state, and what to do. :param chance: a random number from 0 to 1."""
    recent = tuple(at for at in state.moves if look.at - at < HOUR)[-SEVERAL:]
    left = {each: at for each, at in state.left.items() if look.at - at < HOUR}
    if look.current != state.current:
        # It was moved: earlier looks were at another master.
        state = State(look.current, good_since=state.good_since)
    state = _preferred(setup, replace(state, moves=recent, left=left), look)
    if look.current is None:
        # Salt is looking for a master, or waits for its key to be accepted.
        return _calm(state), Next(setup.settings.interval, frozenset())
    return _at_peace(setup, state, look) if look.good else _in_trouble(setup, state, look, chance)


def moved(state: State, at: float, move: MinionMove, current: str | None) -> State:
    """*state* after *move* at the time *at* led to *current*."""
    failed = {move.source} if state.bad else set()
    failed |= {move.target} if current != move.target else set()
    left = {**state.left, **dict.fromkeys(failed, at)}
    return State(current, moves=(*state.moves, at), left=left)


def refused(state: State, at: float, target: str) -> State:
    """*state* after *target* did not accept the minion at the time *at*."""
    often, _ = state.refused.get(target, (0, at))
    return replace(state, refused={**state.refused, target: (often + 1, at)})


def _barred(setup: Setup, state: State, look: WatchdogLook, target: str) -> bool:
    """Whether *target* refused the minion too recently to be tried again."""
    often, at = state.refused.get(target, (0, look.at))
    interval = setup.settings.interval
    wait = min(interval * 2.0 ** min(often, SEVERAL), max(LONGEST_BAR, interval))
    return often > 0 and look.at - at < wait


def _preferred(setup: Setup, state: State, look: WatchdogLook) -> State:
    wanted = setup.preferred
    if wanted is None or wanted == look.current or not look.answers.get(wanted, False):
        return replace(state, good_since=None)
    return state if state.good_since is not None else replace(state, good_since=look.at)


def _calm(state: State) -> State:
    return replace(state, bad=0, bad_since=None, due=None)


def _at_peace(setup: Setup, state: State, look: WatchdogLook) -> tuple[State, Next]:
    settings, state = setup.settings, _calm(state)
    wait = settings.soon if look.doubt else settings.interval
    back = setup.preferred
    if back is None or back == look.current or look.pinned:
        return state, Next(wait, frozenset({look.current or ""}))
    ask = frozenset({look.current or "", back})
    since = state.good_since
    if since is None or look.at - since < settings.stable or _held(setup, state, look):
        return state, Next(wait, ask)
    if _barred(setup, state, look, back):
        return state, Next(wait, ask)
    why = f"{back} is preferred, and has answered for {look.at - since:.0f} s"
    return state, Next(0.0, ask, MinionMove(look.current or "", back, why, failback=True))


def _in_trouble(
    setup: Setup, state: State, look: WatchdogLook, chance: float
) -> tuple[State, Next]:
    settings, current = setup.settings, look.current or ""
    since = look.at if state.bad_since is None else state.bad_since
    due = look.at + settings.jitter * chance if state.due is None else state.due
    state = replace(state, bad=state.bad + 1, bad_since=since, due=due)
    ask = frozenset(setup.masters) | {current}

    def stay(wait: float, note: str | None = None) -> tuple[State, Next]:
        return state, Next(wait, ask, note=note)

    if look.alive and look.at - since < setup.deaf_after:
        return stay(settings.soon)
    if state.bad < settings.failures:
        return stay(settings.soon)
    order = look.order or tuple(each for each in setup.masters if each != current)
    target = next((each for each in order if look.answers.get(each)), None)
    if target is None and look.alive:
        target = current
    if target is None:
        return stay(settings.interval, "no other master answers")
    straight = False
    if _barred(setup, state, look, target):
        # Salt would try it before any other, and stay there, unless it goes to the first one.
        note = f"{target} answers, and the minion cannot go there"
        target, straight = setup.first or current, True
        if target == current or not look.answers.get(target) or _barred(setup, state, look, target):
            return stay(settings.interval, note)
    if target in state.left and (wait := _held(setup, state, look)):
        return stay(min(wait, settings.interval), "it has changed its master just now")
    if look.at < due:
        return stay(min(due - look.at, settings.interval))
    problem = "not subscribed" if look.alive else look.problem or "no answer"
    why = f"{problem} for {look.at - since:.1f} s"
    return state, Next(0.0, ask, MinionMove(current, target, why, failback=straight))


def _held(setup: Setup, state: State, look: WatchdogLook) -> float:
    if not state.moves:
        return 0.0
    return max(0.0, state.moves[-1] + hold(setup.settings, len(state.moves)) - look.at)
