"""``ha: trees:``: what is read, and errors that name tree and key and say what is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from saltext_ha.common.errors import ConfigError
from saltext_ha.config.mapping import parse
from saltext_ha.config.trees import Tree
from tests.unit.config.options import OPTS

pytestmark = pytest.mark.core


def read(trees: Any, **ha: Any) -> tuple[Tree, ...]:
    return parse({**OPTS, "ha": {"trees": trees, **ha}}).trees


def one(**tree: Any) -> dict[str, Any]:
    return {"states": {"live": "/srv/salt", **tree}}


def test_what_is_left_out_has_its_default() -> None:
    assert read(one()) == (Tree("states", Path("/srv/salt")),)
    assert read(None) == ()


def test_all_of_it_is_read_in_its_order() -> None:
    found = read(
        {
            "states": {"source": "/srv/git/salt", "live": "/srv/salt", "ignore": ["*.swp"]},
            "pillar": {
                "live": "/srv/pillar",
                "secret": True,
                "check": "true {tree}",
                "check_timeout": 5,
            },
        }
    )
    assert found == (
        Tree("states", Path("/srv/salt"), Path("/srv/git/salt"), ignore=("*.swp",)),
        Tree("pillar", Path("/srv/pillar"), secret=True, check="true {tree}", check_timeout=5.0),
    )
    assert found[0].folder == Path("/srv/.salt.ha")


def test_two_trees_may_be_taken_from_one_place() -> None:
    found = read(
        {
            "states": {"source": "/srv/git", "live": "/srv/salt"},
            "pillar": {"source": "/srv/git/pillar", "live": "/srv/pillar"},
        }
    )
    assert [tree.source for tree in found] == [Path("/srv/git"), Path("/srv/git/pillar")]


@pytest.mark.parametrize(
    ("trees", "said"),
    [
        ([], ["takes a mapping", "live: /folder"]),
        ("states", ["takes a mapping"]),
        ({"states": "/srv/salt"}, ["states", "takes a mapping"]),
        ({"st/ates": {}}, ["'st/ates'", "at most 32 letters"]),
        ({"-states": {}}, ["'-states'", "beginning with a letter"]),
        ({"s" * 33: {}}, ["at most 32"]),
        ({7: {}}, ["7", "a name takes"]),
        ({"states": {}}, ["states", "live is missing"]),
        (one(live="srv/salt"), ["states: live", "'srv/salt'", "absolute path"]),
        (one(live="/"), ["states: live", "absolute path of a folder"]),
        (one(live="/srv/../etc"), ["states: live", "without .."]),
        (one(live=None), ["states: live", "None"]),
        (one(source="salt"), ["states: source", "'salt'", "absolute path"]),
        (one(sourse="/srv/git"), ["states", "unknown key 'sourse'", "did you mean 'source'"]),
        (one(secret="yes"), ["states: secret", "'yes'", "true or false"]),
        (one(ignore="*.swp"), ["states: ignore", "'*.swp'", "list of globs"]),
        (one(ignore=[1]), ["states: ignore", "list of globs"]),
        (one(check=["true"]), ["states: check"]),
        (one(check=""), ["states: check", "names no command"]),
        (one(check="  "), ["states: check", "names no command"]),
        (one(check="'' x"), ["states: check", "names no command"]),
        (one(check="echo it's fine"), ["states: check", "split", "no closing quotation"]),
        (one(check_timeout=0), ["states: check_timeout", "0", "1 to 3600"]),
        (one(check_timeout="60"), ["states: check_timeout", "'60'"]),
        (one(source="/srv/salt"), ["states: source", "states: live", "lie in each other"]),
        (one(source="/srv/salt/git"), ["states: source", "lie in each other"]),
        (
            {"a": {"live": "/srv/salt"}, "b": {"live": "/srv/salt/sub"}},
            ["b: live: /srv/salt/sub", "a: live: /srv/salt", "lie in each other"],
        ),
        (
            {"a": {"live": "/srv/salt"}, "b": {"live": "/srv/b", "source": "/srv"}},
            ["b: source: /srv", "lie in each other"],
        ),
        (one(live="/etc/salt/pki/master/ha"), ["states: live", "pki_dir", "keys and state"]),
        (one(live="/etc/salt"), ["states: live", "pki_dir", "keys and state"]),
        (one(source="/etc/salt/pki"), ["states: source", "pki_dir", "keys and state"]),
    ],
)
def test_a_mistake_is_named_with_file_tree_key_and_what_it_takes(
    trees: Any, said: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(trees)
    for part in ["/etc/salt/master: ha: trees", *said]:
        assert part in str(caught.value)


def test_no_tree_lies_in_a_state_folder_that_is_elsewhere() -> None:
    with pytest.raises(ConfigError, match="states: live: /var/ha/x and ha: state_dir: /var/ha"):
        read(one(live="/var/ha/x"), state_dir="/var/ha")
