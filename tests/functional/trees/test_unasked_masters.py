"""Who counts as asked which versions are current."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from saltext_ha.common.errors import HaError
from tests.functional.trees.model import Engine, Group


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    found = Group(tmp_path, [{}])
    yield found
    found.close()


def engine(group: Group, name: str) -> Engine:
    found = group.masters[name].engine
    assert found
    return found


def test_a_master_that_was_not_reached_is_not_asked(group: Group) -> None:
    m1 = engine(group, "m1")
    group.sides["m2"] = 1
    (errors,) = group.do((m1, m1.registers.compare({"m2", "m3"})))
    assert errors == {"m2": "it is not reached"}
    group.sides["m2"] = 0
    group.do((m1, m1.ways["m2"].meet()), (m1, m1.ways["m3"].meet()))
    assert m1.trees.behind() == "trees are not yet compared with m2 since its start"
    group.do((m1, m1.registers.compare()))
    assert m1.trees.behind() == ""


def test_a_master_that_refuses_is_noted_and_keeps_nobody_from_serving(group: Group) -> None:
    m1, m2 = engine(group, "m1"), engine(group, "m2")

    async def refuses(*_: object) -> dict[str, object]:
        raise HaError("no such method")

    answers = m2.handlers["trees"]
    m2.handlers["trees"] = refuses
    group.do((m1, m1.round()))
    note = "trees: m2 does not say what is current there: no such method"
    assert note in [*m1.trees.notes()]
    assert m1.trees.behind() == ""
    group.sides["m2"] = 1
    group.do((m1, m1.round()))
    assert note not in [*m1.trees.notes()], "it is not known any more"
    group.sides["m2"] = 0
    group.do((m1, m1.round()))
    assert note in [*m1.trees.notes()]
    way = m1.ways.pop("m2")
    assert note not in [*m1.trees.notes()], "it is no peer any more"
    m1.ways["m2"] = way
    m2.handlers["trees"] = answers
    group.do((m1, m1.round()))
    assert note not in [*m1.trees.notes()]
