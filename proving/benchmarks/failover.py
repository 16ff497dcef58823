"""How long until minions answer on another master: the watchdog, and stock Salt beside it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import salt.client
import salt.config

from lab import Lab, Master, Minion
from lab.wait import wait_for
from proving.benchmarks.report import Budget, Row

BUDGET = Budget(worst=15_000)  # for each minion, as there are only three
MINIONS = 3
LIMIT = 90.0  # seconds; a minion that has not moved by then is taken to stay

WATCHED: dict[str, Any] = {
    "engines": [{"ha_watchdog": {}}],
    "master_alive_interval": 0,
    "master_tries": -1,
}
STOCK: dict[str, Any] = {"master_alive_interval": 5, "master_tries": -1}


def measure(root: Path, hung: bool) -> list[Row]:
    """
    A master with minions of both kinds dies (SIGKILL), or hangs (SIGSTOP).

    Both check every 5 s. The number of minions of a kind is in the column of keys.
    """
    with Lab(root / "lab") as lab:
        config = {"gather_job_timeout": 1, "timeout": 2}
        m1, m2 = (lab.add_master(name, engine=False, config=config) for name in ("m1", "m2"))
        m1.share_master_key(m2)
        kinds = {"watchdog": WATCHED, "stock Salt": STOCK}
        minions: dict[str, list[Minion]] = {
            kind: [
                lab.add_minion(f"{kind.split()[0]}{number}", [m1, m2], "failover", config=more)
                for number in range(MINIONS)
            ]
            for kind, more in kinds.items()
        }
        every = [minion for group in minions.values() for minion in group]
        for minion in every:
            minion.plant_key()
        lab.start_all([m1, m2])
        wait_for(lambda: m1.salt_run("test.arg").returncode == 0, LIMIT, "m1 serves")
        for minion in every:
            minion.start()
            minion.wait_ready()
        if len(_answers(m1, every, LIMIT)) != len(every):
            raise AssertionError("not all minions are on m1; the machine is too busy")
        fault: Callable[[], None] = m1.suspend if hung else m1.kill
        fault()
        took = _answers(m2, every, LIMIT)
    what = "hung" if hung else "dead"
    rows = []
    for kind, group in minions.items():
        times = [took[minion.name] * 1000 for minion in group if minion.name in took]
        moved = "" if len(times) == MINIONS else f" ({len(times)} of {MINIONS} moved in 90 s)"
        ours = kind == "watchdog"
        if ours and moved:
            raise AssertionError(f"{what} master, {kind}{moved}")
        title = f"{what} master, {kind}{moved}"
        rows.append(Row(title, MINIONS, times, budget=BUDGET if ours else None))
    return rows


def _answers(master: Master, minions: list[Minion], timeout: float) -> dict[str, float]:
    """Minion → the seconds after which it answered *master*, for those that did."""
    client = salt.client.LocalClient(mopts=salt.config.master_config(str(master.config_file)))
    began = time.monotonic()
    took: dict[str, float] = {}
    while len(took) < len(minions) and time.monotonic() - began < timeout:
        names = [minion.name for minion in minions if minion.name not in took]
        for name, answer in client.cmd(names, "test.ping", tgt_type="list", timeout=1).items():
            if answer is True:
                took[name] = time.monotonic() - began
    return took
