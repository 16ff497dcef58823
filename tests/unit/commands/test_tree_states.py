"""Of what masters do not have alike: which tree it lies in, where it was edited, what mends it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from saltext_ha.commands.trees.tree_states import TreeStates, explain, folders_of, places
from saltext_ha.config.trees import Tree
from saltext_ha.sync.group import Group
from saltext_ha.trees.live_path import LINKED
from saltext_ha.trees.stager import Stager
from saltext_ha.trees.tree_state import TreeState

STATES, PILLAR = Tree("states", Path("/srv/salt")), Tree("pillar", Path("/srv/pillar"), secret=True)
OPTS = {
    "file_roots": {"base": ["/srv/salt/base", "/srv/other"], "dev": ["/srv/other"]},
    "pillar_roots": {"__env__": ["/srv/pillar"], "base": ["/srv/pillar"]},
}


def state(version: bytes = b"1", edits: tuple[str, ...] = (), edited: int = 0) -> TreeState:
    return TreeState(LINKED, version, edits=edits, edited=edited or len(edits))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("file_roots:base:web/init.sls", [("states", "base/web/init.sls")]),
        ("file_roots:dev:web/init.sls", []),
        ("file_roots:base", []),
        ("file_roots:gone:x", []),
        ("pillar_roots:base:a:b.sls", [("pillar", "a:b.sls")]),
        ("gitfs:x:y", []),
    ],
)
def test_where_a_path_lies(path: str, expected: list[tuple[str, str]]) -> None:
    found = [(tree.name, below) for tree, below in places(path, [STATES, PILLAR], folders_of(OPTS))]
    assert found == expected


@pytest.mark.parametrize(
    ("states", "edited_on", "words"),
    [
        ({"m1": state(), "m2": state(edits=("a",))}, ["m2"], "edited by hand on m2 in tree states"),
        ({"m1": state(), "m2": state(edits=("b",))}, [], "ha.deploy states makes it the same"),
        ({"m1": state(), "m2": state(edits=("b",), edited=99)}, ["m2"], "keeps the edit beside"),
        ({"m1": state(), "m2": state(b"2")}, [], "salt-run ha.deployments states"),
        ({"m1": state(), "m2": state(b"1")}, [], "makes it the same on all; no restart"),
    ],
)
def test_what_is_said(states: Any, edited_on: list[str], words: str) -> None:
    difference: dict[str, Any] = {"path": "file_roots:base:a", "fix": "rsync"}
    explain(difference, [(STATES, "a")], {name: {"states": told} for name, told in states.items()})
    assert (difference["tree"], difference["edited_on"]) == ("states", edited_on)
    assert words in difference["fix"]


def test_of_several_trees_it_is_the_one_that_was_edited() -> None:
    difference: dict[str, Any] = {"path": "file_roots:base:a", "fix": "rsync"}
    told = {"m1": {"states": state(), "pillar": state(edits=("x/a",))}}
    explain(difference, [(STATES, "a"), (PILLAR, "x/a")], told)
    assert difference["tree"] == "pillar"


def test_a_master_that_does_not_tell_is_named() -> None:
    difference: dict[str, Any] = {"path": "file_roots:base:a", "fix": "rsync"}
    explain(difference, [(STATES, "a")], {"m1": {"states": state()}}, ["m2"])
    assert "whether it was edited on m2 is unknown" in difference["fix"]


SOUND = {"live": LINKED, "version": b"1", "foreign": "", "obstacle": "", "edited": 0, "edits": []}


@pytest.mark.parametrize(
    ("about", "lie"), [("edited", "many"), ("edits", [5]), ("version", None), ("live", 1)]
)
def test_a_master_that_tells_nonsense_does_not_tell(about: str, lie: Any) -> None:
    told = {"m1": {"trees": {"states": SOUND}}, "m2": {"trees": {"states": {**SOUND, about: lie}}}}
    told["m3"] = {"trees": {"states": 5}}

    async def ask(*question: Any) -> Any:
        return told, {}

    group, stager = SimpleNamespace(ask=ask), SimpleNamespace(state=lambda trees: None)
    found, errors = asyncio.run(
        TreeStates(cast("Group", group), cast("Stager", stager), {}).of(["states"])
    )
    assert found == {"m1": {"states": TreeState(LINKED, b"1", edits=[])}}
    assert errors["m2"].startswith(f"malformed {about}:")
    assert errors["m3"].startswith("malformed states:")
