"""
Restarts a minion when the job that asks for the restart has ended.

``python -m`` runs it with one argument: JSON with the minion's ``conf_file``. It prints JSON:
``problem``, empty if the restart is under way, and ``process``, which will end, as ``ha.version``
shows it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from dataclasses import asdict
from typing import Any

import psutil

from saltext_ha.common.errors import HaError
from saltext_ha.minion import options
from saltext_ha.minion.restarting import detached, processes, restart

MODULE = "saltext_ha.minion.restarting.after_job"
JOB = 600.0  # seconds to wait for the end of the job that asks


def main() -> None:
    """With an argument, start the process that outlives the minion; without one, be it."""
    if len(sys.argv) < 2:
        carry_out(detached.take())
        return
    answer: dict[str, Any] = {"problem": "", "process": None}
    try:
        answer["process"] = ask(json.loads(sys.argv[1]))
    except HaError as exc:
        answer["problem"] = str(exc)
    print(json.dumps(answer))


def ask(order: dict[str, str]) -> processes.KnownProcess | None:
    """
    Start the process that restarts the minion.

    :return: the minion's process that will end.
    :raises HaError: no minion runs, or there is no way to restart it.
    """
    import salt.config

    opts = salt.config.minion_config(order["conf_file"])
    minion = options.pid(opts)
    if minion is None:
        raise HaError(f"no running minion found (pidfile {opts.get('pidfile')})")
    way = restart.way(minion, opts)
    plan = {
        "pidfile": str(opts.get("pidfile") or ""),
        "bus": options.bus(opts),
        "minion": minion,
        "job": processes.job_of(os.getpid(), minion),
        "way": asdict(way),
    }
    known = processes.find(minion)
    detached.start(MODULE, plan, restart.beside(way, minion))
    return known


def carry_out(plan: dict[str, Any]) -> None:
    """Wait for the job, and restart the minion."""
    with contextlib.suppress(psutil.Error):
        psutil.Process(plan["job"]).wait(JOB)
    ended = plan["minion"]
    restart.restart(
        restart.read(plan["way"]), lambda: processes.running(plan["pidfile"], plan["bus"], ended)
    )


if __name__ == "__main__":
    main()
