"""Minions with the watchdog, and the words that tests of them are made of."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import salt.client
import salt.config

from lab import Master, Minion, wait_for
from saltext_ha.minion import binding, pings
from saltext_ha.minion.watchdog.journal import Journal, RecordedMove

# Two masters and their minions share a processor or two with whatever else runs here, and each step
# of a failover (two looks, a sign-in, Salt's own) takes longer then. How fast it is where nothing
# else runs is for the benchmarks, which hold every minion against a budget of 15 s.
SOON = 180.0


def watched(interval: float = 5, **more: Any) -> dict[str, Any]:
    """
    A minion's configuration with nothing but the watchdog to notice: no alive check of Salt. It
    looks twice as often as by default before it leaves a master, which may only be slow here.
    """
    return {
        "engines": [{"ha_watchdog": {}}],
        "master_alive_interval": 0,
        "master_tries": -1,
        "ha": {"watchdog": {"interval": interval, "failures": 4, **more}},
    }


def supervised(minion: Minion) -> None:
    """Whoever starts a minion again: here a loop of the shell."""
    command = shlex.join(minion.daemon.command)
    minion.daemon.command = ["sh", "-c", f"while :; do {command}; sleep 0.2; done"]


def serving(*masters: Master) -> None:
    """Wait until the workers of *masters* answer: they listen earlier, and are passed by then."""
    for master in masters:
        wait_for(partial(_serves, master), SOON, f"{master.name} serves")


def _serves(master: Master) -> bool:
    here = binding.SeenMaster(None, master.address, master.ret_port, frozenset({master.address}))
    opts = {**master.opts, "__role": "minion", "id": "probe"}
    return bool(pings.ping(opts, here, 2)["answers"])


def book(minion: Minion) -> Journal:
    return Journal(minion.opts["cachedir"])


def history(minion: Minion) -> list[RecordedMove]:
    return book(minion).read()


def answering(
    master: Master, minions: list[Minion], timeout: float, since: float | None = None
) -> dict[str, float]:
    """Wait until all answer *master*; for each the seconds *since* when it did."""
    client = salt.client.LocalClient(mopts=salt.config.master_config(str(master.config_file)))
    started = time.monotonic() if since is None else since
    took: dict[str, float] = {}
    jids: list[str] = []
    pause, again = 1.0, 0.0

    def all_do() -> bool:
        nonlocal pause, again
        if time.monotonic() >= again:
            missing = [minion.name for minion in minions if minion.name not in took]
            jids.append(client.run_job(missing, "test.ping", tgt_type="list")["jid"])
            # A minion on a busy machine answers late, and later the more it is asked.
            pause, again = min(1.5 * pause, 5.0), time.monotonic() + pause
        for jid in jids:
            for name in client.get_cache_returns(jid).keys() - took.keys():
                took[name] = time.monotonic() - started
        return len(took) == len(minions)

    names = [minion.name for minion in minions]
    wait_for(all_do, timeout, f"{names} answer {master.name}", poll=0.1)
    return took


def ha(master: Master, minion: Minion, function: str, *args: Any) -> Any:
    return wait_for(
        lambda: (master.salt(minion.name, function, *args).data or {}).get(minion.name),
        SOON,
        f"{minion.name} answers {function}",
    )


def heard_again(masters: tuple[Master, ...], minion: Minion, since: float) -> dict[str, float]:
    """Wait until it answers any of *masters*; when which one."""

    def somewhere() -> dict[str, float]:
        for master in masters:
            # Salt 3006 mixes up two clients of one process.
            opts = salt.config.master_config(str(master.config_file))
            with salt.client.LocalClient(mopts=opts) as client:
                if client.cmd(minion.name, "test.ping", timeout=1).get(minion.name) is True:
                    return {master.name: time.monotonic() - since}
        return {}

    return wait_for(somewhere, SOON, f"{minion.name} answers somewhere")


def stays(condition: Callable[[], bool], seconds: float) -> None:
    """Nothing changes for so long."""
    end = time.monotonic() + seconds
    wait_for(lambda: not condition() or time.monotonic() > end, seconds + 5, "the end")
    assert condition()


def where(minion: Minion) -> str | None:
    last = book(minion).last()
    return last and last.target
