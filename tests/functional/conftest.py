"""Keepers and salt-apis of two masters; engines without an event bus."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from saltext_ha.salt_bus.announce import Announcer
from saltext_ha.salt_bus.events import EventBus
from tests.api_server import Server
from tests.functional.keepers import Master


@pytest.fixture
def no_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no salt-master here whose bus could be heard or used; looking for it takes time."""
    monkeypatch.setattr(EventBus, "listen", lambda self, stop: None)
    monkeypatch.setattr(Announcer, "_work", lambda self: None)


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
