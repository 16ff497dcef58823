"""
Moves a minion to another master.

It uses Salt's own means, the same on 3006, 3007 and 3008: two events on the minion's bus.
``__master_disconnected`` makes the minion drop both connections, put that master at the end of its
list and take the first one that accepts it; ``__master_failback`` starts with the first master of
the configuration. Nothing is restarted, and running jobs continue.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from saltext_ha.minion.binding import SeenMaster
from saltext_ha.minion.watchdog import order as orders
from saltext_ha.minion.watchdog.order import Order

log = logging.getLogger(__name__)

DISCONNECTED = "__master_disconnected"
FAILBACK = "__master_failback"
POLL = 0.1
HEEDED = 5.0  # seconds within which Salt has begun to move, even if it is busy


class Mover:
    """
    Moves one minion.

    :param opts: the minion's configuration.
    :param bound: returns the master that the minion is subscribed to now, or None.
    :param hosts: returns what Salt may call a master.
    :param first: the entry of the master with which Salt starts; None if unknown.
    :param configured: the entries of all masters.
    """

    order: Order
    """Salt's present list of masters, as far as known."""

    def __init__(
        self,
        opts: Mapping[str, Any],
        bound: Callable[[], SeenMaster | None],
        hosts: Callable[[SeenMaster], Sequence[str | None]],
        first: str | None,
        configured: Order,
    ) -> None:
        self.opts, self.bound, self.hosts = opts, bound, hosts
        self.first, self.configured = first, configured
        self.order = orders.kept(opts.get("local_masters"), configured)

    def turn(self, source: SeenMaster) -> Order:
        """The masters in the order in which Salt tries them when *source* fails."""
        return orders.after(self.order, self.configured, source.host)

    def move(self, source: SeenMaster, target: str | None, limit: float) -> SeenMaster | None:
        """
        Move the minion away from *source*, repeatedly until it is connected to *target* (an entry).

        Returns the master that it is connected to in the end, None if there is none after *limit*
        seconds. Salt skips masters that do not accept the minion, so it may not reach *target*.
        """
        end = time.monotonic() + limit
        here, passed = source, list[str | None]()
        # Salt goes through a master that has two names twice.
        while passed.count(here.configured) < len(self.hosts(here)):
            passed.append(here.configured)
            reached = self._step(here, target, end)
            if reached is None:
                return None
            if target is None or reached.configured == target:
                return reached
            here = reached
        return here

    def _step(self, here: SeenMaster, target: str | None, end: float) -> SeenMaster | None:
        if target is not None and target == self.first and target != here.configured:
            self.fire(FAILBACK, {"master": target})
            if reached := self._arrival(here, end):
                self.order = self.configured
            return reached
        hosts = self.hosts(here)
        for host in hosts:
            # Salt ignores an event about a master that it calls otherwise.
            self.fire(DISCONNECTED, {"master": host})
            until = end if host == hosts[-1] else min(end, time.monotonic() + HEEDED)
            if reached := self._arrival(here, until):
                self.order = orders.after(self.order, self.configured, host)
                return reached
        return None

    def _arrival(self, here: SeenMaster, end: float) -> SeenMaster | None:
        """The master where the minion arrives, after its present connection is gone."""
        gone = self.bound() is None
        while time.monotonic() < end:
            now = self.bound()
            gone = gone or now is None
            if now and (gone or now.configured != here.configured):
                return now
            time.sleep(POLL)
        return None

    def tidy(self, masters: Iterable[SeenMaster]) -> None:
        """
        Remove the checks of *masters* that 3006 and 3007 schedule at the end of a move, even if
        they are switched off, and then without a pause.

        All that the minion knows, not only the one that it reached: a move may lead past others,
        and at each move Salt takes its schedule from a copy that modules were loaded with, in which
        a check is still there that was removed since.
        """
        if not self.opts.get("master_alive_interval"):
            checks = dict.fromkeys(f"__master_alive_{each.host}" for each in masters)
            for name in (*checks, FAILBACK):
                self.fire("manage_schedule", {"func": "delete", "name": name, "persist": True})

    def tell(self, tag: str, data: Mapping[str, Any]) -> None:
        """Have the minion send an event to its master, over its own connection."""
        event = {"data": dict(data), "tag": tag, "events": None, "pretag": None}
        self.fire("fire_master", event)

    def fire(self, tag: str, data: Mapping[str, Any]) -> None:
        """Fire an event on the minion's own bus."""
        import salt.utils.event

        with salt.utils.event.get_event("minion", opts=dict(self.opts), listen=False) as bus:
            if not bus.fire_event(dict(data), tag):
                log.warning("not fired on the minion's bus: %s", tag)
