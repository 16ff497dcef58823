"""Keepers and salt-apis of two masters; engines without an event bus; a played minion."""

from __future__ import annotations

import sqlite3
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from saltext_ha.salt_bus.announce import Announcer
from saltext_ha.salt_bus.events import EventBus
from tests.api_server import Server
from tests.functional.keepers import Master
from tests.functional.sleepers import Sleeper


class KeepersOwn(sqlite3.Connection):
    """replica.db; once the keeper's thread has used it, it fails for other threads."""

    _keeper: threading.Thread | None = None
    beside: ClassVar[list[str]] = []
    """Other threads that used it in this test: some parts of an engine log an error and go on."""

    def _check(self) -> None:
        current = threading.current_thread()
        if current.name.startswith("ha-keeper"):
            self._keeper = current
        elif self._keeper and self._keeper.is_alive():
            self.beside.append(f"{current.name} uses replica.db beside {self._keeper.name}")
            raise AssertionError(self.beside[-1])

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        self._check()
        return super().execute(*arguments)

    def executemany(self, *arguments: Any) -> sqlite3.Cursor:
        self._check()
        return super().executemany(*arguments)


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Two threads that use one connection rarely make SQLite fail: in tests they always do."""
    connect = sqlite3.connect

    def connected(*arguments: Any, **options: Any) -> sqlite3.Connection:
        if options.get("check_same_thread", True):
            return connect(*arguments, **options)
        return connect(*arguments, factory=KeepersOwn, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", connected)
        yield


@pytest.fixture(autouse=True)
def nobody_beside() -> Iterator[None]:
    """No other thread may use replica.db, even if its :class:`KeepersOwn` error was caught."""
    KeepersOwn.beside.clear()
    yield
    assert KeepersOwn.beside == []


@pytest.fixture
def no_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not look for an event bus: there is no salt-master here, and looking takes time."""
    monkeypatch.setattr(EventBus, "listen", lambda self, stop: None)
    monkeypatch.setattr(Announcer, "_work", lambda self: None)


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder with a short path: unix sockets lie below."""
    with tempfile.TemporaryDirectory(prefix="ha-") as folder:
        yield Path(folder)


@pytest.fixture
def m1(tmp_path: Path) -> Iterator[Master]:
    master = Master(tmp_path, "m1")
    yield master
    master.replica.close()


@pytest.fixture
def m2(tmp_path: Path) -> Iterator[Master]:
    master = Master(tmp_path, "m2")
    yield master
    master.replica.close()


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    both = [Server(), Server()]
    yield both
    for server in both:
        server.close()


@pytest.fixture
def sleeper(root: Path) -> Iterator[Sleeper]:
    """A minion that is not started."""
    sleeper = Sleeper(root)
    yield sleeper
    sleeper.close()


@pytest.fixture
def minion(sleeper: Sleeper) -> Iterator[Sleeper]:
    """A minion that runs."""
    sleeper.start()
    yield sleeper
    sleeper.close()
    sleeper.process.wait()


@pytest.fixture
def gone() -> int:
    """The number of a process that is over."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid
