"""The cost of ``ha.minions`` and ``ha.current_master``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import salt.client
import salt.config

from lab import Lab, Master, Minion, key_folders
from lab.engines import Engine, Place, level
from lab.wait import wait_for
from proving.benchmarks.report import Budget, Row
from saltext_ha.transport import control_client

MINIONS = 10_000
# The question is the only traffic.
HA = {"sync_interval": 3600, "scan_interval": 86400, "consistency": {"interval": 0}}
GROUP = Budget(median=1500, bytes=1 << 20)
TIMES = 1.5  # as long as test.ping on the same minion
LIMIT = 90.0


def group(root: Path, size: int = MINIONS, runs: int = 10) -> list[Row]:
    """
    ``ha.minions`` over three masters that have heard a third of *size* minions each.

    The questions come through the control socket of one master, as from the runner. Bytes are those
    of one peer, both ways.
    """
    places = [Place(root, name, HA) for name in ("m1", "m2", "m3")]
    level(places, key_folders.ids(size))
    times, sent, work = asyncio.run(_ask(places, key_folders.ids(size), runs))
    return [Row("ha.minions, 3 masters", size, times, bytes=sent, budget=GROUP, cpu=work)]


async def _ask(places: list[Place], ids: list[str], runs: int) -> tuple[list[float], int, float]:
    async with Engine(places[0]) as m1, Engine(places[1]) as m2, Engine(places[2]) as m3:
        engines = [m1, m2, m3]
        await m1.meets(*places[1:])
        for number, minion_id in enumerate(ids):
            # The report that the watchdog of a minion sends every five minutes.
            said = {"type": "failover", "of": 3, "every": 300, "addresses": [], "port": 4506}
            event = {"id": minion_id, "cmd": "_minion_event", "data": said}
            engines[number % 3].parts.bus.tell(f"salt/ha/minion/{minion_id}/bound", event)
        client = m1.link(places[1]).contact.client
        before, times = client.bytes_sent + client.bytes_received, []
        worked = time.process_time()
        for _ in range(runs):
            began = time.perf_counter()
            answer = await asyncio.to_thread(
                control_client.request, places[0].config.control_socket, "minions"
            )
            times.append((time.perf_counter() - began) * 1000)
            if answer["counts"] != {"bound": len(ids)}:
                raise AssertionError(f"not all are bound: {answer['counts']} {answer['unknown']}")
        work = (time.process_time() - worked) * 1000 / runs
        return times, (client.bytes_sent + client.bytes_received - before) // runs, work


def asked(root: Path, samples: int = 40) -> list[Row]:
    """
    ``salt MINION ha.current_master`` beside ``test.ping`` on the same minions, turn by turn.

    The client stays, as with salt-api: starting the ``salt`` command takes longer than either.
    """
    rows = []
    with _lab(root / "lab") as (m1, minions):
        client = salt.client.LocalClient(mopts=salt.config.master_config(str(m1.config_file)))
        for kind, minion in minions.items():
            took: dict[str, list[float]] = {"test.ping": [], "ha.current_master": []}
            for _ in range(samples + 2):
                for function, times in took.items():
                    began = time.perf_counter()
                    answer = client.cmd(minion.name, function).get(minion.name)
                    times.append((time.perf_counter() - began) * 1000)
                    if not answer:
                        raise AssertionError(f"{minion.name} does not answer {function}")
            ping, where = (times[2:] for times in took.values())  # the first ones load modules
            budget = Budget(median=TIMES * median(ping))
            rows.append(Row(f"test.ping, {kind} minion", 1, ping))
            rows.append(Row(f"ha.current_master, {kind} minion", 1, where, budget=budget))
    return rows


@contextmanager
def _lab(root: Path) -> Iterator[tuple[Master, dict[str, Minion]]]:
    with Lab(root) as lab:
        m1, m2 = (lab.add_master(name, engine=False) for name in ("m1", "m2"))
        m1.share_master_key(m2)
        watched: dict[str, Any] = {"engines": [{"ha_watchdog": {}}], "master_tries": -1}
        minions = {
            "failover": lab.add_minion("one", [m1, m2], "failover", config=watched),
            "hot-hot": lab.add_minion("hot", [m1, m2], config=watched),
        }
        for minion in minions.values():
            minion.plant_key()
        lab.start_all([m1, m2])
        wait_for(lambda: m1.salt_run("test.arg").returncode == 0, LIMIT, "m1 serves")
        for minion in minions.values():
            minion.start(wait_accepted=True)
            wait_for(partial(_answers, m1, minion), LIMIT, f"{minion.name} answers")
        yield m1, minions


def _answers(master: Master, minion: Minion) -> bool:
    data = master.salt(minion.name, "ha.current_master").data
    return bool(data and data.get(minion.name))
