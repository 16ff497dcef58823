"""
``store: group``: masters tell each other which masters they see, and each elects a leader by that.

Every master asks every peer, twice in three seconds, without waiting for its last answer. Only
answers count: the time of the question limits their age, whatever the clocks say and however slow
the network is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from saltext_ha.common.beat import Rests
from saltext_ha.common.boot_clock import boot_clock
from saltext_ha.common.errors import (
    HaError,
    InvalidRecord,
    NobodyListens,
    PeerError,
    PeerRefused,
    reason_of,
)
from saltext_ha.config.leader import GROUP, LeaderSettings
from saltext_ha.once.candidate import Candidate, why_not
from saltext_ha.once.election import FRESH, MasterView, decide, orders_differ
from saltext_ha.once.leadership import QUIET, Apart, Leadership
from saltext_ha.sync.contact import Contact
from saltext_ha.transport import wire
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.peer import Peer

TURN = 1.5  # seconds between two questions to one peer
ANSWER_WITHIN = 3.0  # for its answer
MOST = 1000  # names in a view
LONGEST = 64
LONGEST_REASON = 300


class GroupLeader:
    """
    The part of one master.

    :param contacts: to the peers, by name.
    :param clock: seconds that only grow, also while this process is stopped or the machine
        suspended.
    """

    def __init__(
        self,
        me: Candidate,
        settings: LeaderSettings,
        contacts: Mapping[str, Contact],
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        self._me, self._name, self._unfit = me, me.name, me.unfit
        self._settings, self._contacts, self._clock = settings, contacts, clock
        self._views: dict[str, MasterView] = {}
        self._direct: dict[str, float] = {}
        """Peer → when this master asked the question that the peer answered last."""
        self._asked: set[str] = set()
        """Peers that have answered or failed to since this master looks without a break."""
        self._apart: dict[str, Apart] = {}
        self._asking: set[asyncio.Task[None]] = set()
        self._rests = Rests()
        self._looked = self._since = float("-inf")
        self._known = Leadership(GROUP, why="the masters are being asked", since=time.time())

    # -- what others ask

    def for_peers(self) -> dict[str, Handler]:
        return {"leader": self._answer}

    async def _answer(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        sees, now = set(wire.texts(payload, "sees")), self._clock()
        others = [
            view
            for name, view in self._views.items()
            if name not in sees and name != peer.name and now - view.at <= FRESH
        ]
        return {
            "view": to_row(self._own(now), now),
            "others": [to_row(view, now) for view in others],
        }

    @property
    def standing(self) -> Leadership:
        """Who leads now. A result from before this process was suspended no longer counts."""
        known, why = self._known, ""
        if self._clock() - self._looked > FRESH:
            why = "this master has not looked for a while; it is asking again"
        elif known.leads:
            why = self._unfit()
        return Leadership(GROUP, "", False, why, known.since, known.apart) if why else known

    def notes(self) -> Iterator[str]:
        known = self.standing
        if not known.leader and time.time() - known.since > QUIET:
            yield f"nobody leads: {known.why}"
        now = self._clock()
        if orders_differ([self._own(now), *self._fresh(now).values()]):
            yield (
                "ha: leader: order: is not the same on all masters; write the same order on each, "
                "and restart them"
            )
        strangers = [n for n in self._settings.order if n != self._name and n not in self._contacts]
        if strangers and self._contacts:  # else it has yet to join
            yield (
                f"ha: leader: order: this master knows no {', '.join(strangers)}; write the names "
                "of masters of the group, and restart salt-master"
            )

    async def claim(self, name: str, within: float) -> str:
        """Always empty, allowed: only the masters' registers know of runs, see :mod:`.runs`."""
        return ""

    # -- looking

    async def run(self) -> None:
        """Ask and elect while the engine runs."""
        try:
            while True:
                for name in self._contacts:
                    asking = asyncio.ensure_future(self._ask(name))
                    self._asking.add(asking)
                    asking.add_done_callback(self._asking.discard)
                end = self._clock() + TURN
                while (left := end - self._clock()) > 0:
                    self._elect()
                    if not await self._rests.rest(left):
                        break
        finally:
            for task in self._asking:
                task.cancel()

    async def _ask(self, name: str) -> None:
        asked = self._clock()
        try:
            sees = self._sees(asked)
            client = self._contacts[name].client
            answer = await client.call("leader", {"sees": sorted(sees)}, ANSWER_WITHIN)
            self._take(name, answer, asked, sees)
        except (PeerError, InvalidRecord) as exc:
            if asked >= self._direct.get(name, asked):  # else it has answered a later question
                self._failed(name, exc)
        except KeyError:
            pass  # it left
        finally:
            if asked >= self._since:  # no question from before this process was stopped
                self._asked.add(name)
            self._rests.wake()

    def _failed(self, name: str, exc: HaError) -> None:
        why = why_not(exc) if isinstance(exc, PeerRefused) else ""
        if isinstance(exc, (PeerRefused, NobodyListens)):  # it certainly does not elect now
            self._views.pop(name, None)
            self._direct.pop(name, None)
        # Otherwise shown once its last view no longer counts.
        self._apart[name] = Apart(why or reason_of(exc), out=bool(why))

    def _take(
        self, name: str, answer: Mapping[str, Any], asked: float, sees: frozenset[str]
    ) -> None:
        """Take the answer of *name*, except views of masters that this master *sees* itself."""
        view = from_row(answer.get("view"), asked)
        if view.name != name:
            raise InvalidRecord(f"malformed view: it calls itself {view.name!a}")
        told = [from_row(row, asked) for row in wire.field(answer, "others", list)]
        for each in (view, *(each for each in told if each.name not in sees)):
            before = self._views.get(each.name)
            if each.name in self._contacts and (before is None or before.at < each.at):
                self._views[each.name] = each
        self._direct[name] = max(asked, self._direct.get(name, asked))
        self._apart.pop(name, None)

    def _sees(self, now: float) -> frozenset[str]:
        return frozenset(
            name
            for name, at in self._direct.items()
            if now - at <= FRESH and name in self._contacts
        )

    def _fresh(self, now: float) -> dict[str, MasterView]:
        return {
            name: view
            for name, view in self._views.items()
            if name in self._contacts and now - view.at <= FRESH
        }

    def _own(self, now: float) -> MasterView:
        leads, order = self.standing.leads, self._settings.order
        return MasterView(self._name, self._unfit(), self._sees(now), leads, order, now)

    def _elect(self) -> None:
        """Elect anew, from the present views."""
        now = self._clock()
        if now - self._looked > FRESH:
            # Just started, or this process was stopped: first hear the master that leads.
            self._asked.clear()
            self._since = now
        own = self._own(now)
        self._looked = now
        unasked = self._contacts.keys() - self._asked
        new = now - self._since < FRESH + ANSWER_WITHIN  # by then all have asked this one again
        views = self._fresh(now)
        found = decide(own, views, now, unasked, new)
        reached = found.half
        apart = {
            name: self._apart.get(name, Apart("it does not answer"))
            for name in self._contacts
            if name not in reached
        }
        known = self._known
        same = (known.leader, known.leads) == (found.leader, found.lead)
        since, began = (known.since, known.began) if same else (time.time(), now)
        if found.lead and any(views[name].leads for name in reached - {self._name}):
            began = now  # processes with a lock of that other leader come here now
        self._known = Leadership(
            GROUP, found.leader, found.lead, found.why, since, apart, began=began
        )
        if not same:
            self._me.tell(known.leader, found.leader)


