"""Our events, where there is no bus to fire them on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import salt.config

from saltext_ha.service.announce import Announcer


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


def test_a_bus_that_is_not_there_costs_nothing(opts: dict[str, Any]) -> None:
    announce = Announcer(opts)
    try:
        for number in range(20):
            announce("key/accepted", {"id": f"web{number}"})
        used = time.process_time()
        time.sleep(3)  # what is measured is that nothing happens
        assert time.process_time() - used < 0.05
    finally:
        began = time.monotonic()
        announce.stop()
        assert time.monotonic() - began < 2
