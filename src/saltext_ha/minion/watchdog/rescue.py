"""
Restarts a minion that is connected to no master and does not react to events.

This is the last resort, for a minion whose code got stuck while it moved to another master. Salt
3007.15 over TCP gets stuck if a connection breaks and comes back at once: the sign-ins of the old
and the new channel collide, and ``AsyncAuth._authenticate`` fails without ``_creds`` and does not
wake its waiters.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from saltext_ha.common.errors import reason_of
from saltext_ha.config.watchdog import patience
from saltext_ha.minion import binding, options
from saltext_ha.minion.binding import SeenMaster
from saltext_ha.minion.restarting import detached, processes, restart
from saltext_ha.minion.tcp_links import TcpLinks
from saltext_ha.minion.watchdog.journal import FAILED, Journal, RecordedMove

PAUSE = 600.0  # seconds from one restart to the next, at least
SPARE, POLL = 5.0, 0.5  # seconds
PROMPT = 1.0  # seconds
STUCK = "started anew: it was with no master, and went to none"


def quiet(opts: Mapping[str, Any], masters: int) -> float:
    """
    Seconds for which Salt may have no connection while it tries so many *masters*. It waits
    ``auth_timeout`` even if a host refuses connections; after all masters have failed, it waits
    ``acceptance_wait_time`` before it begins again.
    """
    each = patience(opts, "auth_timeout")
    return patience(opts, "acceptance_wait_time") + each * max(1, masters - 1)


def stuck(masters: Iterable[SeenMaster], links: Callable[[], TcpLinks], seconds: float) -> bool:
    """
    Whether the minion has been neither connected to a master nor connecting to one for *seconds*:
    it has no connection to a master's address, nor to a master's port at any address, and is making
    none.
    """
    known = tuple(masters)
    ips = {ip for each in known for ip in each.ips}
    ports = {port for each in known for port in (each.port, each.publish_port)}
    for _ in range(math.ceil((seconds + SPARE) / POLL)):
        now = links()
        if now.seen is None or any(
            ip in ips or port in ports for ip, port in now.seen | now.sought
        ):
            return False
        time.sleep(POLL)
    return True


def named(host: str | None) -> bool:
    """
    Whether the name service knows *host*, and answers at once. If it is unresponsive, Salt waits
    for it without a connection to any master, and would do so again after a restart.
    """
    begun = time.monotonic()
    try:
        return bool(host and binding.resolve(host)) and time.monotonic() - begun < PROMPT
    except (OSError, UnicodeError):
        return False


def due(entries: Iterable[RecordedMove], now: float) -> bool:
    """Whether the minion was not restarted recently; *now* is Unix time."""
    return not any(each.why == STUCK and abs(now - each.at) < PAUSE for each in entries)


def begin(minion: int, opts: Mapping[str, Any], journal: Journal, current: str) -> None:
    """
    Start a process that restarts the *minion*, which also ends the calling process; *current* is
    the master that the minion was connected to last.

    :raises HaError: there is no way to restart it.
    :raises OSError: the journal cannot be written.
    """
    way = restart.way(minion, opts, outlived=False)
    journal.add(RecordedMove(time.time(), None, current, STUCK))
    pidfile = str(opts.get("pidfile") or "")
    order = {"way": asdict(way), "minion": minion, "pidfile": pidfile, "current": current}
    order |= {"bus": options.bus(opts), "cachedir": str(journal.path.parents[1])}
    detached.start(__name__, order, restart.beside(way, minion))


def main() -> None:
    """The process that restarts the minion."""
    order = detached.take()

    def running() -> int | None:
        return processes.running(order["pidfile"], order["bus"], order["minion"])

    try:
        restart.restart(restart.read(order["way"]), running)
    except Exception as exc:  # no other place can report it
        failed = RecordedMove(time.time(), None, order["current"], f"{FAILED}: {reason_of(exc)}")
        Journal(order["cachedir"]).add(failed)


if __name__ == "__main__":
    main()
