"""What a contributor meets: release notes, sessions, workflows; the real programs run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
TARGETS = {*re.findall(r"^([a-z][\w-]*):", MAKEFILE, re.M)}
PROJECT = (ROOT / "pyproject.toml").read_text("utf-8")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PAGES = ("CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "changelog.d/README.md")


def targets(command: str) -> set[str]:
    """What a line of shell has make do."""
    words = command.split()
    assert words[0] == "make", command
    return {word for word in words[1:] if "=" not in word}


# -- release notes


def release(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "towncrier", "build", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The parts of a checkout that release notes are made of, and two fragments."""
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "changelog.d" / "42.added.md").write_text("`ha.fly` flies.\n")
    (tmp_path / "changelog.d" / "+wings.upgrade.md").write_text("Buy wings.\n")
    return tmp_path


def test_fragments_become_a_release_above_the_last(project: Path) -> None:
    before = (project / "CHANGELOG.md").read_text()
    release(project, "--yes", "--version", "9.9.9", "--date", "2030-01-02")
    after = (project / "CHANGELOG.md").read_text()
    head, _, rest = after.partition("## 9.9.9 (2030-01-02)\n")
    assert rest.index("### On upgrade") < rest.index("- Buy wings.")
    assert rest.index("- Buy wings.") < rest.index("### Added")
    assert rest.index("### Added") < rest.index("- `ha.fly` flies. ([#42]") < rest.index("## 0.1.0")
    assert before.startswith(head.rstrip())
    assert before[before.index("## 0.1.0") :] in after


def test_the_fragments_that_are_there_can_be_released() -> None:
    names = {path.name for path in (ROOT / "changelog.d").iterdir()} - {"README.md"}
    kinds = "|".join(re.findall(r'^directory = "(\w+)"$', PROJECT, re.M))
    assert all(re.fullmatch(rf"(\d+|\+[\w-]+)\.({kinds})(\.\d+)?\.md", name) for name in names)
    said = release(ROOT, "--draft", "--version", "next")
    for name in names:
        assert (ROOT / "changelog.d" / name).read_text("utf-8").split()[0] in said


# -- sessions and workflows


def test_sessions_of_nox_are_targets_of_make() -> None:
    called = re.findall(r'make\(session, "([^"]+)"', (ROOT / "noxfile.py").read_text("utf-8"))
    assert len(called) >= 6
    assert {*called} <= TARGETS


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_call_make_and_may_only_read(path: Path) -> None:
    """actionlint looks at the rest: ``make workflows``, a part of ``make lint``."""
    workflow: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    called: set[str] = set()
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] <= 120, name
        for step in job["steps"]:
            if step.get("run", "").startswith("make"):
                called |= targets(step["run"])
            if step.get("uses", "").startswith("actions/checkout"):
                # All commits: the version is made of them.
                assert step["with"] == {"fetch-depth": 0, "persist-credentials": False}
    assert called
    assert called <= TARGETS


def test_pythons_of_the_workflows_are_those_of_the_project() -> None:
    told = set(re.findall(r'"Programming Language :: Python :: (3\.\d+)"', PROJECT))
    tried = set(re.findall(r'python(?:-version)?: "(3\.\d+)"', (WORKFLOWS[-1]).read_text("utf-8")))
    assert told == tried == {"3.10", "3.11", "3.12", "3.13"}


# -- pages


@pytest.mark.parametrize("page", PAGES)
def test_links_of_the_pages_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    source = re.search(r'^Source = "(.+)"$', PROJECT, re.M)
    assert source
    for link in re.findall(r"\]\(([^)#]+)", text):
        if link.startswith("https://github.com/salt-ext"):
            assert link.startswith(source[1])
        elif not link.startswith("https:"):
            assert (ROOT / page).parent.joinpath(link).exists(), link


def test_targets_that_the_pages_name_are_there() -> None:
    for page in (*PAGES, "README.md", "docs/development.md"):
        text = (ROOT / page).read_text("utf-8")
        assert {*re.findall(r"(?:^|`)make ([a-z][\w-]+)", text, re.M)} <= TARGETS, page
