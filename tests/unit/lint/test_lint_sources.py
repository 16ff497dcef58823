"""Each rule of ``ha.lint`` names what it rests on, and in the Salt that is installed it is so."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest
import salt.config
import salt.version

from saltext_ha.lint.cited import READ_ON, CitedLine
from saltext_ha.lint.model import Rule
from saltext_ha.lint.rules import RULES

pytestmark = pytest.mark.core

REPOSITORY = Path(__file__).parents[3]
PACKAGES = Path(salt.version.__file__).parents[1]
INSTALLED = salt.version.__version__
MAJOR = int(INSTALLED.partition(".")[0])

CITED = [(rule, line) for rule in RULES for line in rule.sources if isinstance(line, CitedLine)]
HERE = [
    (rule, line)
    for rule, line in CITED
    if (line.major == MAJOR if line.release else rule.holds_on((MAJOR,)))
]


@functools.cache
def module(path: str) -> tuple[list[str], dict[str, range]]:
    """The lines of a file of Salt, and which of them each class and function takes."""
    text = (PACKAGES / path).read_text(encoding="utf-8")
    spans: dict[str, range] = {}

    def walk(node: ast.AST, above: str) -> None:
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                name = f"{above}{inner.name}"
                spans[name] = range(inner.lineno, (inner.end_lineno or inner.lineno) + 1)
                walk(inner, f"{name}.")

    walk(ast.parse(text), "")
    return text.splitlines(), spans


def name(case: tuple[Rule, CitedLine]) -> str:
    rule, line = case
    return f"{rule.code}-{line.place.partition(' ')[0]}"


@pytest.mark.parametrize("case", HERE, ids=name)
def test_the_line_that_a_rule_was_read_from_is_there(case: tuple[Rule, CitedLine]) -> None:
    _, line = case
    path, _, rest = line.place.partition(":")
    number, _, where = rest.partition(" ")
    lines, spans = module(path)
    span = spans[where] if where else range(1, len(lines) + 1)
    found = [each for each in span if line.text in lines[each - 1]]
    assert found, f"{path}: {where} of {INSTALLED} has no {line.text}"
    if (line.release or READ_ON) == INSTALLED:
        assert int(number) in found, "it stands on another line"


def test_every_rule_names_a_line_of_salt_or_a_test_that_is_there() -> None:
    for rule in RULES:
        files = [
            REPOSITORY / path
            for source in rule.sources
            if not isinstance(source, CitedLine)
            for path in re.findall(r"(?:tests|docs)/[\w/-]+\.\w+", source)
        ]
        ours = any("saltext_ha/" in str(source) for source in rule.sources)
        assert ours or files or any(isinstance(source, CitedLine) for source in rule.sources), (
            rule.code
        )
        assert all(path.is_file() for path in files), rule.code
        assert rule.why.endswith((".", ".)")), rule.code


def test_no_advice_turns_signing_on_for_masters_or_minions_alone() -> None:
    """A minion that does not verify refuses a master that signs, and the other way round."""
    for rule in RULES:
        if "sign_pubkey: True" in rule.fix or "pubkey_sign: True" in rule.fix:
            where = rule.fix.startswith(("where minions verify, ", "where masters sign, "))
            assert where, rule.code


def test_each_release_that_a_rule_holds_on_is_vouched_for() -> None:
    for rule in RULES:
        lines = [source for source in rule.sources if isinstance(source, CitedLine)]
        for release in (3006, 3007, 3008):
            if lines and rule.holds_on((release,)):
                assert any(not line.release or line.major == release for line in lines), (
                    f"{rule.code} says nothing of {release}"
                )


@pytest.mark.parametrize(
    ("option", "since"), [("cluster_id", 3007), ("cluster_isolated_filesystem", 3008)]
)
def test_options_that_older_releases_do_not_know(option: str, since: int) -> None:
    assert (option in salt.config.VALID_OPTS) is (since <= MAJOR)
