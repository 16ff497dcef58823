"""
How many minions are subscribed to this master's publisher, by its established connections.

The kernel does not know which ones: there may be a router or a proxy in between.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from saltext_ha.common import tcp_table
from saltext_ha.common.addresses import bare_ip
from saltext_ha.minion import binding

PROC = Path("/proc/self/net")


def subscribers(opts: Mapping[str, Any]) -> int | None:
    """Count the connections to the publisher of the master with *opts*; None: they are not seen."""
    port, mine = _port(opts), _bound_to(opts)
    try:
        ends = (_of_linux if PROC.exists() else _of_any_system)(port)
        return sum(count for ip, count in ends if mine is None or ip == mine)
    except (psutil.Error, OSError, ValueError):
        return None


def audience(opts: Mapping[str, Any]) -> int | None:
    """
    :func:`subscribers`, to be relied on: 0 only if the publisher is seen to listen. Otherwise None:
    this process may see the connections of another network namespace.
    """
    count = subscribers(opts)
    return None if count == 0 and not _is_served(_port(opts)) else count


def _is_served(port: int) -> bool:
    """Whether somebody listens at *port*, as Linux shows it; False on other systems."""
    for name in tcp_table.FILES:
        with contextlib.suppress(OSError, ValueError), (PROC / name).open(encoding="ascii") as file:
            if port in tcp_table.listening(file):
                return True
    return False


def _port(opts: Mapping[str, Any]) -> int:
    return int(opts.get("publish_port") or binding.DEFAULT_PUBLISH_PORT)


def _of_linux(port: int) -> Iterator[tuple[str, int]]:
    """Local addresses of connections to *port*, and how many. psutil would take far longer."""
    for name in tcp_table.FILES:
        with contextlib.suppress(FileNotFoundError), (PROC / name).open(encoding="ascii") as file:
            every = (each.local for each in tcp_table.established(file))
            here = Counter(local for local in every if tcp_table.port_of(local) == port)
            for local, count in here.items():
                yield tcp_table.end(local)[0], count


def _of_any_system(port: int) -> Iterator[tuple[str | None, int]]:
    for each in psutil.net_connections(kind="tcp"):
        if each.status == psutil.CONN_ESTABLISHED and each.laddr and each.laddr[1] == port:
            yield bare_ip(str(each.laddr[0])), 1


def is_ours(opts: Mapping[str, Any], address: str, port: int) -> bool:
    """Whether minions may know the master with *opts* by this address and request port."""
    if port != int(opts.get("ret_port") or binding.DEFAULT_REQUEST_PORT):
        return False
    ip, mine = bare_ip(address), _bound_to(opts)
    if ip is None or mine is not None:
        return ip is not None and ip == mine
    with contextlib.suppress(psutil.Error, OSError):
        return any(
            bare_ip(each.address) == ip
            for found in psutil.net_if_addrs().values()
            for each in found
        )
    return False


def _bound_to(opts: Mapping[str, Any]) -> str | None:
    """The one address that the master listens at; None: at all of them."""
    ip = bare_ip(str(opts.get("interface") or ""))
    return None if ip is None or ipaddress.ip_address(ip).is_unspecified else ip
