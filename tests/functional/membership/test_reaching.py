"""Whether a master is reached: by which of its addresses, and where it listens meanwhile."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from saltext_ha.membership.reaching import Reach, answering, unreached
from saltext_ha.transport.listener import PeerListener
from saltext_ha.transport.stranger_calls import shown
from tests.fixtures import named
from tests.loop import in_a_loop
from tests.peers import Master

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


@in_a_loop
async def test_a_host_of_which_one_address_is_dropped(
    m1: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As IPv6 by many a firewall, and names have both kinds of addresses."""

    def both(host: str, *_: Any, **__: Any) -> list[Any]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, m1.port))
            for each in (address, "127.0.0.1")
        ]

    async with m1.running():
        with dropping(m1.port) as address:
            monkeypatch.setattr(socket, "getaddrinfo", both)
            assert await unreached(f"https://m1.example:{m1.port}", m1.identity.fingerprint) == ""


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
