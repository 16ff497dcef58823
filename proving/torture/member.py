"""One master of a history: its folders, its disk, its engine and its operator."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.engines import Place
from lab.wait import wait_for
from proving.torture.bus import EVENTS, SOCKET
from proving.torture.caches import Caches
from proving.torture.engine import LEGACY
from proving.torture.faults import Disk
from proving.torture.keys import Folders
from proving.torture.nursery import Nursery
from proving.torture.operators import Operator, make_folders
from saltext_ha.transport import control_client

STARTING = 120.0
HEARING = 10.0
"""Most seconds for an engine that runs to hear an event."""


@dataclass
class Copy:
    """A backup: its path, what the master perhaps knew then, and what its key folders showed."""

    path: Path
    known: set[int]
    shown: dict[str, dict[str, str]] = field(default_factory=dict)


class Member:
    """
    One master.

    :param place: as :class:`Place` takes it; ``root`` as text.
    :param offset: seconds that its clock is ahead.
    :param layout: ``legacy`` or ``3008``: how keys are stored and read.
    """

    def __init__(
        self,
        place: Mapping[str, Any],
        nursery: Nursery,
        *,
        offset: float,
        layout: str,
        mutant: str,
        mounting: bool,
    ) -> None:
        home = Path(place["root"]) / place["name"]
        self.disk = Disk(home, home / "pki", mounting)
        self.place = Place.of(place)
        self.name = self.place.name
        self.nursery = nursery
        self.offset = offset
        self.legacy = layout == LEGACY
        self.log = Path(place["root"]) / f"{self.name}.log"
        self.pid: int | None = None
        self.stopped = False
        self.gone = False
        """Whether it was removed from the group."""
        self.folders = Folders(self.place.pki_dir)
        self.operator = Operator(self.folders, self.legacy)
        self.caches = Caches(Path(self.place.opts["cachedir"]), nursery.salt)
        self.revoked = 0
        """Accepted keys that were taken away here by hand or by salt-key."""
        self.copies: dict[str, Copy] = {}
        self._spec = {
            "place": dict(place),
            "offset": offset,
            "layout": layout,
            "mutant": mutant,
            "log": str(self.log),
        }
        make_folders(self.folders)

    # -- the engine

    @property
    def healthy(self) -> bool:
        """Whether its engine can notice, learn and apply."""
        return self.pid is not None and not self.stopped and self.disk.healthy

    def start(self) -> None:
        """Start the engine, and wait until it listens if it can be expected to."""
        if self.pid is not None:
            return
        self.stopped = False
        self.pid = self.nursery.start(self._spec)
        self.disk.limit(self.pid)
        self.await_listening()

    def await_listening(self) -> None:
        """Wait until it listens: if it was started on a bad disk, it may need a moment now."""
        if self.healthy:
            wait_for(self._listens, STARTING, f"{self.name} listens; see {self.log}")

    def kill(self) -> bool:
        """``kill -9``; return whether it ran."""
        return self._end(signal.SIGKILL)

    def stop(self) -> bool:
        """End it in order; return whether it ran."""
        if self.stopped:
            self.cont()
        return self._end(signal.SIGTERM)

    def freeze(self) -> None:
        """SIGSTOP."""
        if self.pid:
            os.kill(self.pid, signal.SIGSTOP)
            self.stopped = True

    def cont(self) -> None:
        """SIGCONT."""
        if self.pid and self.stopped:
            os.kill(self.pid, signal.SIGCONT)
        self.stopped = False

    def control(self, command: str, **payload: Any) -> dict[str, Any]:
        """The answer that the runner would get."""
        return control_client.request(
            self.place.config.control_socket, command, payload, timeout=30.0
        )

    def tell(self, events: Sequence[Mapping[str, Any]], *, patient: bool = False) -> bool:
        """
        Fire events on the master's bus; like Salt's, it does not care who listens.

        :param patient: wait until the engine has heard them.
        :return: whether all of them are on it.
        """
        path, sent = str(Path(self.place.opts["sock_dir"]) / SOCKET), 0
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bus:
            bus.bind("")  # an address of its own, for the answers
            bus.settimeout(0)
            for event in events:
                with contextlib.suppress(OSError):
                    bus.sendto(json.dumps(event).encode(), path)
                    sent += 1
            bus.settimeout(HEARING)
            with contextlib.suppress(OSError):  # it is being killed, or its threads hang
                for _ in range(sent if patient else 0):
                    bus.recv(100)
        return sent == len(events)

    def announced(self) -> list[dict[str, Any]]:
        """The events that its engine fired."""
        try:
            lines = (self.place.folder / EVENTS).read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            with contextlib.suppress(ValueError):  # a line cut off by a full disk or a kill
                found.append(json.loads(line))
        return found

    def close(self) -> None:
        self.kill()
        self.disk.close()

    # -- what is lost, saved and put back while the engine is down

    def lose_replica(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                self._replica(suffix).unlink()

    def save_replica(self, known: set[int]) -> None:
        """Back replica.db up as it is (the engine may run: what SQLite has committed so far)."""
        target = self._backup("replica", known)
        self._copy_replica(target)

    def restore_replica(self) -> None:
        self._put_replica(self.copies["replica"].path)

    def save_folder(self, known: set[int]) -> None:
        self._copy_folder(self._backup("folder", known))

    def restore_folder(self) -> None:
        self._put_folder(self.copies["folder"].path)

    def save_machine(self) -> None:
        """Back replica.db and the key folder up, as of one instant: the engine is stopped."""
        target = self._backup("machine", set())
        self._copy_replica(target)
        self._copy_folder(target)

    def restore_machine(self) -> None:
        path = self.copies["machine"].path
        self._put_replica(path)
        self._put_folder(path)

    def _backup(self, name: str, known: set[int]) -> Path:
        target = self.place.root / f"{self.name}.{name}"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        self.copies[name] = Copy(target, known, self.folders.look())
        return target

    def _copy_replica(self, target: Path) -> None:
        for suffix in ("", "-wal"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copy2(self._replica(suffix), target / f"replica.db{suffix}")
        with contextlib.closing(sqlite3.connect(target / "replica.db")) as copy:
            copy.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _put_replica(self, source: Path) -> None:
        self.lose_replica()
        shutil.copy2(source / "replica.db", self._replica())

    def _copy_folder(self, target: Path) -> None:
        shutil.copytree(self.place.pki_dir, target / "pki", symlinks=True)

    def _put_folder(self, source: Path) -> None:
        new = self.place.pki_dir.with_name("pki.new")
        shutil.copytree(source / "pki", new, symlinks=True)
        self.place.pki_dir.rename(self.place.folder / f"pki.old-{os.urandom(3).hex()}")
        new.rename(self.place.pki_dir)

    def _replica(self, suffix: str = "") -> Path:
        path = self.place.replica_file
        return path.with_name(path.name + suffix)

    def _listens(self) -> bool:
        if self.pid and self.nursery.ended(self.pid):
            self.pid = None
            raise RuntimeError(f"{self.name} ended while starting; see {self.log}")
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(self.place.config.control_socket))
        return True

    def _end(self, number: signal.Signals) -> bool:
        if self.pid is None:
            return False
        pid, self.pid, self.stopped = self.pid, None, False
        if self.nursery.ended(pid):
            return False
        os.kill(pid, number)
        if number != signal.SIGKILL:
            try:
                wait_for(lambda: self.nursery.ended(pid), 15, f"{self.name} ended")
                return True
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
        self.nursery.wait(pid)
        return True
