"""The ports that tests give to what they start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lab import network

RANGE = (31100, 31200)  # of nobody else
OTHER = f"""
from lab import network
network.FIRST_PORT, network.LAST_PORT = {RANGE}
print(*(network.free_port() for _ in range(30)), flush=True)
input()
"""


def test_processes_side_by_side_are_given_different_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens on any of them yet."""
    for name, value in zip(("FIRST_PORT", "LAST_PORT"), RANGE, strict=True):
        monkeypatch.setattr(network, name, value)
    with subprocess.Popen(
        [sys.executable, "-c", OTHER],
        cwd=Path(__file__).parents[3],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout
        theirs = set(map(int, other.stdout.readline().split()))
        ours = {network.free_port() for _ in range(30)}
        other.communicate("\n")
    assert len(theirs) == len(ours) == 30
    assert not ours & theirs
