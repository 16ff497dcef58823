"""
Builds wheel and sdist, checks them as an index does, compares them with git, and installs the wheel
into a fresh environment of each release of Salt on each Python that is here.

In each: Salt lists the extension, nothing else was installed with it, and after uninstalling Salt
works as before. The demo is run on the oldest and the newest pair. The last lines are the table of
docs/pythons.md. The exit status is 1 when the files are not to be published, or when a Salt that
runs by itself on a Python does not take the wheel there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lab.pythons import installed, text
from proving.dist import artifacts
from proving.dist.environments import CHECKOUT, Pair, attempt

SALTS = ("3006", "3007", "3008")
NOT_OURS = ("Salt ",)


def main(arguments: Sequence[str] | None = None) -> int:
    """The program; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m proving.dist", description=__doc__)
    parser.add_argument("--out", type=Path, default=CHECKOUT / "dist", help="where the files go")
    parser.add_argument(
        "--tools", type=Path, default=Path(sys.executable), help="a Python with build and twine"
    )
    parser.add_argument("--build-only", action="store_true", help="no environments")
    parser.add_argument("--demo", choices=("ends", "all", "none"), default="ends")
    parser.add_argument("--python", action="append", help="only this one, as 3.11; repeatable")
    parser.add_argument("--salt", action="append", choices=SALTS, help="only this; repeatable")
    options = parser.parse_args(arguments)
    try:
        made = artifacts.build(options.tools, CHECKOUT, options.out)
        artifacts.check(options.tools, made)
        artifacts.compare(made, artifacts.tracked(CHECKOUT))
    except artifacts.Unfit as exc:
        print(f"dist: {exc}", file=sys.stderr)
        return 1
    for file in (made.wheel, made.sdist):
        print(
            f"dist: {file.name}: {file.stat().st_size // 1024} KB, holds what git has", flush=True
        )
    if options.build_only:
        return 0
    pairs = pairs_of(options.python or (), options.salt or SALTS)
    if not pairs:
        parser.error("none of those Pythons is here")
    tried = [
        _tried(pair, made.wheel, options.demo == "all" or (options.demo == "ends" and end))
        for pair, end in pairs
    ]
    print(f"\n{table(tried)}")
    return 1 if any(is_ours(pair) for pair in tried) else 0


def pairs_of(pythons: Sequence[str], salts: Sequence[str]) -> list[tuple[Pair, bool]]:
    """Each Python that is here with each of *salts*; whether it is the oldest or newest pair."""
    found = {
        version: path
        for version, path in installed().items()
        if not pythons or text(version) in pythons
    }
    pairs = [Pair(version, path, salt) for version, path in sorted(found.items()) for salt in salts]
    return [(pair, number in (0, len(pairs) - 1)) for number, pair in enumerate(pairs)]


def _tried(pair: Pair, wheel: Path, demo: bool) -> Pair:
    with tempfile.TemporaryDirectory(prefix="ha-dist-") as folder:
        pair = attempt(pair, wheel, Path(folder) / "there", demo)
    print(f"dist: {pair.name}: {cell(pair)}", flush=True)
    return pair


def is_ours(pair: Pair) -> bool:
    """Whether this project has to mend what failed there."""
    return bool(pair.why) and not pair.why.startswith(NOT_OURS)


def cell(pair: Pair) -> str:
    """The result of *pair*, in a few words."""
    if pair.why:
        return f"**no**: {pair.why}"
    return f"{pair.installed}, and the demo" if pair.demo else pair.installed


def table(pairs: Sequence[Pair]) -> str:
    """The pairs as Markdown: a row for each Python, a column for each release of Salt."""
    salts = sorted({pair.salt for pair in pairs})
    cells = {(pair.python, pair.salt): cell(pair).replace("|", "\\|") for pair in pairs}
    rows = [["Python", *(f"Salt {salt}" for salt in salts)], ["---"] * (len(salts) + 1)]
    rows += [
        [text(python), *(cells[python, salt] for salt in salts)]
        for python in sorted({pair.python for pair in pairs})
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    sys.exit(main())
