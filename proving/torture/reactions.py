"""Hears from outside the reactions of all masters' reactors; see :mod:`.bus`."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from pathlib import Path

from proving.torture.once_book import Reaction

SOCKET = "reactions.sock"
END = b"end"


class Reactions(threading.Thread):
    """Listens below *folder* until :meth:`close`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self._heard: list[Reaction] = []
        self._path = str(folder / SOCKET)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self._path)
        self._caught_up = threading.Event()
        self.start()

    def all(self) -> list[Reaction]:
        """All that was told until now."""
        self._caught_up.clear()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.sendto(END, self._path)  # behind all others
        if not self._caught_up.wait(60):
            raise TimeoutError("the reactions told are not read within 60 s")
        return list(self._heard)

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while told := self._socket.recv(1000):
                if told == END:
                    self._caught_up.set()
                else:
                    self._heard.append(Reaction(*json.loads(told)))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self.join(5)
        self._socket.close()
