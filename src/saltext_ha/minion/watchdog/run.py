"""The loop of the ``ha_watchdog`` engine: look, decide, move, remember, report."""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from saltext_ha.common.errors import HaError
from saltext_ha.config.watchdog import WatchdogSettings, by_chance, patience
from saltext_ha.minion import binding, options, tcp_links
from saltext_ha.minion.binding import Running, SeenMaster
from saltext_ha.minion.tcp_links import Link, TcpLinks
from saltext_ha.minion.watchdog import decide, journal, probes, report, rescue
from saltext_ha.minion.watchdog import order as orders
from saltext_ha.minion.watchdog.decide import MinionMove, Next, Setup, State, WatchdogLook
from saltext_ha.minion.watchdog.journal import Journal, RecordedMove
from saltext_ha.minion.watchdog.look import AddressBook, Looker
from saltext_ha.minion.watchdog.move import Mover
from saltext_ha.minion.watchdog.parent_minion import ParentMinion

log = logging.getLogger(__name__)

TAG = "salt/ha/minion/{id}/failover"
# Seconds after a move in which Salt may still load its modules and schedule its jobs.
TIDY_FOR = 30.0
# On a busy machine, too, the process of ha.failover notes a move within so many looks for it.
NOTED_WITHIN, POLL = 15, 0.2  # looks, seconds


@dataclass(frozen=True)
class Site:
    """
    One minion and its masters, as :func:`run` and ``ha.failover`` see them.

    ``first`` is the entry with which Salt starts, None if chance or a function decides. ``of`` is
    the number of masters in the minion's configuration. ``limit`` is how many seconds a move may
    take: Salt waits for ``auth_timeout`` on each master.
    """

    running: Running
    book: AddressBook
    looker: Looker
    mover: Mover
    first: str | None
    of: int
    limit: float

    @property
    def masters(self) -> tuple[str, ...]:
        """The entries, in the order of the configuration."""
        return self.running.entries

    def master(self, entry: str | None) -> SeenMaster:
        """The master written as *entry*."""
        return next(each for each in self.book.masters if each.configured == entry)


def site(
    opts: Mapping[str, Any],
    links: Callable[[], TcpLinks],
    timeout: float,
    unanswered: Callable[[], Mapping[Link, int]] = dict,
) -> Site:
    """
    Build the :class:`Site` of the minion with *opts*; *links* returns its connections, *unanswered*
    how many probes in a row on each have no answer.

    In a minion that is bound to several masters at once, each engine watches the one master that it
    belongs to.
    """
    running = options.running(opts)
    of = len(running.entries)
    if running.type == "list" and isinstance(opts.get("master"), str):
        running = replace(running, entries=(options.own_entry(opts, running),))
    running = replace(running, host=None, ip=None, port=None)
    # master_type distributed crashes in Salt 3006 to 3008: it hashes text as if it were bytes.
    settled = running.master_type == "failover" and not by_chance(opts)
    first = running.entries[0] if settled and running.entries else None
    book = AddressBook(running)
    looker = Looker(book, opts, links, unanswered, timeout)
    limit = 15 + patience(opts, "auth_timeout") * max(1, len(running.entries) - 1)
    mover = Mover(opts, looker.bound, book.hosts, first, running.entries)
    if running.caller:
        # salt-call has a list of its own in its options.
        last = Journal(str(opts["cachedir"])).last()
        mover.order = orders.kept(last.order if last else None, running.entries)
    return Site(running, book, looker, mover, first, of, limit)


def run(opts: Mapping[str, Any], settings: WatchdogSettings, minion: ParentMinion) -> None:
    """Watch until the *minion* ends."""
    place = site(
        opts,
        lambda: tcp_links.established(minion.pid),
        settings.timeout,
        lambda: probes.unanswered(minion.pid),
    )
    if not place.masters:
        log.info("ha_watchdog: this minion has no master; nothing to watch")
        return
    if place.running.master_type in binding.MOVING and opts.get("master_tries") != -1:
        log.warning(
            "ha_watchdog: set master_tries: -1; without, a minion that once finds all its masters "
            "down is left without this engine, and on some releases of Salt without jobs"
        )
    place.book.keep_fresh()
    # Salt logs an error for each question without an answer; here _say logs it once.
    logging.getLogger("salt.transport").setLevel(logging.CRITICAL)
    name = place.running.watchdog_of(place.masters[0])
    watch = Watch(place, settings, Journal(str(opts["cachedir"]), name), opts)
    log.info(
        "ha_watchdog: watching masters=%s every=%gs", ",".join(place.masters), settings.interval
    )
    pause = settings.interval * random.random()  # nosec B311
    while minion.lasts(pause):
        pause = watch.turn()


