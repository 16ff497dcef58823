"""
Engines without a salt-master: the real service on real key folders, sockets and disks.

Only Salt's event bus is missing, which says where to look; :meth:`Engine.hint` says it instead. The
benchmarks use this, and tests that torture many engines at a time::

    one, two = Place(root, "m1"), Place(root, "m2")
    befriend(one, two)
    async with Engine(one) as m1, Engine(two) as m2:
        await m1.meets(m2)
        await m1.link(m2).exchange()

or, to measure or kill a single engine, in its own process::

    with EngineProcess(one) as m1:
        m1.control("status")
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil
import salt.config

from lab import key_folders
from lab.network import free_port
from lab.wait import wait_for
from saltext_ha.common.errors import EngineUnavailable
from saltext_ha.config import mapping
from saltext_ha.engine.parts import Parts
from saltext_ha.engine.service import Service
from saltext_ha.engine.wiring import Answering
from saltext_ha.reconciler.hints import Hint
from saltext_ha.replica.replica import REPLICA_FILE, Replica
from saltext_ha.sync.link import Link
from saltext_ha.transport import control_client, identity
from saltext_ha.transport.peer import Peer, make_peer
from saltext_ha.transport.trust import Trust

T = TypeVar("T")

START = 300.0
POLL = 0.002


@dataclass
class Place:
    """
    The place of one master: its folders below ``root/name``, its address, its configuration.

    :param ha: keys for its ``ha:`` mapping beside name and address.
    :param options: keys for its master configuration.
    """

    root: Path
    name: str
    ha: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    port: int = 0

    def __post_init__(self) -> None:
        self.folder = self.root / self.name
        self.port = self.port or free_port()
        self.opts: dict[str, Any] = salt.config.apply_master_config(
            {
                "root_dir": str(self.folder),
                "pki_dir": str(self.folder / "pki"),
                "sock_dir": str(self.folder / "run"),
                "cachedir": str(self.folder / "cache"),
                "conf_file": str(self.folder / "master"),
                "id": f"{self.name}_master",
                "user": getpass.getuser(),
                "interface": "127.0.0.1",
                **self.options,
                # There is no salt-master to serve and no configuration file to compare, and many
                # engines share this machine.
                "ha": {
                    "name": self.name,
                    "port": self.port,
                    "health": False,
                    "status": False,
                    "consistency": {"interval": 0},
                    **self.ha,
                },
            }
        )
        for key in ("pki_dir", "sock_dir", "cachedir"):
            Path(self.opts[key]).mkdir(mode=0o700, parents=True, exist_ok=True)
        self.pki_dir = Path(self.opts["pki_dir"])
        self.config = mapping.parse(self.opts)

    @property
    def peer(self) -> Peer:
        """This master, as others pin it."""
        own = identity.load_or_create(self.config.state_dir, self.name)
        return make_peer(self.name, self.config.url, own.certificate)

    @property
    def replica_file(self) -> Path:
        """Its replica.db."""
        return self.config.state_dir / REPLICA_FILE

    def begin(self) -> None:
        """Make its replica: it has lost nothing, as that of a master that joins a group."""
        with contextlib.closing(Replica(self.replica_file)) as replica, replica.transaction():
            replica.meta.blank = False

    def data(self) -> dict[str, Any]:
        """This place as plain data, for another process; see :meth:`of`."""
        return {
            "root": str(self.root),
            "name": self.name,
            "ha": dict(self.ha),
            "options": dict(self.options),
            "port": self.port,
        }

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Place:
        """The place that :meth:`data` describes."""
        return cls(**{**data, "root": Path(data["root"])})

    def take_over(self, other: Place) -> None:
        """
        Take over the keys of *other*, which is stopped, and its knowledge of them.

        This is the result of a complete sync, without waiting for one. This master gets its own
        node, since two masters that write under one node would contradict each other.
        """
        for folder in other.pki_dir.glob("minions*"):
            # Leave out the other's signature of its store: this master signs as itself.
            shutil.copytree(
                folder,
                self.pki_dir / folder.name,
                dirs_exist_ok=True,
                ignore=shutil.ignore_patterns(".*"),
            )
        self.config.state_dir.mkdir(mode=0o700, exist_ok=True)
        shutil.copy2(other.replica_file, self.replica_file)
        replica = Replica(self.replica_file)
        replica.take_node()
        replica.close()


def befriend(*places: Place) -> None:
    """Have all *places* pin each other, as if they had joined."""
    peers = [place.peer for place in places]
    for place in places:
        trust = Trust(place.config.state_dir)
        for peer in peers:
            if peer.name != place.name:
                trust.pin(peer)


def level(places: Sequence[Place], ids: Sequence[str], state: str = key_folders.ACCEPTED) -> None:
    """Before *places* start: have them all know *ids* in that *state*, and each other."""
    first, *others = places
    key_folders.plant(first.pki_dir, ids, state)
    with EngineProcess(first):
        pass  # takes the keys in
    for other in others:
        other.take_over(first)
    befriend(*places)


class Engine:
    """The service of *place*, in this event loop; ``async with`` starts and stops it."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.service = Service(place.opts, place.config)
        self._task: asyncio.Task[None] | None = None

    @property
    def parts(self) -> Parts:
        """The parts of the engine; all but a few exist only after :meth:`start`."""
        return self.service.parts

    @property
    def made(self) -> Answering:
        """The parts that answer others, after :meth:`start`."""
        return self.service.made

    async def start(self) -> None:
        """
        Start, and wait until the engine listens.

        :raises HaError: it cannot start.
        """
        self._task = asyncio.ensure_future(self.service.run())
        await self._until(lambda: _listens(self.place.config.control_socket), "listens")

    async def stop(self) -> None:
        """Stop in the ordinary way: finish running work, and close the replica."""
        if self._task is not None:
            self.service.stop()
            await self._task
            self._task = None

    async def __aenter__(self) -> Engine:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    def link(self, other: Engine | Place) -> Link:
        """The link to a peer."""
        place = other.place if isinstance(other, Engine) else other
        return self.parts.links[place.name]

    async def meets(self, *others: Engine | Place) -> None:
        """Wait until this engine has reached all of *others*."""
        names = {(other.place if isinstance(other, Engine) else other).name for other in others}

        def met() -> bool:
            return names <= {
                name for name, contact in self.parts.links.contacts.items() if contact.up
            }

        await self._until(met, f"meets {', '.join(sorted(names))}")

    def known(self, function: Callable[[Replica], T]) -> T:
        """
        Call *function* with the replica, in the keeper's thread, and wait for its result. If two
        threads read one SQLite database, it fails now and then.
        """
        core = self.parts.core
        return core._worker.submit(function, core.replica).result()

    async def hint(self, minion_id: str, gone: bool = False) -> None:
        """Give the hint of Salt's event bus after ``salt-key``; wait until it is followed."""
        await self.parts.core.hinted([Hint(minion_id, "operator", gone)])

    async def notice(self, minion_id: str) -> None:
        """Record a change of *minion_id* and tell no peer, so that anti-entropy has to find it."""
        core = self.parts.core
        await core.run(core.keeper.observe, [minion_id])
        await self.settle()

    async def settle(self) -> None:
        """Count the folders' modification times as seen, so that no pass over the store follows."""
        await self.parts.core.run(self.parts.core.keeper.store.touched)

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START
        while not condition():
            if self._task is not None and self._task.done():
                self._task.result()
                raise RuntimeError(f"{self.place.name} ended before: {what}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {START:g} s: {self.place.name} {what}")
            await asyncio.sleep(POLL)


