"""Who loses a connection when there are too many."""

from __future__ import annotations

import asyncio
import ipaddress

import pytest

from saltext_ha.transport.connection import Acceptor, Connection, Limits

FULL = 4


def those_left(hosts: list[str]) -> list[str]:
    """The hosts that have a handshake, oldest first, after all of *hosts* began one in turn."""
    acceptor = Acceptor(lambda: None, asyncio.Protocol, lambda reason, host: None, Limits())
    for host in hosts:
        connection = Connection(acceptor)
        connection.host = host
        acceptor.enter(connection, acceptor.handshakes, FULL)
    return [connection.host for connection in acceptor.handshakes]


@pytest.mark.parametrize(
    ("hosts", "left"),
    [
        # The address with the most.
        (["10.0.0.1", *3 * ["10.0.0.9"], "10.0.0.2"], ["10.0.0.1", *2 * ["10.0.0.9"], "10.0.0.2"]),
        # A host has all addresses of its network.
        (
            ["2001:db8::1", *[f"2001:db8:0:9::{n}" for n in range(1, 9)]],
            ["2001:db8::1", *[f"2001:db8:0:9::{n}" for n in range(6, 9)]],
        ),
        # The others in that network are not affected.
        (
            ["2001:db8::1", *3 * ["2001:db8::9"], "2001:db8::2"],
            ["2001:db8::1", *2 * ["2001:db8::9"], "2001:db8::2"],
        ),
        # No network of that kind.
        (
            ["10.0.0.1", "10.0.0.2", "?", "fe80::1%eth0", "10.0.0.3"],
            ["10.0.0.2", "?", "fe80::1%eth0", "10.0.0.3"],
        ),
    ],
)
def test_who_has_the_most_loses_the_oldest(hosts: list[str], left: list[str]) -> None:
    assert those_left(hosts) == left


def test_a_flood_is_not_read_anew_for_each_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """To read an address of IPv6 takes 20 µs, and there may be hundreds of connections."""
    read: list[str] = []

    def counted(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
        read.append(host)
        return plain(host)

    plain = ipaddress.ip_address
    monkeypatch.setattr("saltext_ha.common.addresses.ipaddress.ip_address", counted)
    hosts = [f"2001:db8:77:{n:x}::1" for n in range(50)]
    those_left(hosts)
    assert len(read) <= len(hosts)
