"""
A process in which masters are started unattended, one after the other, without salt-master.

It runs the same as a host does: ``ha.join wait=…``, then the steps of salt-master's start for the
master key, then the engine. Starting Python anew for each master would take most of the time.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import salt.crypt

from lab.engines import Engine, Place, quiet
from saltext_ha.commands.membership import join

WAIT = 60.0


class Starter:
    """A process that starts one master at a time; ``with`` ends it."""

    def __init__(self) -> None:
        self._stopping = False
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.bootstrapper"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )

    def launch(self, place: Place, delay: float = 0.0, join: bool = True) -> None:
        """Start the master of *place* after *delay* seconds, with or without ``ha.join``."""
        if self._stopping:
            self._heard()
            self._stopping = False
        self._say({"place": place.data(), "delay": delay, "join": join})

    def running(self) -> dict[str, Any]:
        """The answer of ``ha.join``, as soon as the engine listens."""
        return self._heard()

    def stop(self) -> None:
        """Tell the engine to stop; the next :meth:`launch` waits until it has."""
        self._say({})
        self._stopping = True

    def close(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _say(self, what: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def _heard(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process that starts masters has ended; stderr says why")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _main() -> None:
    quiet()
    while line := sys.stdin.readline():
        asked = json.loads(line)
        time.sleep(asked["delay"])  # tests decide which master comes first
        place = Place.of(asked["place"])
        answer = join.join(place.opts, place.config, "", WAIT) if asked["join"] else {}
        salt.crypt.MasterKeys(place.opts)
        asyncio.run(_engine(place, answer))
        print("{}", flush=True)


async def _engine(place: Place, answer: Mapping[str, Any]) -> None:
    async with Engine(place):
        print(json.dumps(answer), flush=True)
        await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    _main()
