"""
The TCP connections of this host, as Linux writes them in ``/proc/net/tcp`` and ``/proc/net/tcp6``.
"""

from __future__ import annotations

import ipaddress
import struct
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from saltext_ha.common.addresses import bare_ip

#: The files in ``/proc/PID/net``; without IPv6 the second is missing.
FILES = ("tcp", "tcp6")


class TcpConnection(NamedTuple):
    """
    An established connection. ``local`` and ``remote`` are as the kernel writes them, for
    :func:`end`.

    ``sent_again`` counts how often in a row data was sent again without an answer, ``probes`` does
    so for keepalive probes (``retrnsmt`` and ``timeout`` there; ``get_tcp4_sock`` in
    ``net/ipv4/tcp_ipv4.c``). ``inode`` is the socket's.
    """

    local: str
    remote: str
    sent_again: int
    probes: int
    inode: str


def established(lines: Iterable[str]) -> Iterator[TcpConnection]:
    """The connections in the lines of one file, whose first line is a heading."""
    for line in lines:
        # sl local remote st tx:rx timer:when retrnsmt uid timeout inode …
        _, local, remote, state, _, _, again, _, probes, inode, *_ = line.split()
        if state == "01":
            yield TcpConnection(local, remote, int(again, 16), int(probes), inode)


def listening(lines: Iterable[str]) -> Iterator[int]:
    """The ports at which somebody listens, by the lines of one file."""
    return (port_of(line.split(maxsplit=2)[1]) for line in lines if " 0A " in line)


def port_of(written: str) -> int:
    """``0100007F:1F90`` is port 8080."""
    return int(written.rpartition(":")[2], 16)


def end(written: str) -> tuple[str, int]:
    """
    ``0100007F:1F90`` is 127.0.0.1, port 8080: words of 32 bits in the order of the host.

    :return: the address as :func:`.bare_ip` writes it, and the port.
    """
    address = written.partition(":")[0]
    words = [int(address[at : at + 8], 16) for at in range(0, len(address), 8)]
    order = "<" if sys.byteorder == "little" else ">"
    packed = struct.pack(f"{order}{len(words)}I", *words)
    return bare_ip(str(ipaddress.ip_address(packed))) or "", port_of(written)
