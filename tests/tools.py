"""Programs that tests write, and those from Debian; without one of these a test says so."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "packages.sh"
PACKAGES = dict(line.split() for line in SCRIPT.with_suffix(".txt").read_text().splitlines())
"""Program → Debian package. ``make test`` installs those that are missing."""


def script(path: Path, *lines: str) -> None:
    """Make a program of *lines* of shell."""
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)


def program(name: str) -> str:
    """The path of the program *name*, one of ``packages.txt``."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if found is None:
        pytest.fail(f"no {name} here: apt-get install {PACKAGES[name]} (all: tests/packages.sh)")
    return found
