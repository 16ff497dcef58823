"""Two masters that have a tree each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.disk_steps import empty_disks
from tests.functional.trees.tree_place import TreePlace, tree_place


@pytest.fixture
def m1(tmp_path: Path) -> TreePlace:
    return tree_place(tmp_path, "m1")


@pytest.fixture
def m2(tmp_path: Path) -> TreePlace:
    return tree_place(tmp_path, "m2", files={})


@pytest.fixture(autouse=True)
def _empty_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    """However full the disk of this machine is."""
    empty_disks(monkeypatch)
