"""``ha.leader``: what masters say is shown, and nonsense of one does not hide the others."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from saltext_ha.commands.once.leader import LeaderCommand
from saltext_ha.once.leadership import Leadership


def leader(**answers: Any) -> dict[str, Any]:
    async def ask(method: str, payload: Any, timeout: float) -> tuple[Any, Any]:
        return answers, {}

    group = SimpleNamespace(name="m1", others=sorted(answers), timeout=1.0, ask=ask)
    own = SimpleNamespace(standing=Leadership("group", "m1", True))
    runs = SimpleNamespace(table=list)
    return asyncio.run(LeaderCommand(group, own, runs, None).leader({}))  # type: ignore[arg-type]


def test_masters_that_agree() -> None:
    found = leader(m2=Leadership("group", "m1").told())
    assert (found["leading"], found["retcode"]) == (["m1"], 0)


@pytest.mark.parametrize("nonsense", [["m1"], {"m1": 1}, 5])
def test_nonsense_of_a_peer_does_not_hide_the_others(nonsense: Any) -> None:
    found = leader(m2={**Leadership("group").told(), "leader": nonsense})
    assert [row["follows"] for row in found["masters"]] == ["m1", None]
    assert found["retcode"] == 1, "they do not agree"