class Watch:
    """The state of the loop; a :meth:`turn` is one round of it."""

    def __init__(
        self, place: Site, settings: WatchdogSettings, book: Journal, opts: Mapping[str, Any]
    ) -> None:
        self.place, self.journal, self.opts = place, book, opts
        recon = float(opts.get("recon_max") or opts.get("recon_default") or 1000) / 1000
        self.setup = Setup(
            settings,
            place.masters,
            preferred=place.first if settings.failback else None,
            first=place.first,
            deaf_after=max(settings.failures * settings.interval, recon + settings.interval),
        )
        self.state = State()
        self.reports = report.Reports(settings.report, settings.jitter)
        self.ask: frozenset[str] = frozenset()
        self._said: str | None = None
        self._tidy_until = 0.0
        self._begun = False
        self._unwritten: tuple[RecordedMove | None, RecordedMove] | None = None
        """The last entry of the journal, and the one that could not be written after it."""

    def turn(self) -> float:
        """Look once and act; returns the seconds until the next turn."""
        look = self.place.looker.look(self.ask)
        pinned = self._follow(look)
        if pinned is None:
            return 0.0
        look = replace(look, pinned=pinned)
        if look.current is not None:
            order = self.place.mover.turn(self.place.master(look.current))
            look = replace(look, order=order)
        if look.current not in (None, self.state.current):
            self._tidy_until = time.monotonic() + TIDY_FOR
        chance = random.random()  # nosec B311
        self.state, next_ = decide.step(self.setup, self.state, look, chance)
        self.ask = next_.ask
        self._say(look, next_)
        if look.good and time.monotonic() < self._tidy_until:
            self.place.mover.tidy(map(self.place.master, self.place.masters))
        if next_.move:
            self._do(next_.move)
        elif self.reports.due(time.monotonic(), look.current, look.good):
            self._report(self.place.master(look.current))
        return next_.wait

    def _report(self, master: SeenMaster) -> None:
        minion_id, place = str(self.opts["id"]), self.place
        said = report.report(minion_id, master, place.running, self.reports.every, place.of)
        place.mover.tell(report.TAG.format(id=minion_id), said)

    def _follow(self, look: WatchdogLook) -> bool | None:
        """
        Note a change that the watchdog did not make; returns whether an operator made the last one,
        None if the minion was moved while *look* was taken: it says where it was before.
        """
        if look.current is None:
            return False
        last = self._last()
        first, self._begun = not self._begun, True
        if first or last is None:
            self._note(RecordedMove(time.time(), None, look.current, journal.STARTED))
            return False
        for _ in range(NOTED_WITHIN):
            if last.target == look.current:
                break
            time.sleep(POLL)
            last, now = self._last() or last, self.place.looker.bound()
            if now and now.configured == last.target != look.current:
                return None
        if last.why == journal.ASKED and last.order:
            self.place.mover.order = orders.kept(last.order, self.place.masters)
        if last.target != look.current:
            self._left(last.target, look.current)
            self._note(RecordedMove(time.time(), last.target, look.current, journal.SEEN))
            if last.target in self.place.masters:
                tell(self.place, str(self.opts["id"]), last.target, look.current, journal.SEEN)
            return False
        return last.why == journal.ASKED

    def _left(self, source: str, target: str) -> None:
        """Salt has moved the minion by itself: update its list of masters as Salt does."""
        mover = self.place.mover
        if target == self.place.first and self.opts.get("master_failback"):
            mover.order = mover.configured
        elif source in self.place.masters:
            mover.order = mover.turn(self.place.master(source))

    def _do(self, move: MinionMove) -> None:
        looker, mover = self.place.looker, self.place.mover
        if self._refused(move):
            return
        source = self.place.master(move.source)
        log.warning("ha_watchdog: moving from=%s to=%s why=%s", move.source, move.target, move.why)
        started = time.monotonic()
        target = move.target if move.failback else None
        reached = mover.move(source, target, self.place.limit)
        took = time.monotonic() - started
        here = reached.configured if reached else move.source
        self.state = decide.moved(self.state, time.monotonic(), move, here)
        if reached is None or reached.configured is None:
            log.error("ha_watchdog: the minion reached no master within %.0f s", took)
            self._rescue(move)
            return
        looker.last = reached.configured
        self._tidy_until = time.monotonic() + TIDY_FOR
        log.warning("ha_watchdog: moved from=%s to=%s in=%.1fs", move.source, looker.last, took)
        self._note(RecordedMove(time.time(), move.source, looker.last, move.why, round(took, 1)))
        tell(self.place, str(self.opts["id"]), move.source, looker.last, move.why, took)

    def _rescue(self, move: MinionMove) -> None:
        """Restart the minion if it got stuck while changing masters."""
        looker, moving = self.place.looker, self.place.running.master_type in binding.MOVING
        if not (moving and self.setup.settings.restart):
            return
        if not rescue.due(self.journal.read(), time.time()) or looker.refusal(move.target):
            return
        if not rescue.named(self.place.master(move.target).host):
            return
        quiet = rescue.quiet(self.opts, len(self.place.masters))
        if not rescue.stuck(looker.book.masters, looker.links, quiet):
            return
        log.warning("ha_watchdog: the minion is with no master and takes no event; it is restarted")
        try:
            # An engine is a child of its minion.
            rescue.begin(os.getppid(), self.opts, self.journal, move.source)
        except (HaError, OSError) as exc:
            log.error("ha_watchdog: the minion cannot be restarted: %s", exc)

    def _refused(self, move: MinionMove) -> bool:
        """Whether *move* would lead to a master where the minion gets stuck."""
        refusal = self.place.looker.refusal(move.target)
        # Salt passes on by itself, but not in a failback, and not with one master.
        passes_on = not (move.failback or move.target == move.source)
        if refusal is None or (passes_on and not refusal.final):
            return False
        self.state = decide.refused(self.state, time.monotonic(), move.target)
        log.warning(
            "ha_watchdog: not moved from=%s to=%s: %s", move.source, move.target, refusal.why
        )
        return True

    def _note(self, entry: RecordedMove) -> None:
        entry = replace(entry, order=list(self.place.mover.order))
        try:
            self.journal.add(entry)
        except OSError as exc:
            log.error("ha_watchdog: %s not written: %s", self.journal.path, exc)
            self._unwritten = self.journal.last(), entry

    def _last(self) -> RecordedMove | None:
        """The latest change; without this, one that is not in the journal would be seen anew."""
        written = self.journal.last()
        if self._unwritten and self._unwritten[0] == written:
            return self._unwritten[1]
        return written

    def _say(self, look: WatchdogLook, next_: Next) -> None:
        """Log one line whenever the trouble changes."""
        unseen = self.place.looker.unseen
        if look.current is None and unseen is None:
            return
        trouble = None
        if look.current is None:
            trouble = f"nothing is watched: {unseen}"
        elif not look.good:
            reason = "not subscribed" if look.alive else self.place.looker.notes.get(look.current)
            trouble = f"master={look.current} {reason or 'no answer'}"
            trouble += f"; {next_.note}" if next_.note else ""
        if trouble != self._said:
            if trouble:
                log.warning("ha_watchdog: %s", trouble)
            elif self._said:
                log.info("ha_watchdog: master=%s works", look.current)
            self._said = trouble


def tell(
    place: Site, minion_id: str, source: str, target: str, why: str, seconds: float | None = None
) -> None:
    """Fire the failover event on the master *target*, as soon as the minion can send it."""
    end = time.monotonic() + 10
    master = place.master(target)
    while time.monotonic() < end and not master.is_asked(place.looker.links()):
        time.sleep(0.1)
    took = None if seconds is None else round(seconds, 1)
    data = {"id": minion_id, "from": source, "to": target, "why": why, "seconds": took}
    place.mover.tell(TAG.format(id=minion_id), data)
