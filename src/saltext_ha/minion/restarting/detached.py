"""
A process that outlives the minion which starts it.

It gets its order, plain values, on standard input, and no process waits for it. It is not a child
of its starter: engines and jobs that get a signal end their children first
(``SignalHandlingProcess._handle_signals`` in ``salt/utils/process.py``, 3006 to 3008).
"""

from __future__ import annotations

import json
import os
import subprocess  # nosec B404
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import psutil

from saltext_ha.common.errors import HaError
from saltext_ha.common.printable import harmless
from saltext_ha.minion.restarting.processes import KnownProcess, know

BEGINS = 60.0  # seconds; usually a fraction of one


def start(module: str, order: Mapping[str, Any], before: Iterable[str] = ()) -> KnownProcess:
    """
    Run *module* detached; it begins with :func:`take`, which returns *order* there.

    :param before: words before its command, as :func:`.restart.outside` has them.
    :raises HaError: it cannot be started.
    """
    try:
        done = subprocess.run(  # nosec B603
            [*before, sys.executable, "-m", module],
            input=json.dumps(order).encode(),
            capture_output=True,
            start_new_session=True,
            cwd="/",
            check=False,
            timeout=BEGINS,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise HaError(f"{module} cannot be started: {exc}") from None
    try:
        pid, started = done.stdout.split()
        return KnownProcess(int(pid), float(started))
    except ValueError:
        said = done.stderr.decode(errors="replace").strip() or "it said nothing"
        last = harmless(said.splitlines()[-1])
        raise HaError(f"{module} ended with {done.returncode} at its start: {last}") from None


def take() -> dict[str, Any]:
    """Detach, and return the order. The parent prints which process is detached, and ends."""
    order: dict[str, Any] = json.load(sys.stdin)
    if child := os.fork():
        # While its parent lives, it can be looked at, even if it is over already.
        print(*know(psutil.Process(child)), flush=True)
        os._exit(0)
    with open(os.devnull, "w") as nowhere:
        # The process that has started it waits until both are closed.
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    return order
