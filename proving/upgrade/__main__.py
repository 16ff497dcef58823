"""
Three real masters: two of an earlier commit, one of this checkout. They become one group, change
keys, miss changes of each other, and then the two are upgraded, one after the other.

Prints each step when it holds. The exit status is 1 when one does not.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from lab import Lab
from proving import harness
from proving.dist.environments import CHECKOUT, INSTALL, Failed, run
from proving.upgrade.scene import Scene

CLONING = 120.0


def main(arguments: Sequence[str] | None = None) -> int:
    """The program; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m proving.upgrade", description=__doc__)
    parser.add_argument("before", help="the earlier commit, as git names it")
    options = parser.parse_args(arguments)
    harness.announce(harness.machine())
    with harness.folder() as folder:
        try:
            old = environments(Path(folder), options.before, 2)
            with Lab() as lab:
                for step in Scene(lab, old, upgrade).steps():
                    timed(step)
        except (AssertionError, Failed, RuntimeError, TimeoutError) as exc:
            print(f"upgrade: {exc}", file=sys.stderr)
            return 1
    return 0


def timed(step: Callable[[], None]) -> None:
    """Take *step*, and print its sentence."""
    began = time.monotonic()
    step()
    print(f"{time.monotonic() - began:6.1f} s  {step.__doc__}", flush=True)


def environments(folder: Path, commit: str, count: int) -> list[Path]:
    """
    Make *count* venvs in *folder* with this Salt and the project of *commit*; return their Pythons.
    """
    run(["git", "clone", "--quiet", str(CHECKOUT), str(folder / "before")], CLONING)
    run(["git", "-C", str(folder / "before"), "checkout", "--quiet", commit], CLONING)
    pythons = [folder / f"venv{number}" / "bin" / "python" for number in range(count)]
    for python in pythons:
        run([sys.executable, "-m", "venv", str(python.parents[1])], CLONING)
        pip(python, f"salt=={version('salt')}", str(folder / "before"))
    return pythons


def upgrade(python: Path) -> None:
    """Install this checkout there."""
    pip(python, "--upgrade", "--no-deps", str(CHECKOUT))


def pip(python: Path, *arguments: str) -> None:
    """``pip install ARGUMENTS``."""
    run([str(python), "-m", "pip", "install", "--quiet", *arguments], INSTALL, "pip")


if __name__ == "__main__":
    sys.exit(main())
