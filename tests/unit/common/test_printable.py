"""Names that one master takes are taken by all: of text, the interpreter decides nothing."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterator

import pytest

from saltext_ha.common.printable import is_printable

pytestmark = pytest.mark.core

NONE = "Cn"
HIDDEN = ("Cc", "Cf", "Cs", "Co", "Zs", "Zl", "Zp")


def characters(*categories: str) -> Iterator[str]:
    return (c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c) in categories)


def test_what_this_python_prints_is_printable() -> None:
    assert [c for c in map(chr, range(sys.maxunicode + 1)) if c.isprintable()
            and not is_printable(c)] == []  # fmt: skip


def test_what_this_python_hides_is_not() -> None:
    assert [c for c in characters(*HIDDEN) if c != " " and is_printable(c)] == []


@pytest.mark.parametrize(
    "text",
    [
        "web\N{GRINNING FACE}",  # Unicode 6.1
        "web\U0001fae0",  # 14, Python 3.11
        "web\U0001fae8",  # 15, Python 3.12
        "web\U00040000",  # in none yet
    ],
)
def test_it_does_not_matter_since_when_a_character_is_one(text: str) -> None:
    assert is_printable(text)


def test_one_hidden_character_anywhere_is_enough() -> None:
    assert not is_printable("wäb\N{ZERO WIDTH SPACE}1")


def test_what_can_never_be_a_character_is_refused() -> None:
    ends = [chr(plane << 16 | low) for plane in range(17) for low in (0xFFFE, 0xFFFF)]
    assert not any(map(is_printable, [*ends, *map(chr, range(0xFDD0, 0xFDF0))]))
