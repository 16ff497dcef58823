"""What docs/design.md says of the modules is so: which may use which, and what is pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "saltext_ha"

# A module uses what stands before its own name, and its own package; nothing that stands behind.
ORDER = re.findall(
    r"\w+",
    """
    errors faults version batches checked secret hysteresis cluster clear binding replication
    control minion_key master_key minion_opts evidence
    columns history history_text schema rows tally meta dropped
    health api settings config keystore replica restarting watchdog
    provenance holds refused races observer applier keeper
    peering proxy consistency lint web safety minion_reports drop_in rollout
    service join_plan joining inviting asking
    engines modules runners states output cli
    """,
)

# The settings of these are read by config.py, so they come before it.
SETTINGS = {"consistency.settings", "health.settings", "web.settings"}

# Values in, values out.
PURE = (
    "replication",
    "batches",
    "hysteresis",
    "health.verdict",
    "consistency.comparison",
    "safety",
    "watchdog.decide",
    "watchdog.order",
    "service.spread",
    "service.location",
)
# What can do nothing but compute.
HARMLESS = {
    "__future__", "bisect", "collections", "collections.abc", "copy", "dataclasses", "enum",
    "fnmatch", "functools", "hashlib", "hmac", "ipaddress", "itertools", "math", "operator", "re",
    "typing", "urllib.parse",
}  # fmt: skip

# Salt loads these in every process of its own.
LOADED = ("engines", "modules", "output", "runners", "states")
HEAVY = {"aiohttp", "cryptography", "jinja2", "prometheus_client"}


def name_of(path: Path) -> str:
    """``service.links``, as this package is not named in each."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(path): ast.parse(path.read_text("utf-8")) for path in PACKAGE.rglob("*.py")}
del MODULES["__init__"]


def unit(name: str) -> str:
    """What stands in :data:`ORDER` for a module."""
    return "settings" if name in SETTINGS else name.partition(".")[0]


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


def test_every_module_has_its_place_in_the_order() -> None:
    # A new module is to be put into ORDER, above what it uses, and into docs/design.md.
    assert {unit(name) for name in MODULES} ^ set(ORDER) == set()
    assert len(ORDER) == len(set(ORDER))


@pytest.mark.parametrize("name", MODULES)
def test_a_module_uses_only_what_is_below_it(name: str) -> None:
    own = unit(name)
    uses = {unit(each): each for each in imported(MODULES[name]) if each in MODULES}
    above = {each for each in uses if each != own and ORDER.index(each) > ORDER.index(own)}
    assert not above, f"{name} imports {', '.join(uses[each] for each in sorted(above))}"


@pytest.mark.parametrize("name", [name for name in MODULES if belongs(name, PURE)])
def test_what_is_pure_imports_nothing_that_acts(name: str) -> None:
    others = {each for each in imported(MODULES[name]) if each not in HARMLESS}
    assert not {each for each in others if each not in MODULES}


@pytest.mark.parametrize("name", [name for name in MODULES if belongs(name, LOADED)])
def test_salts_loader_is_not_held_up(name: str) -> None:
    seen, waiting = {name}, [name]
    while waiting:
        for each in imported(MODULES[waiting.pop()], everywhere=False):
            assert each.partition(".")[0] not in HEAVY, f"{name} loads {each}"
            if each in MODULES and each not in seen:
                seen.add(each)
                waiting.append(each)


def test_the_map_of_the_design_names_every_module() -> None:
    text = (ROOT / "docs" / "design.md").read_text("utf-8")
    layers = text[text.index("## 3.") : text.index("## 4.")]
    named = {word.rstrip("/") for word in re.findall(r"`([\w/.]+)`", layers)}
    named |= {word.removesuffix(".py") for word in named} | {word.split("/")[0] for word in named}
    told = {
        name.removeprefix("service.") if name.startswith("service.") else name.partition(".")[0]
        for name in MODULES
    }
    assert not told - named, f"docs/design.md §3 does not tell of {sorted(told - named)}"
    gone = {word for word in named if word.endswith(".py") and not (PACKAGE / word).exists()}
    assert not gone - {"tests/unit/test_layers.py"}, f"docs/design.md §3 tells of {sorted(gone)}"
