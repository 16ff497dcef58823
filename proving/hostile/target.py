"""The engine that is attacked: a process of its own on real folders, watched from outside."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from lab.engines import Engine, EngineProcess, Place, begins

CANARY = "canary: nothing of this file may ever be read or sent\n"


def doors(place: Place) -> tuple[list[str], list[str], list[str]]:
    """
    The methods that a real engine at *place* answers to peers, its control commands, and the
    pages of its status listener.
    """

    async def ask() -> tuple[list[str], list[str], list[str]]:
        async with Engine(place) as engine:
            service, pages = engine.service, sorted(engine.made.pages.by_path())
            return service.listener.methods, service.control.commands, pages

    return asyncio.run(ask())


def furnish(place: Place) -> bytes:
    """
    Make what a master has beside the engine: its key pair; and what the engine must leave alone: a
    file outside of all folders, with links to it in the key folders. Returns the private key.
    """
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (place.pki_dir / "master.pem").write_bytes(private)
    (place.pki_dir / "master.pem").chmod(0o400)
    (place.pki_dir / "master.pub").write_bytes(public)
    canary = place.root / "canary"
    canary.write_text(CANARY)
    for folder in ("minions", "minions_pre", "minions_rejected", "minions_denied"):
        there = place.pki_dir / folder
        there.mkdir(mode=0o700, exist_ok=True)
        (there / f"linked-{folder}").symlink_to(canary)
        (there / f"master-{folder}").symlink_to(place.pki_dir / "master.pem")
    # It counts as read before it was written: the next reading shows, also with relatime.
    os.utime(canary, (1.0, 1.0))
    return private


def was_read(canary: Path) -> bool:
    """Whether *canary* was opened and read since :func:`furnish`."""
    return canary.stat().st_atime != 1.0


@dataclass(frozen=True)
class Figures:
    """Figures of the process: bytes of memory (PSS) before, at most and after; open files; log."""

    before: int
    peak: int
    after: int
    files: int
    log: int

    @property
    def growth(self) -> int:
        """Bytes of memory that stayed."""
        return self.after - self.before


class Target(EngineProcess):
    """An engine that logs to a file as salt-master does by default, and can be measured."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.log = place.root / f"{place.name}.log"
        self._born = 0.0

    def launch(self) -> None:
        """Start the engine's process, with its log in the file."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "proving.hostile.target", json.dumps(self.place.data())],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=Path(__file__).parents[2],
            )
        self._born = psutil.Process(self.pid).create_time()

    @property
    def alive(self) -> bool:
        """Whether it is still the process that was started."""
        with suppress(psutil.Error):
            process = psutil.Process(self.pid)
            running = process.status() != psutil.STATUS_ZOMBIE
            return running and process.create_time() == self._born
        return False

    def files(self) -> int:
        """Files and sockets that it has open."""
        return psutil.Process(self.pid).num_fds()


class Watch:
    """Measures a target while something is done to it."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._over = threading.Event()
        self._peak = self._before = target.memory()
        self._log = target.log.stat().st_size
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.5):
            with suppress(psutil.Error):
                self._peak = max(self._peak, self._target.memory())

    def stop(self) -> Figures:
        """The figures of the whole time."""
        self._over.set()
        self._thread.join()
        after = self._target.memory()
        log = self._target.log.stat().st_size - self._log
        peak = max(self._peak, after)
        return Figures(self._before, peak, after, self._target.files(), log)


def _main() -> None:
    import logging

    from proving.hostile import bus
    from saltext_ha.engine import main
    from saltext_ha.keystore import reading
    from saltext_ha.salt_bus.events import EventBus

    EventBus.listen = bus.serve  # type: ignore[assignment,method-assign]
    reading.NO_TRACE = 0  # was_read is to see it
    # The log of a master by default, and everything of the engine.
    form = "%(asctime)s [%(name)s:%(lineno)d][%(levelname)s] %(message)s"
    # Salt has put a handler there that keeps everything until the end.
    logging.basicConfig(level=logging.WARNING, format=form, force=True)
    logging.getLogger("saltext_ha").setLevel(logging.INFO)
    logging.getLogger("salt").setLevel(logging.CRITICAL)
    place = Place.of(json.loads(sys.argv[1]))
    begins()
    main.run(place.opts, place.config)


if __name__ == "__main__":
    _main()
