"""A question whose answer grows with the number of keys does not hold up the engine."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from lab import key_folders
from saltext_ha.commands.keys import keys
from saltext_ha.commands.minions import failover_safe, reachability
from saltext_ha.minions import safety
from saltext_ha.sync import group
from tests.engines import places, run, running
from tests.loop import in_a_loop, until

pytestmark = pytest.mark.usefixtures("no_bus")


@pytest.mark.parametrize(
    ("question", "where", "step"),
    [
        ("keys_", group, "table"),
        ("keys_", keys, "_rows"),
        ("reachability", reachability, "answer"),
        ("failover_safe", safety, "unknown_to_minions"),
        ("failover_safe", failover_safe, "_answer"),
    ],
)
@in_a_loop
async def test_other_questions_are_answered_meanwhile(
    question: str, where: Any, step: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    real = getattr(where, step)

    def lasting(*given: Any) -> Any:
        begun.set()
        assert go_on.wait(60)
        return real(*given)

    [master] = places(root, "m1")
    key_folders.plant(master.pki_dir, ["web1"])
    monkeypatch.setattr(where, step, lasting)
    async with running(master):
        asking = asyncio.ensure_future(run(master, question))
        await until(begun.is_set)
        assert (await run(master, "peers"))["kind"] == "peers"
        go_on.set()
        assert (await asking)["kind"] == question.rstrip("_")
