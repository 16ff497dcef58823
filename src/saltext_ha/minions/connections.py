"""
How many are subscribed to this master's publisher? The kernel knows, by established connections.

Who they are it does not know: there may be a router or a proxy in between.
"""

from __future__ import annotations

import contextlib
import ipaddress
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from saltext_ha.minion import binding

PROC = Path("/proc/self/net")


def subscribers(opts: Mapping[str, Any]) -> int | None:
    """
    The established connections to the publisher of the master with *opts*.

    :return: None where the system does not let us see them.
    """
    port = int(opts.get("publish_port") or binding.DEFAULT_PUBLISH_PORT)
    mine = _bound_to(opts)
    try:
        ends = Counter(_of_linux(port) if PROC.exists() else _of_any_system(port))
    except (psutil.Error, OSError, ValueError):
        return None
    return sum(count for end, count in ends.items() if mine is None or _readable(end) == mine)


def _of_linux(port: int) -> Iterator[str | bytes]:
    """Local ends of established connections to *port*; psutil would look into every process."""
    local, established = b":%04X" % port, b"01"
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError), (PROC / name).open("rb") as file:
            for line in file:
                # sl, local_address, rem_address, st
                fields = line.split(None, 4)
                if fields[3] == established and fields[1].endswith(local):
                    yield fields[1].partition(b":")[0]


def _of_any_system(port: int) -> Iterator[str | bytes]:
    for each in psutil.net_connections(kind="tcp"):
        if each.status == psutil.CONN_ESTABLISHED and each.laddr and each.laddr[1] == port:
            yield str(each.laddr[0])


def _readable(end: str | bytes) -> str | None:
    if isinstance(end, str):
        return binding.bare_ip(end)
    # Words of four bytes, each in the order of this machine.
    raw = bytes.fromhex(end.decode("ascii"))
    words = [raw[i : i + 4] for i in range(0, len(raw), 4)]
    packed = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    return binding.bare_ip(str(ipaddress.ip_address(packed)))


def is_ours(opts: Mapping[str, Any], address: str, port: int) -> bool:
    """Whether minions may know the master with *opts* by this address and request port."""
    if port != int(opts.get("ret_port") or binding.DEFAULT_REQUEST_PORT):
        return False
    ip, mine = binding.bare_ip(address), _bound_to(opts)
    if ip is None or mine is not None:
        return ip is not None and ip == mine
    with contextlib.suppress(psutil.Error, OSError):
        return any(
            binding.bare_ip(each.address) == ip
            for found in psutil.net_if_addrs().values()
            for each in found
        )
    return False


def _bound_to(opts: Mapping[str, Any]) -> str | None:
    """The one address that the master listens at; None: at all of them."""
    ip = binding.bare_ip(str(opts.get("interface") or ""))
    return None if ip is None or ipaddress.ip_address(ip).is_unspecified else ip
