"""Classifies addresses, and says which to bind."""

from __future__ import annotations

import functools
import ipaddress

WILDCARDS = ("::", "0.0.0.0")  # nosec B104
"""All addresses of this machine, for a listener; nobody reaches it there."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener on *host*."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def to_bind(host: str) -> str | list[str]:
    """
    The addresses to bind for a listener on *host*. asyncio takes ``::`` for IPv6 only; for Salt's
    own ports it means IPv4, too.
    """
    return list(WILDCARDS) if bare_ip(host) == "::" else host


def bare_ip(text: str) -> str | None:
    """*text* as a canonical IP address (no brackets, zone or IPv4 mapping); None for a name."""
    try:
        address = ipaddress.ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    return str(getattr(address, "ipv4_mapped", None) or address)


@functools.lru_cache(maxsize=1024)  # in a flood, asked of all connections for each new one
def network_of(host: str) -> str:
    """
    The addresses that a stranger has who calls from *host*: of IPv6 usually a network of 64 bits,
    of IPv4 one address.
    """
    ip = bare_ip(host) or ""
    return f"{int(ipaddress.IPv6Address(ip)) >> 64:x}::" if ":" in ip else host
