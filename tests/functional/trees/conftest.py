"""Two masters that have a tree each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.functional.trees.tree_place import TreePlace, tree_place


@pytest.fixture
def m1(tmp_path: Path) -> TreePlace:
    return tree_place(tmp_path, "m1")


@pytest.fixture
def m2(tmp_path: Path) -> TreePlace:
    return tree_place(tmp_path, "m2", files={})
