"""README and some pages in Chinese: nothing is missing, and nothing is older than its source."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

# Of the extra "docs", which is not installed beside older Salts and on other Pythons.
pytest.importorskip("babel", reason="the extra docs is not installed")

from lab import translations

NAMES = sorted(
    str(path.relative_to(translations.CATALOGUES).with_suffix(""))
    for path in translations.CATALOGUES.rglob("*.po")
)
README = translations.CATALOGUES / "readme.po"


def test_all_of_them_is_translated_as_it_reads_now() -> None:
    assert list(translations.problems()) == [], "make translations, and translate these"


def test_these_pages_are() -> None:
    tutorials = (translations.DOCS / "tutorials").glob("*.md")
    assert {"index", "getting-started", "minions", "readme"} <= set(NAMES)
    assert {f"tutorials/{page.stem}" for page in tutorials} <= set(NAMES)


def test_bringing_up_to_date_what_is_changes_nothing(tmp_path: Path) -> None:
    """Whatever release of Babel does it."""
    copy = tmp_path / "readme.po"
    shutil.copy(README, copy)
    translations.update(copy, translations.texts(translations.read(README)))
    assert copy.read_text("utf-8") == README.read_text("utf-8")
    assert "Babel" not in copy.read_text("utf-8")


def test_a_changed_sentence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = translations.texts(translations.read(README))
    monkeypatch.setattr(translations, "sources", lambda: {"readme": [*wanted[1:], "A new one."]})
    assert [line.split(": ", 1)[1] for line in translations.problems()] == [
        "not translated: A new one.",
        f"not in its source any more: {wanted[0]}",
    ]


def test_what_changed_a_little_keeps_its_translation_as_fuzzy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "readme.po"
    shutil.copy(README, copy)
    wanted = translations.texts(translations.read(copy))
    long = max(wanted, key=len)
    translations.update(copy, [text + " Indeed." if text == long else text for text in wanted])
    message = translations.read(copy).get(long + " Indeed.")
    assert message is not None
    assert message.fuzzy
    assert message.string


@pytest.mark.parametrize("name", NAMES)
def test_commands_and_links_are_the_same(name: str) -> None:
    for message in translations.read(translations.CATALOGUES / f"{name}.po"):
        said, source = str(message.string), str(message.id)
        assert sorted(set(re.findall("`[^`]+`", said))) == sorted(
            set(re.findall("`[^`]+`", source))
        )
        # As a heading 1. is a list otherwise, and Sphinx leaves it in English.
        assert not re.match(r"\d+\. ", said)
        if source != "[中文](README.zh-CN.md)":
            links = re.compile(r"\]\(([^)]*)\)")
            assert sorted(links.findall(said)) == sorted(links.findall(source))


def test_the_chinese_readme_has_the_same_commands() -> None:
    code = re.compile(r"^ *```.*?^ *```", re.M | re.S)
    original = translations.README.read_text("utf-8")
    translated = translations.TRANSLATED.read_text("utf-8")
    assert code.findall(translated) == code.findall(original)
    assert re.search("[\u4e00-\u9fff]", translated)
