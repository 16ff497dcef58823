"""
On which of the minion's connections is an answer missing?

A connection whose packets are dropped on the way stands until the kernel gives it up. Until then it
counts what stays without an answer: keepalive probes, and data sent again. Linux shows both in
``/proc/net/tcp`` (``timeout`` and ``retrnsmt``; ``get_tcp4_sock`` in ``net/ipv4/tcp_ipv4.c``).
The watchdog that sees it has the minion let go of the connection, before it breaks by itself: Salt
3007 with ``transport: tcp`` may get stuck then, because it connects again while it moves to another
master, and each of the two sign-ins spoils the other.
"""

from __future__ import annotations

import contextlib
import ipaddress
import struct
import sys
from pathlib import Path

from saltext_ha.minion.binding import Link, bare_ip

ESTABLISHED = "01"


def unanswered(pid: int) -> dict[Link, int]:
    """
    The remote ends of the connections of process *pid* on which an answer is missing, and to how
    many probes in a row. Data that are sent again count half: Linux first waits 0.2 s, then twice
    as long each time. Of several connections to the same end the best one counts: Salt may leave
    one behind when it connects anew. Empty where that cannot be seen.
    """
    found = dict[Link, int]()
    with contextlib.suppress(OSError):
        mine = _sockets(pid)
        for table in ("tcp", "tcp6"):
            with contextlib.suppress(FileNotFoundError):
                lines = Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii").splitlines()
                found.update(_counts(lines[1:], mine))
    return {link: count for link, count in found.items() if count}


def _counts(lines: list[str], mine: frozenset[str]) -> dict[Link, int]:
    found = dict[Link, int]()
    for line in lines:
        # sl local remote st tx:rx timer:when retrnsmt uid timeout inode …
        _, _, remote, state, _, _, again, _, probes, inode, *_ = line.split()
        if inode in mine and state == ESTABLISHED:
            link, count = _link(remote), max(int(probes), int(again, 16) // 2)
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


def _link(remote: str) -> Link:
    """``0100007F:1F90`` is 127.0.0.1, port 8080: words of 32 bits in the order of the host."""
    address, _, port = remote.partition(":")
    words = [int(address[at : at + 8], 16) for at in range(0, len(address), 8)]
    order = "<" if sys.byteorder == "little" else ">"
    packed = struct.pack(f"{order}{len(words)}I", *words)
    return bare_ip(str(ipaddress.ip_address(packed))) or "", int(port, 16)
