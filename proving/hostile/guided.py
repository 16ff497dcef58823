"""
``python -m proving.hostile.guided``: what stands behind the doors, fuzzed where coverage leads.

``python -m proving.hostile`` sends what its generators think of. Here atheris (libFuzzer) sees
which lines of the engine an input reached, and goes on from those that reached new ones. Each door
is a process of its own. What goes wrong is written into ``--findings``, and can be repeated.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

from proving import harness

DOORS = {
    "records": "behind",
    "tokens": "behind",
    "names": "behind",
    "api": "behind",
    "peer": "inside",
    "strangers": "inside",
    "control": "inside",
    "status": "inside",
    "answers": "inside",
}
"""Name of the function that opens a door → its module, which is imported when it is needed."""
LONGEST = 16 * 1024
HANGS = 60  # seconds
HEAD = ("door", "inputs", "accepted", "edges: seeds", "at the end", "findings", "seconds")
EDGES = re.compile(r"cov: (\d+)")


@dataclass
class Tally:
    """The outcomes of the inputs of one door."""

    inputs: int = 0
    accepted: int = 0
    findings: dict[str, str] = field(default_factory=dict)
    """Where it went wrong → the file that has the input."""


def opened(name: str, folder: Path) -> AbstractContextManager[Any]:
    """The :class:`proving.hostile.behind.Door` of that *name*."""
    found: AbstractContextManager[Any] = getattr(
        import_module(f"proving.hostile.{DOORS[name]}"), name
    )(folder)
    return found


def place(error: BaseException) -> str:
    """The key of a finding, the same for equal ones: kind of error, and our last line before it."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/saltext_ha/" in f.filename]
    last = frames[-1] if frames else traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}, {last.name}"


def attack(name: str, inputs: int, seed: int, findings: Path) -> None:
    """Fuzz one door; ends this process."""
    try:
        import atheris
    except ImportError:
        sys.exit("this takes the package atheris: run  pip install 'saltext-ha[fuzz]'")
    with atheris.instrument_imports(include=["saltext_ha"]):
        import_module(f"proving.hostile.{DOORS[name]}")
    from proving.hostile.behind import bent

    tally = Tally()

    def mutate(data: bytes, longest: int, number: int) -> bytes:
        rng = Random(number)
        changed = bent(rng, data) if rng.random() < 0.75 else b""
        return changed if 0 < len(changed) <= longest else bytes(atheris.Mutate(data, longest))

    with (
        tempfile.TemporaryDirectory() as folder,  # the block never ends: the caller clears up
        opened(name, Path(folder)) as door,
    ):

        def take(data: bytes) -> None:
            tally.inputs += 1
            try:
                tally.accepted += door.take(data)
            except Exception as exc:
                note(exc, data)
            if tally.inputs == inputs:
                print(json.dumps(tally.__dict__), flush=True)

        def note(error: Exception, data: bytes) -> None:
            where = place(error)
            if where not in tally.findings:
                file = findings / f"{name}-{hashlib.sha256(data).hexdigest()[:8]}"
                file.write_bytes(data)
                tally.findings[where] = str(file)
                traceback.print_exception(error)

        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        for number, data in enumerate(door.seeds):
            (corpus / str(number)).write_bytes(data)
        options = {
            "runs": inputs,
            "seed": seed,
            "max_len": LONGEST,
            "len_control": 0,
            "mutate_depth": 1,  # an input that is bent at many places is refused at the first
            "timeout": HANGS,
            "rss_limit_mb": 2048,
            "artifact_prefix": f"{findings}/{name}-",
        }
        arguments = [f"-{key}={value}" for key, value in options.items()]
        atheris.Setup([sys.argv[0], str(corpus), *arguments], take, custom_mutator=mutate)
        atheris.Fuzz()


def row(name: str, inputs: int, seed: int, findings: Path) -> tuple[tuple[str, ...], Tally]:
    """Fuzz one door in a process of its own: its row of the table, and its tally."""
    began = time.monotonic()
    arguments = ["--child", name, "--inputs", str(inputs), "--seed", str(seed)]
    log = findings / f"{name}.log"
    with (
        harness.folder_in_memory() as folder,
        log.open("w") as errors,
    ):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "proving.hostile.guided",
                *arguments,
                "--findings",
                str(findings),
            ],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "TMPDIR": folder},
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    tally = Tally(**json.loads(lines[-1])) if lines else Tally()
    if done.returncode or not lines:
        tally.findings[f"ended with {done.returncode}"] = str(log)
    edges = EDGES.findall(log.read_text(errors="replace")) or ["-"]
    seconds = f"{time.monotonic() - began:.0f}"
    counts = (str(tally.inputs), str(tally.accepted), edges[0], edges[-1])
    return (name, *counts, str(len(tally.findings)), seconds), tally


def repeat(file: Path) -> None:
    """Give the input of a finding to its door once more, and let its error through."""
    with (
        harness.folder_in_memory() as folder,
        opened(file.name.partition("-")[0], Path(folder)) as door,
    ):
        print("accepted" if door.take(file.read_bytes()) else "refused")


def main(argv: Sequence[str] | None = None) -> int:
    """Parse *argv*, fuzz, print; 1 when there is a finding."""
    parser = argparse.ArgumentParser(prog="python -m proving.hostile.guided", description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000, help="for each door")
    parser.add_argument("--seed", type=int, default=1, help="of libFuzzer's choices")
    parser.add_argument("--only", nargs="+", default=tuple(DOORS), choices=tuple(DOORS))
    parser.add_argument("--findings", type=Path, default=Path(".fuzz"), help="folder")
    parser.add_argument("--repeat", type=Path, metavar="FILE", help="the input of a finding")
    parser.add_argument("--child", choices=tuple(DOORS), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.repeat:
        repeat(options.repeat)
        return 0
    findings = options.findings.resolve()
    findings.mkdir(parents=True, exist_ok=True)
    if options.child:
        attack(options.child, options.inputs, options.seed, findings)
    form = "{:10}" + "{:>13}" * (len(HEAD) - 1)
    print(form.format(*HEAD), flush=True)
    found: dict[str, str] = {}
    for name in options.only:
        cells, tally = row(name, options.inputs, options.seed, findings)
        print(form.format(*cells), flush=True)
        found |= {f"{name}: {where}": file for where, file in tally.findings.items()}
    for where, file in found.items():
        print(f"FINDING {where}: {os.path.relpath(file)}")
    if found:
        print("\nonce more, with its traceback: python -m proving.hostile.guided --repeat FILE")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
