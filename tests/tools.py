"""
What tests need of this machine: programs that they write, and those from Debian, without which they
fail; and IPv6, without which they are skipped.
"""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "packages.sh"
PACKAGES = dict(line.split() for line in SCRIPT.with_suffix(".txt").read_text().splitlines())
"""Program → Debian package. ``make test`` installs those that are missing."""


def has_ipv6() -> bool:
    """Whether a process can listen on ``::1``, which many a container lacks."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


IPV6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")


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
