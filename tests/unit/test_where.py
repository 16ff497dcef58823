"""How long silent minions are pinged for, and what is said of those that were not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from saltext_ha.commands import where as module
from saltext_ha.commands.minions import Known
from saltext_ha.commands.where import Where
from saltext_ha.minions.job_specs import Order
from saltext_ha.minions.jobs import Answers
from saltext_ha.minions.presence import Sight

pytestmark = pytest.mark.core

IDS = [f"web{number}" for number in range(8)]


class Played:
    """The jobs and the knowledge of a group of m1 and m2, of which m2 hangs."""

    masters: Collection[str] = ["m1", "m2"]

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.asked: list[tuple[Collection[str], Collection[str]]] = []
        self.most = self.running = 0

    async def run(
        self, order: Order, timeout: float, masters: Collection[str], unreached: Collection[str]
    ) -> tuple[dict[str, Answers], list[Any]]:
        self.asked.append((masters, unreached))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.running -= 1
        return {"m1": Answers(frozenset(order.ids), dict.fromkeys(order.ids, (0.1, True)))}, []

    async def everywhere(
        self, question: Mapping[str, Any], ids: Collection[str]
    ) -> tuple[dict[str, Known], dict[str, str]]:
        sights = {i: Sight(likely=5, likely_by="auth") for i in ids}
        known = Known()
        known.sights = sights
        return {"m1": known}, {"m2": "timed out"}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_IDS", 2)


def found(played: Played, live: bool = False) -> dict[str, list[str]]:
    where = Where(None, played, played)  # type: ignore[arg-type]
    masters, unknown = asyncio.run(where.of(IDS, {"glob": "*"}, 0.1, live))
    assert unknown == {"m2": "timed out"}
    return masters


def test_batches_are_pinged_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SIDE_BY_SIDE", 3)
    played = Played(0.05)
    assert found(played) == {i: ["m1"] for i in IDS}
    assert (len(played.asked), played.most) == (4, 3)


def test_who_could_not_be_asked_is_not_asked_again() -> None:
    played = Played(0.0)
    found(played)
    assert {(*masters, "but", *unreached) for masters, unreached in played.asked} == {
        ("m1", "but", "m2")
    }


@pytest.mark.parametrize("live", [False, True])
def test_one_time_limit_for_all(monkeypatch: pytest.MonkeyPatch, live: bool) -> None:
    monkeypatch.setattr(module, "PINGING", 0.2)
    played = Played(30.0)
    began = time.monotonic()
    assert found(played, live) == {i: ["m1"] for i in IDS}, "where it was heard last"
    assert time.monotonic() - began < 5
    assert played.running == 0
