"""
``python -m lab.translations``: the catalogues of docs/locale, and README in other languages.

Brings the catalogues up to date with README and the pages that have one: what is new is empty, what
changed is marked as fuzzy, with the old translation. ``--check`` changes nothing, and says what of
them is missing or older than its source. A page is translated by an empty catalogue for it.
"""

from __future__ import annotations

import argparse
import datetime
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LANGUAGE = "zh_CN"
CATALOGUES = DOCS / "locale" / LANGUAGE / "LC_MESSAGES"
README, TRANSLATED = ROOT / "README.md", ROOT / "README.zh-CN.md"
READMES = "readme"
"""The name of README's catalogue; README is no page of the site."""
# No catalogue must depend on the time when it was written, nor on the release of Babel.
HEADER = "# Of saltext-ha. Bring it up to date by: make translations"
WRITTEN = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
RELEASE = b'"Generated-By:'


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 if something is left to be translated."""
    parser = argparse.ArgumentParser(prog="python -m lab.translations", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing")
    if not parser.parse_args(arguments).check:
        for name, wanted in sources().items():
            update(CATALOGUES / f"{name}.po", wanted)
        TRANSLATED.write_text(in_words_of(read(CATALOGUES / f"{READMES}.po")), "utf-8")
    found = list(problems())
    for line in found:
        print(line, file=sys.stderr)
    return int(bool(found))


def problems() -> Iterator[str]:
    """Translations that are missing, or older than their sources."""
    for name, wanted in sources().items():
        path = CATALOGUES / f"{name}.po"
        said = read(path)
        where = path.relative_to(ROOT)
        for text in wanted:
            message = said.get(text)
            if message is None or not message.string or message.fuzzy:
                state = "fuzzy" if message is not None and message.fuzzy else "not translated"
                yield f"{where}: {state}: {text[:80]}"
        yield from (
            f"{where}: not in its source any more: {str(message.id)[:80]}"
            for message in said
            if message.id and message.id not in wanted
        )
    # Texts without a translation are reported already.
    if TRANSLATED.read_text("utf-8") != in_words_of(read(CATALOGUES / f"{READMES}.po")):
        yield f"{TRANSLATED.name}: older than its catalogue: make translations"


def sources() -> dict[str, list[str]]:
    """Name of a catalogue → the texts of its page, or of README."""
    names = {str(p.relative_to(CATALOGUES).with_suffix("")) for p in CATALOGUES.rglob("*.po")}
    pages = sorted(names - {READMES})
    with tempfile.TemporaryDirectory() as folder:
        builder = [sys.executable, "-m", "sphinx", "-q", "-b", "gettext", str(DOCS), folder]
        subprocess.run([*builder, *(str(DOCS / f"{name}.md") for name in pages)], check=True)
        found = {name: texts(read(Path(folder, f"{name}.pot"))) for name in pages}
    readme = dict.fromkeys(text for text, _ in blocks(README.read_text("utf-8")))
    return {**found, READMES: list(readme)}


def texts(catalogue: Catalog) -> list[str]:
    """The texts to translate in *catalogue*."""
    return [str(message.id) for message in catalogue if message.id]


def read(path: Path) -> Catalog:
    """The catalogue in a file, without obsolete messages."""
    with path.open("rb") as file:
        return read_po(file, locale=LANGUAGE, ignore_obsolete=True)


def update(path: Path, wanted: Sequence[str]) -> None:
    """Make *path* hold exactly the texts *wanted*, with the translations that it has."""
    catalogue = read(path)
    template = Catalog()
    for text in wanted:
        template.add(text)
    catalogue.update(template)
    catalogue.obsolete.clear()
    fresh = Catalog(
        locale=LANGUAGE, header_comment=HEADER, project="saltext-ha", charset="utf-8", fuzzy=False
    )
    fresh.creation_date = fresh.revision_date = WRITTEN
    fresh.msgid_bugs_address = fresh.last_translator = fresh.language_team = ""
    for message in catalogue:
        if message.id:
            fresh.add(message.id, message.string, flags=message.flags)
    written = BytesIO()
    write_po(written, fresh, width=0, include_previous=False)
    lines = written.getvalue().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if not line.startswith(RELEASE)))


def blocks(text: str) -> Iterator[tuple[str, Sequence[int]]]:
    """Each unit of text in a Markdown file, as in Sphinx, and its lines."""
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "inline" and token.map and token.content:
            yield " ".join(token.content.split()), token.map


def in_words_of(catalogue: Catalog) -> str:
    """README with the translations of *catalogue*; other texts stay as they are."""
    text = README.read_text("utf-8")
    lines = text.splitlines(keepends=True)
    said = {str(message.id): str(message.string) for message in catalogue if message.string}
    done: list[str] = []
    taken = 0
    for found, (first, last) in _ranges(text):
        done += lines[taken:first]
        done.append(_replaced("".join(lines[first:last]), {each: said.get(each) for each in found}))
        taken = last
    return "".join([*done, *lines[taken:]])


def _replaced(text: str, words: Mapping[str, str | None]) -> str:
    """*text* with *words* (original → translation) replaced; they stand there in this order."""
    done = ""
    for original, translated in words.items():
        match = re.search(r"\s+".join(map(re.escape, original.split())), text)
        assert match, original
        done += text[: match.start()] + (translated or match[0])
        text = text[match.end() :]
    return done + text


def _ranges(text: str) -> Iterator[tuple[list[str], tuple[int, int]]]:
    """The texts that share lines (cells of a row), with their lines, in order."""
    together: dict[tuple[int, int], list[str]] = {}
    for block, (first, last) in blocks(text):
        together.setdefault((first, last), []).append(block)
    yield from ((found, where) for where, found in together.items())


if __name__ == "__main__":
    sys.exit(main())
