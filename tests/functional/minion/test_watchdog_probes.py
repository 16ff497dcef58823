"""Connections on which nobody answers any more, as the kernel of this host counts it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from lab import wait_for
from lab.forwarder import drop_packets
from saltext_ha.minion.watchdog import probes
from tests.tools import IPV6

pytestmark = pytest.mark.core


@contextmanager
def connection(here: str) -> Iterator[tuple[socket.socket, socket.socket, tuple[str, int]]]:
    """Both ends of a connection, and where its second one listens."""
    family = socket.AF_INET6 if ":" in here else socket.AF_INET
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server((here, 0), family=family))
        near = stack.enter_context(socket.create_connection(server.getsockname()[:2]))
        far = stack.enter_context(server.accept()[0])
        yield near, far, server.getsockname()[:2]


def unanswered(there: tuple[str, int]) -> int:
    return probes.unanswered(os.getpid()).get(there, 0)


@pytest.mark.parametrize("here", ["127.0.0.1", pytest.param("::1", marks=IPV6)])
def test_probes_without_an_answer(here: str) -> None:
    with connection(here) as (near, far, there):
        near.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
            near.setsockopt(socket.IPPROTO_TCP, option, 1)
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 20)
        assert unanswered(there) == 0
        drop_packets(far)
        wait_for(lambda: unanswered(there) >= 2, 60, "two probes without an answer")


def test_data_that_are_sent_again_and_again() -> None:
    with connection("127.0.0.1") as (near, far, there), connection("127.0.0.1") as (_, _, other):
        drop_packets(far)
        near.sendall(b"anybody?")
        wait_for(lambda: unanswered(there) >= 2, 60, "they have been sent often")
        assert unanswered(other) == 0


def test_one_that_was_left_behind_does_not_count_beside_one_that_works() -> None:
    with connection("127.0.0.1") as (near, far, there):
        drop_packets(far)
        near.sendall(b"anybody?")
        wait_for(lambda: unanswered(there) >= 1, 60, "it has been sent often")
        with socket.create_connection(there):
            assert unanswered(there) == 0
        assert unanswered(there) >= 1


def test_of_a_process_that_is_no_more_nothing_is_known() -> None:
    assert probes.unanswered(2**22 + 1) == {}
