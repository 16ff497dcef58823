"""``ha.leader``: what masters say is shown, and nonsense of one does not hide the others."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from saltext_ha.commands.once.leader import LeaderCommand
from saltext_ha.once.leader import NoLeader
from saltext_ha.once.leadership import Apart, Leadership


def leader(
    apart: Mapping[str, Apart] | None = None, own: Leadership | None = None, **answers: Any
) -> dict[str, Any]:
    """
    :param apart: masters that do not answer, and why they do not elect.
    :param own: what this master knows; by default, that it leads.
    """
    errors = dict.fromkeys(apart or {}, "refused")

    async def ask(method: str) -> tuple[Any, Any]:
        return answers, errors

    others = sorted({*answers, *errors})
    group = SimpleNamespace(name="m1", others=others, ask=ask)
    known = SimpleNamespace(standing=own or Leadership("group", "m1", True, apart=apart or {}))
    runs = SimpleNamespace(table=list)
    return asyncio.run(LeaderCommand(group, known, runs, None).leader({}))  # type: ignore[arg-type]


def test_one_that_takes_no_part_is_not_unknown_but_one_that_cannot_be_asked_is() -> None:
    found = leader({"m2": Apart("ha: leader: false there", out=True), "m3": Apart("timed out")})
    assert found["unknown"] == {"m3": "refused"}
    assert [row["note"] for row in found["masters"]] == ["", "ha: leader: false there", "timed out"]
    assert found["retcode"] == 2
    assert leader({"m2": Apart("ha: leader: false there", out=True)})["retcode"] == 0


def test_one_that_takes_no_part_says_who_leads_all_the_same() -> None:
    off = NoLeader().standing
    found = leader(own=off, m2=Leadership("group", "m2", True).told())
    assert (found["leader"], found["leads"], found["retcode"]) == ("m2", False, 0)
    found = leader(own=off, m2=off.told())
    assert (found["leader"], found["retcode"]) == (None, 1), "nobody leads"


def test_masters_that_agree() -> None:
    found = leader(m2=Leadership("group", "m1").told())
    assert (found["leading"], found["retcode"]) == (["m1"], 0)


@pytest.mark.parametrize("nonsense", [["m1"], {"m1": 1}, 5])
def test_nonsense_of_a_peer_does_not_hide_the_others(nonsense: Any) -> None:
    found = leader(m2={**Leadership("group").told(), "leader": nonsense})
    assert [row["follows"] for row in found["masters"]] == ["m1", None]
    assert found["retcode"] == 1, "they do not agree"
