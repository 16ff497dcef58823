"""Tests of trees do not depend on how full this machine's disk is."""

from __future__ import annotations

import pytest

from tests.disk_steps import empty_disks


@pytest.fixture(autouse=True)
def _empty_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    empty_disks(monkeypatch)
