"""Tests that the documents name are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NAMED = [
    (str(path.relative_to(ROOT)), *found)
    for path in sorted((ROOT / "docs").rglob("*.md"))
    for found in re.findall(r"`(?:\w+/)*(test_\w+\.py)::(test_\w+)`", path.read_text("utf-8"))
]


def test_some_are_named() -> None:
    assert len(NAMED) > 40


@pytest.mark.parametrize(("document", "file", "name"), NAMED)
def test_it_is_there(document: str, file: str, name: str) -> None:
    texts = [path.read_text("utf-8") for path in (ROOT / "tests").rglob(file)]
    assert any(f"def {name}(" in text for text in texts), f"{document} names {file}::{name}"
