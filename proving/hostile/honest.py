"""
An honest peer in a process of its own: a whole engine, and calls whose times are measured.

It starts with ``start()`` and works on until ``stop()``; in between, :meth:`Honest.served` says
how its calls went since the last time.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from lab.engines import Engine, Place, quiet
from saltext_ha.common.errors import HaError
from saltext_ha.transport.client import PeerClient, call_once
from saltext_ha.transport.peer import Peer

EVERY = 0.05
PATIENCE = 30.0  # slowness shows in the times; a call fails only if it is turned away
FRESH = 5  # of so many calls one goes over a new connection, handshake and all
TRIFLE = {"tree": "records", "root": bytes(16)}


@dataclass(frozen=True)
class Served:
    """How many calls were answered and how many failed; milliseconds of those answered."""

    calls: int
    failed: int
    median: float
    p99: float
    reason: str = ""
    """The reason of the last failure."""

    def __str__(self) -> str:
        return f"{self.median:.1f} / {self.p99:.1f}"


class Honest:
    """The peer at *place*, which calls the master at *target*."""

    def __init__(self, place: Place, target: Place) -> None:
        self._place = place
        self._target = target
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it; return when it calls."""
        arguments = [self._place.data(), self._target.data()]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "proving.hostile.honest", json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        self._line()

    def served(self) -> Served:
        """How its calls went since this was asked last."""
        assert self._process is not None
        assert self._process.stdin is not None
        print("served", file=self._process.stdin, flush=True)
        return Served(**json.loads(self._line()))

    def stop(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.close()
            self._process.wait(60)
            self._process.stdout.close()
            self._process = None

    def _line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the honest peer ended with {self._process.wait()}")
        return line


class _Caller:
    def __init__(self) -> None:
        self.times: list[float] = []
        self.failed = 0
        self.reason = ""

    async def call(self, engine: Engine, peer: Peer) -> None:
        """Call without end, one call after the other, over a kept connection or a new one."""
        identity = engine.parts.identity
        kept, number = PeerClient(identity, peer, PATIENCE), 0
        try:
            while True:
                number += 1
                began = time.perf_counter()
                try:
                    if number % FRESH:
                        await kept.call("digest", TRIFLE)
                    else:
                        await call_once(identity, peer, "digest", TRIFLE, PATIENCE)
                    self.times.append((time.perf_counter() - began) * 1000)
                except HaError as exc:
                    self.failed += 1
                    self.reason = str(exc)
                await asyncio.sleep(EVERY)
        finally:
            await kept.close()

    def served(self) -> dict[str, Any]:
        times, failed = sorted(self.times), self.failed
        self.times, self.failed = [], 0
        return {
            "calls": len(times),
            "failed": failed,
            "median": median(times) if times else 0.0,
            "p99": times[int(len(times) * 0.99)] if times else 0.0,
            "reason": self.reason,
        }


async def _work(own: Mapping[str, Any], target: Mapping[str, Any]) -> None:
    place, other = map(Place.of, (own, target))
    caller = _Caller()
    async with Engine(place) as engine:
        calling = asyncio.ensure_future(caller.call(engine, other.peer))
        print("ready", flush=True)
        loop = asyncio.get_running_loop()
        while await loop.run_in_executor(None, sys.stdin.readline):
            print(json.dumps(caller.served()), flush=True)
        # Before Python 3.12 asyncio.wait_for loses a cancellation that comes with its result.
        while not calling.done():
            calling.cancel()
            await asyncio.wait([calling], timeout=1.0)


if __name__ == "__main__":
    quiet()
    asyncio.run(_work(*json.loads(sys.argv[1])))