class EngineProcess:
    """
    The service of *place* in its own process, which ends with this one at the latest.

    :param environment: variables for it, in addition to those of this process.
    :param module: another module to run; it ends in :func:`main`.
    """

    def __init__(
        self,
        place: Place,
        environment: Mapping[str, str] | None = None,
        module: str = "lab.engines",
    ) -> None:
        self.place = place
        self.environment = dict(environment or {})
        self.module = module
        self.start_seconds = 0.0
        """From the first line of the service to the open control socket, without imports."""
        self._imports = 0.0
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        """The pid of the running process."""
        if self._process is None:
            raise RuntimeError(f"{self.place.name} is not running")
        return self._process.pid

    def launch(self) -> None:
        """Start the process and return at once; :meth:`wait_ready` waits."""
        place = self.place
        with contextlib.suppress(FileNotFoundError):
            place.config.control_socket.unlink()  # a killed one leaves it behind
        self._process = subprocess.Popen(
            [sys.executable, "-m", self.module, json.dumps(place.data())],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
            env={**os.environ, **self.environment},
        )

    def wait_ready(self, timeout: float = START) -> None:
        """
        Wait until the engine listens.

        :raises RuntimeError: it ended instead; stderr has the reason.
        """
        process = self._process
        if process is None or process.stdout is None:
            raise RuntimeError(f"{self.place.name} was not launched")
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.place.name} ended with {process.wait()} while starting")
        # CLOCK_MONOTONIC is one clock for all processes.
        began, self._imports = map(float, line.split())

        def decided() -> bool:
            return process.poll() is not None or _listens(self.place.config.control_socket)

        wait_for(decided, timeout, f"{self.place.name} listens", poll=POLL)
        if process.returncode is not None:
            raise RuntimeError(f"{self.place.name} ended with {process.returncode} while starting")
        self.start_seconds = time.monotonic() - began

    def start(self) -> EngineProcess:
        """:meth:`launch` and :meth:`wait_ready`."""
        self.launch()
        self.wait_ready()
        return self

    def stop(self) -> None:
        """Send SIGTERM, and wait for the end."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """``kill -9``."""
        self._end(signal.SIGKILL)

    def wait_ended(self, timeout: float = START) -> int:
        """
        Wait until it has ended by itself; return its exit status, or the signal's number negated.

        :raises TimeoutError: it still runs.
        """
        process = self._process
        if process is None:
            raise RuntimeError(f"{self.place.name} is not running")
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self.place.name} still runs after {timeout:g} s") from None
        self._forget()
        return status

    def control(self, command: str, payload: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """
        Ask the engine as the runner does.

        :raises EngineUnavailable: it does not answer.
        """
        return control_client.request(self.place.config.control_socket, command, payload)

    def memory(self) -> int:
        """Bytes of memory; shared pages count in part (PSS)."""
        return int(psutil.Process(self.pid).memory_full_info().pss)

    def cpu(self) -> float:
        """Seconds of processor time used so far."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def worked(self) -> float:
        """:meth:`cpu` since the first line of the service, without imports."""
        return max(0.0, self.cpu() - self._imports)

    def __enter__(self) -> EngineProcess:
        return self if self._process else self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._forget()

    def _forget(self) -> None:
        if self._process and self._process.stdout:
            self._process.stdout.close()
        self._process = None


def quiet() -> None:
    """Log only errors: there is no event bus here, and peers are down while others start."""
    logging.basicConfig(level=logging.ERROR)
    logging.getLogger("saltext_ha").setLevel(logging.ERROR)
    logging.getLogger("salt").setLevel(logging.CRITICAL)


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def begins() -> None:
    """Tell :class:`EngineProcess` that all modules are imported: its time counts from now on."""
    print(time.monotonic(), time.process_time(), flush=True)
    # Nothing may wait for a reader of this pipe later.
    os.dup2(2, 1)


def main() -> None:
    """Run the engine that the first argument describes."""
    from saltext_ha.engine import main as service

    quiet()
    place = Place.of(json.loads(sys.argv[1]))
    begins()
    service.run(place.opts, place.config)


__all__ = ["Engine", "EngineProcess", "EngineUnavailable", "Place", "befriend", "free_port"]

if __name__ == "__main__":
    main()
