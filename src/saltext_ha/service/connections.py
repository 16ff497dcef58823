"""
How many are subscribed to this master's publisher? The kernel knows, by established connections.

Who they are it does not know: there may be a router or a proxy in between.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Mapping
from typing import Any

import psutil

from saltext_ha import binding


def subscribers(opts: Mapping[str, Any]) -> int | None:
    """
    The established connections to the publisher of the master with *opts*.

    :return: None where the system does not let us see them.
    """
    port = int(opts.get("publish_port") or binding.DEFAULT_PUBLISH_PORT)
    mine = _bound_to(opts)
    try:
        seen = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError, RuntimeError):
        return None
    return sum(
        1
        for each in seen
        if each.status == psutil.CONN_ESTABLISHED and each.laddr and each.laddr[1] == port
        if mine is None or binding.bare_ip(each.laddr[0]) == mine
    )


def is_ours(opts: Mapping[str, Any], address: str, port: int) -> bool:
    """Whether minions may know the master with *opts* by this address and request port."""
    if port != int(opts.get("ret_port") or binding.DEFAULT_REQUEST_PORT):
        return False
    ip, mine = binding.bare_ip(address), _bound_to(opts)
    if mine is not None or ip is None:
        return ip == mine
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
