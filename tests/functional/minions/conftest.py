"""Minions are not waited for as long as in production."""

from __future__ import annotations

import pytest

from saltext_ha.commands.minions import drain, minions, moves
from tests.functional.minions.world import LONG, SECONDS


@pytest.fixture(autouse=True)
def heard_lately(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Nobody is connected to the publishers here: after ten seconds, on a busy machine, minions that
    were heard would count as gone.
    """
    monkeypatch.setattr(minions, "NEW", 10 * LONG)


@pytest.fixture
def drains_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "POLL", 0.05)
    monkeypatch.setattr(drain, "ASKING", SECONDS)
    monkeypatch.setattr(moves, "ANSWERING", SECONDS)
