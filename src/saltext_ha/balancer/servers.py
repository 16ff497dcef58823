"""Where the salt-api and the status listener of one master are."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from saltext_ha.common.addresses import is_loopback
from saltext_ha.common.errors import HaError, InvalidRecord
from saltext_ha.common.validators import whole
from saltext_ha.config.mapping import HaConfig
from saltext_ha.config.salt_api import Api, api_of

# These values go into a configuration that a balancer reads as root.
HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
# Without a scope (fe80::1%eth0): a scope may be any text, line breaks included, and that of another
# machine means nothing here.
_ADDRESS = re.compile(r"[0-9A-Fa-f:.]+")


@dataclass(frozen=True)
class Address:
    """A TCP port that speaks HTTP."""

    host: str
    port: int
    tls: bool

    @property
    def bracketed(self) -> str:
        """The host, with brackets around an IPv6 address."""
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def netloc(self) -> str:
        """``host:port``, with brackets around an IPv6 address."""
        return f"{self.bracketed}:{self.port}"

    @property
    def is_ip(self) -> bool:
        """Whether its host is an IP address, and not a name that a certificate could be for."""
        return _is_address(self.host)


@dataclass(frozen=True)
class Server:
    """
    One master, as a balancer calls it.

    :param api: None where no salt-api is configured, or with a *problem* where it is not known.
    :param status: None if it has none, or none that other machines can reach.
    :param prefix: the path below which its salt-api is; empty: at the root of its URL.
    :param problem: why this is not certain; empty if the master told it itself.
    """

    name: str
    api: Address | None
    status: Address | None = None
    prefix: str = ""
    problem: str = ""


def of_master(opts: Mapping[str, Any], config: HaConfig) -> Server:
    """The master that *opts* and *config* configure."""
    own = api_of(opts)
    api = _api(own, config.address)
    status = None
    if config.status is not None:
        host = _seen(config.status.host, config.address)
        status = Address(host, config.status.port, config.status.certificate is not None)
    prefix = own.prefix if own else ""
    return Server(config.name, api, status if _meet(api, status) else None, prefix)


def to_wire(server: Server) -> dict[str, Any]:
    """The answer to a peer that asks."""
    addresses = {
        kind: address and {"host": address.host, "port": address.port, "tls": address.tls}
        for kind, address in (("api", server.api), ("status", server.status))
    }
    return {**addresses, "prefix": server.prefix}


def from_wire(name: str, raw: Mapping[str, Any]) -> Server:
    """
    The peer *name*, which answered *raw*.

    :raises InvalidRecord: it makes no sense.
    """
    try:
        prefix = str(raw.get("prefix") or "")  # older releases tell none
        return Server(name, _read(raw["api"]), _read(raw["status"]), prefix)
    except (KeyError, TypeError, ValueError):
        raise InvalidRecord("its answer makes no sense") from None


def assumed(name: str, host: str, like: Address, problem: str) -> Server:
    """
    A master that did not answer, with a salt-api *like* that of others.

    :param host: of its URL, which it chose itself.
    :raises HaError: the host cannot be used in a configuration.
    """
    try:
        return Server(name, Address(check_host(host), like.port, like.tls), problem=problem)
    except ValueError as exc:
        raise HaError(
            f"{name} could not be asked, and its URL has a host that a balancer cannot be told: "
            f"{host!r:.80}: {exc}; start it, or take it out with salt-run ha.remove_peer {name}"
        ) from None


def check_host(value: Any) -> str:
    """
    Return *value* if it is a host name or an IP address, and nothing else.

    :raises ValueError: it is not.
    """
    host = str(value).strip("[]")
    if not _is_address(host) and not HOST.fullmatch(host):
        raise ValueError("takes a host name or an IP address")
    return host


def _api(api: Api | None, address: str) -> Address | None:
    if api is None:
        return None
    host = address if api.everywhere else _seen(api.host, address)
    return Address(host, api.port, api.certificate is not None)


def _seen(host: str, address: str) -> str:
    """The host at which others reach what listens on *host* of the master at *address*."""
    host = host.strip("[]")
    try:
        return address if not host or ipaddress.ip_address(host).is_unspecified else host
    except ValueError:
        return host


def _meet(api: Address | None, status: Address | None) -> bool:
    """Whether a balancer that reaches the salt-api also reaches the status listener."""
    if api is None or status is None:
        return False
    return is_loopback(api.host) or not is_loopback(status.host)


def _read(raw: Any) -> Address | None:
    if raw is None:
        return None
    return Address(check_host(raw["host"]), whole(1, 65535)(raw["port"]), raw["tls"] is True)


def _is_address(host: str) -> bool:
    if not _ADDRESS.fullmatch(host):
        return False
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
