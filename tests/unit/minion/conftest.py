"""A minion that is played, and its watchdog."""

from __future__ import annotations

from pathlib import Path

import pytest

from saltext_ha.minion.watchdog.run import Watch
from tests.unit.minion.watched import Salt


@pytest.fixture
def salt(monkeypatch: pytest.MonkeyPatch) -> Salt:
    return Salt(monkeypatch)


@pytest.fixture
def watch(salt: Salt, tmp_path: Path) -> Watch:
    return salt.watch(tmp_path)
