"""``ha.once`` in the engine of a master that takes no part in leading."""

from __future__ import annotations

import asyncio
import os
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from saltext_ha.commands.once import once_runner
from saltext_ha.commands.once.once import Once
from saltext_ha.once.leader import NoLeader
from saltext_ha.once.leadership import Leadership


def answer(name: str = "", **peers: Leadership) -> dict[str, Any]:
    async def ask(method: str) -> tuple[Any, Any]:
        assert method == "leading"
        return {each: known.told() for each, known in peers.items()}, {"m9": "timed out"}

    group: Any = SimpleNamespace(ask=ask)
    runs: Any = SimpleNamespace(in_the_way=lambda name, function, within: None)
    asked = {"function": "f.g", "name": name, "within": "60", "pid": os.getpid()}
    return asyncio.run(Once(group, NoLeader(), runs).once(asked))


OFF = NoLeader().standing
M1, M2 = Leadership("group", "m1", True), Leadership("group", "m1")


@pytest.mark.parametrize("name", ["", "nightly"])
def test_if_no_master_leads_it_runs_nowhere_and_this_one_says_so(name: str) -> None:
    for peers in ({}, {"m1": OFF}, {"m1": OFF, "m2": Leadership("etcd", why="no quorum")}):
        found = answer(name, **peers)
        assert (found["do"], found["leader"]) == ("wait", None), "then it exits 1"
        assert found["why"] == (
            "nobody leads: ha: leader: false: this master takes no part, and no other one leads"
        )


def test_where_another_leads_it_is_left_to_that_one() -> None:
    found = answer(m1=M1, m2=M2)
    assert (found["do"], found["leader"], found["why"]) == ("skip", "m1", "m1 leads")
    found = answer("nightly", m1=M1, m2=M2)
    assert (found["do"], found["leader"]) == ("wait", "m1")
    assert found["why"] == "m1 leads, and has not begun it"


def test_runs_in_threads_of_one_process_keep_their_fencing_number() -> None:
    """As Salt's reactor has them: one that ended took the number from the one that went on."""
    seen: list[str | None] = []
    begun, over = threading.Event(), threading.Event()

    def look() -> None:
        seen.append(os.environ.get(once_runner.FENCE))

    def long() -> None:
        begun.set()
        assert over.wait(60)
        look()

    functions = once_runner.Functions({}, {"long": long, "look": look}, {})
    thread = threading.Thread(
        target=functions.carry_out, args=(functions.call("long", (), {}), 5), daemon=True
    )
    thread.start()
    assert begun.wait(60)
    functions.carry_out(functions.call("look", (), {}), 7)
    over.set()
    thread.join(60)
    functions.carry_out(functions.call("look", (), {}), 8)
    look()
    assert seen == ["5", "5", "8", None]
