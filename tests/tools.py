"""Programs from Debian that tests drive; without one a test fails, and says what to install."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "packages.sh"
PACKAGES = dict(line.split() for line in SCRIPT.with_suffix(".txt").read_text().splitlines())
"""Program → Debian package. ``make test`` installs those that are missing."""


def program(name: str) -> str:
    """The path of the program *name*, one of ``packages.txt``."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if found is None:
        pytest.fail(f"no {name} here: apt-get install {PACKAGES[name]} (all: tests/packages.sh)")
    return found
