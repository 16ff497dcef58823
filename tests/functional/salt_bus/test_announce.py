"""Our events on a bus: none, one that is restarted, one that is stuck."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import salt.config
import salt.payload
import salt.utils.event

from lab.wait import wait_for
from saltext_ha.salt_bus import bus_socket
from saltext_ha.salt_bus.announce import Announcer
from saltext_ha.salt_bus.proof import Proofs

PROOFS = Proofs(b"key")


@pytest.fixture
def opts() -> Iterator[dict[str, Any]]:
    with TemporaryDirectory() as short:  # a socket's path takes 107 bytes
        for folder in ("sock", "cache", "pki"):
            Path(short, folder).mkdir()
        options = salt.config.DEFAULT_MASTER_OPTS.copy()
        options |= {
            "__role": "master",
            "id": "m1_master",
            "sock_dir": f"{short}/sock",
            "cachedir": f"{short}/cache",
            "pki_dir": f"{short}/pki",
            "ipc_mode": "ipc",
        }
        yield options


def never(opts: dict[str, Any]) -> None:
    """It never was there."""


def crashed(opts: dict[str, Any]) -> None:
    """Its socket was left behind."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(f"{opts['sock_dir']}/master_event_pull.ipc")


@pytest.mark.parametrize("bus", [never, crashed])
def test_a_bus_that_is_not_there_costs_nothing(
    opts: dict[str, Any], bus: Callable[[dict[str, Any]], None]
) -> None:
    bus(opts)
    announce = Announcer(opts, PROOFS)
    try:
        for number in range(20):
            announce("key/accepted", {"id": f"web{number}"})
        # Of its thread alone: what other tests left may be at work.
        clock = time.pthread_getcpuclockid(announce._thread.ident or 0)
        used = time.clock_gettime(clock)
        time.sleep(3)  # what is measured is that nothing happens
        assert time.clock_gettime(clock) - used < 1
    finally:
        announce.stop()
    wait_for(lambda: not announce._thread.is_alive(), 60, "it has ended")


class Bus:
    """What Salt has at the other end: takes connections, and reads events from them."""

    def __init__(self, opts: dict[str, Any]) -> None:
        if opts["ipc_mode"] == "tcp":
            self._listener = socket.create_server(("127.0.0.1", 0))
            opts["tcp_master_pull_port"] = self._listener.getsockname()[1]
        else:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(f"{opts['sock_dir']}/master_event_pull.ipc")
            self._listener.listen()
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections.append(connection)
                threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection.makefile("rb") as stream:
            while size := stream.read(4):
                message = salt.payload.loads(stream.read(int.from_bytes(size, "big")))
                tag, data = salt.utils.event.SaltEvent.unpack(message["body"])
                self.heard.append((tag, data))

    def numbers(self) -> list[int]:
        return [data["number"] for _, data in self.heard]

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()

    def drop(self) -> None:
        """As if it were restarted."""
        while self.connections:
            connection = self.connections.pop()
            connection.shutdown(socket.SHUT_RDWR)
            connection.close()


@pytest.fixture(params=["ipc", "tcp"])
def bus(request: pytest.FixtureRequest, opts: dict[str, Any]) -> Iterator[Bus]:
    opts["ipc_mode"] = request.param
    bus = Bus(opts)
    yield bus
    bus.close()


@pytest.fixture
def announce(bus: Bus, opts: dict[str, Any]) -> Iterator[Announcer]:
    announce = Announcer(opts, PROOFS)
    yield announce
    announce.stop()


def test_events_come_whole_and_in_order(announce: Announcer, bus: Bus) -> None:
    for number in range(500):
        announce("key/accepted", {"number": number, "text": "x" * 5000})
    announce.fire("some/other", {"number": 500})
    wait_for(lambda: len(bus.heard) == 501, 60, "all are heard")
    assert bus.numbers() == list(range(501))
    tag, data = bus.heard[0]
    assert tag == "salt/ha/key/accepted"
    assert data["_stamp"]
    assert PROOFS.is_ours(tag, data)
    assert bus.heard[-1][0] == "some/other"
    assert not PROOFS.is_ours(*bus.heard[-1])
    assert len(bus.connections) == 1


def test_a_bus_that_is_restarted_hears_what_follows(announce: Announcer, bus: Bus) -> None:
    announce("key/accepted", {"number": 0})
    wait_for(lambda: bus.numbers() == [0], 60, "it is heard")
    bus.drop()
    announce("key/accepted", {"number": 1})
    announce("key/accepted", {"number": 2})
    wait_for(lambda: bus.numbers() == [0, 1, 2], 60, "they are heard, too")


def test_what_cannot_be_encoded_holds_nothing_up(
    announce: Announcer, bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    announce("key/accepted", {"number": object()})
    announce("key/accepted", {"number": 1})
    wait_for(lambda: bus.numbers() == [1], 60, "the next one is heard")
    assert "tag=salt/ha/key/accepted could not be fired" in caplog.text


def test_a_bus_that_takes_nothing_does_not_keep_the_thread_from_ending(
    opts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus_socket, "BROKEN_AFTER", 0.2)
    with socket.socket(socket.AF_UNIX) as frozen:
        frozen.bind(f"{opts['sock_dir']}/master_event_pull.ipc")
        frozen.listen()
        announce = Announcer(opts, PROOFS)
        for _ in range(100):
            announce("key/accepted", {"text": "x" * 100_000})
        announce.stop()
        wait_for(lambda: not announce._thread.is_alive(), 60, "it has ended")
