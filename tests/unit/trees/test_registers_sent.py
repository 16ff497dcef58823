"""A register that makes no sense is refused whole."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from saltext_ha.common.errors import InvalidRecord
from saltext_ha.replication.deployment import MOST_NUMBER
from saltext_ha.sync.codec import MAX_TIME
from saltext_ha.trees import registers

ENTRY = [1, bytes(32), 1.7e9, "root", "m1", "/srv", "", 3, 100]
GOOD = [[["0" * 16, 1, [ENTRY]]], [["0" * 16, 1]]]

Bend = Callable[[Any], object]


def test_what_is_good_is_taken() -> None:
    assert registers.to_rows(registers.from_rows(GOOD)) == GOOD


@pytest.mark.parametrize(
    "entry",
    [
        [0, bytes(32), 0.0, "", "", "", "", 0, 0],
        [MOST_NUMBER, bytes(32), MAX_TIME, *["x" * registers.LONGEST] * 4, 3, 100],
    ],
    ids=["least", "most"],
)
def test_the_limits_themselves_are_taken(entry: list[Any]) -> None:
    raw = [[["0" * 16, 1, [entry]]], [["0" * 16, 1]]]
    assert registers.to_rows(registers.from_rows(raw)) == raw


@pytest.mark.parametrize(
    "bend",
    [
        lambda raw: raw.pop(),
        lambda raw: raw[0].append(raw[0][0]),
        lambda raw: raw[0][0].__setitem__(0, "no node"),
        lambda raw: raw[0][0].__setitem__(1, 0),
        lambda raw: raw[0][0].__setitem__(1, 2),
        lambda raw: raw[0][0].__setitem__(2, []),
        lambda raw: raw[0][0].__setitem__(2, [ENTRY] * 6),
        lambda raw: raw[1][0].__setitem__(1, 2**50),
        lambda raw: raw[1].extend([[f"{n:016x}", 1] for n in range(5000)]),
        lambda raw: raw[0][0][2][0].__setitem__(0, -1),
        lambda raw: raw[0][0][2][0].__setitem__(0, MOST_NUMBER + 1),
        lambda raw: raw[0][0][2][0].__setitem__(1, b"short"),
        lambda raw: raw[0][0][2][0].__setitem__(2, -1.0),
        lambda raw: raw[0][0][2][0].__setitem__(2, MAX_TIME * 2),
        lambda raw: raw[0][0][2][0].__setitem__(2, float("nan")),
        lambda raw: raw[0][0][2][0].__setitem__(3, "x" * 1000),
        lambda raw: raw[0][0][2][0].__setitem__(7, -1),
        lambda raw: raw[0][0][2][0].__setitem__(8, "many"),
    ],
)
def test_what_is_refused(bend: Bend) -> None:
    raw = copy.deepcopy(GOOD)
    bend(raw)
    with pytest.raises(InvalidRecord):
        registers.from_rows(raw)


@pytest.mark.parametrize("raw", [None, 1, "x", [], [[], []] * 2, {"a": 1}, [1, 2]])
def test_what_is_no_register(raw: Any) -> None:
    if raw == [[], []] * 2:
        assert registers.from_rows(raw).values == ()  # a later release may say more
        return
    with pytest.raises(InvalidRecord):
        registers.from_rows(raw)
