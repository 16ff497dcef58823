"""``python -m proving.hostile``: attack an engine through every door, print what became of it."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from lab.engines import quiet
from proving import harness
from proving.hostile import run
from proving.hostile.report import table
from proving.hostile.scene import scene as set_up


def main(argv: Sequence[str] | None = None) -> int:
    """Parse *argv*, attack, print; 1 when anything is not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m proving.hostile", description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000, help="through each door")
    parser.add_argument("--seed", type=int, default=1, help="the same seed: the same inputs")
    parser.add_argument("--keep-log", type=Path, metavar="FILE", help="the engine's log")
    parser.add_argument("--only", nargs="+", default=(), metavar="DOOR", help="as the table has it")
    parser.add_argument("--short", action="store_true", help="smaller floods")
    options = parser.parse_args(argv)
    quiet()
    harness.announce({**harness.machine(), "seed": f"{options.seed}\n"})
    # In memory, as the disk is not tested here: each accepted key would wait for it several times.
    with harness.folder_in_memory() as folder, set_up(Path(folder)) as scene:
        scene.only = tuple(options.only)
        run.every_door(scene, options.inputs, options.seed, options.short)
        run.look_after(scene)
        log = scene.target.log.read_text(errors="replace")
        if options.keep_log:
            options.keep_log.write_text(log)
    print(table(scene.rows, scene.quiet))
    print(f"\nthe log of the engine: {len(log)} bytes, {len(log.splitlines())} lines")
    for trouble, times in Counter(scene.troubles).items():
        print(f"TROUBLE, {times} times: {trouble}")
    return 1 if scene.troubles else 0


if __name__ == "__main__":
    sys.exit(main())
