"""How a target is divided among masters."""

from __future__ import annotations

from typing import Any

import pytest

from saltext_ha.api.errors import TargetNotDivided
from saltext_ha.api.target_split import Part, divide

ORDER = ["m1", "m2", "m3"]
MIXED = {"a": ["m1"], "b": ["m2"], "c": ["m2", "m3"], "dead": list[str]()}


@pytest.mark.parametrize(
    ("reached", "master"),
    [
        ({}, "m1"),
        ({"dead": []}, "m1"),
        ({"a": ["m2"]}, "m2"),
        ({"a": ["m2", "m3"], "b": ["m3"]}, "m3"),
        ({"a": ["elsewhere"]}, "m1"),
    ],
)
def test_one_master_is_enough(reached: dict[str, list[str]], master: str) -> None:
    assert divide("*", "glob", reached, ORDER) == [Part(master, "*", "glob")]


@pytest.mark.parametrize(
    ("tgt", "tgt_type", "word"),
    [
        ("w*", "glob", "w*"),
        ("os:Debian", "grain", "G@os:Debian"),
        ("w* or G@x:y", "compound", "w* or G@x:y"),
        ("front", "nodegroup", "N@front"),
    ],
)
def test_nobody_matches_two_parts(tgt: Any, tgt_type: str, word: str) -> None:
    assert divide(tgt, tgt_type, MIXED, ORDER) == [
        Part("m1", f"( {word} ) and not L@b,c", "compound"),
        Part("m2", f"( {word} ) and L@b,c", "compound"),
    ]


def test_a_list() -> None:
    parts = divide(["a", "b", "dead"], "list", {"a": ["m2"], "b": ["m3"], "dead": []}, ORDER)
    assert parts == [
        Part("m2", "( L@a,b,dead ) and not L@b", "compound"),
        Part("m3", ["b"], "list"),
    ]


def test_a_compound_target_that_is_a_list() -> None:
    rest, there = divide(["w*", "or", "x*"], "compound", MIXED, ORDER)
    assert (rest.tgt, there.tgt) == ("( w* or x* ) and not L@b,c", "( w* or x* ) and L@b,c")


@pytest.mark.parametrize(
    ("tgt", "kind"),
    [
        ("os:Red Hat", "grain"),
        (["G@os:Red Hat", "or", "w*"], "compound"),
        ("G@x", "glob"),
        ("and", "glob"),
        ("%all", "range"),
    ],
)
def test_what_cannot_stand_in_a_compound_target_is_refused_or_left_whole(
    tgt: Any, kind: str
) -> None:
    assert divide(tgt, kind, {"a": ["m2"], "b": ["m2", "m1"]}, ORDER) == [Part("m2", tgt, kind)]
    with pytest.raises(TargetNotDivided) as told:
        divide(tgt, kind, MIXED, ORDER)
    assert "os:Red?Hat" in str(told.value)


def test_a_minion_whose_name_cannot_stand_in_a_target_does_not_count() -> None:
    assert divide("*", "glob", {"a,b": ["m2"], "c": ["m1"]}, ORDER) == [Part("m1", "*", "glob")]