def to_row(view: MasterView, now: float) -> dict[str, Any]:
    """A row for a peer, with the age of the view in place of its time."""
    return {
        "name": view.name,
        "unfit": view.unfit[:LONGEST_REASON],
        "sees": sorted(view.sees),
        "leads": view.leads,
        "order": list(view.order),
        "age": max(0.0, now - view.at),
    }


def from_row(raw: Any, asked: float) -> MasterView:
    """
    The view in a peer's row.

    :param asked: when this master asked the peer; the view counts from its age before then.
    :raises InvalidRecord: the row is invalid.
    """
    if not isinstance(raw, Mapping):
        raise InvalidRecord("malformed view: a map was expected")
    age = wire.field(raw, "age", float)
    if not age >= 0:
        raise InvalidRecord("malformed view: its age is no number of seconds")
    return MasterView(
        _names([wire.field(raw, "name", str)])[0],
        wire.field(raw, "unfit", str)[:LONGEST_REASON],
        frozenset(_names(wire.texts(raw, "sees"))),
        wire.field(raw, "leads", bool),
        tuple(_names(wire.texts(raw, "order"))),
        asked - min(age, 2 * FRESH),
    )


def _names(names: list[str]) -> list[str]:
    if len(names) > MOST or not all(0 < len(name) <= LONGEST for name in names):
        raise InvalidRecord("malformed view: too many names, or one that no master has")
    return names
