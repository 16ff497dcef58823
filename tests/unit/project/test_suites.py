"""What ``make salt-suites`` takes out of Salt's archive, and how it reads pytest's report."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from proving.suites.__main__ import REQUIREMENTS, SUITES, failures, unpack, verdict

REPORT = """<?xml version="1.0"?>
<testsuites><testsuite name="pytest">
<testcase classname="a" name="test_good" file="tests/a.py"/>
<testcase classname="a" name="test_skipped" file="tests/a.py"><skipped/></testcase>
<testcase classname="a" name="test_bad[1]" file="tests/a.py"><failure message="no"/></testcase>
<testcase classname="a" name="test_bad[1]" file="tests/a.py"><error message="teardown"/></testcase>
<testcase classname="b" name="test_broken" file="tests/b.py"><error message="setup"/></testcase>
</testsuite></testsuites>
"""


def archive(folder: Path, *names: str) -> Path:
    path = folder / "salt-1.tar.gz"
    with tarfile.open(path, "w:gz") as file:
        for name in names:
            member = tarfile.TarInfo(f"salt-1/{name}")
            file.addfile(member, io.BytesIO())
    return path


def test_failures_are_named_as_pytest_takes_them(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    assert failures(report) == ["tests/a.py::test_bad[1]", "tests/b.py::test_broken"]


def test_only_what_fails_with_ours_alone_counts() -> None:
    assert verdict("a", own=["a"], ours=[]) == "without ours, too"
    assert verdict("a", own=[], ours=["a"]) == "with ours only"
    assert "by itself" in verdict("a", own=[], ours=[])


def test_only_the_tests_are_unpacked(tmp_path: Path) -> None:
    wanted = [*(f"{suite}/test_x.py" for suite in SUITES), "tests/conftest.py", REQUIREMENTS]
    unpack(archive(tmp_path, *wanted, "salt/__init__.py", "setup.py"), tmp_path / "tree")
    tree = tmp_path / "tree"
    found = {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()}
    # With salt/ beside them, they would test that and not the one that is installed.
    assert found == set(wanted)


def test_an_archive_without_the_suites_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"has no .*scenarios/failover"):
        unpack(archive(tmp_path, "tests/conftest.py", REQUIREMENTS), tmp_path / "tree")
