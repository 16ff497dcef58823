"""
Carries out ``ha.failover``.

The job that asks for a move must return first, over the connection that the move closes. So a
separate process waits until the job has ended, moves the minion and reports the result.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psutil

from saltext_ha.common.addresses import bare_ip
from saltext_ha.common.errors import HaError
from saltext_ha.minion import binding, options, tcp_links
from saltext_ha.minion.restarting import detached
from saltext_ha.minion.watchdog.journal import ASKED, Journal, RecordedMove
from saltext_ha.minion.watchdog.order import Order
from saltext_ha.minion.watchdog.run import Site, site, tell

TIMEOUT = 3.0
LINGER = 3.0  # seconds for the return of a job that runs in a thread of the minion
# Seconds for the end of a job that runs in a process. On 3007.15 it waits half a minute for the
# confirmation of its return, which the master already has.
END_WITHIN = 5.0


@dataclass(frozen=True)
class MovePlan:
    """A possible move: from one entry of the configuration to another."""

    source: str
    target: str


def plan(place: Site, to: str | None) -> MovePlan:
    """
    The move of the minion of *place*: from its master to its target.

    :param to: the wanted master: its entry, its host or the first part of that, a name for it or
        its address; None for the next one that answers.
    :raises HaError: the minion cannot be moved, or there is no target; says why.
    """
    kind = place.running.type
    if kind not in ("failover", "distributed"):
        hot = "this minion is bound to all its masters at once (hot-hot)"
        what = hot if kind == "list" else f"this minion has master_type {kind!r}"
        raise HaError(f"{what}; only one with master_type failover or distributed can be moved")
    look = place.looker.look(place.masters)
    if look.current is None:
        raise HaError(place.looker.unseen or "the minion is connected to none of its masters")
    if to is None:
        turn = place.mover.turn(place.master(look.current))
        turn = tuple(each for each in turn if each != look.current)
        target = next((each for each in turn if look.answers.get(each)), None)
        if target is None:
            reasons = "; ".join(f"{each}: {place.looker.notes.get(each)}" for each in turn)
            raise HaError(f"no other master answers ({reasons or 'there is none'})")
    else:
        target = _named(place, str(to))  # Salt reads to=2 as a number
        if target != look.current and not look.answers.get(target):
            raise HaError(f"{target} does not answer: {place.looker.notes.get(target)}")
    refusal = None if target == look.current else place.looker.refusal(target)
    if refusal:
        raise HaError(f"{target} would not let this minion in: {refusal.why}")
    for each in _passed(place, look.current, target):
        hold = place.looker.refusal(each) if look.answers.get(each) else None
        if hold and hold.final:
            raise HaError(
                f"on the way to {target} Salt tries {each}, which would keep this minion: "
                f"{hold.why}"
            )
        if look.answers.get(each) and not hold and _begins_anew(place, look.current):
            raise HaError(
                f"{target} cannot be reached: as its masters are written with ports, or with IPv6 "
                "addresses not in their short form, Salt begins with the first one of the list "
                f"each time, and takes {each}; write bare hosts, and the port as master_port"
            )
    return MovePlan(look.current, target)


def _passed(place: Site, source: str, target: str) -> tuple[str, ...]:
    """The masters that Salt tries before *target*, unless it goes directly to the first one."""
    if target in (place.first, source):
        return ()
    turn = place.mover.turn(place.master(source))
    return turn[: turn.index(target)]


def _begins_anew(place: Site, source: str) -> bool:
    """Whether Salt does not continue after *source* in its list, but starts at the beginning."""
    return place.master(source).host not in place.mover.order


def _named(place: Site, to: str) -> str:
    """
    The entry that *to* means. A minion has only the name service and its own configuration, in
    which ``ha_masters`` may have the names of its masters in their group.
    """
    masters = place.book.masters
    told = place.running.names.get(to)
    named = [each for each in masters if to in (each.configured, each.host)]
    if told and not named:
        named = [each for each in masters if told in (each.configured, each.host)]
    if not named:
        with contextlib.suppress(OSError, UnicodeError):
            # A name that the name service knows, though the configuration has another one.
            ips = binding.resolve(to)
            named = [each for each in masters if ips & each.ips]
    if not named:
        named = [each for each in masters if to == _first_part(each.host)]
    if len(named) != 1 or named[0].configured is None:
        which = "names more than one of" if named else "is none of"
        raise HaError(
            f"to: {to!r} {which} this minion's masters: {', '.join(map(_shown, masters))}; to= "
            "takes an entry as its configuration has it, the address of one, its host or the first "
            "part of that, a name for it that can be looked up on the minion, or what it is called "
            f"in its group where {options.NAMES}: of its configuration says so "
            f"({', '.join(place.running.names) or 'this one has none'}); "
            "salt-run ha.peers shows where each of them is"
        )
    return named[0].configured


def _first_part(host: str | None) -> str | None:
    """``m2`` of ``m2.example.com``; None of an address."""
    return host.partition(".")[0] if host and not bare_ip(host) else None


def _shown(master: binding.SeenMaster) -> str:
    """The entry; if it is a name, with its addresses."""
    named = master.host and not bare_ip(master.host)
    ips = ", ".join(sorted(master.ips)) if named else ""
    return f"{master.configured} ({ips})" if ips else str(master.configured)


def launch(
    opts: Mapping[str, Any], target: str, minion: int, job: int | None, order: Order
) -> None:
    """
    Start the process that makes the move.

    :param minion: the minion's process.
    :param job: the process of the job that asks, None if that is the minion itself.
    :param order: the list of masters that Salt keeps.
    :raises HaError: it cannot be started.
    """
    task = {
        "conf_file": opts["conf_file"],
        "id": opts["id"],
        "proxy": options.is_proxy(opts),
        "target": target,
        "minion": minion,
        "job": job,
        "order": list(order),
    }
    detached.start(__name__, task)


def main() -> None:
    """The process that makes the move."""
    task = detached.take()
    opts = options.read_again(task["conf_file"], task["id"], task["proxy"])
    minion = int(task["minion"])
    place = site(opts, lambda: tcp_links.established(minion), TIMEOUT)
    place.mover.order = tuple(task["order"])
    if task["job"]:
        with contextlib.suppress(psutil.Error):
            psutil.Process(task["job"]).wait(END_WITHIN)
    else:
        time.sleep(LINGER)
    execute(place, opts, task["target"])


def execute(place: Site, opts: Mapping[str, Any], target: str) -> None:
    """Move the minion to *target*, note the move, and tell the master where it arrived."""
    source = place.looker.bound()
    if source is None or source.configured in (None, target):
        return
    started = time.monotonic()
    reached = place.mover.move(source, target, place.limit)
    took = time.monotonic() - started
    if reached is None or reached.configured in (None, source.configured):
        return
    order = list(place.mover.order)
    entry = RecordedMove(
        time.time(), source.configured, str(reached.configured), ASKED, round(took, 1), order
    )
    with contextlib.suppress(OSError):  # the disk is full: tell the master anyway
        Journal(str(opts["cachedir"])).add(entry)
    place.looker.last = reached.configured
    tell(place, str(opts["id"]), str(source.configured), str(reached.configured), ASKED, took)
    time.sleep(LINGER)
    place.mover.tidy(map(place.master, place.masters))


if __name__ == "__main__":
    main()
