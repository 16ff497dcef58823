"""A short run of torture, as make torture does it, and one on a product without a guard."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def torture(*arguments: str, limit: float = 880.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "proving.torture", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
    )


def test_short_histories_are_green_and_things_really_happened() -> None:
    # To make a failed history shorter takes longer than anybody waits for a test.
    done = torture("--histories", "6", "--seed", "77", "--no-shrink")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 histories, 6 green, 0 failed" in done.stdout
    assert done.stdout.startswith("Salt ")
    revoked = ("keys revoked by an engine", "caches to be cleared")
    once = ("runs by ha.once", "reactions to events", "events told in calm halves")
    for what in ("kill", "accept", "delete", "heal", "wipe", "keys held back", *revoked, *once):
        assert f"  {what}\n" in done.stdout, done.stdout


def test_a_product_that_revokes_without_rotating_fails() -> None:
    done = torture("--histories", "1", "--seed", "2", "--mutant", "rotation")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "I9" in done.stdout
    assert "  with Salt " in done.stdout
    assert "steps fail alike" not in done.stdout, "a mutant's history is not made shorter"
    assert "make torture HISTORIES=1 SEED=" in done.stdout
