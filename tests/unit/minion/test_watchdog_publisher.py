"""Publishers that speak, and such that do not."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
import zmq

from saltext_ha.minion.binding import SeenMaster
from saltext_ha.minion.watchdog.publisher import problem, problems, reached

pytestmark = pytest.mark.core

HERE = "127.0.0.1"


def master(port: int | None, name: str = "m1") -> SeenMaster:
    return SeenMaster(name, HERE, 4506, frozenset({HERE}), port)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server((HERE, 0)) as sock:
        yield sock


def port_of(sock: socket.socket) -> int:
    return int(sock.getsockname()[1])


@pytest.fixture
def publisher() -> Iterator[int]:
    with zmq.Context() as context, context.socket(zmq.PUB) as sock:
        yield sock.bind_to_random_port(f"tcp://{HERE}")


def test_one_that_works_greets(publisher: int) -> None:
    assert problem(master(publisher), 5) is None


def test_who_can_be_reached(publisher: int, listener: socket.socket) -> None:
    with socket.create_server((HERE, 0)) as gone:
        nobody = port_of(gone)
    assert reached("zeromq", [master(port_of(listener))], 0.3) == [False]
    ways = [master(port) for port in (publisher, nobody, None)]
    assert reached("zeromq", ways, 5) == [True, False, None]
    # Nothing but zeromq greets: somebody who accepts is all that can be seen.
    ways = [master(port) for port in (publisher, port_of(listener), nobody, None)]
    assert reached("tcp", ways, 5) == [True, True, False, None]
    assert reached("zeromq", [], 5) == []


def test_of_a_name_with_several_addresses_the_one_in_use_is_looked_at(publisher: int) -> None:
    both = replace(master(publisher), ips=frozenset({HERE, "127.0.0.2"}))
    assert problem(both, 5) is None
    assert problem(replace(both, ip=HERE), 5) is None
    gone = replace(both, ip="127.0.0.2")
    assert "refused" in str(problem(gone, 5))
    assert [reached(way, [gone], 5) for way in ("zeromq", "tcp")] == [[False], [False]]


def test_one_that_hangs_accepts_and_says_nothing(listener: socket.socket) -> None:
    started = time.monotonic()
    port = port_of(listener)
    assert problem(master(port), 0.3) == f"its publisher (port {port}) says nothing"
    assert 0.25 < time.monotonic() - started < 20


def test_one_that_drips_does_not_take_longer(listener: socket.socket) -> None:
    over = threading.Event()

    def drip() -> None:
        sock, _ = listener.accept()
        with sock:
            while not over.wait(0.1):
                try:
                    sock.send(b"\xff")
                except OSError:
                    return

    thread = threading.Thread(target=drip)
    thread.start()
    started = time.monotonic()
    try:
        assert "says nothing" in str(problem(master(port_of(listener)), 0.35))
        assert time.monotonic() - started < 20
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("said", [b"", b"\xff", b"SSH-2.0-OpenSSH_9.2", b"\xff" * 10])
def test_another_service_is_no_publisher(listener: socket.socket, said: bytes) -> None:
    def speak() -> None:
        sock, _ = listener.accept()
        with sock:
            sock.sendall(said)

    thread = threading.Thread(target=speak)
    thread.start()
    assert "does not speak ZeroMQ" in str(problem(master(port_of(listener)), 5))
    thread.join()


def test_nobody_listens(listener: socket.socket) -> None:
    port = port_of(listener)
    listener.close()
    assert problem(master(port), 5) == f"its publisher (port {port}): Connection refused"


def test_all_are_tried_at_once_and_what_is_unknown_is_no_problem(
    listener: socket.socket, publisher: int
) -> None:
    dumb = [master(port_of(listener), f"m{number}") for number in range(8)]
    started = time.monotonic()
    nowhere = SeenMaster("nowhere", "m9.example", 4506, frozenset(), 4505)
    unknown = [nowhere, master(None, "unknown")]
    found = problems("zeromq", [*unknown, *dumb], 1.5)
    assert time.monotonic() - started < 10, "one after the other takes 12 s"
    assert set(found) == {each.configured for each in dumb}
    good = master(publisher, "good")
    assert problems("zeromq", [*unknown, good], 5) == {}
    assert problems("tcp", [*dumb, *unknown, good], 5) == {}
    assert problems("zeromq", [], 5) == {}
