"""``make dist``: what is not to be published is refused, and what was tried is said."""

from __future__ import annotations

import dataclasses
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from proving.dist import __main__ as program
from proving.dist.artifacts import Artifacts, Unfit, compare
from proving.dist.environments import Failed, Pair, reason, run

GIT = {"README.md", "tests/test_it.py", "src/saltext_ha/cli.py"}
PAIR = Pair((3, 11), Path("/usr/bin/python3.11"), "3008")


def artifacts(folder: Path, sdist: set[str], wheel: set[str]) -> Artifacts:
    """The two files, with these names in them."""
    empty = folder / "empty"
    empty.touch()
    made = Artifacts(folder / "a-1-py3-none-any.whl", folder / "a-1.tar.gz")
    with tarfile.open(made.sdist, "w:gz") as archive:
        for name in sdist | {"PKG-INFO", "src/saltext_ha.egg-info/PKG-INFO"}:
            archive.add(empty, f"a-1/{name}")
    with zipfile.ZipFile(made.wheel, "w") as archive:
        for name in wheel | {"a-1.dist-info/METADATA"}:
            archive.writestr(name, "")
    return made


def test_what_holds_the_same_as_git_is_fit(tmp_path: Path) -> None:
    compare(artifacts(tmp_path, GIT, {"saltext_ha/cli.py"}), GIT)


@pytest.mark.parametrize(
    ("sdist", "wheel", "said"),
    [
        (GIT - {"README.md"}, {"saltext_ha/cli.py"}, "a-1.tar.gz lacks README.md"),
        (GIT | {"secret.key"}, {"saltext_ha/cli.py"}, "a-1.tar.gz has secret.key, git does not"),
        (GIT, set(), "a-1-py3-none-any.whl lacks saltext_ha/cli.py"),
        (GIT, {"saltext_ha/cli.py", "tests/x.py"}, "a-1-py3-none-any.whl has tests/x.py"),
    ],
)
def test_what_does_not_is_refused_and_named(
    tmp_path: Path, sdist: set[str], wheel: set[str], said: str
) -> None:
    with pytest.raises(Unfit, match=said):
        compare(artifacts(tmp_path, sdist, wheel), GIT)


def test_the_first_and_the_last_pair_are_the_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {(3, 13): Path("/b"), (3, 10): Path("/a")}
    monkeypatch.setattr(program, "installed", lambda: found)
    pairs = program.pairs_of((), ("3006", "3008"))
    assert [(pair.name, end) for pair, end in pairs] == [
        ("Python 3.10, Salt 3006", True),
        ("Python 3.10, Salt 3008", False),
        ("Python 3.13, Salt 3006", False),
        ("Python 3.13, Salt 3008", True),
    ]
    assert [pair.python for pair, _ in program.pairs_of(("3.13",), ("3008",))] == [(3, 13)]


def test_the_table_says_which_and_why_not() -> None:
    pairs = [
        dataclasses.replace(PAIR, salt="3006", installed="3006.28"),
        dataclasses.replace(PAIR, installed="3008.3", demo=True),
        dataclasses.replace(PAIR, python=(3, 12), salt="3006", why="Salt 3006 does not run: x | y"),
        dataclasses.replace(PAIR, python=(3, 12), installed="3008.3"),
    ]
    assert program.table(pairs).splitlines() == [
        "| Python | Salt 3006 | Salt 3008 |",
        "| --- | --- | --- |",
        "| 3.11 | 3006.28 | 3008.3, and the demo |",
        "| 3.12 | **no**: Salt 3006 does not run: x \\| y | 3008.3 |",
    ]


@pytest.mark.parametrize(
    ("why", "ours"),
    [
        ("", False),
        ("Salt 3006 does not run: ModuleNotFoundError: No module named 'imp'", False),
        ("the wheel does not install: ERROR: no", True),
        ("the demo fails: it says nothing", True),
    ],
)
def test_what_salt_cannot_do_alone_is_no_failure_of_ours(why: str, ours: bool) -> None:
    assert program.is_ours(dataclasses.replace(PAIR, why=why)) is ours


def test_a_reason_is_the_last_error_that_is_named() -> None:
    assert reason("a\n  ValueError: first\nERROR: the last\n\nnotice: upgrade\n") == (
        "ERROR: the last"
    )
    assert reason("one\ntwo\n") == "two"
    assert reason(" \n") == "it says nothing"


def test_a_command_that_fails_or_does_not_end_is_told() -> None:
    failing = [sys.executable, "-c", "raise SystemExit('Error: nothing goes')"]
    with pytest.raises(Failed, match=r"^the wheel: Error: nothing goes$"):
        run(failing, 20, "the wheel")
    assert run([*failing[:2], "print(1); raise SystemExit(2)"], 20, fine=(0, 2)) == "1\n"
    with pytest.raises(Failed, match="no end after 0 s"):
        run([*failing[:2], "import signal; signal.pause()"], 0.2, "it")
