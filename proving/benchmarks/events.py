"""The processor time of firing an event: as the engine does, and by Salt's own client."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import salt.config
import salt.utils.event

from lab import Lab
from lab.wait import wait_for
from proving.benchmarks.report import Row
from saltext_ha.salt_bus.announce import Announcer
from saltext_ha.salt_bus.proof import Proofs

EVENTS = 2_000
PATIENCE = 120.0
TAG = "salt/ha/key/accepted"
DATA = {
    "id": "web00001",
    "act": "accepted",
    "before": "pending",
    "fingerprint": ":".join(["5a"] * 32),
    "master": "m1",
}


def measure(root: Path, runs: int) -> list[Row]:
    """
    Fire events on the bus of one real master, both ways in turn; rows of processor time for one.

    The number of events is in the column of keys.
    """
    ours: list[float] = []
    salts: list[float] = []
    with Lab(root / "lab") as lab:
        master = lab.add_master("m1", engine=False)
        lab.start_all()
        opts = salt.config.master_config(str(master.config_file))
        announcer = Announcer(opts, Proofs(b"key"))
        with salt.utils.event.get_event(
            "master", sock_dir=opts["sock_dir"], opts=opts, listen=False
        ) as client:
            for _ in range(runs):
                ours.append(_work(lambda: _by_us(announcer)))
                salts.append(_work(lambda: _by_salt(client)))
        announcer.stop()
    return [
        Row("event on the bus, work of the engine", EVENTS, ours),
        Row("event on the bus by Salt's client, work", EVENTS, salts),
    ]


def _work(fire: Callable[[], None]) -> float:
    began = time.process_time()
    fire()
    return (time.process_time() - began) * 1000 / EVENTS


def _by_us(announcer: Announcer) -> None:
    for _ in range(EVENTS):
        announcer.fire(TAG, DATA)
    wait_for(lambda: announcer.waiting == 0, PATIENCE, "all are fired")


def _by_salt(client: Any) -> None:
    for _ in range(EVENTS):
        client.fire_event(dict(DATA), TAG)
