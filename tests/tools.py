"""Programs from Debian that tests drive; without them a test fails, and says what to install."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

PACKAGES = Path(__file__).parent / "packages.txt"


def program(name: str, package: str) -> str:
    """The path of the program *name*, which the Debian package *package* brings along."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if found is None:
        pytest.fail(f"no {name} here: apt-get install {package} (all: tests/packages.sh)")
    return found
