"""Hears from outside the reactions of all masters' reactors; see :mod:`.bus`."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from pathlib import Path

from proving.torture.once_book import Reaction

SOCKET = "reactions.sock"


class Reactions(threading.Thread):
    """
    Listens below *folder* until :meth:`close`.

    :ivar all: what was heard.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.all: list[Reaction] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(folder / SOCKET))
        self.start()

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while told := self._socket.recv(1000):
                self.all.append(Reaction(*json.loads(told)))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self.join(5)
        self._socket.close()
