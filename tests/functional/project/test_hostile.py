"""The attack of ``make hostile`` in short: every door, seeded, against an engine of its own."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from lab.engines import Place
from proving.hostile import payloads, run
from proving.hostile import scene as scenes
from proving.hostile.attack import Tally
from proving.hostile.inputs import ENDLESS, PAGES
from proving.hostile.target import doors
from proving.hostile.values import mutated
from saltext_ha.replication.record import STATES

INPUTS = 250


def test_no_method_command_or_page_is_forgotten(root: Path) -> None:
    reacting = Place(root, "m1", {"once": {"reactor": True}}, {"reactor": [{"site/*": []}]})
    methods, commands, pages = doors(reacting)
    known = payloads.Known((), None, "", "", b"")  # type: ignore[arg-type]
    assert methods == sorted(payloads.methods(known))
    assert commands == sorted(payloads.commands())
    assert pages == sorted([*PAGES, ENDLESS])


def test_the_same_seed_makes_the_same_inputs() -> None:
    sample = {"records": [["web1", "key", [["node", 1, sorted(STATES)[0]]]]], "n": 1}
    first, again = ([mutated(Random(7), sample) for _ in range(1)] for _ in range(2))
    assert repr(first) == repr(again)
    assert len({repr(mutated(Random(seed), sample)) for seed in range(100)}) > 50


def test_an_engine_under_attack(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with scenes.scene(root) as scene:
        run.every_door(scene, INPUTS, seed=1, short=True)
        with monkeypatch.context() as bounds:
            bounds.setattr(scenes, "MEMORY", -1)
            scene.door("nothing at all", Tally)
        assert "MB" in scene.troubles.pop()
        scene.door("nothing at all", Tally, growth=-1)
        assert "MB" in scene.troubles.pop()
        run.look_after(scene)
    assert scene.troubles == []
    for row in scene.rows[:13]:
        assert row.tally.inputs >= INPUTS - 8, row.door
        # Who only ever meets a closed door has tried nothing. Of events nobody is told.
        assert row.tally.refused or row.door == "event bus", row.door
    assert sum(row.figures.log for row in scene.rows) < 200_000
    assert {row.door: row.tally.accepted for row in scene.rows}["50 threads, one token"] <= 1
