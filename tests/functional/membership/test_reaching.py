"""Whether a master is reached: by which of its addresses, and where it listens meanwhile."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from saltext_ha.common.errors import NobodyListens
from saltext_ha.membership.reaching import Reach, answering, unreached
from saltext_ha.transport.listener import PeerListener
from saltext_ha.transport.stranger_calls import shown
from tests.fixtures import named
from tests.loop import in_a_loop
from tests.peers import Master
from tests.tools import IPV6

(m1,) = named(Master, "m1")


@contextlib.contextmanager
def dropping(port: int) -> Iterator[str]:
    """An address at which connections to *port* are not even refused."""
    address = "127.0.0.77"
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.create_server((address, port), backlog=0))
        full.setblocking(False)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex((address, port))
        yield address


def resolve_to(addresses: list[str], port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every host has these *addresses*, as many a name has one of IPv6 and one of IPv4."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)


@in_a_loop
async def test_a_host_of_which_one_address_is_dropped(
    m1: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As IPv6 by many a firewall."""
    async with m1.running():
        with dropping(m1.port) as address:
            resolve_to([address, "127.0.0.1"], m1.port, monkeypatch)
            assert await unreached(f"https://m1.example:{m1.port}", m1.identity.fingerprint) == ""


@in_a_loop
async def test_a_host_with_two_addresses_where_nobody_listens(
    m1: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of ``ha: masters`` founds the group at once if all others refuse."""
    resolve_to(["127.0.0.1", "127.0.0.2"], m1.port, monkeypatch)
    with pytest.raises(NobodyListens, match=f"^m1.example:{m1.port} refused the connection$"):
        await shown(f"https://m1.example:{m1.port}")


@IPV6
@in_a_loop
async def test_all_addresses_are_those_of_ipv4_too(m1: Master) -> None:
    """As for Salt's own ports, with ``interface: '::'``."""
    urls = [f"https://{host}:{m1.port}" for host in ("[::1]", "127.0.0.1")]
    async with answering(Reach("::", m1.port), m1.identity):
        assert [await shown(url) for url in urls] == 2 * [m1.identity.fingerprint]
    listener = PeerListener(m1.identity, m1.trust, {}, "::", m1.port)
    await listener.start()
    try:
        assert [await shown(url) for url in urls] == 2 * [m1.identity.fingerprint]
    finally:
        await listener.stop()
