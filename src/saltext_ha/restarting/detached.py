"""
A process that outlives the minion which starts it.

It gets its order, plain values, on standard input; nobody waits for it.
"""

from __future__ import annotations

import json
import subprocess  # nosec B404
import sys
from collections.abc import Mapping
from typing import Any

import psutil

from saltext_ha.restarting.processes import Known, know


def start(module: str, order: Mapping[str, Any]) -> Known:
    """Run *module* by itself; it reads *order* with :func:`order`."""
    process = subprocess.Popen(  # nosec B603
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )
    assert process.stdin
    with process.stdin as pipe:
        pipe.write(json.dumps(order).encode())
    known = know(psutil.Process(process.pid))
    process.returncode = 0  # not waited for
    return known


def order() -> dict[str, Any]:
    """What that process is to do."""
    found: dict[str, Any] = json.load(sys.stdin)
    return found
