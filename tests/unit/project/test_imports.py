"""What import-linter's contracts cannot say: who only computes, and what is loaded at once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "src" / "saltext_ha"

# Values in, values out.
PURE = (
    "replication",
    "commands.membership.undoing",
    "common.batches",
    "common.hysteresis",
    "consistency.comparison",
    "health.fitness",
    "health.group_state",
    "health.verdict",
    "minion.watchdog.decide",
    "minion.watchdog.order",
    "minions.locator",
    "minions.move_planner",
    "minions.safety",
    "once.election",
    "once.leadership",
)
# What can do nothing but compute.
HARMLESS = {
    "__future__", "array", "bisect", "collections", "collections.abc", "copy", "dataclasses",
    "enum", "fnmatch", "functools", "hashlib", "hmac", "ipaddress", "itertools", "math", "operator",
    "re", "struct", "typing", "urllib.parse",
}  # fmt: skip

# Salt loads these in every process of its own.
LOADED = ("engines", "modules", "output", "runners", "states")
HEAVY = {"aiohttp", "cryptography", "jinja2", "prometheus_client"}


def name_of(path: Path) -> str:
    """``sync.links``, as this package is not named in each."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(path): path for path in PACKAGE.rglob("*.py")}
del MODULES["__init__"]


@cache
def tree(name: str) -> ast.Module:
    """The code of a module. Each worker collects these tests, and one runs them."""
    return ast.parse(MODULES[name].read_text("utf-8"))


def imported(node: ast.AST, everywhere: bool = True) -> Iterator[str]:
    """
    What is imported below *node* when it runs; modules of this package without its name.

    :param everywhere: also inside functions, which is later than when the module is loaded.
    """
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import(names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                for alias in names:
                    inner = f"{module}.{alias.name}".removeprefix("saltext_ha.")
                    yield inner if inner in MODULES else module.removeprefix("saltext_ha.")
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                pass
            case ast.FunctionDef() | ast.AsyncFunctionDef() if not everywhere:
                pass
            case _:
                yield from imported(child, everywhere)


def belongs(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def test_what_is_called_pure_is_there() -> None:
    assert set(PURE) <= MODULES.keys()


@pytest.mark.parametrize("name", [name for name in MODULES if belongs(name, PURE)])
def test_what_is_pure_imports_nothing_that_acts(name: str) -> None:
    others = {each for each in imported(tree(name)) if each not in HARMLESS}
    assert not {each for each in others if each not in MODULES}


@pytest.mark.parametrize("name", [name for name in MODULES if belongs(name, LOADED)])
def test_salts_loader_is_not_held_up(name: str) -> None:
    seen, waiting = {name}, [name]
    while waiting:
        for each in imported(tree(waiting.pop()), everywhere=False):
            assert each.partition(".")[0] not in HEAVY, f"{name} loads {each}"
            if each in MODULES and each not in seen:
                seen.add(each)
                waiting.append(each)


def test_the_design_tells_of_every_part_in_the_row_of_its_room() -> None:
    text = (ROOT / "docs" / "design.md").read_text("utf-8")
    rows = [line for line in text[text.index("## 3.") : text.index("## 4.")].splitlines() if line]
    told = {
        room: set(re.findall(r"`([\w/.]+)`", row))
        for row in rows
        if row.startswith("| `")
        for room in re.findall(r"`([\w/]+?)/?`", row.split("|")[1])
    }
    assert {r for r in told if "/" not in r} == {name.partition(".")[0] for name in MODULES}
    few = {*LOADED, "consistency"}  # whose row is no list
    for name in MODULES:
        path = name.replace(".", "/")
        room = max((r for r in told if path == r or path.startswith(f"{r}/")), key=len)
        part = path.removeprefix(room).strip("/")
        if part and room not in few:
            names = {part, part.replace("/", "."), f"{part.partition('/')[0]}/"}
            assert names & told[room], f"{name}: docs/design.md §3 is silent"
