"""Processor time of engines, whoever started them."""

from __future__ import annotations

import socket
import struct

import psutil

from lab import Master
from lab.engines import EngineProcess


def used(*engines: EngineProcess | Master) -> float:
    """Milliseconds of processor time that all *engines* have used so far."""
    return sum(map(_of, engines)) * 1000


def _of(engine: EngineProcess | Master) -> float:
    if isinstance(engine, EngineProcess):
        return engine.cpu()
    times = psutil.Process(_pid(engine)).cpu_times()
    return float(times.user + times.system)


def _pid(master: Master) -> int:
    """The id of the process that listens on the control socket: the engine."""
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(str(master.control_socket))
        told = asked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", told)[0])
