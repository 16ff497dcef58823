"""Our events, where there is no bus to fire them on."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import salt.config
import salt.utils.event

from lab.wait import wait_for
from saltext_ha.salt_bus.announce import Announcer
from saltext_ha.salt_bus.proof import Proofs


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
    announce = Announcer(opts, Proofs(b"key"))
    try:
        for number in range(20):
            announce("key/accepted", {"id": f"web{number}"})
        used = time.process_time()
        time.sleep(3)  # what is measured is that nothing happens
        assert time.process_time() - used < 1
    finally:
        began = time.monotonic()
        announce.stop()
        assert time.monotonic() - began < 2


def test_a_bus_whose_socket_is_not_there_is_not_tried(
    opts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []
    monkeypatch.setattr(
        salt.utils.event.SaltEvent, "connect_pull", lambda bus, timeout: tried.append(bus)
    )
    announce = Announcer(opts, Proofs(b"key"))
    announce("key/accepted", {"id": "web1"})
    time.sleep(0.5)
    assert not tried
    crashed(opts)
    wait_for(lambda: tried, 60, "it tries the bus")
    announce.stop()
