"""Two masters' keepers, as :mod:`tests.functional.keepers` has them; two masters' salt-apis."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api_server import Server
from tests.functional.keepers import Master


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
