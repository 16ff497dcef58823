"""What README and docs/ say of the project is there; ``make docs`` follows the links of docs/."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from saltext_ha.modules import ha as module
from saltext_ha.output import _explained
from saltext_ha.runners import ha as runner
from saltext_ha.states import ha as states

ROOT = Path(__file__).parents[3]
NAMED = [
    (str(path.relative_to(ROOT)), *found)
    for path in sorted((ROOT / "docs").rglob("*.md"))
    for found in re.findall(r"`(?:\w+/)*(test_\w+\.py)::(test_\w+)`", path.read_text("utf-8"))
]
README = (ROOT / "README.md").read_text("utf-8")
LINKS = re.findall(r"\]\(([^)#\s]*)(?:#([\w-]+))?\)", README)
HEADINGS = re.findall(r"^### (.*)$", (ROOT / "docs/troubleshooting.md").read_text("utf-8"), re.M)
# What stands in code and is a message; the rest are names of columns and states.
MESSAGES = [
    text for heading in HEADINGS for text in re.findall(r"`([^`]+)`", heading) if " " in text
]


def test_some_are_named() -> None:
    assert len(NAMED) > 40


@pytest.mark.parametrize(("document", "file", "name"), NAMED)
def test_it_is_there(document: str, file: str, name: str) -> None:
    texts = [path.read_text("utf-8") for path in (ROOT / "tests").rglob(file)]
    assert any(f"def {name}(" in text for text in texts), f"{document} names {file}::{name}"


def test_where_it_is_decided_is_there() -> None:
    text = (ROOT / "docs/development.md").read_text("utf-8")
    table = text.partition("## Where it is decided\n")[2].partition("\n## ")[0]
    there = {}
    for place, names in re.findall(r"`([\w/]+\.py)`(?:: ((?:`[\w.]+`(?:, )?)+))?", table):
        tree = ast.parse((ROOT / "src/saltext_ha" / place).read_text("utf-8"))
        there[place] = set(_defined(tree.body))
        assert set(re.findall(r"[\w.]+", names)) <= there[place], place
    assert len(there) > 10


def _defined(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    """The names of functions, classes, methods and constants that *body* defines."""
    for each in body:
        if isinstance(each, ast.ClassDef):
            yield each.name
            yield from _defined(each.body, f"{each.name}.")
        elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + each.name
        elif isinstance(each, ast.Assign):
            yield from (name.id for name in each.targets if isinstance(name, ast.Name))


# -- README


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


@pytest.mark.parametrize(("path", "anchor"), sorted(set(LINKS)))
def test_a_link_of_readme_leads_somewhere(path: str, anchor: str) -> None:
    target = ROOT / path
    assert target.is_file()
    if anchor:
        assert anchor in {
            slug(h) for h in re.findall(r"^#+ (.*)$", target.read_text("utf-8"), re.M)
        }


def slug(heading: str) -> str:
    """A heading as links have it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def test_every_page_of_docs_is_led_to() -> None:
    """Sphinx says so as well; here it is of who reads README without the site."""
    index = (ROOT / "docs/index.md").read_text("utf-8")
    assert "docs/getting-started.md" in {path for path, _ in LINKS}
    pages = {str(p.relative_to(ROOT / "docs"))[:-3] for p in (ROOT / "docs").rglob("*.md")}
    assert pages - {"index"} == {line for line in index.splitlines() if line in pages}


# -- commands


def public(source: object) -> set[str]:
    names = {
        name for name, value in vars(source).items() if callable(value) and not name.startswith("_")
    }
    own = {name for name in names if vars(source)[name].__module__ == source.__name__}
    return {name.rstrip("_") for name in own}


def test_every_command_is_in_the_list() -> None:
    page = (ROOT / "docs/commands.md").read_text("utf-8")
    told = set(re.findall(r"\bha[. ](\w+)|salt-ha (\w+)", page))
    missing = (public(runner) | public(module)) - {a or b for a, b in told}
    assert missing == {"genuine"}, "that one is for reactors: docs/events.md"


def test_readme_names_commands_that_are_there() -> None:
    named = set(re.findall(r"`?salt-run ha\.(\w+)", README)) | set(
        re.findall(r"`ha\.(\w+)`", README)
    )
    assert len(named) > 10
    assert named <= public(runner) | public(module) | public(states)


# -- troubleshooting


@cache
def said() -> str:
    """All texts that the product says."""
    return "\n".join(texts())


def texts() -> Iterator[str]:
    """Every text of the product, but docstrings, with … where a value goes."""
    for path in (ROOT / "src").rglob("*.py"):
        if path.name == Path(_explained.__file__).name:
            continue  # the headings themselves
        tree = ast.parse(path.read_text("utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                yield "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "…"
                    for part in node.values
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield "" if id(node) in docstrings else node.value


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_is_what_the_product_says(message: str) -> None:
    words = re.sub(r"\b(m2|64|16)\b", "…", message)
    assert words in said() or message in said()


def test_what_people_see_leads_to_each_message() -> None:
    told = [text for heading in _explained.HEADINGS for text in re.findall(r"`([^`]+)`", heading)]
    assert [text for text in told if " " in text] == MESSAGES
    assert set(_explained.HEADINGS) <= set(HEADINGS)


def test_there_are_such_messages() -> None:
    assert len(MESSAGES) > 30
    assert len(HEADINGS) == len(set(HEADINGS)) > 40
