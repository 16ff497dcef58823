"""
On which of the minion's connections are answers missing?

A connection whose packets are dropped stays established until the kernel gives up. Until then the
kernel counts what has no answer: keepalive probes, and data sent again. Linux shows both counts. By
them the watchdog makes the minion close the connection before it breaks by itself: Salt 3007 with
``transport: tcp`` may get stuck when it breaks, because it reconnects while it moves to another
master, and the two sign-ins break each other.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from saltext_ha.common import tcp_table
from saltext_ha.minion.tcp_links import Link


def unanswered(pid: int) -> dict[Link, int]:
    """
    Remote end of a connection of process *pid* on which answers are missing → how many probes in a
    row have none. Data sent again counts half: Linux first waits 0.2 s, then twice as long each
    time. Of several connections to one end the best counts: Salt may leave one when it reconnects.
    Empty if the connections cannot be seen.
    """
    found = dict[Link, int]()
    with contextlib.suppress(OSError):
        mine = _sockets(pid)
        for name in tcp_table.FILES:
            with contextlib.suppress(FileNotFoundError):
                lines = Path(f"/proc/{pid}/net/{name}").read_text(encoding="ascii").splitlines()
                found.update(_counts(lines, mine))
    return {link: count for link, count in found.items() if count}


def _counts(lines: list[str], mine: frozenset[str]) -> dict[Link, int]:
    found = dict[Link, int]()
    for each in tcp_table.established(lines):
        if each.inode in mine:
            link, count = tcp_table.end(each.remote), max(each.probes, each.sent_again // 2)
            found[link] = min(count, found.get(link, count))
    return found


def _sockets(pid: int) -> frozenset[str]:
    """The inodes of the sockets that *pid* has open."""
    inodes = set[str]()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            kind, _, rest = str(each.readlink()).partition(":[")
            if kind == "socket":
                inodes.add(rest.rstrip("]"))
    return frozenset(inodes)
