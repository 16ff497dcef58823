"""docs/configuration.md is made from the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from saltext_ha.config import page
from saltext_ha.config.mapping import KEYS

WRITTEN = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.replace("\\|", "").split("|")[1:-1]]
    for line in WRITTEN.splitlines()
    if line.startswith("| `")
]


def test_the_page_is_current() -> None:
    assert page.page() == WRITTEN, "python -m saltext_ha.config.page > docs/configuration.md"


def test_every_key_is_told_with_what_it_takes() -> None:
    assert len(ROWS) > len(KEYS) + 20
    assert [row[0] for row in ROWS[: len(KEYS)]] == [f"`{key}`" for key in KEYS]
    assert [row for row in ROWS if len(row) != 4 or not row[3]] == []
    assert [row[0] for row in ROWS if not row[1]] == ["`lint`"]


@pytest.mark.parametrize(
    ("key", "takes", "default"),
    [
        ("port", "a whole number from 1 to 65535", "4530"),
        ("mode", "one of: enforce, observe", "`enforce`"),
        ("share_master_key", "true or false", "`false`"),
        ("sync_interval", "a number from 0.1 to 3600", "3"),
        ("state_dir", "an absolute path", ""),
    ],
)
def test_what_a_row_says(key: str, takes: str, default: str) -> None:
    (row,) = [row for row in ROWS[: len(KEYS)] if row[0] == f"`{key}`"]
    assert row[1:3] == [takes, default]
